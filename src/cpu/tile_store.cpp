#include <algorithm>

#include "cpu/convert.hpp"
#include "cpu/packed_weight.hpp"
#include "cpu/tile_io.hpp"
#include "cpu/tile_places.hpp"

namespace tconv::cpu {

using std::int64_t;

namespace {

/// The positions of dimension d (tensor order, spatial) that a box of q owns.
Range owned(const Stepping& stepping, int d, int64_t q_begin, int64_t q_count, int64_t size) {
  const int64_t step = stepping.step[d], padding = stepping.padding[d];
  // In 128 bits: the end of the last q may lie a huge step beyond the tensor.
  const auto position = [&](int64_t q) {
    return int64_t(std::clamp<__int128>(__int128(q) * step - padding, 0, size));
  };
  return {position(q_begin), position(q_begin + q_count)};
}

template <class Compute>
struct Store {
  const SumTile<Compute>& tile;
  const PhaseSlots& slots;
  const Stepping& stepping;
  const Tiling& tiling;
  const Box& box;
  const Tensor& target;
  const RowKernels<Compute>& kernels = row_kernels<Compute>();
  const int64_t element = int64_t(size_of(target.dtype));
  const bool same_type = target.dtype == (sizeof(Compute) == 8 ? DType::f64 : DType::f32);

  // What all rows of the box have in common: the positions they own, and the q whose phases are all among them.
  const int64_t step = stepping.step[2];
  const int64_t q_begin = box.begin[3], q_count = box.extent[3];
  const Range owned_width = owned(stepping, 2, q_begin, q_count, target.sizes[4]);
  const int64_t whole_begin = whole_from();
  const int64_t whole_end = whole_to();

  mutable int64_t filled_for = -1;  // the channel whose bias the row buffer holds
  mutable PendingStream<Compute> pending{};

  int64_t whole_from() const {
    const Range first = phase_range(0, step, stepping.padding[2], target.sizes[4]);
    return std::clamp<int64_t>(first.begin - q_begin, 0, q_count);
  }
  int64_t whole_to() const {
    const Range last = phase_range(step - 1, step, stepping.padding[2], target.sizes[4]);
    return std::clamp<int64_t>(last.end - q_begin, whole_begin, q_count);
  }

  Compute bias(int64_t channel) const { return tile.bias ? tile.bias[channel] : Compute(0); }

  /// A finished piece of a row.
  void write(const Compute* row, int64_t count, char* out) const {
    if (same_type && tile.streaming)
      kernels.stream(pending, row, count, reinterpret_cast<Compute*>(out));
    else
      kernels.store(target.dtype, row, count, out);
  }

  /// Rows of the tensor that are contiguous, tile columns along the same dimension: interleave the phases.
  void rows(int64_t first_channel) const;
  /// One row of the tensor, whose sums begin at `column`; an outer phase of −1 has no taps.
  void row(int64_t channel, const std::array<int, 2>& outer_phase, int64_t column, char* out) const {
    rows_alike(channel, outer_phase, column, out, Stack{});
  }
  /// The same for several rows, whose outer phases are the same and have taps. Pitches are those of columns and of
  /// the tensor.
  void rows_alike(int64_t channel, const std::array<int, 2>& outer_phase, int64_t column, char* out,
                  const Stack& stack) const;

