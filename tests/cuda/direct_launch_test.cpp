// How the direct kernels cut a layer, against what they must cover: every output of a row belongs to exactly
// one tile, which has its position among its lanes' and its vector among their stores.
#include "cuda/direct_launch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cuda/kernels/launch_rules.cuh"

namespace tconv::cuda {
namespace {

using device::DirectConfig;
using device::DirectParams;

Layer random_layer(std::mt19937& rng) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  Layer l;
  l.dims = pick(1, 3);
  l.groups = pick(1, 40), l.in_channels = l.groups * pick(1, 4), l.out_channels = l.groups * pick(1, 4);
  for (std::size_t d = 0; d < std::size_t(l.dims); ++d) {
    l.kernel[d] = pick(1, 8), l.stride[d] = pick(1, 8), l.dilation[d] = pick(1, 3), l.padding[d] = pick(0, 6);
    l.output_padding[d] = pick(0, int(std::max(l.stride[d], l.dilation[d])) - 1);
  }
  return l;
}

/// The tiles of a row whose first output lies `skew` elements behind an aligned address.
void check_row(const DirectConfig& c, const DirectParams& p, int vector, int skew) {
  const int lanes = 1 << p.lane_bits, run = c.positions * c.stride.w, share = p.tile_positions * c.stride.w;
  int next = 0;
  for (int tile = 0; tile < p.tiles; ++tile) {
    const int begin = tile * share - skew, end = std::min(begin + share, p.out.w);
    const int first = p.first_position + tile * p.tile_positions;
    ASSERT_EQ(first % c.x_vector, 0);
    ASSERT_LE(std::min(begin, p.out.w), next);  // the last tile is empty where the skew does not need it
    for (; next < end; ++next) {
      // What is stored as it is counts positions from output 0, whatever the padding.
      const int position = c.staged ? (next + c.padding.w) / c.stride.w : next / c.stride.w;
      ASSERT_GE(position, first);
      ASSERT_LT(position, first + lanes * c.positions);
      ASSERT_LT((next - begin) / vector, lanes * run / vector);
    }
  }
  ASSERT_EQ(next, p.out.w);
}

TEST(DirectLaunch, TilesCoverEveryRowOnce) {
  std::mt19937 rng(1);
  int staged = 0, whole = 0;
  for (int i = 0; i < 4000; ++i) {
    const Layer layer = random_layer(rng);
    const DType dtype = std::array{DType::f32, DType::f64, DType::f16}[rng() % 3];
    const int widest = 16 / int(size_of(dtype));
    DirectAccess access;
    access.x_vector = 1 << rng() % 4, access.y_vector = 1 << rng() % 4;
    access.x_vector = std::min(access.x_vector, widest), access.y_vector = std::min(access.y_vector, widest);
    const auto config = direct_config(geometry_of(layer), dtype, access);
    ASSERT_TRUE(config);
    Shape shape;
    shape.batch = 1 + int(rng() % 3);
    shape.output = {1 + int(rng() % 5), 1 + int(rng() % 40), 1 + int(rng() % (rng() % 2 ? 40 : 3000))};
    const int vector = config->y_vector;
    if (!config->staged) shape.output[2] = (shape.output[2] + vector - 1) / vector * vector;
    const auto int3 = [](const Extents& e) { return device::Int3{int(e[0]), int(e[1]), int(e[2])}; };
    const DirectParams p =
        device::direct_params(*config, int(size_of(dtype)), shape.batch, int3(shape.input), int3(shape.output));
    const int most_skew = config->staged ? vector - 1 : 0;
    for (int skew = 0; skew <= most_skew; ++skew)
      ASSERT_NO_FATAL_FAILURE(check_row(*config, p, vector, skew)) << "layer " << i;
    // All rows of outputs along the height, from the position of the first to that of the last.
    const int first = config->padding.h / config->stride.h;
    if (config->rows)
      EXPECT_GT((first + p.row_blocks * config->rows) * config->stride.h - config->padding.h, p.out.h - 1);
    else
      EXPECT_EQ(p.row_blocks, p.out.h);
    const std::int64_t warp_rows = p.items / p.tiles << (5 - p.lane_bits);
    EXPECT_GE(warp_rows, p.rows);
    EXPECT_LT(warp_rows - p.rows, 32);
    (config->staged ? staged : whole) += 1;
  }
  EXPECT_GT(staged, 500);
  EXPECT_GT(whole, 200);
}

TEST(DirectLaunch, LanesRunOverChannelsWhereTheyAreContiguous) {
  Layer layer;
  layer.dims = 2, layer.in_channels = layer.out_channels = layer.groups = 48;
  layer.kernel = {3, 3};
  const Geometry g = geometry_of(layer);
  Tensor t;
  t.rank = 5, t.sizes = {2, 48, 1, 20, 30}, t.strides = {48 * 600, 1, 48 * 600, 48 * 30, 48};
  DirectAccess access = direct_access(g, t, t);
  EXPECT_TRUE(access.channels_last);
  EXPECT_EQ(access.x_vector, 4);
  t.data = reinterpret_cast<void*>(std::uintptr_t(8));  // aligned for two floats
  EXPECT_EQ(direct_access(g, t, t).x_vector, 2);
  t.data = nullptr, t.strides = {48 * 600, 600, 600, 30, 1};
  access = direct_access(g, t, t);
  EXPECT_FALSE(access.channels_last);
  EXPECT_EQ(access.y_vector, 2);  // rows of 30 floats
}

TEST(DirectLaunch, OutputsThatLieApartAreStaged) {
  Layer layer;
  layer.dims = 1, layer.in_channels = layer.out_channels = layer.groups = 38;
  layer.kernel = {3};
  const Geometry g = geometry_of(layer);
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    Tensor x, y;
    x.rank = y.rank = 5, x.dtype = y.dtype = dtype;
    x.sizes = {3, 38, 1, 1, 349}, x.strides = {38 * 349, 349, 349, 349, 1};
    y.sizes = {3, 38, 1, 1, 351}, y.strides = {2 * 38 * 351, 2 * 351, 2 * 351, 2 * 351, 2};
    const auto config = direct_config(g, dtype, direct_access(g, x, y));
    ASSERT_TRUE(config);
    EXPECT_TRUE(config->staged) << to_string(dtype);
  }
}

TEST(DirectLaunch, LayersOfTooManyPhasesAreLeftToTheGenericKernel) {
  Layer layer;
  layer.dims = 1, layer.in_channels = layer.out_channels = layer.groups = 8;
  layer.kernel = {640}, layer.stride = {320};
  EXPECT_FALSE(direct_config(geometry_of(layer), DType::f32, {}));
}

}  // namespace
}  // namespace tconv::cuda
