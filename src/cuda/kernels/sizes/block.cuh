// What a block of a kernel of warpgroups takes of a multiprocessor: shared memory and registers.
#pragma once

#include "sizes/march.cuh"
#include "sizes/panel_team.cuh"
#include "sizes/warpgroup.cuh"

namespace tconv::device {

constexpr int team_shared_bytes(const GemmConfig& c) {
  if (c.march) return march_shared_bytes(c);
  return c.panel_columns ? panel_shared_bytes(c) : warpgroup_shared_bytes(c);
}

// Registers: a block starts with the same number for all its threads; loading warpgroups give back what they do
// not need. Asking for more than there is would wait for ever.
constexpr int entry_registers(const GemmConfig& c) {
  return min_of(65536 / (c.blocks_per_sm * warpgroup_size * warpgroups_of(c)) / 8 * 8, 248);
}
constexpr int loading_registers(const GemmConfig& c) {
  if (copies_x(c)) return c.turned_once ? 56 : 40;
  return c.panel_columns ? round_up(filling_registers(c) + 40, 8) : 64;
}
constexpr int multiplying_registers(const GemmConfig& c) {
  const int all = warpgroups_of(c), multiplying = multiplying_warpgroups(c);
  const int left = entry_registers(c) * all - (all - multiplying) * loading_registers(c);
  return min_of(left / multiplying / 8 * 8, 240);
}

}  // namespace tconv::device
