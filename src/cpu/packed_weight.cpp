#include "cpu/packed_weight.hpp"

#include <algorithm>

#include "cpu/convert.hpp"

namespace tconv::cpu {

using std::int64_t;

PackedWeight::PackedWeight(const Convolution& conv, int panel_rows, int64_t cache_bytes, int64_t element_bytes)
    : conv_(&conv), panel_rows_(panel_rows) {
  int64_t most_taps = 1;
  for (const PhaseClass& c : conv.classes) most_taps = std::max<int64_t>(most_taps, int64_t(c.taps.size()));

  // A sum block is long enough to pay for loading and storing the sums, and short enough that the source
  // lines one register tile reads stay in the first-level cache.
  constexpr int64_t steps_per_sum_block = 384;
  sum_blocks_ =
      std::clamp<int64_t>(ceil_div(conv.sum_channels * most_taps, steps_per_sum_block), 1, conv.sum_channels);

  // A row block reuses a tile of source for many rows, while its sums (256 positions of each row) and its
  // weights each take at most a quarter and a half of the second-level cache.
  const int64_t rows_by_sums = cache_bytes / 4 / (256 * element_bytes);
  const int64_t weights_per_row = std::max<int64_t>(1, conv.sum_channels * conv.tap_count() / conv.phase_count());
  const int64_t rows_by_weights = std::max<int64_t>(64, cache_bytes / 2 / (weights_per_row * element_bytes));
  const int64_t rows = std::max<int64_t>(panel_rows, std::min(rows_by_sums, rows_by_weights));
  const int64_t channels = std::clamp<int64_t>(rows / conv.phase_count(), 1, conv.row_channels);
  row_blocks_ = ceil_div(conv.row_channels, channels);
}

int64_t PackedWeight::offset(int64_t group, int64_t row_block, std::size_t class_index, int64_t sum_block) const {
  const Span rows = this->row_block(row_block);
  int64_t taps_before = 0;  // per row channel, of earlier classes
  for (std::size_t c = 0; c < class_index; ++c)
    taps_before += int64_t(conv_->classes[c].phases.size() * conv_->classes[c].taps.size());
  const PhaseClass& current = conv_->classes[class_index];
  const int64_t taps_here = int64_t(current.phases.size() * current.taps.size());
  return conv_->tap_count() * conv_->sum_channels * (group * conv_->row_channels + rows.begin) +
         rows.size() * (taps_before * conv_->sum_channels + taps_here * this->sum_block(sum_block).begin);
}

int64_t PackedWeight::elements() const {
  return conv_->groups * conv_->row_channels * conv_->sum_channels * conv_->tap_count();
}

template <class Compute>
void pack_block(const Convolution& conv, const PackedWeight& layout, const ConstTensor& weight, int64_t group,
                int64_t row_block, Compute* packed) {
  const Span channels = layout.row_block(row_block);
  const int64_t row_stride = weight.strides[conv.rows_are_outputs ? 1 : 0];
  const int64_t sum_stride = weight.strides[conv.rows_are_outputs ? 0 : 1];
  // In-channels are numbered through all groups, out-channels within their group.
  const int64_t group_offset =
      group * (conv.rows_are_outputs ? conv.sum_channels : conv.row_channels) * weight.strides[0];
  const auto tap_offset = [&](int64_t k) {
    const int64_t plane = weight.sizes[3] * weight.sizes[4];
    return k / plane * weight.strides[2] + k / weight.sizes[4] % weight.sizes[3] * weight.strides[3] +
           k % weight.sizes[4] * weight.strides[4];
  };

  with_storage<Compute>(weight.dtype, [&](auto storage) {
    using Storage = decltype(storage);
    const Storage* from = static_cast<const Storage*>(weight.data) + group_offset;
    for (std::size_t c = 0; c < conv.classes.size(); ++c) {
      const PhaseClass& phase_class = conv.classes[c];
      const int64_t rows = int64_t(phase_class.phases.size()) * channels.size();
      for (int64_t s = 0; s < layout.sum_blocks(); ++s) {
        const Span sums = layout.sum_block(s);
        Compute* to = packed + layout.offset(group, row_block, c, s);
        for (int64_t p = 0; p < layout.panels(rows); ++p) {
          const Span panel = layout.panel(rows, p);
          for (std::size_t tap = 0; tap < phase_class.taps.size(); ++tap) {
            for (int64_t row = panel.begin; row < panel.end; ++row) {
              const TargetPhase& phase = phase_class.phases[std::size_t(row / channels.size())];
              const int64_t channel = channels.begin + row % channels.size();
              const Storage* element =
                  from + channel * row_stride + tap_offset(phase.k[tap]) + sums.begin * sum_stride;
              Compute* slot = to + (row - panel.begin);
              for (int64_t i = 0; i < sums.size(); ++i)
                slot[i * panel.size()] = promote<Compute>(element[i * sum_stride]);
            }
            to += sums.size() * panel.size();
          }
        }
      }
    }
  });
}

template void pack_block<float>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t, int64_t,
                                float*);
template void pack_block<double>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t, int64_t,
                                 double*);

}  // namespace tconv::cpu