  /// Any strides: one phase at a time.
  void phases(int64_t first_channel) const;
  /// Tiles with the batch innermost, any strides: columns become samples again, all phases together.
  void samples(int64_t first_channel) const;
  void fill_without_taps(int64_t first_channel) const;
  void fill(int64_t first_channel) const;
};

template <class Compute>
void Store<Compute>::rows_alike(int64_t channel, const std::array<int, 2>& outer_phase, int64_t column, char* out,
                                const Stack& stack) const {
  const Range o = owned_width;
  if (o.size() == 0) return;
  const int64_t o_first = q_begin * step - stepping.padding[2];  // of the box, before clipping
  out += o.begin * element;

  Compute* filled = tile.row_buffer;                   // a row of bias, for phases without taps
  Compute* merged = tile.row_buffer + q_count * step;  // interleaved, before clipping and conversion
  const bool no_taps = outer_phase[0] < 0 || outer_phase[1] < 0;
  if ((no_taps || int64_t(slots.r(2).size()) < step) && (filled_for < 0 || bias(filled_for) != bias(channel))) {
    std::fill_n(filled, q_count * step, bias(channel));
    filled_for = channel;
  }
  if (no_taps) return write(filled, o.size(), out);

  const auto sums_of = [&](int width_phase) {
    const int64_t slot = slots.slot(outer_phase[0], outer_phase[1], width_phase);
    return tile.sums + (slot * tile.channels + channel) * tile.row_pitch + column;
  };
  const std::vector<int64_t>& r = slots.r(2);
  const Compute* sources[largest_interleave];
  std::fill_n(sources, step, filled);
  for (std::size_t i = 0; i < r.size(); ++i) sources[r[i]] = sums_of(int(i));

  if (!same_type || tile.streaming) {
    for (int64_t i = 0; i < stack.rows; ++i, out += stack.target_pitch * element) {
      const Compute* whole = sources[0];
      if (step > 1) kernels.interleave(sources, step, q_count, merged, Stack{}), whole = merged;
      write(whole + (o.begin - o_first), o.size(), out);
      for (int64_t phase = 0; phase < step; ++phase) sources[phase] += stack.source_pitch;
    }
    return;
  }
  // The same type: whole q go straight to the tensor, the clipped ones at the ends one by one.
  Compute* to = reinterpret_cast<Compute*>(out) - o.begin;
  const auto clipped = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      for (int64_t phase = 0; phase < step; ++phase) {
        const int64_t at = o_first + j * step + phase;
        if (at < o.begin || at >= o.end) continue;
        for (int64_t i = 0; i < stack.rows; ++i)
          to[i * stack.target_pitch + at] = sources[phase][i * stack.source_pitch + j];
      }
  };
  clipped(0, whole_begin);
  clipped(whole_end, q_count);
  for (int64_t phase = 0; phase < step; ++phase) sources[phase] += whole_begin;
  kernels.interleave(sources, step, whole_end - whole_begin, to + o_first + whole_begin * step, stack);
}

template <class Compute>
void Store<Compute>::rows(int64_t first_channel) const {
  char* base = static_cast<char*>(target.data);
  const int64_t height_step = stepping.step[1];
  const bool all_have_taps = int64_t(slots.r(1).size()) == height_step && int64_t(slots.r(2).size()) == step;
  // Streamed rows must follow each other as they do in memory; others go phase by phase along the height, which
  // takes short ones half the time.
  const bool stacked = !(same_type && tile.streaming) && all_have_taps && box.extent[2] > 1;
  for (int64_t channel = 0; channel < tile.channels; ++channel)
    for (int64_t n = 0; n < box.extent[0]; ++n)
      for (int64_t depth = 0; depth < box.extent[1]; ++depth) {
        const int64_t qd = box.begin[1] + depth;
        const Range od = owned(stepping, 0, qd, 1, target.sizes[2]);
        for (int64_t d = od.begin; d < od.end; ++d) {
          const int depth_phase = slots.index(0, d + stepping.padding[0] - qd * stepping.step[0]);
          char* const slice = base + ((box.begin[0] + n) * target.strides[0] +
                                      (first_channel + channel) * target.strides[1] + d * target.strides[2]) *
                                         element;
          const auto column = [&](int64_t height) {
            return n * tiling.column_stride(0) + depth * tiling.column_stride(1) +
                   height * tiling.column_stride(2);
          };
          if (stacked && depth_phase >= 0) {
            for (int64_t r = 0; r < height_step; ++r) {
              const Range all = phase_range(r, height_step, stepping.padding[1], target.sizes[3]);
              const int64_t first = std::max(all.begin, box.begin[2]),
                            last = std::min(all.end, box.begin[2] + box.extent[2]);
              if (first >= last) continue;
              const int64_t h = first * height_step + r - stepping.padding[1];
              rows_alike(channel, {depth_phase, slots.index(1, r)}, column(first - box.begin[2]),
                         slice + h * target.strides[3] * element,
                         Stack{.rows = last - first,
                               .source_pitch = tiling.column_stride(2),
                               .target_pitch = stepped_stride(height_step, target.sizes[3], target.strides[3])});
            }
            continue;
          }
          for (int64_t height = 0; height < box.extent[2]; ++height) {
            const int64_t qh = box.begin[2] + height;
            const Range oh = owned(stepping, 1, qh, 1, target.sizes[3]);
            for (int64_t h = oh.begin; h < oh.end; ++h) {
              const int height_phase = slots.index(1, h + stepping.padding[1] - qh * height_step);
              row(channel, {depth_phase, height_phase}, column(height), slice + h * target.strides[3] * element);
            }
          }
        }
      }
}

template <class Compute>
void Store<Compute>::fill(int64_t first_channel) const {
  // Owned positions in tensor order; the batch is a dimension like the others.
  std::array<Range, 4> o;
  for (int d = 0; d < 4; ++d) {
    const int dim = tiling.dim[d];
    o[dim] = dim == batch_dim ? Range{box.begin[d], box.begin[d] + box.extent[d]}
                              : owned(stepping, dim - 1, box.begin[d], box.extent[d], target.sizes[dim + 1]);
  }
  with_storage<Compute>(target.dtype, [&](auto storage) {
    using Storage = decltype(storage);
    for (int64_t channel = 0; channel < tile.channels; ++channel) {
      const Storage value = demote<Storage>(bias(channel));
      Storage* to = static_cast<Storage*>(target.data) + (first_channel + channel) * target.strides[1];
      for (int64_t n = o[0].begin; n < o[0].end; ++n)
        for (int64_t d = o[1].begin; d < o[1].end; ++d)
          for (int64_t h = o[2].begin; h < o[2].end; ++h)
            for (int64_t w = o[3].begin; w < o[3].end; ++w)
              to[n * target.strides[0] + d * target.strides[2] + h * target.strides[3] + w * target.strides[4]] =
                  value;
    }
  });
}

template <class Compute>
void Store<Compute>::fill_without_taps(int64_t first_channel) const {
  for (int d = 0; d < 3; ++d)
    if (int64_t(slots.r(d).size()) < stepping.step[d]) return fill(first_channel);
}

template <class Compute>
void Store<Compute>::samples(int64_t first_channel) const {
  fill_without_taps(first_channel);
  // The q of each phase that the box owns, by dimension (tensor order, spatial).
  const auto owned_q = [&](int d, std::size_t i) {
    const Range q = phase_range(slots.r(d)[i], stepping.step[d], stepping.padding[d], target.sizes[d + 2]);
    const int64_t begin = box.begin[d], end = begin + box.extent[d];
    return Range{std::clamp(q.begin, begin, end), std::clamp(q.end, begin, end)};
  };
  int64_t places = 1;
  for (int d = 0; d < 3; ++d) {
    int64_t count = 0;
    for (std::size_t i = 0; i < slots.r(d).size(); ++i) count += owned_q(d, i).size();
    places *= count;
  }
  const int64_t channel_stride = target.strides[1];
  char* const data = static_cast<char*>(target.data) +
                     (box.begin[3] * target.strides[0] + first_channel * channel_stride) * element;
  move_places(
      Repeats{
          .count = tile.channels, .tensor_step = channel_stride, .tile_step = tile.row_pitch, .places = places},
      target.strides[0], box.extent[3],
      [&](auto& list, int64_t to, int64_t from) {
        std::array<std::size_t, 3> i;
        std::array<int64_t, 3> q;
        for (i[0] = 0; i[0] < slots.r(0).size(); ++i[0])
          for (i[1] = 0; i[1] < slots.r(1).size(); ++i[1])
            for (i[2] = 0; i[2] < slots.r(2).size(); ++i[2]) {
              const int64_t slot = slots.slot(int(i[0]), int(i[1]), int(i[2]));
              const std::array<Range, 3> all{owned_q(0, i[0]), owned_q(1, i[1]), owned_q(2, i[2])};
              for (q[0] = all[0].begin; q[0] < all[0].end; ++q[0])
                for (q[1] = all[1].begin; q[1] < all[1].end; ++q[1])
                  for (q[2] = all[2].begin; q[2] < all[2].end; ++q[2]) {
                    int64_t at = to, column = from + slot * tile.channels * tile.row_pitch;
                    for (int d = 0; d < 3; ++d) {
                      const int64_t r = slots.r(d)[i[std::size_t(d)]];
                      at +=
                          (q[std::size_t(d)] * stepping.step[d] + r - stepping.padding[d]) * target.strides[d + 2];
                      column += (q[std::size_t(d)] - box.begin[d]) * tiling.column_stride(d);
                    }
                    list.add(at, column);
                  }
            }
      },
      [&](const Transposition& t, int64_t to, int64_t from) {
        place_kernels<Compute>().store(t, target.dtype, tile.sums + from, data + to * element);
      });
}

template <class Compute>
void Store<Compute>::phases(int64_t first_channel) const {
  fill_without_taps(first_channel);
  std::array<int64_t, 5> stride, pitch;  // 0 to 3: tile dimensions, 4: channels
  for (int d = 0; d < 4; ++d) {
    const int dim = tiling.dim[d];
    stride[d] = dim == batch_dim
                    ? target.strides[0]
                    : stepped_stride(stepping.step[dim - 1], target.sizes[dim + 1], target.strides[dim + 1]);
    pitch[d] = tiling.column_stride(d);
  }
  stride[4] = target.strides[1], pitch[4] = tile.row_pitch;
  int dense = 4;
  for (int d = 0; d < 3; ++d)
    if (box.extent[d] > 1 && magnitude(stride[d]) < magnitude(stride[dense])) dense = d;

  std::array<std::size_t, 3> i;
  for (i[0] = 0; i[0] < slots.r(0).size(); ++i[0])
    for (i[1] = 0; i[1] < slots.r(1).size(); ++i[1])
      for (i[2] = 0; i[2] < slots.r(2).size(); ++i[2]) {
        const Compute* from =
            tile.sums + slots.slot(int(i[0]), int(i[1]), int(i[2])) * tile.channels * tile.row_pitch;
        int64_t offset = first_channel * stride[4];
        std::array<int64_t, 5> count;
        count[4] = tile.channels;
        bool any = true;
        for (int d = 0; d < 4; ++d) {
          const int dim = tiling.dim[d];
          int64_t begin = box.begin[d], end = begin + box.extent[d];
          if (dim == batch_dim) {
            offset += begin * target.strides[0];
          } else {
            const int64_t r = slots.r(dim - 1)[i[std::size_t(dim - 1)]];
            const Range q =
                phase_range(r, stepping.step[dim - 1], stepping.padding[dim - 1], target.sizes[dim + 1]);
            begin = std::max(begin, q.begin);
            end = std::min(end, q.end);
            any = any && begin < end;
            if (!any) break;
            offset += (begin * stepping.step[dim - 1] + r - stepping.padding[dim - 1]) * target.strides[dim + 1];
          }
          count[d] = end - begin;
          from += (begin - box.begin[d]) * pitch[d];
        }
        if (!any) continue;
        // Rows that follow one another in the tensor and among the sums are one.
        int64_t dense_count = count[dense];
        const int64_t row_count = count[3];
        count[dense] = count[3] = 1;
        for (int d = dense - 1; dense < 3 && d >= 0; --d) {
          if (stride[d] != dense_count * stride[dense] || pitch[d] != dense_count * pitch[dense]) break;
          dense_count *= count[d], count[d] = 1;
        }
        std::array<int64_t, 5> e;
        for (e[4] = 0; e[4] < count[4]; ++e[4])
          for (e[0] = 0; e[0] < count[0]; ++e[0])
            for (e[1] = 0; e[1] < count[1]; ++e[1])
              for (e[2] = 0; e[2] < count[2]; ++e[2]) {
                int64_t at = offset, column = 0;
                for (int d : {0, 1, 2, 4}) {
                  at += e[d] * stride[d];
                  column += e[d] * pitch[d];
                }
                kernels.store_transposed(target.dtype, from + column, pitch[dense], row_count, dense_count,
                                         static_cast<char*>(target.data) + at * element, stride[3], stride[dense]);
              }
      }
}

}  // namespace

