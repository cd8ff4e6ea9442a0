#include <algorithm>
#include <span>

#include "cpu/packed_weight.hpp"
#include "cpu/tile_io.hpp"
#include "cpu/tile_places.hpp"

namespace tconv::cpu {

using std::int64_t;

std::array<Range, 4> plane_ranges(const PlaneView& view) {
  std::array<Range, 4> ranges;
  ranges[batch_dim] = {0, view.tensor->sizes[0]};
  for (int d = 0; d < 3; ++d)
    ranges[d + 1] =
        phase_range(view.r[d], view.stepping->step[d], view.stepping->padding[d], view.tensor->sizes[d + 2]);
  return ranges;
}

namespace {

/// A plane and a box in numbers: everything in tile order.
struct LoadPlan {
  std::array<int64_t, 4> extent;       // of the widened box
  std::array<int64_t, 4> valid_begin;  // real elements, relative to the widened box
  std::array<int64_t, 4> valid_end;
  std::array<int64_t, 4> stride;  // in the tensor, from one q to the next
  std::array<int64_t, 4> pitch;   // in the tile
  std::array<bool, 4> pads;       // whether padding must be there as zeros
  int64_t origin = 0;             // tensor offset of the first real element of channel 0
  bool any = true;                // there are real elements
  bool padded = false;            // there are zeros that a kernel may read

