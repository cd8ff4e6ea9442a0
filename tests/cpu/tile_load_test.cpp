// Loading planes: every position of a widened box holds the tensor's element or, outside the tensor, zero,
// whichever way the rows are read.
#include <gtest/gtest.h>

#include <vector>

#include "cpu/packed_weight.hpp"
#include "cpu/tile_io.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

TEST(TileLoad, PlanesHoldTheirPhaseOrZero) {
  testing_support::Random random(51);
  int loaded = 0;
  for (int i = 0; i < 1000; ++i) {
    Geometry g;
    for (int d = 0; d < 3; ++d) {
      g.kernel[d] = random.integer(1, 5);
      g.stride[d] = random.pick({std::int64_t(1), random.integer(1, d == 2 ? 9 : 3)});
      g.dilation[d] = random.integer(1, 3);
      g.padding[d] = random.integer(0, 4);
    }
    const Convolution conv = grad_input_convolution(g);

    // A tensor of channels [0, channels) whose rows are contiguous or not, and follow one another or not.
    ConstTensor gy;
    gy.rank = 5;
    gy.sizes = {2, 5, random.integer(1, 4), random.integer(1, 9), random.integer(1, 70)};
    const std::int64_t spacing = random.pick({1, 1, 2});
    const std::int64_t gap = random.pick({0, 1});
    gy.strides[4] = spacing;
    for (int d = 3; d >= 0; --d) gy.strides[d] = gy.strides[d + 1] * gy.sizes[d + 1] + gap;
    std::vector<float> data(std::size_t(gy.strides[0] * gy.sizes[0]));
    for (std::size_t at = 0; at < data.size(); ++at) data[at] = float(at + 1);
    gy.data = data.data();

    // Without a halo, rows that follow one another are loaded as one.
    const std::int64_t most_reach = random.pick({0, 3});
    Grid grid;
    grid.count[0] = grid.real[0] = gy.sizes[0];
    for (int d = 0; d < 3; ++d) {
      grid.count[d + 1] = grid.real[d + 1] = ceil_div(gy.sizes[d + 2], g.stride[d]) + (most_reach > 0);
      grid.lowest_offset[d + 1] = most_reach > 0 ? random.integer(-2, 1) : 0;
      grid.highest_offset[d + 1] = grid.lowest_offset[d + 1] + random.integer(0, most_reach);
    }
    TileCosts costs;
    costs.multiply_adds = costs.source_elements = 100;
    costs.lanes = costs.column_unit = 16;
    costs.cache_bytes = 1 << 20;
    costs.wanted_columns = random.pick({16, 64, 500});
    const Tiling tiling = choose_tiling(grid, costs);

    const std::int64_t first_channel = 1, channels = 3, channel_pitch = tiling.plane_elements + 7,
                       plane_pitch = channels * channel_pitch + 5, planes = std::int64_t(conv.planes.size());
    const Box box = tile_box(tiling, random.integer(0, tiling.tile_count() - 1));
    std::vector<float> tile(std::size_t(planes * plane_pitch), -1);
    load_planes(gy, conv.source, conv.planes, tiling, box, first_channel, channels, tile.data(), plane_pitch,
                channel_pitch);

    for (std::int64_t plane = 0; plane < planes; ++plane)
      for (std::int64_t c = 0; c < channels; ++c) {
        std::array<std::int64_t, 4> e;
        for (e[0] = 0; e[0] < box.extent[0] + tiling.reach[0]; ++e[0])
          for (e[1] = 0; e[1] < box.extent[1] + tiling.reach[1]; ++e[1])
            for (e[2] = 0; e[2] < box.extent[2] + tiling.reach[2]; ++e[2])
              for (e[3] = 0; e[3] < box.extent[3] + tiling.reach[3]; ++e[3]) {
                std::int64_t at = plane * plane_pitch + c * channel_pitch;
                std::int64_t element = (first_channel + c) * gy.strides[1];
                bool inside = true;
                for (int d = 0; d < 4; ++d) {
                  at += e[d] * tiling.pitch[d];
                  const int dim = tiling.dim[d];
                  std::int64_t o = box.begin[d] + tiling.lowest_offset[d] + e[d];
                  if (dim != batch_dim)
                    o = o * g.stride[dim - 1] + conv.planes[std::size_t(plane)][dim - 1] - g.padding[dim - 1];
                  const int tensor_dim = dim == batch_dim ? 0 : dim + 1;
                  inside = inside && o >= 0 && o < gy.sizes[tensor_dim];
                  element += o * gy.strides[tensor_dim];
                }
                ASSERT_EQ(tile[std::size_t(at)], inside ? data[std::size_t(element)] : 0.0f)
                    << "case " << i << " plane " << plane << " channel " << c;
                loaded += inside;
              }
      }
  }
  EXPECT_GT(loaded, 100000);
}

}  // namespace