PhaseSlots::PhaseSlots(const Convolution& conv) {
  for (const PhaseClass& c : conv.classes)
    for (const TargetPhase& phase : c.phases)
      for (int d = 0; d < 3; ++d) r_[d].push_back(phase.r[d]);
  for (auto& r : r_) {
    std::sort(r.begin(), r.end());
    r.erase(std::unique(r.begin(), r.end()), r.end());
  }
  slots_.assign(r_[0].size() * r_[1].size() * r_[2].size(), -1);
  int64_t slot = 0;
  for (const PhaseClass& c : conv.classes)
    for (const TargetPhase& phase : c.phases) {
      const std::size_t depth = std::size_t(index(0, phase.r[0])), height = std::size_t(index(1, phase.r[1]));
      slots_[(depth * r_[1].size() + height) * r_[2].size() + std::size_t(index(2, phase.r[2]))] = slot++;
    }
}

int PhaseSlots::index(int d, int64_t r) const {
  const auto found = std::lower_bound(r_[d].begin(), r_[d].end(), r);
  return found != r_[d].end() && *found == r ? int(found - r_[d].begin()) : -1;
}

int64_t row_buffer_elements(const Stepping& stepping, const Tiling& tiling) {
  return tiling.extent[3] * std::min(stepping.step[2], largest_interleave) * 2;
}

template <class Compute>
void store_box(const SumTile<Compute>& tile, const PhaseSlots& slots, const Stepping& stepping,
               const Tiling& tiling, const Box& box, int64_t first_channel, const Tensor& target) {
  const Store<Compute> store{tile, slots, stepping, tiling, box, target};
  const bool contiguous_rows = tiling.dim[3] == 3 && (target.strides[4] == 1 || target.sizes[4] == 1) &&
                               stepping.step[2] <= largest_interleave;
  if (tiling.dim[3] == batch_dim) {
    store.samples(first_channel);
  } else if (contiguous_rows) {
    store.rows(first_channel);
    if (tile.streaming) store.kernels.end_stream(store.pending);
  } else {
    store.phases(first_channel);
  }
}

template void store_box<float>(const SumTile<float>&, const PhaseSlots&, const Stepping&, const Tiling&,
                               const Box&, int64_t, const Tensor&);
template void store_box<double>(const SumTile<double>&, const PhaseSlots&, const Stepping&, const Tiling&,
                                const Box&, int64_t, const Tensor&);

}  // namespace tconv::cpu