  int64_t valid(int d) const { return valid_end[d] - valid_begin[d]; }
  bool inside(int d, int64_t e) const { return e >= valid_begin[d] && e < valid_end[d]; }
};

LoadPlan plan_load(const PlaneView& view, const Tiling& tiling, const Box& box, Fill fill) {
  LoadPlan plan;
  const std::array<Range, 4> ranges = plane_ranges(view);
  for (int d = 0; d < 4; ++d) {
    const int dim = tiling.dim[d];
    const int64_t q0 = box.begin[d] + tiling.lowest_offset[d];
    plan.extent[d] = box.extent[d] + tiling.reach[d];
    int64_t begin = std::max(ranges[dim].begin, q0);
    int64_t end = std::min(ranges[dim].end, q0 + plan.extent[d]);
    if (fill == Fill::box_only) {
      begin = std::max(begin, box.begin[d]);
      end = std::min(end, box.begin[d] + box.extent[d]);
    }
    plan.any = plan.any && begin < end;
    plan.valid_begin[d] = begin - q0;
    plan.valid_end[d] = end - q0;
    plan.pitch[d] = tiling.pitch[d];
    plan.pads[d] = d >= tiling.run_from || !tiling.skips_padding;
    plan.padded = plan.padded || (plan.valid(d) != plan.extent[d] && plan.pads[d]);
    const int tensor_dim = dim == batch_dim ? 0 : dim + 1;
    const int64_t size = view.tensor->sizes[tensor_dim], stride = view.tensor->strides[tensor_dim];
    const int64_t step = dim == batch_dim ? 1 : view.stepping->step[dim - 1];
    plan.stride[d] = stepped_stride(step, size, stride);
    if (begin >= end) continue;
    const int64_t start =
        dim == batch_dim ? begin : begin * step + view.r[dim - 1] - view.stepping->padding[dim - 1];
    plan.origin += start * stride;
  }
  return plan;
}

/// Makes one row of rows that follow one another both in the tensor and in the tile: kernels of one tap have no
/// halo between them, and a copy of a whole image costs little more than one of its rows.
void join_rows(LoadPlan& plan) {
  for (int joined = 0; joined < 3; ++joined) {
    const int64_t length = plan.extent[3];
    const bool whole = plan.valid(3) == length && plan.valid(2) == plan.extent[2];
    const bool follow = plan.pitch[2] == length && plan.stride[2] == length * plan.stride[3];
    if (!whole || !(follow || plan.extent[2] == 1)) return;
    plan.extent[3] = plan.valid_end[3] = length * plan.extent[2];
    for (int d = 2; d > 0; --d) {
      plan.extent[d] = plan.extent[d - 1], plan.pitch[d] = plan.pitch[d - 1], plan.stride[d] = plan.stride[d - 1];
      plan.valid_begin[d] = plan.valid_begin[d - 1], plan.valid_end[d] = plan.valid_end[d - 1];
      plan.pads[d] = plan.pads[d - 1];
    }
    plan.extent[0] = plan.valid_end[0] = 1, plan.valid_begin[0] = 0;
  }
}

template <class Compute>
void zero_channels(const Tiling& tiling, int64_t channels, Compute* tile, int64_t channel_pitch) {
  for (int64_t c = 0; c < channels; ++c) std::fill_n(tile + c * channel_pitch, tiling.plane_elements, Compute(0));
}

/// The dimension along which the tensor is densest; 4 stands for the channels.
int densest_dimension(const LoadPlan& plan, int64_t channel_stride, int64_t channels) {
  int best = 3;
  int64_t smallest = plan.valid(3) > 1 ? magnitude(plan.stride[3]) : INT64_MAX;
  for (int d = 0; d < 3; ++d)
    if (plan.valid(d) > 1 && magnitude(plan.stride[d]) < smallest) smallest = magnitude(plan.stride[best = d]);
  if (channels > 1 && magnitude(channel_stride) < smallest) best = 4;
  return best;
}

/// Asks for the lines of a stack of rows: they are too short and too far apart for the hardware to see them
/// coming.
void prefetch_rows(const char* row, int64_t rows, int64_t row_bytes, int64_t length) {
  constexpr int64_t line = 64;
  for (int64_t r = 0; r < rows; ++r, row += row_bytes)
    for (int64_t at = 0; at < length; at += line) __builtin_prefetch(row + at, 0, 2);
}

/// The channels of a tensor that are loaded, and what follows them.
struct ChannelRange {
  const char* first;  // the first real element of the first channel
  int64_t element;    // bytes
  int64_t stride;
  int64_t count;
  int64_t left;  // in the tensor, from the first one on: the next ones are likely to be loaded next
};

/// Goes through the stacks of rows (tile dimensions 2 and 3) of all channels: calls load(at, offset) where a
/// stack's real rows begin in the tile and in the tensor, and zero(at, rows) for rows of padding.
template <class Zero, class Load>
void for_each_stack(const LoadPlan& plan, const ChannelRange& channels, int64_t channel_pitch, const Zero& zero,
                    const Load& load) {
  constexpr int64_t lookahead_bytes = 4096;
  const int64_t row_length = plan.valid(3) * plan.stride[3] * channels.element;
  const int64_t channel_bytes = plan.valid(0) * plan.valid(1) * plan.valid(2) * row_length;
  const int64_t ahead = ceil_div(lookahead_bytes, std::clamp<int64_t>(channel_bytes, 256, lookahead_bytes));
  for (int64_t c = 0; c < channels.count; ++c)
    for (int64_t e0 = 0; e0 < plan.extent[0]; ++e0)
      for (int64_t e1 = 0; e1 < plan.extent[1]; ++e1) {
        const int64_t at = c * channel_pitch + e0 * plan.pitch[0] + e1 * plan.pitch[1];
        if (!plan.inside(0, e0) || !plan.inside(1, e1)) {
          if (plan.padded) zero(at, plan.extent[2]);
          continue;
        }
        const int64_t offset = c * channels.stride + (e0 - plan.valid_begin[0]) * plan.stride[0] +
                               (e1 - plan.valid_begin[1]) * plan.stride[1];
        if (channels.count > 1 && c + ahead < channels.left)
          prefetch_rows(channels.first + (offset + ahead * channels.stride) * channels.element, plan.valid(2),
                        plan.stride[2] * channels.element, row_length);
        if (plan.pads[2]) zero(at, plan.valid_begin[2]);
        load(at + plan.valid_begin[2] * plan.pitch[2], offset);
        if (plan.pads[2]) zero(at + plan.valid_end[2] * plan.pitch[2], plan.extent[2] - plan.valid_end[2]);
      }
}

template <class Compute>
void zero_rows(Compute* rows, int64_t count, int64_t pitch, int64_t length) {
  for (int64_t row = 0; row < count; ++row) std::fill_n(rows + row * pitch, length, Compute(0));
}

/// The places that planes of a box have in one channel of one sample: calls add(tensor, plane, position).
template <class Add>
void for_each_place(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                    const Tiling& tiling, const Box& box, Fill fill, const Add& add) {
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const LoadPlan plan = plan_load(PlaneView{&tensor, &stepping, planes[i]}, tiling, box, fill);
    if (!plan.any) continue;
    std::array<int64_t, 3> e;
    for (e[0] = plan.valid_begin[0]; e[0] < plan.valid_end[0]; ++e[0])
      for (e[1] = plan.valid_begin[1]; e[1] < plan.valid_end[1]; ++e[1])
        for (e[2] = plan.valid_begin[2]; e[2] < plan.valid_end[2]; ++e[2]) {
          int64_t from = plan.origin, position = 0;
          for (std::size_t d = 0; d < 3; ++d) {
            from += (e[d] - plan.valid_begin[d]) * plan.stride[d];
            position += e[d] * plan.pitch[d];
          }
          add(from, int64_t(i), position);
        }
  }
}

/// How many places those are, after zero(plane) for every plane with padding that a kernel may read.
template <class Zero>
int64_t count_places(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                     const Tiling& tiling, const Box& box, Fill fill, const Zero& zero) {
  int64_t count = 0;
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const LoadPlan plan = plan_load(PlaneView{&tensor, &stepping, planes[i]}, tiling, box, fill);
    if (plan.padded) zero(int64_t(i));
    if (plan.any) count += plan.valid(0) * plan.valid(1) * plan.valid(2);
  }
  return count;
}

