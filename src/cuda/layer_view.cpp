#include "cuda/layer_view.hpp"

#include <utility>

#include "cuda/int3.hpp"
#include "cuda/kernels/launch_rules.cuh"

namespace tconv::cuda {
namespace {

using std::int64_t;

Extents upright(const Extents& e) {
  return {e[1], e[0], e[2]};
}
device::ImageStrides upright(device::ImageStrides strides) {
  std::swap(strides.d, strides.h);
  return strides;
}

/// The padding along the width, counted from output 0 of a position: o = position * count + channel - this.
int64_t outputs_before(const Geometry& g, const device::ChannelPhases& phases) {
  return g.padding[2] - phases.first_tap;
}

}  // namespace

bool has_many_phases(const Geometry& g) {
  constexpr int most_slots = 16;
  return g.stride[2] > most_slots;
}

device::ChannelPhases channel_phases_of(const Geometry& g, int element_bytes, bool any) {
  constexpr int least_stride = 4, few_rows = 16;
  const int64_t stride = g.stride[2], vector = 16 / element_bytes;
  const bool few = stride >= least_stride && g.group_out * stride <= few_rows;
  if (!(has_many_phases(g) || few || (any && stride > 1)) || g.dilation[2] != 1 ||
      g.out_channels() * stride > 1'000'000)
    return {};
  // Positions begin with output 0 where vectors would be cut otherwise; channels before it read one shift further.
  const int64_t before = g.padding[2] % stride;
  device::ChannelPhases phases{.count = int(stride), .taps = int(g.kernel[2])};
  if (before % vector == 0)
    phases.lead = int(before);
  else
    phases.first_tap = int(before - stride);
  return phases;
}

Geometry seen(View view, const Geometry& geometry, const device::ChannelPhases& phases) {
  Geometry g = geometry;
  if (view == View::upright)
    for (Extents* const e : {&g.kernel, &g.stride, &g.padding, &g.dilation}) *e = upright(*e);
  if (view == View::channel_phases) {
    g.group_out *= phases.count, g.stride[2] = 1;
    g.kernel[2] = (geometry.kernel[2] - 1 - phases.first_tap) / phases.count + 1;
    g.padding[2] = outputs_before(geometry, phases) / phases.count;
  }
  return g;
}

Shape seen(View view, const Shape& shape, const device::ChannelPhases& phases) {
  if (view == View::upright) return {shape.batch, upright(shape.input), upright(shape.output)};
  Shape s = shape;
  if (view == View::channel_phases) s.output[2] = (shape.output[2] + phases.lead - 1) / phases.count + 1;
  return s;
}

Access seen(View view, const Access& access, const Shape& shape, const device::ChannelPhases& phases) {
  Access a = access;
  if (view != View::channel_phases) return a;
  a.y_channels = access.y_row_vector;
  while (phases.count % a.y_channels != 0 || phases.lead % a.y_channels != 0 ||
         shape.output[2] % a.y_channels != 0)
    a.y_channels /= 2;
  return a;
}

device::ForwardParams forward_params(View view, const device::GemmConfig& c, const Shape& shape,
                                     const device::ImageStrides& xs, const device::ImageStrides& ys) {
  const Shape s = seen(view, shape, c.channel_phases);
  device::ForwardParams p = device::forward_params(c, s.batch, int3(s.input), int3(s.output));
  p.xs = view == View::upright ? upright(xs) : xs, p.ys = view == View::upright ? upright(ys) : ys;
  if (view == View::channel_phases) p.out.w = int(shape.output[2]);
  return p;
}

}  // namespace tconv::cuda
