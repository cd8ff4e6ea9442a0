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
      [&](auto& list, int64_t from, int64_t to) {
        for_each_place(tensor, stepping, planes, tiling, box, fill,
                       [&](int64_t at, int64_t plane, int64_t position) {
                         list.add(from + at, to + plane * plane_pitch + position);
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

/// Planes that differ in their phase along the width alone, of a tensor whose rows are contiguous: each row is
/// read once, for all of them.
template <class Compute>
void load_row_phases(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                     const Tiling& tiling, const Box& box, int64_t first_channel, int64_t channels, Compute* tile,
                     int64_t plane_pitch, int64_t channel_pitch) {
  const LoadPlan plan = plan_load(PlaneView{&tensor, &stepping, planes[0]}, tiling, box, Fill::widened);
  // The row of all phases, from that of the first position on, and the part of it that the tensor has.
  const int64_t step = stepping.step[2], padding = stepping.padding[2], extent = plan.extent[3];
  const int64_t q0 = box.begin[3] + tiling.lowest_offset[3];
  const int64_t row_begin = q0 * step - padding, size = tensor.sizes[4];
  const int64_t begin = std::clamp<int64_t>(row_begin, 0, size);
  const int64_t end = std::clamp<int64_t>(row_begin + extent * step, begin, size);
  const int64_t left = std::clamp<int64_t>(-row_begin, 0, extent * step),
                right = extent * step - left - (end - begin);
  const auto zero = [&](int64_t at, int64_t rows) {
    for (std::size_t i = 0; i < planes.size(); ++i)
      zero_rows(tile + int64_t(i) * plane_pitch + at, rows, tiling.pitch[2], extent);
  };
  if (begin == end || plan.valid(0) <= 0 || plan.valid(1) <= 0 || plan.valid(2) <= 0) {
    if (plan.padded || begin == end)
      for (std::size_t i = 0; i < planes.size(); ++i)
        zero_channels(tiling, channels, tile + int64_t(i) * plane_pitch, channel_pitch);
    return;
  }

  const RowKernels<Compute>& kernels = row_kernels<Compute>();
  const int64_t element = int64_t(size_of(tensor.dtype));
  // The plan's first element is the first plane's, if that has any here.
  const int64_t planned = plan.valid(3) > 0 ? (q0 + plan.valid_begin[3]) * step + planes[0][2] - padding : 0;
  const char* const source = static_cast<const char*>(tensor.data) +
                             (plan.origin - planned + begin + first_channel * tensor.strides[1]) * element;
  std::array<Compute*, largest_interleave> targets{};  // of phases that no plane has, null
  for_each_stack(plan, ChannelRange{source, element, tensor.strides[1], channels, tensor.sizes[1] - first_channel},
                 channel_pitch, zero, [&](int64_t at, int64_t offset) {
                   for (std::size_t i = 0; i < planes.size(); ++i)
                     targets[std::size_t(planes[i][2])] = tile + int64_t(i) * plane_pitch + at;
                   kernels.load_phases(tensor.dtype, source + offset * element, plan.stride[2], step,
                                       plan.valid(2), left, end - begin, right, targets.data(), tiling.pitch[2]);
                 });
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
    // Where most phases have no plane, rows are read for each of those that have.
    if (rows && group.size() > 1 && 4 * int64_t(group.size()) > stepping.step[2]) {
      load_row_phases(tensor, stepping, group, tiling, box, first_channel, channels, to, plane_pitch,
                      channel_pitch);
      continue;
    }
    for (std::size_t i = 0; i < group.size(); ++i)
      load_plane(PlaneView{&tensor, &stepping, group[i]}, tiling, box, Fill::widened, first_channel, channels,
                 to + int64_t(i) * plane_pitch, channel_pitch);
  }
}

namespace {

/// Calls zero(position, count) for the positions of a plane that are padding, in rows.
template <class Zero>
void for_each_padding(const LoadPlan& plan, const Zero& zero) {
  if (!plan.padded) return;
  std::array<int64_t, 3> e;
  const auto goes_over = [&](int d) { return plan.pads[std::size_t(d)] || plan.inside(d, e[std::size_t(d)]); };
  for (e[0] = 0; e[0] < plan.extent[0]; ++e[0])
    for (e[1] = 0; e[1] < plan.extent[1]; ++e[1])
      for (e[2] = 0; e[2] < plan.extent[2]; ++e[2]) {
        if (!goes_over(0) || !goes_over(1) || !goes_over(2)) continue;
        const int64_t row = e[0] * plan.pitch[0] + e[1] * plan.pitch[1] + e[2] * plan.pitch[2];
        if (plan.any && plan.inside(0, e[0]) && plan.inside(1, e[1]) && plan.inside(2, e[2])) {
          zero(row, plan.valid_begin[3]);
          zero(row + plan.valid_end[3], plan.extent[3] - plan.valid_end[3]);
        } else {
          zero(row, plan.extent[3]);
        }
      }
}

/// A spatial dimension of a box: its positions, as far as any phase of theirs is an element, and where these are.
struct BoxDimension {
  int64_t begin, end;
  int64_t q0;     // of the widened box
  int64_t pitch;  // in the tile
  int64_t step, padding;
  int64_t size, stride;  // of the tensor

  /// The element of a phase of a position; none where it is not below `size`.
  std::uint64_t element(int64_t q, int64_t r) const { return std::uint64_t(q * step + r - padding); }
  bool has(std::uint64_t element) const { return element < std::uint64_t(size); }
};

BoxDimension box_dimension(const ConstTensor& tensor, const Stepping& stepping, const Tiling& tiling,
                           const Box& box, Fill fill, std::size_t d) {
  const std::size_t t =
      std::size_t(std::find(tiling.dim.begin(), tiling.dim.end(), int(d) + 1) - tiling.dim.begin());
  BoxDimension dim{.begin = box.begin[t],
                   .end = box.begin[t] + box.extent[t],
                   .q0 = box.begin[t] + tiling.lowest_offset[t],
                   .pitch = tiling.pitch[t],
                   .step = stepping.step[d],
                   .padding = stepping.padding[d],
                   .size = tensor.sizes[d + 2],
                   .stride = tensor.strides[d + 2]};
  if (fill == Fill::widened) dim.begin = dim.q0, dim.end = dim.q0 + box.extent[t] + tiling.reach[t];
  dim.begin = std::max(dim.begin, phase_range(dim.step - 1, dim.step, dim.padding, dim.size).begin);
  dim.end = std::min(dim.end, phase_range(0, dim.step, dim.padding, dim.size).end);
  return dim;
}

/// The planes from `first` on that share their phases in the dimensions up to d.
std::size_t end_of_group(std::span<const Extents> planes, std::size_t first, std::size_t d) {
  std::size_t end = first + 1;
  while (end < planes.size() &&
         std::equal(planes[end].begin(), planes[end].begin() + std::ptrdiff_t(d) + 1, planes[first].begin()))
    ++end;
  return end;
}

/// Lists everything that a sample has in a box, elements counted from `tensor` and places from `tile`, mostly in
/// the order of a dense tensor.
template <class List>
void list_elements(const std::array<BoxDimension, 3>& dims, std::span<const Extents> planes,
                   int64_t plane_elements, List& list, int64_t tensor, int64_t tile) {
  const auto& [depth, height, width] = dims;
  for (int64_t d = depth.begin; d < depth.end; ++d)
    for (std::size_t of_depth = 0, depth_end; of_depth < planes.size(); of_depth = depth_end) {
      depth_end = end_of_group(planes, of_depth, 0);
      const std::uint64_t slice = depth.element(d, planes[of_depth][0]);
      if (!depth.has(slice)) continue;
      for (int64_t h = height.begin; h < height.end; ++h)
        for (std::size_t first = of_depth, end; first < depth_end; first = end) {
          end = std::min(end_of_group(planes, first, 1), depth_end);
          const std::uint64_t row = height.element(h, planes[first][1]);
          if (!height.has(row)) continue;
          const int64_t from = tensor + int64_t(slice) * depth.stride + int64_t(row) * height.stride;
          const int64_t to = tile + (d - depth.q0) * depth.pitch + (h - height.q0) * height.pitch;
          // Phase by phase, position by position; what moves on is added to, not multiplied again.
          const Extents *const row_planes = planes.data() + first, *const row_end = planes.data() + end;
          list.add_all([=, w = width.begin, plane = row_planes, origin = width.begin * width.step - width.padding,
                        position = to + (width.begin - width.q0) * width.pitch + int64_t(first) * plane_elements,
                        slot = int64_t(0)](Place& place) mutable {
            for (; w < width.end; ++w, origin += width.step, position += width.pitch, plane = row_planes, slot = 0)
              while (plane != row_end) {
                const std::uint64_t element = std::uint64_t(origin + (*plane++)[2]);
                const int64_t of = slot;
                slot += plane_elements;
                if (!width.has(element)) continue;
                place = {from + int64_t(element) * width.stride, position + of};
                return true;
              }
            return false;
          });
        }
    }
}

}  // namespace

template <class Compute>
void load_positions(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                    const Tiling& tiling, const Box& box, Fill fill, const ChannelBlocks<Compute>& target) {
  const int64_t whole_unit = int64_t(planes.size()) * tiling.plane_elements * target.unit;
  for (std::size_t plane = 0; plane < planes.size(); ++plane)
    for_each_padding(plan_load(PlaneView{&tensor, &stepping, planes[plane]}, tiling, box, fill),
                     [&](int64_t position, int64_t count) {
                       position += int64_t(plane) * tiling.plane_elements;
                       for (int64_t block = 0; block < target.blocks; ++block) {
                         const Span units = target.units(block);
                         const int64_t pitch = units.size() * target.unit;
                         std::fill_n(target.tile + units.begin * whole_unit + position * pitch, count * pitch,
                                     Compute(0));
                       }
                     });

  std::array<BoxDimension, 3> dims;
  double places = double(planes.size());  // at most
  for (std::size_t d = 0; d < 3; ++d) {
    dims[d] = box_dimension(tensor, stepping, tiling, box, fill, d);
    if (dims[d].begin >= dims[d].end) return;
    places *= double(dims[d].end - dims[d].begin);
  }
  const std::size_t batch =
      std::size_t(std::find(tiling.dim.begin(), tiling.dim.end(), batch_dim) - tiling.dim.begin());
  const int64_t element = int64_t(size_of(tensor.dtype)), channel_stride = tensor.strides[1];
  const char* const source =
      static_cast<const char*>(tensor.data) +
      (box.begin[batch] * tensor.strides[0] + target.first_channel * channel_stride) * element;
  move_places(
      Repeats{.count = box.extent[batch],
              .tensor_step = tensor.strides[0],
              .tile_step = tiling.pitch[batch],
              .places = int64_t(places)},
      channel_stride, target.channels,
      [&](auto& list, int64_t from, int64_t to) {
        list_elements(dims, planes, tiling.plane_elements, list, from, to);
      },
      [&](const Transposition& listed, int64_t from, int64_t to) {
        for (int64_t block = 0; block < target.blocks; ++block) {
          const Span units = target.units(block);
          const int64_t first = units.begin * target.unit,
                        last = std::min(units.end * target.unit, target.channels);
          Transposition t = listed;
          t.count = last - first, t.tile_pitch = units.size() * target.unit;
          place_kernels<Compute>().load(t, tensor.dtype, source + (from + first * channel_stride) * element,
                                        target.tile + units.begin * whole_unit + to * t.tile_pitch);
        }
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

template void load_positions(const ConstTensor&, const Stepping&, std::span<const Extents>, const Tiling&,
                             const Box&, Fill, const ChannelBlocks<float>&);
template void load_positions(const ConstTensor&, const Stepping&, std::span<const Extents>, const Tiling&,
                             const Box&, Fill, const ChannelBlocks<double>&);

}  // namespace tconv::cpu
