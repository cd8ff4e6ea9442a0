// Storing a box of sums: every element the box owns is written, from the row and column it belongs to, whichever
// way the rows are written.
#include <gtest/gtest.h>

#include <vector>

#include "cpu/convert.hpp"
#include "cpu/tile_io.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

TEST(TileStore, WritesWhatTheBoxOwnsCachedAndStreamed) {
  testing_support::Random random(41);
  int batch_innermost = 0;
  for (int i = 0; i < 3500; ++i) {
    Geometry g;
    g.group_out = random.pick({1, 2, 3, 8});
    for (int d = 1; d < 3; ++d) {
      g.kernel[d] = random.integer(1, 4);
      g.stride[d] = random.pick({std::int64_t(1), random.integer(1, 6)});
      g.dilation[d] = random.integer(1, 3);
      g.padding[d] = random.integer(0, 3);
    }
    const Convolution conv = forward_convolution(g);
    const PhaseSlots slots(conv);
    const Extents& padding = conv.target.padding;

    // Large images, or many small ones.
    const bool many = random.integer(0, 1) == 1;
    Tensor y;
    y.rank = 5;
    y.sizes = {many ? random.integer(17, 40) : 1, g.group_out, 1, random.integer(1, many ? 5 : 20),
               random.integer(1, many ? 5 : 90)};
    y.strides[4] = 1;
    for (int d = 3; d >= 0; --d) y.strides[d] = y.strides[d + 1] * y.sizes[d + 1];
    Grid grid;
    grid.count = {y.sizes[0], 1, 1, 1};
    for (int d = 1; d < 3; ++d) {
      grid.first[d + 1] = padding[d] / g.stride[d];
      grid.count[d + 1] = (y.sizes[d + 2] - 1 + padding[d]) / g.stride[d] - grid.first[d + 1] + 1;
    }
    grid.real = grid.count;
    if (many) grid.useful_taps = {1, 0.3, 0.3, 0.3};  // the batch innermost skips the others
    TileCosts costs;
    costs.multiply_adds = 1000;
    costs.lanes = 16;
    costs.column_unit = random.pick({1, 16});
    costs.cache_bytes = 1 << 20;
    const Tiling tiling = choose_tiling(grid, costs);
    batch_innermost += tiling.dim[3] == batch_dim;

    const std::int64_t rows = conv.phase_count() * g.group_out;
    std::vector<float> sums(std::size_t(rows * tiling.columns())), bias(std::size_t(g.group_out), 0.5f);
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] = float(s + 1);
    std::vector<float> buffer(std::size_t(row_buffer_elements(conv.target, tiling)));
    std::vector<float> results[2];
    const auto store_tiles = [&](bool streaming) {
      for (std::int64_t tile = 0; tile < tiling.tile_count(); ++tile)
        store_box(SumTile<float>{.sums = sums.data(),
                                 .row_pitch = tiling.columns(),
                                 .channels = g.group_out,
                                 .bias = bias.data(),
                                 .row_buffer = buffer.data(),
                                 .streaming = streaming},
                  slots, conv.target, tiling, tile_box(tiling, tile), 0, y);
    };
    for (bool streaming : {false, true}) {
      results[streaming].assign(std::size_t(y.sizes[0] * y.strides[0]), -1);
      y.data = results[streaming].data();
      store_tiles(streaming);
    }
    EXPECT_EQ(results[0], results[1]);
    // Outputs of 16 bits are the same numbers, rounded.
    std::vector<BFloat16> rounded(results[0].size());
    y.data = rounded.data(), y.dtype = DType::bf16;
    store_tiles(false);
    for (std::size_t at = 0; at < rounded.size(); ++at)
      ASSERT_EQ(rounded[at].bits, to_bfloat16(results[0][at]).bits) << "element " << at;

    const auto expected = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      const int ph = slots.index(1, (h + padding[1]) % g.stride[1]);
      const int pw = slots.index(2, (w + padding[2]) % g.stride[2]);
      if (ph < 0 || pw < 0) return bias[std::size_t(c)];
      const std::int64_t q[4] = {n, 0, (h + padding[1]) / g.stride[1], (w + padding[2]) / g.stride[2]};
      for (std::int64_t tile = 0; tile < tiling.tile_count(); ++tile) {
        const Box box = tile_box(tiling, tile);
        std::int64_t column = 0;
        bool inside = true;
        for (int d = 0; d < 4; ++d) {
          const std::int64_t e = q[tiling.dim[d]] - box.begin[d];
          inside = inside && e >= 0 && e < box.extent[d];
          column += e * tiling.column_stride(d);
        }
        const std::int64_t row = slots.slot(0, ph, pw) * g.group_out + c;
        if (inside) return sums[std::size_t(row * tiling.columns() + column)];
      }
      return -2.0f;
    };
    for (std::int64_t n = 0; n < y.sizes[0]; ++n)
      for (std::int64_t c = 0; c < g.group_out; ++c)
        for (std::int64_t h = 0; h < y.sizes[3]; ++h)
          for (std::int64_t w = 0; w < y.sizes[4]; ++w)
            ASSERT_EQ(results[0][std::size_t(n * y.strides[0] + c * y.strides[1] + h * y.strides[3] + w)],
                      expected(n, c, h, w))
                << "case " << i << ": " << n << ", " << c << ", " << h << ", " << w;
  }
  EXPECT_GT(batch_innermost, 1000);
}

}  // namespace
