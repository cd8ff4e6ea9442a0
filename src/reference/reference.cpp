#include "reference/reference.hpp"

namespace tconv::reference {
namespace {

using std::int64_t;

/// Where input (n, ci, i) and tap (co, k) meet: flat indices into x, w and y.
struct Meeting {
  std::size_t x, w, y;
};

/// Calls visit(Meeting) for every pair of an input element and a weight element whose product is part of
/// an output element inside the output.
template <class Visit>
void for_each_meeting(const Geometry& g, const Shape& shape, const Visit& visit) {
  const auto flat = [](const Extents& at, const Extents& size) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
  };
  const auto volume = [](const Extents& e) { return e[0] * e[1] * e[2]; };
  Extents i, k, o;
  for (int64_t n = 0; n < shape.batch; ++n)
    for (int64_t group = 0; group < g.groups; ++group)
      for (int64_t ci = group * g.group_in; ci < (group + 1) * g.group_in; ++ci)
        for (i[0] = 0; i[0] < shape.input[0]; ++i[0])
          for (i[1] = 0; i[1] < shape.input[1]; ++i[1])
            for (i[2] = 0; i[2] < shape.input[2]; ++i[2])
              for (k[0] = 0; k[0] < g.kernel[0]; ++k[0])
                for (k[1] = 0; k[1] < g.kernel[1]; ++k[1])
                  for (k[2] = 0; k[2] < g.kernel[2]; ++k[2]) {
                    bool inside = true;
                    for (int d = 0; d < 3; ++d) {
                      o[d] = i[d] * g.stride[d] + k[d] * g.dilation[d] - g.padding[d];
                      inside = inside && o[d] >= 0 && o[d] < shape.output[d];
                    }
                    if (!inside) continue;
                    const int64_t x = (n * g.in_channels() + ci) * volume(shape.input) + flat(i, shape.input);
                    for (int64_t co = 0; co < g.group_out; ++co) {
                      const int64_t w = (ci * g.group_out + co) * g.taps() + flat(k, g.kernel);
                      const int64_t channel = n * g.out_channels() + group * g.group_out + co;
                      const int64_t y = channel * volume(shape.output) + flat(o, shape.output);
                      visit(Meeting{std::size_t(x), std::size_t(w), std::size_t(y)});
                    }
                  }
}

std::size_t elements(int64_t batch, int64_t channels, const Extents& e) {
  return std::size_t(batch * channels * e[0] * e[1] * e[2]);
}

}  // namespace

Array forward(const Geometry& geometry, const Shape& shape, const Array& x, const Array& w, const Array& bias) {
  Array y(elements(shape.batch, geometry.out_channels(), shape.output));
  if (!bias.empty()) {
    const std::size_t volume = elements(1, 1, shape.output);
    for (std::size_t o = 0; o < y.size(); ++o) y[o] = bias[o / volume % bias.size()];
  }
  for_each_meeting(geometry, shape, [&](const Meeting& m) { y[m.y] += x[m.x] * w[m.w]; });
  return y;
}

Array grad_input(const Geometry& geometry, const Shape& shape, const Array& gy, const Array& w) {
  Array gx(elements(shape.batch, geometry.in_channels(), shape.input));
  for_each_meeting(geometry, shape, [&](const Meeting& m) { gx[m.x] += gy[m.y] * w[m.w]; });
  return gx;
}

Array grad_weight(const Geometry& geometry, const Shape& shape, const Array& x, const Array& gy) {
  Array gw(elements(geometry.in_channels(), geometry.group_out, geometry.kernel));
  for_each_meeting(geometry, shape, [&](const Meeting& m) { gw[m.w] += x[m.x] * gy[m.y]; });
  return gw;
}

Array grad_bias(const Geometry& geometry, const Shape& shape, const Array& gy) {
  Array gb(std::size_t(geometry.out_channels()));
  const std::size_t volume = elements(1, 1, shape.output);
  for (std::size_t o = 0; o < gy.size(); ++o) gb[o / volume % gb.size()] += gy[o];
  return gb;
}

}  // namespace tconv::reference
