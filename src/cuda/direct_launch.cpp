#include "cuda/direct_launch.hpp"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <numeric>

namespace tconv::cuda {
namespace {

using device::DirectConfig;
using device::DirectParams;
using device::Int3;
using std::int64_t;

Int3 int3(const Extents& e) {
  return {int(e[0]), int(e[1]), int(e[2])};
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

/// Strides of dimensions of size 1 are never stepped along.
int64_t step(const ConstTensor& t, std::size_t d) {
  return t.sizes[d] > 1 ? t.strides[d] : 0;
}

/// The longest vector of at most 16 bytes that lies aligned at every step of `dims`.
int aligned_vector(const ConstTensor& t, std::initializer_list<std::size_t> dims) {
  const int64_t size = int64_t(size_of(t.dtype));
  int64_t bytes = 16;
  while (bytes > size && reinterpret_cast<std::uintptr_t>(t.data) % std::uintptr_t(bytes) != 0) bytes /= 2;
  for (const std::size_t d : dims)
    while (bytes > size && step(t, d) * size % bytes != 0) bytes /= 2;
  return int(bytes / size);
}

bool few_channels(const Geometry& g) {
  return g.group_in <= 8 && g.group_out <= 8 && g.group_in * g.group_out <= 16;
}

/// Lanes along channels. Nothing where the weights of eight neighbouring threads fill the shared memory.
std::optional<DirectConfig> channels_config(DirectConfig c, DType dtype, const DirectAccess& access) {
  if (c.group_in == 1 && c.group_out == 1) {
    c.channels = std::min({access.x_vector, access.y_vector, 4});
    while (c.groups % c.channels != 0) c.channels /= 2;
  }
  const int outs = c.channels * c.group_out, line = outs * c.stride.w;
  // Registers hold weights and inputs of several channels, too.
  const int sums = (c.kernel.d > 1 ? 16 : 24) / (dtype == DType::f64 ? 2 : 1);
  c.x_vector = std::gcd(access.x_vector, c.channels * c.group_in);
  c.y_vector = std::gcd(access.y_vector, outs);
  if (line * c.stride.h <= 2 * sums && c.kernel.h * c.kernel.w * c.group_in * outs <= 2 * sums + 16) {
    c.rows = c.kernel.h > c.stride.h ? std::clamp(sums / (line * c.stride.h * 2), 1, 4) : 1;
    c.positions = std::clamp(sums / (line * c.stride.h * c.rows), 1, 4);
  } else {
    c.rows = 0;
    c.positions = std::clamp(sums / line, 1, 4);
  }
  const int window = device::reach_of(c.kernel.w, c.stride.w, c.dilation.w) + c.positions;
  if (line * c.positions > 64 || c.kernel.w > 32 || window * c.channels * c.group_in > 64) return {};
  c.slots = int(std::bit_ceil(unsigned(std::min(c.groups / c.channels, 32))));
  const int accumulator = dtype == DType::f64 ? 8 : 4;
  while (c.slots > 4 && device::direct_shared_bytes(c, accumulator) > 40 * 1024) c.slots /= 2;
  if (device::direct_shared_bytes(c, accumulator) > 48 * 1024) return {};
  return c;
}

/// Lanes along positions.
std::optional<DirectConfig> rows_config(DirectConfig c, DType dtype, const DirectAccess& access) {
  const bool wide = dtype == DType::f64;
  const int vector = 16 / int(size_of(dtype)), stride = c.stride.w;
  // Whole vectors of outputs, at most eight. Doubles: two vectors of positions, so that a weight serves four.
  c.positions = wide ? 2 * vector : vector;
  while (c.positions > 1 && c.positions * stride > 8 * vector) c.positions /= 2;
  const int line = c.positions * stride;
  if (line > 8 * vector || line % vector != 0) return {};
  c.x_vector = access.channels_last ? 1 : std::min(access.x_vector, c.positions);
  if (device::reach_of(c.kernel.w, stride, c.dilation.w) > 48 || c.kernel.w > 32) return {};
  // Single loads each have an address and a condition of their own in flight.
  const int sums = c.x_vector == 1 ? 16 : 32, taps = c.kernel.h * c.kernel.w;
  const bool blocked = c.stride.h * line <= (wide ? 32 : 64) && taps <= 4 * sums - 16;
  const int lines = blocked ? c.stride.h : 1;
  c.channels = std::clamp(32 / (lines * line), 1, std::min(c.group_out, 8));
  c.rows = blocked ? 1 : 0;
  // Further rows share inputs, where the weights of all taps fit in registers beside them.
  if (blocked && c.kernel.h > c.stride.h && c.channels * taps <= (wide ? 24 : c.channels > 1 ? 32 : 2 * sums))
    c.rows = std::clamp(sums / (c.channels * lines * line), 1, 4);
  return c;
}

int64_t blocks_of_rows(const DirectConfig& c, int64_t out_h) {
  if (c.rows == 0) return out_h;
  const int64_t positions = (out_h - 1 + c.padding.h) / c.stride.h - c.padding.h / c.stride.h + 1;
  return (positions + c.rows - 1) / c.rows;
}

/// Tiles of a row. One that fits in a warp is a tile of its own, with other rows beside it.
void cut_rows(const DirectConfig& c, int vector, DirectParams& p) {
  const int64_t stride = c.stride.w, padding = c.padding.w, out = p.out.w;
  const int64_t last = (out - 1 + padding) / stride;
  const int64_t first = padding / stride / c.x_vector * c.x_vector;
  for (int bits = 0; bits <= 5; ++bits) {
    const int64_t positions = int64_t(c.positions) << bits;
    if (first + positions <= last || positions * stride < out + vector - 1) continue;
    p.tiles = 1, p.first_position = int(first), p.tile_positions = int(positions), p.lane_bits = bits;
    return;
  }
  // A tile begins up to vector − 1 outputs before its share of the row's vectors, wherever the row is aligned.
  const int64_t start = floor_div(floor_div(padding - (vector - 1), stride), c.x_vector) * c.x_vector;
  const int64_t slack = floor_div(padding - 1, stride) + 1 - start;
  const int64_t unit = std::lcm(vector / std::gcd(int64_t(vector), stride), int64_t(c.x_vector));
  p.lane_bits = 5, p.first_position = int(start);
  p.tile_positions = int((32 * c.positions - slack) / unit * unit);
  const int64_t tile = p.tile_positions * stride;
  p.tiles = int((out + vector - 1 + tile - 1) / tile);
}

}  // namespace

bool is_dense(const ConstTensor& weight) {
  int64_t stride = 1;
  for (std::size_t d = 5; d-- > 0;) {
    if (weight.sizes[d] != 1 && weight.strides[d] != stride) return false;
    stride *= weight.sizes[d];
  }
  return true;
}

DirectAccess direct_access(const Geometry& g, const ConstTensor& x, const ConstTensor& y) {
  DirectAccess a;
  a.channels_last = few_channels(g) && g.groups > 1 && (g.in_channels() == 1 || x.strides[1] == 1) &&
                    y.strides[1] == 1 && step(y, 4) != 1;
  if (a.channels_last) {
    a.x_vector = aligned_vector(x, {0, 2, 3, 4});
    a.y_vector = aligned_vector(y, {0, 2, 3, 4});
  } else if (step(x, 4) == 1) {
    a.x_vector = aligned_vector(x, {0, 1, 2, 3});
    while (x.sizes[4] % a.x_vector != 0) a.x_vector /= 2;
  }
  return a;
}

std::optional<DirectConfig> direct_config(const Geometry& g, DType dtype, const DirectAccess& access) {
  const DirectConfig layer{.groups = int(g.groups),
                           .group_in = int(g.group_in),
                           .group_out = int(g.group_out),
                           .kernel = int3(g.kernel),
                           .stride = int3(g.stride),
                           .padding = int3(g.padding),
                           .dilation = int3(g.dilation),
                           .channels_last = access.channels_last,
                           .dense_weight = access.dense_weight,
                           .x_vector = 1,
                           .y_vector = 1,
                           .positions = 1,
                           .rows = 1,
                           .channels = 1,
                           .slots = 1};
  if (access.channels_last)
    if (const auto c = channels_config(layer, dtype, access)) return c;
  DirectConfig rows = layer;
  rows.channels_last = false;
  return rows_config(rows, dtype, access);
}

DirectParams direct_params(const DirectConfig& c, DType dtype, const Shape& shape) {
  DirectParams p{};
  p.in = int3(shape.input), p.out = int3(shape.output);
  const int64_t row_blocks = blocks_of_rows(c, p.out.h);
  p.row_blocks = int(row_blocks);
  p.rows = shape.batch * p.out.d * row_blocks;
  if (c.channels_last) {
    const int64_t positions = (int64_t(p.out.w) - 1 + c.padding.w) / c.stride.w - c.padding.w / c.stride.w + 1;
    p.tiles = int((positions + c.positions - 1) / c.positions);
    p.items = p.rows * p.tiles;
  } else {
    cut_rows(c, 16 / int(size_of(dtype)), p);
    p.rows *= int64_t(c.groups) * device::ceil_div(c.group_out, c.channels);
    const int64_t rows_of_warp = 32 >> p.lane_bits;
    p.items = (p.rows + rows_of_warp - 1) / rows_of_warp * p.tiles;
  }
  return p;
}

unsigned direct_blocks(const DirectConfig& c, const DirectParams& p, int multiprocessors) {
  // Enough for every multiprocessor to be full several times over; more would only begin more often.
  const int64_t most = int64_t(multiprocessors) * 32;
  if (!c.channels_last) return unsigned(std::clamp<int64_t>((p.items + 7) / 8, 1, most));
  const int64_t slabs = device::ceil_div(c.groups, c.slots * c.channels),
                places = device::direct_threads / c.slots;
  return unsigned(slabs *
                  std::clamp<int64_t>((p.items + places - 1) / places, 1, std::max<int64_t>(most / slabs, 1)));
}

}  // namespace tconv::cuda