/// Planes of a tile with the batch innermost: samples are rows of the tensor, as long as what the box has of them,
/// and become columns of the tile.
template <class Compute>
void load_samples(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                  const Tiling& tiling, const Box& box, Fill fill, int64_t first_channel, int64_t channels,
                  Compute* tile, int64_t plane_pitch, int64_t channel_pitch) {
  const int64_t places = count_places(tensor, stepping, planes, tiling, box, fill, [&](int64_t plane) {
    zero_channels(tiling, channels, tile + plane * plane_pitch, channel_pitch);
  });
  const int64_t element = int64_t(size_of(tensor.dtype)), channel_stride = tensor.strides[1];
  const char* const source = static_cast<const char*>(tensor.data) + first_channel * channel_stride * element;
  move_places(
      Repeats{.count = channels, .tensor_step = channel_stride, .tile_step = channel_pitch, .places = places},
      tensor.strides[0], box.extent[3],
      [&](const auto& add, int64_t from, int64_t to) {
        for_each_place(tensor, stepping, planes, tiling, box, fill,
                       [&](int64_t at, int64_t plane, int64_t position) {
                         add(from + at, to + plane * plane_pitch + position);
                       });
      },
      [&](const Transposition& t, int64_t from, int64_t to) {
        place_kernels<Compute>().load(t, tensor.dtype, source + from * element, tile + to);
      });
}

}  // namespace

template <class Compute>
void load_plane(const PlaneView& view, const Tiling& tiling, const Box& box, Fill fill, int64_t first_channel,
                int64_t channels, Compute* tile, int64_t channel_pitch) {
  if (tiling.dim[3] == batch_dim)
    return load_samples(*view.tensor, *view.stepping, std::span(&view.r, 1), tiling, box, fill, first_channel,
                        channels, tile, 0, channel_pitch);
  LoadPlan plan = plan_load(view, tiling, box, fill);
  if (!plan.any) {
    if (plan.padded) zero_channels(tiling, channels, tile, channel_pitch);
    return;
  }

  const RowKernels<Compute>& kernels = row_kernels<Compute>();
  const DType dtype = view.tensor->dtype;
  const int64_t element = int64_t(size_of(dtype));
  const int64_t channel_stride = view.tensor->strides[1];
  const char* source =
      static_cast<const char*>(view.tensor->data) + (plan.origin + first_channel * channel_stride) * element;
  const int densest = densest_dimension(plan, channel_stride, channels);

  if (densest == 3) {
    join_rows(plan);
    const int64_t left = plan.valid_begin[3], right = plan.extent[3] - plan.valid_end[3];
    for_each_stack(
        plan, ChannelRange{source, element, channel_stride, channels, view.tensor->sizes[1] - first_channel},
        channel_pitch,
        [&](int64_t at, int64_t rows) { zero_rows(tile + at, rows, plan.pitch[2], plan.extent[3]); },
        [&](int64_t at, int64_t offset) {
          kernels.load_rows(dtype, source + offset * element, plan.stride[2], plan.stride[3], plan.valid(2), left,
                            plan.valid(3), right, tile + at, plan.pitch[2]);
        });
    return;
  }

  // The tensor is dense along another dimension than the tile: transpose the two, loop over the rest.
  if (plan.padded) zero_channels(tiling, channels, tile, channel_pitch);
  std::array<int64_t, 5> count, stride, pitch;
  for (int d = 0; d < 4; ++d) {
    count[d] = plan.valid(d);
    stride[d] = plan.stride[d];
    pitch[d] = plan.pitch[d];
    tile += plan.valid_begin[d] * pitch[d];
  }
  count[4] = channels, stride[4] = channel_stride, pitch[4] = channel_pitch;
  const int64_t dense_count = count[densest], row_count = count[3];
  count[densest] = count[3] = 1;
  std::array<int64_t, 5> e;
  for (e[4] = 0; e[4] < count[4]; ++e[4])
    for (e[0] = 0; e[0] < count[0]; ++e[0])
      for (e[1] = 0; e[1] < count[1]; ++e[1])
        for (e[2] = 0; e[2] < count[2]; ++e[2]) {
          int64_t offset = 0, at = 0;
          for (int d : {0, 1, 2, 4}) {
            offset += e[d] * stride[d];
            at += e[d] * pitch[d];
          }
          kernels.load_transposed(dtype, source + offset * element, stride[3], stride[densest], row_count,
                                  dense_count, tile + at, pitch[densest]);
        }
}

