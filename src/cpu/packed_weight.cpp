#include "cpu/packed_weight.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "cpu/convert.hpp"
#include "cpu/operand.hpp"

namespace tconv::cpu {

using std::int64_t;

namespace {

/// How many channels of source a tile may have where taps reach so far in three dimensions that most of its source
/// is beyond its own positions: as many as leave room, in half the cache, for a tile of a thousand positions.
int64_t channels_of_far_taps(const Convolution& conv, int64_t cache_elements) {
  Reach reach;
  for (const PhaseClass& phase_class : conv.classes)
    for (const SharedTap& tap : phase_class.taps) reach.include(tap.offset);
  constexpr std::array<double, 3> tile{8, 8, 16};
  double positions = 1, widened = 1;  // which dilations may take beyond any integer
  for (std::size_t d = 0; d < 3; ++d) {
    const double beyond = double(reach.highest[d]) - double(reach.lowest[d]);
    if (beyond == 0) return std::numeric_limits<int64_t>::max();
    positions *= tile[d], widened *= tile[d] + beyond;
  }
  if (widened < 4 * positions) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(8, int64_t(double(cache_elements) / 2 / (widened * double(conv.planes.size()))));
}

}  // namespace

PackedWeight::PackedWeight(const Convolution& conv, int panel_rows, int64_t cache_bytes, int64_t element_bytes,
                           int operand_channels)
    : conv_(&conv), panel_rows_(panel_rows), sum_channels_(ceil_div(conv.sum_channels, operand_channels)) {
  // The source lines that one tap of a register tile reads, about four a channel, stay in the first-level
  // cache until the next tap reads most of them again.
  const int64_t channels_in_first_level = 512 / element_bytes;
  sum_blocks_ = ceil_div(
      sum_channels_, std::min(channels_in_first_level, channels_of_far_taps(conv, cache_bytes / element_bytes)));

  // A row block is large enough to reuse a loaded tile of source many times, and small enough that its sums at
  // a few hundred positions stay in the second-level cache. Its weights need not: a tile reads them once.
  const int64_t rows = std::max<int64_t>(panel_rows, cache_bytes / 4 / (512 * element_bytes));
  const int64_t channels = std::clamp<int64_t>(rows / conv.phase_count(), 1, conv.row_channels);
  row_blocks_ = ceil_div(conv.row_channels, channels);
}

int64_t PackedWeight::piece_offset(int64_t group, int64_t row_block, int64_t sum_block) const {
  const Span rows = this->row_block(row_block);
  return conv_->tap_count() * (sum_channels_ * (group * conv_->row_channels + rows.begin) +
                               rows.size() * this->sum_block(sum_block).begin);
}

int64_t PackedWeight::class_offset(int64_t row_block, int64_t sum_block, std::size_t class_index) const {
  int64_t taps_before = 0;  // per row and sum channel, of earlier classes
  for (std::size_t c = 0; c < class_index; ++c)
    taps_before += int64_t(conv_->classes[c].phases.size() * conv_->classes[c].taps.size());
  return this->row_block(row_block).size() * this->sum_block(sum_block).size() * taps_before;
}

int64_t PackedWeight::elements() const {
  return conv_->groups * conv_->row_channels * sum_channels_ * conv_->tap_count();
}

namespace {

/// The operand of a weight and, where it is a pair, of the next sum channel's, if there is one.
template <class Operand, class Storage>
Operand operand_of(const Storage* weight, int64_t sum_stride, bool has_next) {
  if constexpr (OperandTraits<Operand>::channels == 1)
    return promote<Operand>(*weight);
  else
    return {std::uint32_t(weight->bits) | (has_next ? std::uint32_t(weight[sum_stride].bits) << 16 : 0)};
}

/// Calls f(Storage()) with the storage type of a dtype whose products are made of such operands.
template <class Operand, class F>
void with_operand_storage(DType dtype, const F& f) {
  if constexpr (OperandTraits<Operand>::channels == 1)
    with_storage<Operand>(dtype, f);
  else
    f(BFloat16());
}

}  // namespace

template <class Operand>
void pack_piece(const Convolution& conv, const PackedWeight& layout, const ConstTensor& weight, int64_t group,
                int64_t row_block, int64_t sum_block, Operand* packed) {
  constexpr int64_t parts = OperandTraits<Operand>::channels;
  const Span channels = layout.row_block(row_block);
  const int64_t row_stride = weight.strides[conv.rows_are_outputs ? 1 : 0];
  const int64_t sum_stride = weight.strides[conv.rows_are_outputs ? 0 : 1];
  // In-channels are numbered through all groups, out-channels within their group.
  const int64_t group_offset =
      group * (conv.rows_are_outputs ? conv.sum_channels : conv.row_channels) * weight.strides[0];
  // Strides of dimensions of size 1 are never stepped along.
  const auto follows = [&](int d, int64_t distance) {
    return weight.sizes[d] == 1 || weight.strides[d] == distance;
  };
  const bool contiguous_taps =
      follows(4, 1) && follows(3, weight.sizes[4]) && follows(2, weight.sizes[3] * weight.sizes[4]);
  const auto tap_offset = [&](int64_t k) {
    if (contiguous_taps) return k;
    const int64_t plane = weight.sizes[3] * weight.sizes[4];
    return k / plane * weight.strides[2] + k / weight.sizes[4] % weight.sizes[3] * weight.strides[3] +
           k % weight.sizes[4] * weight.strides[4];
  };

  with_operand_storage<Operand>(weight.dtype, [&](auto storage) {
    using Storage = decltype(storage);
    const Storage* from = static_cast<const Storage*>(weight.data) + group_offset + channels.begin * row_stride;
    // A few sum channels at a time: what they hold for this block is a few lines of the weight, read once and
    // picked apart in the first-level cache, and what is written of them is a few whole lines.
    const Span sums = layout.sum_block(sum_block);
    constexpr int64_t group_of_sums = 8;
    for (int64_t first = 0; first < sums.size(); first += group_of_sums) {
      const int64_t last = std::min(first + group_of_sums, sums.size());
      for (std::size_t c = 0; c < conv.classes.size(); ++c) {
        const PhaseClass& phase_class = conv.classes[c];
        const int64_t taps = int64_t(phase_class.taps.size());
        const int64_t rows = int64_t(phase_class.phases.size()) * channels.size();
        Operand* to = packed + layout.class_offset(row_block, sum_block, c);
        for (int64_t p = 0; p < layout.panels(rows); ++p) {
          const Span panel = layout.panel(rows, p);
          for (int64_t row = panel.begin; row < panel.end;) {
            // Rows of one phase are neighbouring channels.
            const std::vector<int64_t>& k = phase_class.phases[std::size_t(row / channels.size())].k;
            const int64_t channel = row % channels.size();
            const int64_t count = std::min(panel.end - row, channels.size() - channel);
            for (int64_t tap = 0; tap < taps; ++tap) {
              const Storage* element = from + channel * row_stride + tap_offset(k[std::size_t(tap)]);
              Operand* slot = to + (panel.begin * taps + tap * panel.size()) * sums.size() + (row - panel.begin);
              for (int64_t i = first; i < last; ++i) {
                const int64_t sum = (sums.begin + i) * parts;
                const bool has_next = sum + 1 < conv.sum_channels;
                for (int64_t j = 0; j < count; ++j)
                  slot[i * panel.size() + j] =
                      operand_of<Operand>(element + sum * sum_stride + j * row_stride, sum_stride, has_next);
              }
            }
            row += count;
          }
        }
      }
    }
  });
}

template void pack_piece<float>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t, int64_t,
                                int64_t, float*);
template void pack_piece<double>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t, int64_t,
                                 int64_t, double*);
template void pack_piece<BFloat16Pair>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t,
                                       int64_t, int64_t, BFloat16Pair*);

}  // namespace tconv::cpu
