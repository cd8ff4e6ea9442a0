// What the cost models of the kernels that work in teams share.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/kernels/launch_rules.cuh"

namespace tconv::cuda {

/// Steps of all types, of the longest, what divides them all, and how many types have any.
struct Steps {
  int total = 0, most = 0, common = 0, types = 0;
  bool equal = true;
  explicit Steps(const RowPlan& rows) {
    for (const BlockType& type : rows.types) {
      const int steps = int(type.steps.size());
      total += steps, most = std::max(most, steps), common = std::gcd(common, steps), types += steps > 0;
    }
    for (const BlockType& type : rows.types) equal = equal && int(type.steps.size()) == most;
  }
};

inline int products_per_step(device::Math math) {
  return device::splits(math) ? 3 : 1;
}

// The copy engine of a multiprocessor takes one copy after the other.
constexpr double copy_cycles = 72;           // for each, and
constexpr double copy_bytes_per_cycle = 56;  // for what it moves

/// The tiles of a call, and how the teams of a device take turns at them.
struct TeamRounds {
  double tiles, rounds, busy;  // busy: the part of all teams that has any

  TeamRounds(const device::GemmConfig& c, const Shape& shape, const DeviceLimits& limits) {
    const int in_turn = c.fills ? c.types : 1;  // tiles that a team takes one after the other
    const Int3 boxes = boxes_of(c, shape);
    tiles = double(device::block_sets_of(c)) * boxes.d * boxes.h * boxes.w *
            std::ceil(double(shape.batch) / c.images) * c.depth_splits;
    const double workers = double(limits.multiprocessors) * c.teams * c.blocks_per_sm;
    const double grid_teams =
        c.resident_steps ? double(device::blocks_of(c, std::int64_t(tiles), limits.multiprocessors)) * c.teams
                         : workers;
    rounds = in_turn * std::ceil(tiles / in_turn / std::min(grid_teams, workers));
    busy = std::min(1.0, grid_teams / workers);
  }

  /// Cycles of a multiprocessor whose tiles take `resources` each of what its teams share.
  double together(double resources, const DeviceLimits& limits) const {
    return tiles / limits.multiprocessors * resources / std::max(busy, 0.25);
  }
};

}  // namespace tconv::cuda