namespace {

/// Planes that differ in their phase along the width alone, of a tensor whose rows are contiguous. Returns whether
/// it could: each plane must meet real elements.
template <class Compute>
bool load_row_phases(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                     const Tiling& tiling, const Box& box, int64_t first_channel, int64_t channels, Compute* tile,
                     int64_t plane_pitch, int64_t channel_pitch) {
  std::array<Range, largest_interleave> valid;  // of each plane along the width
  LoadPlan plan = plan_load(PlaneView{&tensor, &stepping, planes[0]}, tiling, box, Fill::widened);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const LoadPlan one = plan_load(PlaneView{&tensor, &stepping, planes[i]}, tiling, box, Fill::widened);
    if (!one.any) return false;
    valid[i] = {one.valid_begin[3], one.valid_end[3]};
    plan.padded = plan.padded || one.padded;
  }

  // The q with all their phases in the tensor are separated together, those at the rims plane by plane.
  const int64_t step = stepping.step[2], padding = stepping.padding[2], extent = plan.extent[3];
  const int64_t q0 = box.begin[3] + tiling.lowest_offset[3];
  const auto in_tile = [&](int64_t q) { return std::clamp<int64_t>(q - q0, 0, extent); };
  const int64_t whole_begin = in_tile(phase_range(0, step, padding, tensor.sizes[4]).begin);
  const int64_t whole_end =
      std::max(whole_begin, in_tile(phase_range(step - 1, step, padding, tensor.sizes[4]).end));

  const RowKernels<Compute>& kernels = row_kernels<Compute>();
  const int64_t element = int64_t(size_of(tensor.dtype));
  // The plan counts from where the first plane's real elements begin, the phases from where the row does.
  const int64_t first_begin = (q0 + valid[0].begin) * step + planes[0][2] - padding;
  const char* rows_begin = static_cast<const char*>(tensor.data) +
                           (plan.origin - first_begin + first_channel * tensor.strides[1]) * element;
  const auto zero = [&](int64_t at, int64_t rows) {
    for (std::size_t i = 0; i < planes.size(); ++i)
      zero_rows(tile + int64_t(i) * plane_pitch + at, rows, tiling.pitch[2], extent);
  };
  std::array<Compute*, largest_interleave> targets{};  // of phases that no plane has, null
  const auto load = [&](int64_t at, int64_t offset) {
    /// Positions [begin, end) of one plane, with the zeros among them.
    const auto part = [&](std::size_t i, int64_t begin, int64_t end) {
      if (begin >= end) return;
      const int64_t from = std::clamp(valid[i].begin, begin, end), to = std::clamp(valid[i].end, from, end);
      const char* source = rows_begin + (offset + (q0 + from) * step + planes[i][2] - padding) * element;
      kernels.load_rows(tensor.dtype, source, plan.stride[2], step, plan.valid(2), from - begin, to - from,
                        end - to, tile + int64_t(i) * plane_pitch + at + begin, tiling.pitch[2]);
    };
    // Of two phases each is picked out about as fast as both are separated, and rims are calls of their own.
    const bool whole = whole_begin == 0 && whole_end == extent;
    if (whole_begin == whole_end || (step == 2 && !whole)) {
      for (std::size_t i = 0; i < planes.size(); ++i) part(i, 0, extent);
      return;
    }
    for (std::size_t i = 0; i < planes.size(); ++i)
      targets[std::size_t(planes[i][2])] = tile + int64_t(i) * plane_pitch + at + whole_begin;
    kernels.load_phases(tensor.dtype, rows_begin + (offset + (q0 + whole_begin) * step - padding) * element,
                        plan.stride[2], step, plan.valid(2), whole_end - whole_begin, targets.data(),
                        tiling.pitch[2]);
    for (std::size_t i = 0; i < planes.size(); ++i) {
      part(i, 0, whole_begin);
      part(i, whole_end, extent);
    }
  };
  for_each_stack(plan,
                 ChannelRange{rows_begin + first_begin * element, element, tensor.strides[1], channels,
                              tensor.sizes[1] - first_channel},
                 channel_pitch, zero, load);
  return true;
}

}  // namespace

