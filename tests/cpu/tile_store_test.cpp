// Storing a box of sums: every element the box owns is written, from the row and column it belongs to, whichever
// way the rows are written.
#include <gtest/gtest.h>

#include <vector>

#include "cpu/tile_io.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

TEST(TileStore, WritesWhatTheBoxOwnsCachedAndStreamed) {
  testing_support::Random random(41);
  for (int i = 0; i < 200; ++i) {
    Geometry g;
    g.group_out = random.integer(1, 3);
    for (int d = 1; d < 3; ++d) {
      g.kernel[d] = random.integer(1, 4);
      g.stride[d] = random.integer(1, 6);
      g.dilation[d] = random.integer(1, 3);
      g.padding[d] = random.integer(0, 3);
    }
    const Convolution conv = forward_convolution(g);
    const PhaseSlots slots(conv);

    Tensor y;
    y.rank = 5;
    y.sizes = {1, g.group_out, 1, random.integer(1, 20), random.integer(1, 90)};
    y.strides = {0, y.sizes[3] * y.sizes[4], 0, y.sizes[4], 1};
    Grid grid;
    grid.count = grid.real = {1, 1, 1, 1};
    for (int d = 1; d < 3; ++d) {
      grid.first[d + 1] = g.padding[d] / g.stride[d];
      grid.count[d + 1] = (y.sizes[d + 2] - 1 + g.padding[d]) / g.stride[d] - grid.first[d + 1] + 1;
    }
    grid.real = grid.count;
    TileCosts costs;
    costs.multiply_adds = 1000;
    costs.lanes = 16;
    costs.cache_bytes = 1 << 20;
    const Tiling tiling = choose_tiling(grid, costs);
    if (tiling.dim[3] != 3) continue;

    const std::int64_t rows = conv.phase_count() * g.group_out;
    std::vector<float> sums(std::size_t(rows * tiling.columns())), bias(std::size_t(g.group_out), 0.5f);
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] = float(s + 1);
    std::vector<float> buffer(std::size_t(row_buffer_elements(conv.target, tiling)));
    std::vector<float> results[2];
    for (bool streaming : {false, true}) {
      results[streaming].assign(std::size_t(g.group_out * y.sizes[3] * y.sizes[4]), -1);
      y.data = results[streaming].data();
      for (std::int64_t tile = 0; tile < tiling.tile_count(); ++tile)
        store_box(SumTile<float>{.sums = sums.data(),
                                 .row_pitch = tiling.columns(),
                                 .channels = g.group_out,
                                 .bias = bias.data(),
                                 .row_buffer = buffer.data(),
                                 .streaming = streaming},
                  slots, conv.target, tiling, tile_box(tiling, tile), 0, y);
    }
    EXPECT_EQ(results[0], results[1]);

    for (std::int64_t c = 0; c < g.group_out; ++c)
      for (std::int64_t h = 0; h < y.sizes[3]; ++h)
        for (std::int64_t w = 0; w < y.sizes[4]; ++w) {
          const std::int64_t qh = (h + g.padding[1]) / g.stride[1], qw = (w + g.padding[2]) / g.stride[2];
          const int ph = slots.index(1, (h + g.padding[1]) % g.stride[1]);
          const int pw = slots.index(2, (w + g.padding[2]) % g.stride[2]);
          float expected = 0.5f;
          if (ph >= 0 && pw >= 0)
            for (std::int64_t tile = 0; tile < tiling.tile_count(); ++tile) {
              const Box box = tile_box(tiling, tile);
              const std::int64_t eh = qh - box.begin[2], ew = qw - box.begin[3];
              if (eh < 0 || eh >= box.extent[2] || ew < 0 || ew >= box.extent[3]) continue;
              const std::int64_t row = slots.slot(0, ph, pw) * g.group_out + c;
              const std::int64_t column = eh * tiling.column_stride(2) + ew * tiling.column_stride(3);
              expected = sums[std::size_t(row * tiling.columns() + column)];
            }
          ASSERT_EQ(results[0][std::size_t((c * y.sizes[3] + h) * y.sizes[4] + w)], expected);
        }
  }
}

}  // namespace
