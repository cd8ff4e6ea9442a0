// Tilings: tiles cover the grid exactly once, and their layout has room for what the engine puts there.
#include "cpu/tiling.hpp"

#include <gtest/gtest.h>

#include <map>

#include "support/random.hpp"

namespace {

using namespace tconv::cpu;

Grid random_grid(testing_support::Random& random) {
  Grid grid;
  for (int d = 0; d < 4; ++d) {
    grid.first[d] = random.integer(0, 3);
    grid.count[d] = grid.real[d] = random.integer(1, d == 3 ? 40 : 6);
    if (d > 0) {
      grid.lowest_offset[d] = random.integer(-4, 2);
      grid.highest_offset[d] = grid.lowest_offset[d] + random.integer(0, 5);
      grid.useful_taps[d] = 0.5;
    }
  }
  return grid;
}

TileCosts random_costs(testing_support::Random& random) {
  TileCosts costs;
  costs.multiply_adds = double(random.integer(1, 100000));
  costs.source_elements = double(random.integer(1, 1000));
  costs.sum_elements = double(random.integer(1, 1000));
  costs.lanes = random.pick({1, 4, 8, 16});
  costs.column_unit = random.pick({std::int64_t(1), costs.lanes});
  costs.units = random.integer(1, 8);
  costs.cache_bytes = random.integer(1000, 1000000);
  costs.source_bytes_per_position = 4 * costs.source_elements;
  costs.sum_bytes_per_position = 4 * costs.sum_elements;
  costs.wanted_columns = random.integer(1, 600);
  costs.fewest_tiles = random.integer(1, 40);
  costs.run_tail = random.pick({0, 16});
  return costs;
}

TEST(Tiling, CoversTheGridExactlyOnce) {
  testing_support::Random random(21);
  for (int i = 0; i < 300; ++i) {
    const Grid grid = random_grid(random);
    const Tiling tiling = choose_tiling(grid, random_costs(random));
    std::map<std::array<std::int64_t, 4>, int> covered;
    for (std::int64_t tile = 0; tile < tiling.tile_count(); ++tile) {
      const Box box = tile_box(tiling, tile);
      std::array<std::int64_t, 4> e, q;
      for (e[0] = 0; e[0] < box.extent[0]; ++e[0])
        for (e[1] = 0; e[1] < box.extent[1]; ++e[1])
          for (e[2] = 0; e[2] < box.extent[2]; ++e[2])
            for (e[3] = 0; e[3] < box.extent[3]; ++e[3]) {
              for (int d = 0; d < 4; ++d) q[std::size_t(tiling.dim[d])] = box.begin[d] + e[d];
              ++covered[q];
            }
      for (int d = 0; d < 4; ++d) EXPECT_LE(box.extent[d], tiling.extent[d]);
    }
    std::size_t positions = 1;
    for (int d = 0; d < 4; ++d) positions *= std::size_t(grid.count[d]);
    EXPECT_EQ(covered.size(), positions);
    for (const auto& [q, times] : covered) {
      EXPECT_EQ(times, 1);
      for (int d = 0; d < 4; ++d) {
        EXPECT_GE(q[d], grid.first[d]);
        EXPECT_LT(q[d], grid.first[d] + grid.count[d]);
      }
    }
  }
}

TEST(Tiling, EveryPositionHasItsOwnColumnAndRoomInThePlane) {
  testing_support::Random random(22);
  for (int i = 0; i < 300; ++i) {
    const TileCosts costs = random_costs(random);
    const Tiling tiling = choose_tiling(random_grid(random), costs);
    std::map<std::int64_t, int> columns;
    std::array<std::int64_t, 4> e;
    for (e[0] = 0; e[0] < tiling.extent[0]; ++e[0])
      for (e[1] = 0; e[1] < tiling.extent[1]; ++e[1])
        for (e[2] = 0; e[2] < tiling.extent[2]; ++e[2])
          for (e[3] = 0; e[3] < tiling.extent[3]; ++e[3]) {
            std::int64_t column = 0, widened = 0;
            for (int d = 0; d < 4; ++d) {
              column += e[d] * tiling.column_stride(d);
              widened += (e[d] + tiling.reach[d]) * tiling.pitch[d];
            }
            EXPECT_EQ(++columns[column], 1);
            EXPECT_LT(column, tiling.columns());
            EXPECT_LT(widened, tiling.plane_elements);
          }
    EXPECT_EQ(tiling.run_pitch % costs.column_unit, 0);
    EXPECT_GE(tiling.run_pitch, run_length(tiling, Box{.begin = {}, .extent = tiling.extent}));
  }
}

TEST(Tiling, PutsTheBatchInsideWhereASampleHasOnePosition) {
  Grid grid;
  grid.count = grid.real = {128, 1, 1, 1};
  TileCosts costs;
  costs.multiply_adds = 1e5;
  costs.source_elements = costs.sum_elements = 100;
  costs.lanes = 16;
  costs.column_unit = 16;
  costs.units = 3;
  costs.cache_bytes = 1 << 20;
  costs.source_bytes_per_position = costs.sum_bytes_per_position = 400;
  const Tiling tiling = choose_tiling(grid, costs);
  EXPECT_GE(run_length(tiling, tile_box(tiling, 0)), 128);
}

}  // namespace
