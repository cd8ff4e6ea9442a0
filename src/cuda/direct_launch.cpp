#include "cuda/direct_launch.hpp"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <numeric>

#include "cuda/int3.hpp"
#include "cuda/tensor_views.hpp"

namespace tconv::cuda {
namespace {

using device::DirectConfig;
using std::int64_t;

/// The longest vector of at most 16 bytes that lies aligned at every step of `dims`.
int aligned_vector(const ConstTensor& t, std::initializer_list<std::size_t> dims) {
  const int64_t size = int64_t(size_of(t.dtype));
  int64_t bytes = 16;
  while (bytes > size && reinterpret_cast<std::uintptr_t>(t.data) % std::uintptr_t(bytes) != 0) bytes /= 2;
  for (const std::size_t d : dims)
    while (bytes > size && step(t, d) * size % bytes != 0) bytes /= 2;
  return int(bytes / size);
}

/// Lanes along channels. Nothing where weights or sums do not fit.
std::optional<DirectConfig> channels_config(DirectConfig c, DType dtype, const DirectAccess& access) {
  if (c.group_in == 1 && c.group_out == 1) {
    c.channels = std::min({access.x_vector, access.y_vector, 4});
    while (c.groups % c.channels != 0) c.channels /= 2;
  }
  const bool wide = dtype == DType::f64;
  const int accumulator = wide ? 8 : 4, outs = c.channels * c.group_out, taps = c.kernel.h * c.kernel.w;
  constexpr int most_shared = 48 * 1024, most_sums = 64;
  // First of all, for what follows is counted with 32 bits.
  if (device::volume(c.kernel) > most_shared / accumulator || int64_t(outs) * c.stride.w > most_sums) return {};
  c.x_vector = std::gcd(access.x_vector, c.channels * c.group_in);
  c.y_vector = std::gcd(access.y_vector, outs);
  // Registers for the outputs of one position.
  const int64_t unit = int64_t(outs) * c.stride.w * (wide ? 2 : 1) * c.stride.h;
  if (unit > 32 || taps > 16) {
    c.rows = 0, c.positions = std::clamp(16 / (outs * c.stride.w), 1, 4);
  } else if (c.kernel.h <= c.stride.h) {
    c.positions = std::clamp(32 / int(unit), 1, 4);  // rows share no inputs
  } else if (unit > 4) {
    c.positions = unit <= 16 ? 2 : 1;
  } else if (c.group_in > 1) {
    c.rows = 2, c.positions = 4;
  } else if (c.kernel.d > 1) {
    c.rows = 2, c.positions = size_of(dtype) == 2 ? 4 : 2;
  } else {
    c.rows = 4, c.positions = 3;
  }
  if (wide)
    c.blocks_per_sm = 1;
  else if (c.rows == 1 && c.kernel.d == 1 && unit * c.positions <= 32)
    c.blocks_per_sm = 3;
  const int64_t window = device::reach_of(c.kernel.w, c.stride.w, c.dilation.w) + c.positions;
  if (outs * c.stride.w * c.positions > most_sums || c.kernel.w > 32 || window * c.channels * c.group_in > 64)
    return {};
  c.slots = int(std::bit_ceil(unsigned(std::min(c.groups / c.channels, 32))));
  while (c.slots > 4 && device::direct_shared_bytes(c, accumulator) > 40 * 1024) c.slots /= 2;
  if (device::direct_shared_bytes(c, accumulator) > most_shared) return {};
  return c;
}

/// Lanes along positions, few channels: sums for the phases of a few rows.
void block_rows(DirectConfig& c, bool wide) {
  const int line = c.positions * c.stride.w, taps = c.kernel.h * c.kernel.w, sums = wide ? 16 : 32;
  const bool single = c.x_vector == 1 && c.positions > 1;  // each load has an address and a condition of its own
  const bool blocked = int64_t(c.stride.h) * line <= 2 * sums && taps <= (single ? 16 : 64);
  const int lines = blocked ? c.stride.h : 1;
  c.channels = std::clamp((single ? 16 : sums) / (lines * line), 1, c.group_out);
  c.rows = blocked ? 1 : 0;
  // Further rows share inputs, where the weights of all taps fit in registers beside their sums.
  const int weights = wide ? 24 : c.channels > 1 ? (single ? 0 : 40) : single ? 32 : 64;
  if (blocked && c.kernel.h > c.stride.h && c.channels * taps <= weights)
    c.rows = std::clamp(sums / (c.channels * lines * line), 1, single ? (c.kernel.d > 1 ? 2 : 4) : 6);
  // More blocks hide more of the memory's latency, as long as the compiler finds registers for them: sums,
  // weights that several rows share, what loads in flight need.
  const int lines_of_thread = c.channels * device::out_rows_of(c);
  const int registers = 30 + lines_of_thread * line + (c.rows > 1 ? c.channels * taps : 0) +
                        (c.kernel.d > 1 ? 20 : 0) + (single ? 16 : 0) +
                        (c.channels > 1 && c.y_vector == 8 ? 8 : 0);
  c.blocks_per_sm = wide || lines_of_thread == 1 || registers > 80 ? 2 : registers > 62 ? 3 : 4;
}

/// Lanes along positions, many channels (doubles): a weight serves four positions, an input several channels.
void block_channels(DirectConfig& c) {
  const int line = c.positions * c.stride.w, taps = c.kernel.h * c.kernel.w;
  const bool blocked = int64_t(c.stride.h) * line <= 32 && taps <= 64;
  const int lines = blocked ? c.stride.h : 1;
  c.channels = std::clamp(16 / (lines * line), std::min(c.group_out, 2), std::min(c.group_out, 8));
  c.rows = blocked ? 1 : 0;
  if (blocked && c.kernel.h > c.stride.h && c.channels * taps <= 40)
    c.rows = std::clamp(64 / (c.channels * lines * line), 1, 2);
  c.blocks_per_sm = 1;
}

/// Lanes along positions.
std::optional<DirectConfig> rows_config(DirectConfig c, DType dtype, const DirectAccess& access) {
  const bool few = c.group_in * c.group_out <= 16;
  const int vector = 16 / int(size_of(dtype)), stride = c.stride.w;
  if (device::reach_of(c.kernel.w, stride, c.dilation.w) > 48 || c.kernel.w > 32) return {};
  // Stores of eight bytes are as good as sixteen, where no staging comes with them.
  c.y_vector = access.y_vector;
  c.staged = access.channels_last || !access.y_rows || !few || c.y_vector < vector / 2 ||
             c.y_vector % stride != 0 || c.padding.w / stride > 32;
  if (c.staged) {
    c.y_vector = vector;
    c.positions = few ? vector : 2 * vector;
    while (c.positions > 1 && int64_t(c.positions) * stride > 8 * vector) c.positions /= 2;
  } else {
    c.positions = c.y_vector / stride;
  }
  const int line = c.positions * stride;
  if (line > 8 * vector || line % c.y_vector != 0) return {};
  c.x_vector = access.channels_last ? 1 : std::min(access.x_vector, c.positions);
  if (few)
    block_rows(c, dtype == DType::f64);
  else
    block_channels(c);
  return c;
}

}  // namespace

bool few_channels(const Geometry& g) {
  return g.group_in <= 8 && g.group_out <= 8 && g.group_in * g.group_out <= 16;
}

DirectAccess direct_access(const Geometry& g, const ConstTensor& x, const ConstTensor& y) {
  DirectAccess a;
  a.channels_last = few_channels(g) && g.groups > 1 && (g.in_channels() == 1 || x.strides[1] == 1) &&
                    y.strides[1] == 1 && step(y, 4) != 1;
  if (a.channels_last) {
    a.x_vector = aligned_vector(x, {0, 2, 3, 4});
    a.y_vector = aligned_vector(y, {0, 2, 3, 4});
    return a;
  }
  if (step(x, 4) == 1) {
    a.x_vector = aligned_vector(x, {0, 1, 2, 3});
    while (x.sizes[4] % a.x_vector != 0) a.x_vector /= 2;
  }
  a.y_rows = step(y, 4) == 1 || y.sizes[4] == 1;
  if (step(y, 4) == 1) {
    a.y_vector = aligned_vector(y, {0, 1, 2, 3});
    while (y.sizes[4] % a.y_vector != 0) a.y_vector /= 2;
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
                           .staged = false,
                           .positions = 1,
                           .rows = 1,
                           .channels = 1,
                           .slots = 1,
                           .blocks_per_sm = 2};
  if (access.channels_last)
    if (const auto c = channels_config(layer, dtype, access)) return c;
  DirectConfig rows = layer;
  rows.channels_last = false;
  return rows_config(rows, dtype, access);
}

}  // namespace tconv::cuda
