#include "cpu/packed_weight.hpp"

#include <algorithm>

#include "cpu/convert.hpp"
#include "cpu/kernels/bf16_pairs.hpp"
#include "cpu/kernels/rows.hpp"

namespace tconv::cpu {

using std::int64_t;

PackedWeight::PackedWeight(const Convolution& conv, int panel_rows, int64_t cache_bytes, int64_t element_bytes,
                           int operand_channels)
    : conv_(&conv), panel_rows_(panel_rows), sum_channels_(ceil_div(conv.sum_channels, operand_channels)) {
  // The source lines that one tap of a register tile reads, about four a channel, stay in the first-level
  // cache until the next tap reads most of them again.
  const int64_t channels_in_first_level = 512 / element_bytes;
  sum_blocks_ = ceil_div(sum_channels_, channels_in_first_level);

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

/// A weight seen by a convolution: where the rows of a group begin, and how far channels are apart.
struct WeightView {
  WeightView(const Convolution& conv, const ConstTensor& tensor, int64_t group, int64_t first_channel)
      : weight(tensor),
        row_stride(tensor.strides[conv.rows_are_outputs ? 1 : 0]),
        sum_stride(tensor.strides[conv.rows_are_outputs ? 0 : 1]),
        // In-channels are numbered through all groups, out-channels within their group.
        origin(group * (conv.rows_are_outputs ? conv.sum_channels : conv.row_channels) * tensor.strides[0] +
               first_channel * row_stride),
        contiguous_taps(follows(4, 1) && follows(3, tensor.sizes[4]) &&
                        follows(2, tensor.sizes[3] * tensor.sizes[4])) {}
  int64_t taps() const { return weight.sizes[2] * weight.sizes[3] * weight.sizes[4]; }

  const ConstTensor& weight;
  int64_t row_stride, sum_stride, origin;
  bool contiguous_taps;

 private:
  /// Strides of dimensions of size 1 are never stepped along.
  bool follows(int dim, int64_t distance) const {
    return weight.sizes[std::size_t(dim)] == 1 || weight.strides[std::size_t(dim)] == distance;
  }
};

/// Any weight, element by element. A few sum channels at a time: what they hold for a block is a few lines of the
/// weight, read once and picked apart in the first-level cache, and what is written of them is a few whole lines.
template <class Operand>
void pack_elements(const Convolution& conv, const PackedWeight& layout, const WeightView& view, int64_t row_block,
                   int64_t sum_block, Operand* packed) {
  constexpr int64_t operand_channels = OperandTraits<Operand>::channels;
  const ConstTensor& weight = view.weight;
  const Span channels = layout.row_block(row_block);
  const int64_t row_stride = view.row_stride, sum_stride = view.sum_stride;
  const auto tap_offset = [&](int64_t k) {
    if (view.contiguous_taps) return k;
    const int64_t plane = weight.sizes[3] * weight.sizes[4];
    return k / plane * weight.strides[2] + k / weight.sizes[4] % weight.sizes[3] * weight.strides[3] +
           k % weight.sizes[4] * weight.strides[4];
  };

  with_operand_storage<Operand>(weight.dtype, [&](auto storage) {
    using Storage = decltype(storage);
    const Storage* from = static_cast<const Storage*>(weight.data) + view.origin;
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
                const int64_t sum = (sums.begin + i) * operand_channels;
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

/// Sum channels that are transposed together: what is written of them is several lines in a row.
constexpr int64_t transposed_sums = 16;
constexpr int64_t most_transposed = 4096;  // weights of them, in the first-level cache
constexpr int64_t least_taps = 8;          // of fewer, single elements are as fast

/// Whether panels are whole, of one phase each, and taps contiguous.
bool can_transpose(const PackedWeight& layout, const WeightView& view, int64_t channels) {
  return view.contiguous_taps && view.taps() >= least_taps && channels % layout.panel_rows() == 0 &&
         transposed_sums * layout.panel_rows() * view.taps() <= most_transposed;
}

/// The weights of a panel's channels are transposed by vectors, from [channel][tap] to [tap][channel]: there the
/// rows of a panel lie together.
template <class Operand>
void pack_transposed(const Convolution& conv, const PackedWeight& layout, const WeightView& view,
                     int64_t row_block, int64_t sum_block, Operand* packed) {
  using Single = SumOf<Operand>;
  constexpr int parts = OperandTraits<Operand>::channels;
  const int64_t channels = layout.row_block(row_block).size(), rows = layout.panel_rows(), all_taps = view.taps();
  const int64_t element = int64_t(size_of(view.weight.dtype));
  const RowKernels<Single>& kernels = row_kernels<Single>();
  alignas(64) Operand transposed[most_transposed];  // [sum channel][tap][channel of the panel]
  alignas(64) Single singles[parts > 1 ? parts : 1][parts > 1 ? most_transposed / transposed_sums : 1];
  const auto transpose = [&](int64_t sum, int64_t channel, Operand* to) {
    const auto load = [&](int64_t of_sum, Single* target) {
      const int64_t from = view.origin + of_sum * view.sum_stride + channel * view.row_stride;
      kernels.load_transposed(view.weight.dtype, static_cast<const char*>(view.weight.data) + from * element,
                              view.row_stride, 1, rows, all_taps, target, rows);
    };
    if constexpr (parts == 1) {
      load(sum, to);
    } else {
      const bool has_next = sum + 1 < conv.sum_channels;
      load(sum, singles[0]);
      if (has_next) load(sum + 1, singles[1]);
      join_pairs(singles[0], has_next ? singles[1] : nullptr, rows * all_taps, to);
    }
  };

  const Span sums = layout.sum_block(sum_block);
  for (int64_t channel = 0; channel < channels; channel += rows)
    for (int64_t first = 0; first < sums.size(); first += transposed_sums) {
      const int64_t count = std::min(transposed_sums, sums.size() - first);
      for (int64_t i = 0; i < count; ++i)
        transpose((sums.begin + first + i) * parts, channel, transposed + i * rows * all_taps);
      for (std::size_t c = 0; c < conv.classes.size(); ++c) {
        const PhaseClass& phase_class = conv.classes[c];
        const int64_t taps = int64_t(phase_class.taps.size());
        Operand* const of_class = packed + layout.class_offset(row_block, sum_block, c);
        for (std::size_t phase = 0; phase < phase_class.phases.size(); ++phase)
          for (int64_t tap = 0; tap < taps; ++tap) {
            const Operand* from = transposed + phase_class.phases[phase].k[std::size_t(tap)] * rows;
            Operand* to = of_class + ((int64_t(phase) * channels + channel) * taps + tap * rows) * sums.size() +
                          first * rows;
            for (int64_t i = 0; i < count; ++i, from += rows * all_taps, to += rows) std::copy_n(from, rows, to);
          }
      }
    }
}

}  // namespace

template <class Operand>
void pack_piece(const Convolution& conv, const PackedWeight& layout, const ConstTensor& weight, int64_t group,
                int64_t row_block, int64_t sum_block, Operand* packed) {
  const Span channels = layout.row_block(row_block);
  const WeightView view(conv, weight, group, channels.begin);
  const auto pack =
      can_transpose(layout, view, channels.size()) ? pack_transposed<Operand> : pack_elements<Operand>;
  pack(conv, layout, view, row_block, sum_block, packed);
}

template void pack_piece<float>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t, int64_t,
                                int64_t, float*);
template void pack_piece<double>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t, int64_t,
                                 int64_t, double*);
template void pack_piece<BFloat16Pair>(const Convolution&, const PackedWeight&, const ConstTensor&, int64_t,
                                       int64_t, int64_t, BFloat16Pair*);

}  // namespace tconv::cpu