template <class Compute>
void load_planes(const ConstTensor& tensor, const Stepping& stepping, const std::vector<Extents>& planes,
                 const Tiling& tiling, const Box& box, int64_t first_channel, int64_t channels, Compute* tile,
                 int64_t plane_pitch, int64_t channel_pitch) {
  if (tiling.dim[3] == batch_dim)
    return load_samples<Compute>(tensor, stepping, planes, tiling, box, Fill::widened, first_channel, channels,
                                 tile, plane_pitch, channel_pitch);
  const bool rows = tensor.strides[4] == 1 && stepping.step[2] <= largest_interleave;
  for (std::size_t first = 0, last; first < planes.size(); first = last) {
    for (last = first + 1; last < planes.size(); ++last)
      if (planes[last][0] != planes[first][0] || planes[last][1] != planes[first][1]) break;
    const std::span<const Extents> group(planes.data() + first, last - first);
    Compute* to = tile + int64_t(first) * plane_pitch;
    if (rows && group.size() > 1 &&
        load_row_phases(tensor, stepping, group, tiling, box, first_channel, channels, to, plane_pitch,
                        channel_pitch))
      continue;
    for (std::size_t i = 0; i < group.size(); ++i)
      load_plane(PlaneView{&tensor, &stepping, group[i]}, tiling, box, Fill::widened, first_channel, channels,
                 to + int64_t(i) * plane_pitch, channel_pitch);
  }
}

template <class Compute>
void load_positions(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                    const Tiling& tiling, const Box& box, Fill fill, int64_t first_channel, int64_t channels,
                    Compute* tile, int64_t plane_pitch, int64_t position_pitch) {
  const int64_t places = count_places(tensor, stepping, planes, tiling, box, fill, [&](int64_t plane) {
    zero_rows(tile + plane * plane_pitch, tiling.plane_elements, position_pitch, channels);
  });
  const int64_t element = int64_t(size_of(tensor.dtype)), channel_stride = tensor.strides[1];
  const char* const source = static_cast<const char*>(tensor.data) + first_channel * channel_stride * element;
  move_places(
      Repeats{
          .count = box.extent[3], .tensor_step = tensor.strides[0], .tile_step = position_pitch, .places = places},
      channel_stride, channels,
      [&](const auto& add, int64_t from, int64_t to) {
        for_each_place(tensor, stepping, planes, tiling, box, fill,
                       [&](int64_t at, int64_t plane, int64_t position) {
                         add(from + at, to + plane * plane_pitch + position * position_pitch);
                       });
      },
      [&](const Transposition& t, int64_t from, int64_t to) {
        place_kernels<Compute>().load(t, tensor.dtype, source + from * element, tile + to);
      });
}

template void load_plane<float>(const PlaneView&, const Tiling&, const Box&, Fill, int64_t, int64_t, float*,
                                int64_t);
template void load_plane<double>(const PlaneView&, const Tiling&, const Box&, Fill, int64_t, int64_t, double*,
                                 int64_t);

template void load_planes<float>(const ConstTensor&, const Stepping&, const std::vector<Extents>&, const Tiling&,
                                 const Box&, int64_t, int64_t, float*, int64_t, int64_t);
template void load_planes<double>(const ConstTensor&, const Stepping&, const std::vector<Extents>&, const Tiling&,
                                  const Box&, int64_t, int64_t, double*, int64_t, int64_t);

template void load_positions<float>(const ConstTensor&, const Stepping&, std::span<const Extents>, const Tiling&,
                                    const Box&, Fill, int64_t, int64_t, float*, int64_t, int64_t);
template void load_positions<double>(const ConstTensor&, const Stepping&, std::span<const Extents>, const Tiling&,
                                     const Box&, Fill, int64_t, int64_t, double*, int64_t, int64_t);

}  // namespace tconv::cpu
