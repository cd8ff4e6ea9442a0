// The row plan against the definition of the operator: every tap of every output channel is in exactly one
// place of the matrix product, and every output of a box is stored once.
#include "cuda/heuristics/row_plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/heuristics/march_tiles.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"
#include "cuda/int3.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/kernels/sizes/block.cuh"
#include "cuda/kernels/sizes/general.cuh"

namespace tconv::cuda {
namespace {

Geometry random_geometry(std::mt19937& rng) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  Geometry g;
  g.groups = pick(0, 3) ? 1 : pick(1, 4);
  g.group_in = pick(1, 70);
  g.group_out = pick(0, 1) ? pick(1, 20) : pick(1, 200);
  for (std::size_t d = 0; d < 3; ++d) {
    g.kernel[d] = pick(1, 5);
    g.stride[d] = pick(1, 5);
    g.dilation[d] = pick(1, 4);
    g.padding[d] = pick(0, 4);
  }
  return g;
}

using device::GemmConfig;
using Key = std::tuple<int, int, int, int>;  // channel, kd, kh, kw

/// The tap at which a phase reads q − shift, from k·dilation = shift·stride + phase.
int tap_of(int shift, int phase, std::int64_t stride, std::int64_t dilation, std::int64_t kernel) {
  const std::int64_t target = shift * stride + phase;
  return target % dilation == 0 && target / dilation < kernel ? int(target / dilation) : -1;
}

/// The shifts of a plan's step, two where steps are paired.
std::vector<Int3> shifts_of(const RowPlan& plan, const Step& step) {
  std::vector<Int3> shifts{step.low};
  if (plan.paired && step.high.d >= 0) shifts.push_back(step.high);
  return shifts;
}
std::vector<Int3> shifts_of(const RowPlan& plan, const BlockType& type) {
  std::vector<Int3> shifts;
  for (const Step& step : type.steps)
    for (const Int3& shift : shifts_of(plan, step)) shifts.push_back(shift);
  return shifts;
}

TEST(RowPlan, HoldsEveryTapOnceAndNothingElse) {
  std::mt19937 rng(7);
  for (int round = 0; round < 300; ++round) {
    const Geometry g = random_geometry(rng);
    const int per_word = 1 + round % 2;
    RowPlan plan;
    ASSERT_TRUE(make_row_plan(g, per_word, 4, plan));
    std::map<Key, int> seen;
    for (const BlockType& type : plan.types) {
      ASSERT_EQ(int(type.rows.size()), plan.row_tiles * 16);
      for (std::size_t r = 0; r < type.rows.size(); ++r) {
        const Row& row = type.rows[r];
        if (row.channel < 0) continue;
        for (int block = 0; block < plan.channel_blocks; ++block) {
          const int channel = block * plan.channels_per_block + row.channel;
          if (channel >= g.group_out) continue;
          for (const Step& step : type.steps) {
            for (const Int3& s : shifts_of(plan, step)) {
              const int kd = tap_of(s.d, row.phase.d, g.stride[0], g.dilation[0], g.kernel[0]);
              const int kh = tap_of(s.h, row.phase.h, g.stride[1], g.dilation[1], g.kernel[1]);
              const int kw = tap_of(s.w, row.phase.w, g.stride[2], g.dilation[2], g.kernel[2]);
              if (kd < 0 || kh < 0 || kw < 0) continue;
              EXPECT_TRUE(step.mask >> (r / 16) & 1) << "a row's tap is masked off";
              ++seen[{channel, kd, kh, kw}];
              EXPECT_LE(s.d, plan.reach.d);
              EXPECT_LE(s.h, plan.reach.h);
              EXPECT_LE(s.w, plan.reach.w);
            }
          }
        }
      }
    }
    ASSERT_EQ(std::int64_t(seen.size()), g.group_out * g.taps());
    for (const auto& [key, times] : seen) ASSERT_EQ(times, 1);
  }
}

/// Rows of the march kernel are (slot, channel): the output slice so many behind that of x takes the tap of its
/// slot.
TEST(RowPlan, MarchHoldsEveryTapOnce) {
  std::mt19937 rng(21);
  int plans = 0;
  for (int round = 0; round < 300; ++round) {
    Geometry g = random_geometry(rng);
    g.stride = {1, 1, 1}, g.dilation[0] = 1;
    RowPlan plan;
    if (!make_march_row_plan(g, 2, 1 + round % 2, plan)) {
      EXPECT_TRUE(g.kernel[0] == 1 || g.group_in * g.group_out * g.taps() > 40'000) << "round " << round;
      continue;
    }
    ++plans;
    ASSERT_EQ(plan.types.size(), 1u);
    ASSERT_EQ(plan.march, g.kernel[0]);
    ASSERT_EQ(plan.rows(), plan.march * plan.channels_per_block);
    std::map<Key, int> seen;
    const BlockType& type = plan.types[0];
    for (std::size_t r = 0; r < type.rows.size(); ++r) {
      const Row& row = type.rows[r];
      ASSERT_EQ(row.channel, int(r) % plan.channels_per_block);
      for (int block = 0; block < plan.channel_blocks; ++block) {
        const int channel = block * plan.channels_per_block + row.channel;
        if (channel >= g.group_out) continue;
        for (const Step& step : type.steps) {
          ASSERT_EQ(step.low.d, 0) << "a step stays in its slice";
          const int kd = tap_of(step.low.d, row.phase.d, 1, 1, g.kernel[0]);
          const int kh = tap_of(step.low.h, row.phase.h, 1, g.dilation[1], g.kernel[1]);
          const int kw = tap_of(step.low.w, row.phase.w, 1, g.dilation[2], g.kernel[2]);
          ASSERT_EQ(kd, int(r) / plan.channels_per_block) << "the tap of a slot";
          if (kh >= 0 && kw >= 0) ++seen[{channel, kd, kh, kw}];
          EXPECT_LE(step.low.h, plan.reach.h);
          EXPECT_LE(step.low.w, plan.reach.w);
        }
      }
    }
    ASSERT_EQ(std::int64_t(seen.size()), g.group_out * g.taps());
    for (const auto& [key, times] : seen) ASSERT_EQ(times, 1);
  }
  EXPECT_GT(plans, 100);
}

TEST(RowPlan, LinesCoverEveryChannelAndPhaseOnce) {
  std::mt19937 rng(8);
  for (int round = 0; round < 200; ++round) {
    const Geometry g = random_geometry(rng);
    RowPlan plan;
    ASSERT_TRUE(make_row_plan(g, 1, 4, plan));
    std::set<std::tuple<int, int, int>> lines;
    for (const BlockType& type : plan.types)
      for (const Line& line : type.lines)
        for (int block = 0; block < plan.channel_blocks; ++block) {
          const int channel = block * plan.channels_per_block + line.channel;
          if (line.channel < 0 || channel >= g.group_out) continue;
          EXPECT_TRUE(lines.insert({channel, line.phase_d, line.phase_h}).second);
        }
    EXPECT_EQ(std::int64_t(lines.size()), g.group_out * g.stride[0] * g.stride[1]);
  }
}

TEST(RowPlan, TypesWithoutTapsHaveNoSteps) {
  Geometry g;  // stride 2, dilation 2: odd phases have no taps
  g.group_in = 32, g.group_out = 64;
  g.kernel = {3, 3, 3}, g.stride = {2, 2, 2}, g.dilation = {2, 2, 2};
  RowPlan plan;
  ASSERT_TRUE(make_row_plan(g, 1, 4, plan));
  EXPECT_EQ(plan.width_phases, 1);
  int with_steps = 0;
  for (const BlockType& type : plan.types) with_steps += !type.steps.empty();
  EXPECT_EQ(with_steps, 1);
  EXPECT_EQ(plan.types.size(), 4u);
}

/// Along the width, from the definition: output o takes tap k from input i where o + padding = stride·i +
/// dilation·k. A row of a position has that tap at the one step that reads i, and no row has others.
TEST(RowPlan, PositionsOfSeveralInputsTakeEveryTapOfEveryOutputOnce) {
  std::mt19937 rng(10);
  for (int round = 0; round < 200; ++round) {
    Geometry g = random_geometry(rng);
    g.kernel[2] = 1 + std::int64_t(rng() % 9);
    const int inputs = 1 << round % 4;
    RowPlan plan;
    if (!make_wide_row_plan(g, 1, 1, round % 3 == 0, inputs, plan)) continue;
    ASSERT_EQ(plan.x_phases, inputs);
    const int stride = int(g.stride[2]), padding = int(g.padding[2]);
    std::map<std::tuple<Key, int, int>, int> seen;  // channel and tap, output, input
    for (const BlockType& type : plan.types)
      for (const Row& row : type.rows)
        for (const Int3& shift : shifts_of(plan, type)) {
          const int kd = tap_of(shift.d, row.phase.d, g.stride[0], g.dilation[0], g.kernel[0]);
          const int kh = tap_of(shift.h, row.phase.h, g.stride[1], g.dilation[1], g.kernel[1]);
          EXPECT_LE(shift.w, plan.reach.w * inputs);
          EXPECT_GT(shift.w, -inputs);
          if (row.channel < 0 || kd < 0 || kh < 0) continue;
          for (int position = -3; position < 12; ++position) {
            const int output = position * stride * inputs + row.phase.w - padding;
            const int input = position * inputs - shift.w;
            const std::int64_t rest = output + padding - std::int64_t(input) * stride;
            if (rest < 0 || rest % g.dilation[2] != 0 || rest / g.dilation[2] >= g.kernel[2]) continue;
            const Key tap{row.channel, kd, kh, int(rest / g.dilation[2])};
            EXPECT_EQ(++seen[std::tuple(tap, output, input)], 1);
          }
        }
    // The same for the outputs of those positions.
    std::int64_t wanted = 0;
    for (int output = -3 * stride * inputs - padding; output < 12 * stride * inputs - padding; ++output)
      for (int k = 0; k < g.kernel[2]; ++k) wanted += (output + padding - k * int(g.dilation[2])) % stride == 0;
    EXPECT_EQ(std::int64_t(seen.size()), wanted * plan.channels_per_block * g.kernel[0] * g.kernel[1]);
  }
}

/// Of a pair, the second shift reads a position behind that of the first.
TEST(RowPlan, PairsOfStepsAreInTheOrderOfPositions) {
  std::mt19937 rng(23);
  int pairs = 0;
  for (int round = 0; round < 200; ++round) {
    Geometry g = random_geometry(rng);
    g.group_in = 1 + std::int64_t(rng() % 8);
    RowPlan plan;
    if (!make_wide_row_plan(g, 2, 1, round % 2, 1, plan)) continue;
    EXPECT_TRUE(plan.paired);
    GemmConfig c = layer_config(g, device::Math::f16, plan);
    c.panel_columns = 8, c.box = {1, 3, 16}, c.x_vector = 1;
    for (const BlockType& type : plan.types)
      for (const Step& step : type.steps) {
        if (step.high.d < 0) continue;
        ++pairs;
        EXPECT_GT(device::step_offset(c, step.high), device::step_offset(c, step.low));
      }
  }
  EXPECT_GT(pairs, 200);
}

/// Rows eight apart are neighbouring phases of one line, each row is there once, and lines are as they were.
TEST(RowPlan, PairedRowsAreEightApart) {
  std::mt19937 rng(31);
  int paired = 0, others = 0;
  for (int round = 0; round < 300; ++round) {
    const Geometry g = random_geometry(rng);
    RowPlan plan;
    if (!make_wide_row_plan(g, 2, 1, round % 4 == 0, 1 << round % 2, plan)) continue;
    RowPlan pairs = plan;
    pair_rows(g, pairs);
    if (!pairs.row_pairs) {
      ++others;
      EXPECT_EQ(pairs.rows(), plan.rows());
      continue;
    }
    ++paired;
    ASSERT_EQ(pairs.rows(), (plan.rows() + 15) / 16 * 16);
    for (std::size_t t = 0; t < plan.types.size(); ++t) {
      const BlockType &type = plan.types[t], &of_pairs = pairs.types[t];
      ASSERT_EQ(of_pairs.rows.size(), std::size_t(pairs.rows()));
      EXPECT_EQ(of_pairs.lines.size(), std::size_t(pairs.rows() / plan.width_slots));
      for (int place = 0; place < pairs.rows(); ++place) {
        const int row = device::row_at_place(place);
        ASSERT_EQ(device::place_of_row(row), place);
        const Row& at = of_pairs.rows[std::size_t(place)];
        if (row >= plan.rows()) {
          EXPECT_EQ(at.channel, -1);
          continue;
        }
        const Row& was = type.rows[std::size_t(row)];
        EXPECT_TRUE(at.channel == was.channel && at.phase == was.phase);
        if (place % 16 >= 8 || at.channel < 0) continue;
        const Row& next = of_pairs.rows[std::size_t(place) + 8];
        EXPECT_EQ(next.channel, at.channel);
        EXPECT_TRUE((next.phase == Int3{at.phase.d, at.phase.h, at.phase.w + 1}));
      }
    }
  }
  EXPECT_GT(paired, 20);
  EXPECT_GT(others, 20);
}

/// Where few rows would leave most of a product idle, and neighbouring inputs share enough of their steps.
TEST(RowPlan, FewRowsHaveSeveralInputsInAPosition) {
  const auto inputs = [](std::int64_t in, std::int64_t out, Extents kernel, std::int64_t stride, bool last = false,
                         int parts = 1) {
    Geometry g;
    g.group_in = in, g.group_out = out, g.kernel = kernel, g.stride = {1, stride, stride};
    RowPlan plan;
    return make_wide_row_plan(g, 1, parts, last, plan) ? plan.x_phases : 0;
  };
  EXPECT_EQ(inputs(32, 32, {1, 3, 3}, 1), 2);
  EXPECT_EQ(inputs(32, 16, {3, 5, 7}, 1), 4);
  EXPECT_EQ(inputs(64, 8, {1, 1, 15}, 1), 8);
  EXPECT_EQ(inputs(56, 1, {1, 9, 9}, 4), 2);
  EXPECT_EQ(inputs(56, 1, {1, 9, 9}, 2), 8);  // 16 rows of a line
  EXPECT_EQ(inputs(56, 1, {1, 9, 9}, 4, true), 4);
  EXPECT_EQ(inputs(64, 64, {1, 3, 3}, 1), 1);        // no row is idle
  EXPECT_EQ(inputs(64, 16, {1, 3, 1}, 1), 2);        // no step is shared, but the general kernel would be slower
  EXPECT_EQ(inputs(64, 16, {1, 2, 2}, 2), 1);        // nor here, where others serve
  EXPECT_EQ(inputs(30, 32, {1, 3, 3}, 1, true), 2);  // threads cannot load panels, but x may be turned
  EXPECT_EQ(inputs(32, 32, {1, 3, 3}, 1, false, 2), 1);
  EXPECT_EQ(inputs(85, 8, {5, 5, 5}, 1), 8);  // by panels of one shift: no other holds what they read
}

/// Positions that begin with the first output of every phase: of each output exactly one position and phase, at
/// the same tap and input as before, and no more positions than outputs of a phase.
TEST(RowPlan, FromFirstOutput) {
  std::mt19937 rng(13);
  int moved_plans = 0;
  for (int round = 0; round < 400; ++round) {
    const Geometry g = random_geometry(rng);
    RowPlan plan;
    if (!make_wide_row_plan(g, 1 + round % 2, 1, round % 3 == 0, 1, plan)) continue;
    const GemmConfig before = layer_config(g, device::Math::tf32, plan);
    const auto moved = from_first_output(plan, before.stride, before.padding);
    if (!moved) continue;
    ++moved_plans;
    const GemmConfig after = layer_config(g, device::Math::tf32, *moved);
    EXPECT_EQ(device::first_phase(after), moved->first_phase);
    ASSERT_EQ(moved->types.size(), plan.types.size());
    for (std::size_t t = 0; t < plan.types.size(); ++t) {
      const BlockType &a = plan.types[t], &b = moved->types[t];
      ASSERT_EQ(a.lines.size(), b.lines.size());
      ASSERT_EQ(a.steps.size(), b.steps.size());
      for (std::size_t l = 0; l < a.lines.size(); ++l) {
        if (a.lines[l].channel < 0) continue;
        EXPECT_EQ(a.lines[l].channel, b.lines[l].channel);
        const auto same_phase = [](int x, int y, int stride) { return (x - y) % stride == 0; };
        EXPECT_TRUE(same_phase(a.lines[l].phase_d, b.lines[l].phase_d, before.stride.d));
        EXPECT_TRUE(same_phase(a.lines[l].phase_h, b.lines[l].phase_h, before.stride.h));
        for (const auto& [phase, first, stride] :
             {std::tuple{b.lines[l].phase_d, moved->first_phase.d, before.stride.d},
              {b.lines[l].phase_h, moved->first_phase.h, before.stride.h}}) {
          EXPECT_GE(phase, first);
          EXPECT_LT(phase, first + stride);
        }
        for (std::size_t i = 0; i < a.steps.size(); ++i) {
          const Int3 x = a.steps[i].low, y = b.steps[i].low;
          EXPECT_EQ(x.d * before.stride.d + a.lines[l].phase_d, y.d * before.stride.d + b.lines[l].phase_d);
          EXPECT_EQ(x.h * before.stride.h + a.lines[l].phase_h, y.h * before.stride.h + b.lines[l].phase_h);
          EXPECT_EQ(x.w, y.w);
          EXPECT_TRUE(y.d >= 0 && y.d <= moved->reach.d && y.h >= 0 && y.h <= moved->reach.h);
        }
      }
    }
    for (const int out : {1, 2, 7, 20}) {
      const Int3 positions = device::positions_of(after, Int3{out, out, out});
      if (moved->first_phase.d < 0) {
        EXPECT_EQ(positions.d, device::ceil_div(out, before.stride.d));
      }
      if (moved->first_phase.h < 0) {
        EXPECT_EQ(positions.h, device::ceil_div(out, before.stride.h));
      }
      EXPECT_EQ(positions.w, device::positions_of(before, Int3{out, out, out}).w);
    }
  }
  EXPECT_GT(moved_plans, 50);
}

/// Lines of all phases along the height that have taps, side by side: every tap of every channel is at one step of
/// one row, and every line is there once.
TEST(RowPlan, WholeRowsHaveThePhasesAlongTheHeightTogether) {
  std::mt19937 rng(17);
  int plans = 0, with_gaps = 0;
  for (int round = 0; round < 600; ++round) {
    const Geometry g = random_geometry(rng);
    RowPlan plan;
    if (!make_wide_row_plan(g, 1 + round % 2, 1, false, 1, plan)) continue;
    const auto whole = with_whole_rows(g, 1 + round % 2, 1, plan);
    if (!whole) continue;
    EXPECT_FALSE(plan.whole_rows);
    EXPECT_TRUE(whole->whole_rows);
    EXPECT_EQ(whole->run_phases, g.stride[1]);
    EXPECT_EQ(8 % (whole->line_phases * whole->width_slots), 0);
    EXPECT_LE(whole->rows(), device::panel_rows);
    ++plans, with_gaps += whole->line_phases < whole->run_phases;
    std::map<Key, int> taps;
    std::map<std::tuple<int, int, int>, int> lines;
    for (const BlockType& type : whole->types) {
      for (std::size_t l = 0; l < type.lines.size(); ++l) {
        const Line& line = type.lines[l];
        if (line.channel < 0) continue;
        ++lines[{line.channel, line.phase_d, line.phase_h}];
        if (l % std::size_t(whole->line_phases) == 0) {
          EXPECT_EQ(line.phase_h, 0);  // the first row of a run
        } else {
          EXPECT_EQ(line.channel, type.lines[l - 1].channel);
          EXPECT_GT(line.phase_h, type.lines[l - 1].phase_h);
        }
      }
      for (const Row& row : type.rows)
        for (const Int3& shift : shifts_of(*whole, type)) {
          const int kd = tap_of(shift.d, row.phase.d, g.stride[0], g.dilation[0], g.kernel[0]);
          const int kh = tap_of(shift.h, row.phase.h, g.stride[1], g.dilation[1], g.kernel[1]);
          const int kw = tap_of(shift.w, row.phase.w, g.stride[2], g.dilation[2], g.kernel[2]);
          if (row.channel >= 0 && kd >= 0 && kh >= 0 && kw >= 0) ++taps[{row.channel, kd, kh, kw}];
        }
    }
    EXPECT_EQ(std::int64_t(taps.size()), whole->channels_per_block * g.taps());
    for (const auto& [tap, times] : taps) EXPECT_EQ(times, 1);
    EXPECT_EQ(std::int64_t(lines.size()), whole->channels_per_block * g.stride[0] * whole->line_phases);
    for (const auto& [line, times] : lines) EXPECT_EQ(times, 1);
  }
  EXPECT_GT(plans, 50);
  EXPECT_GT(with_gaps, 20);
}

/// Where lines of all phases along the height take no more products than apart, the plan of every tile has them
/// together.
TEST(RowPlan, LinesAreTogetherWhereThatTakesNoMoreProducts) {
  const auto line_phases = [](std::int64_t in, std::int64_t out, Extents kernel, Extents stride,
                              bool whole = false) {
    Geometry g;
    g.group_in = in, g.group_out = out, g.kernel = kernel, g.stride = stride;
    RowPlan plan;
    EXPECT_TRUE(make_wide_row_plan(g, 1, 1, false, 1, plan));
    if (!whole) return plan.line_phases;
    const auto rows = with_whole_rows(g, 1, 1, plan);
    return rows ? rows->line_phases : 0;
  };
  EXPECT_EQ(line_phases(64, 64, {1, 2, 2}, {1, 2, 2}), 2);
  EXPECT_EQ(line_phases(64, 64, {1, 4, 4}, {1, 2, 2}), 2);
  EXPECT_EQ(line_phases(8, 8, {3, 5, 7}, {2, 2, 2}), 2);    // all phases share a block
  EXPECT_EQ(line_phases(32, 32, {3, 3, 3}, {2, 2, 2}), 1);  // four products for three
  EXPECT_EQ(line_phases(32, 32, {3, 3, 3}, {2, 2, 2}, true), 2);
  EXPECT_EQ(line_phases(64, 64, {1, 2, 2}, {1, 2, 2}, true), 0);
  EXPECT_EQ(line_phases(64, 64, {1, 3, 3}, {1, 3, 3}, true),
            0);  // eight rows would not be whole lines of three phases
}

/// A plan of positions of several inputs is the panel kernel's alone: it has a tile for every shape.
TEST(Tiles, PositionsOfSeveralInputsAreServed) {
  std::mt19937 rng(11);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  int served = 0;
  for (int round = 0; round < 3000 && served < 150; ++round) {
    Geometry g = random_geometry(rng);
    g.group_out = pick(1, 32), g.kernel[2] = pick(1, 15);
    if (round % 2) g.kernel[0] = g.stride[0] = g.dilation[0] = 1, g.padding[0] = 0;
    if (round % 4) g.stride[1] = g.stride[2] = 1, g.dilation[1] = 1;
    const auto math = static_cast<device::Math>(round / 4 % 4);
    const int per_word = math == device::Math::f16 || math == device::Math::bf16 ? 2 : 1;
    const bool last = round % 3 == 0;
    RowPlan plan;
    if (!make_wide_row_plan(g, per_word, math == device::Math::fp32 ? 2 : 1, last, plan) || plan.x_phases == 1)
      continue;
    Shape shape;
    shape.batch = pick(1, 3);
    for (std::size_t d = 0; d < 3; ++d) {
      shape.input[d] = round % 5 ? pick(1, d == 2 ? 1200 : 40) : pick(1, 6);
      shape.output[d] = std::max<std::int64_t>(
          1, (shape.input[d] - 1) * g.stride[d] - 2 * g.padding[d] + g.dilation[d] * (g.kernel[d] - 1) + 1);
    }
    Access access;
    access.x_channels_last = last, access.y_rows = !last, access.x_vector = last ? 4 : shape.input[2] % 2 ? 1 : 2;
    const auto choices = price_warpgroup_tiles(g, math, plan, shape, access, {});
    ASSERT_FALSE(choices.empty()) << "round " << round;
    for (const TileChoice& choice : choices) EXPECT_GT(choice.config.panel_columns, 0);
    ++served;
  }
  EXPECT_EQ(served, 150);
}

/// Of the kernels of warpgroups, in every way of splitting numbers and sums.
TEST(Tiles, EveryTileOfWarpgroupsFitsTheDevice) {
  std::mt19937 rng(15);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  const DeviceLimits limits;
  std::int64_t split = 0, clustered = 0;
  for (int round = 0; round < 200; ++round) {
    Geometry g = random_geometry(rng);
    g.group_in = pick(16, 800), g.group_out = pick(17, 200);
    if (round % 2) g.stride[0] = g.kernel[0] = 1, g.padding[0] = 0;
    const auto math = static_cast<device::Math>(round % 5);
    const bool last = round % 3 == 0;
    RowPlan plan;
    if (!make_wide_row_plan(g, device::channels_per_word(math), device::weight_parts(math), last,
                            round % 4 ? 1 : 2, plan))
      continue;
    Shape shape;
    shape.batch = pick(1, 4);
    for (std::size_t d = 0; d < 3; ++d) {
      shape.input[d] = d == 0 && round % 2 ? 1 : pick(1, d == 2 ? 90 : 6);
      shape.output[d] = std::max<std::int64_t>(
          1, (shape.input[d] - 1) * g.stride[d] - 2 * g.padding[d] + g.dilation[d] * (g.kernel[d] - 1) + 1);
    }
    Access access;
    access.x_channels_last = last, access.y_rows = !last, access.x_vector = last && g.group_in % 4 == 0 ? 4 : 1;
    for (const TileChoice& choice : price_warpgroup_tiles(g, math, plan, shape, access, limits)) {
      const auto& c = choice.config;
      ASSERT_LE(device::team_shared_bytes(c), limits.shared_per_block) << "round " << round;
      ASSERT_LE(c.blocks_per_sm * (device::team_shared_bytes(c) + 1024), limits.shared_per_multiprocessor);
      ASSERT_LE(c.depth_splits, device::chunks_of(c));
      split += c.depth_splits > 1;
      if (!c.clustered) continue;
      // Clusters are whole on any number of multiprocessors, and their blocks take equally many tiles.
      const auto p = device::forward_params(c, shape.batch, int3(shape.input), int3(shape.output));
      ASSERT_EQ(p.tiles % c.depth_splits, 0);
      for (const int multiprocessors : {1, 2, 7, 132})
        if (multiprocessors * c.blocks_per_sm > 1) {
          ASSERT_EQ(device::launch_of(c, p, multiprocessors).blocks % unsigned(c.depth_splits), 0u);
        }
      ++clustered;
    }
  }
  EXPECT_GT(split, 1000);
  EXPECT_GT(clustered, 1000);
}

TEST(Tiles, EveryTileOfTheMarchFitsTheDeviceAndCoversTheShape) {
  std::mt19937 rng(22);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  const DeviceLimits limits;
  int served = 0;
  for (int round = 0; round < 60; ++round) {
    Geometry g = random_geometry(rng);
    g.stride = {1, 1, 1}, g.dilation[0] = 1, g.kernel[0] = pick(2, 4);
    g.group_in = pick(16, 64), g.group_out = pick(8, 64);
    const device::Math math = round % 2 ? device::Math::halves : device::Math::f16;
    RowPlan plan;
    if (!make_march_row_plan(g, 2, device::weight_parts(math), plan) || !suits_march(g, math, plan)) continue;
    Shape shape;
    shape.batch = pick(1, 4);
    for (std::size_t d = 0; d < 3; ++d) {
      shape.input[d] = pick(10, d == 2 ? 300 : 40);
      shape.output[d] = shape.input[d] - 1 - 2 * g.padding[d] + g.dilation[d] * (g.kernel[d] - 1) + 1;
    }
    const auto choices = price_march_tiles(g, math, plan, shape, {}, limits);
    served += !choices.empty();
    for (const TileChoice& choice : choices) {
      const auto& c = choice.config;
      ASSERT_LE(device::team_shared_bytes(c), limits.shared_per_block) << "round " << round;
      ASSERT_LE(device::march_span(c), device::march_positions(c));
      ASSERT_LE((c.loaders * device::march_loading_registers(c) + device::march_storing_registers +
                 c.box_parts * device::march_multiplying_registers(c)) *
                    device::warpgroup_size,
                65536);
      ASSERT_EQ(c.resident_steps % c.steps_per_slab, 0);
      const Int3 boxes = boxes_of(c, shape), positions = positions_of(c, shape);
      ASSERT_GE(boxes.d * c.box.d, positions.d);
      ASSERT_GE(boxes.h * c.box.h, positions.h);
      ASSERT_GE((boxes.w - 1) * device::box_advance(c) + c.box.w, positions.w);
      ASSERT_TRUE(c.run_rows == 1 || (c.box.w >= positions.w && c.window == 1));
    }
  }
  EXPECT_GT(served, 20);
}

/// Several rows are one run where they are whole, follow one another in memory, and the tile serves no other
/// shape.
TEST(Tiles, RunsAreWholeRowsThatFollowOneAnother) {
  Geometry g{};
  g.groups = 1, g.group_in = 32, g.group_out = 64;
  g.kernel = {1, 3, 3}, g.stride = {1, 1, 1}, g.padding = {0, 1, 0}, g.dilation = {1, 1, 1};
  const auto runs_of = [&](std::int64_t stride_h, const Access& access, const DeviceLimits& limits) {
    Geometry layer = g;
    layer.stride[1] = stride_h;
    RowPlan plan;
    EXPECT_TRUE(make_wide_row_plan(layer, 2, 1, false, 1, plan));
    Shape shape;
    shape.batch = 4, shape.input = {1, 9, 43}, shape.output = {1, 8 * stride_h + 1, 45};
    int joined = 0, flat = 0;
    for (const TileChoice& choice : price_warpgroup_tiles(layer, device::Math::f16, plan, shape, access, limits)) {
      const auto& c = choice.config;
      if (!c.whole_rows) continue;
      EXPECT_GE(c.box.w, 45);
      EXPECT_LE(c.run_rows, c.panel_flat ? c.box.h : std::max(c.product_rows, c.position_tiles));
      ++(c.panel_flat ? flat : joined);
    }
    return std::pair{joined > 0, flat > 0};
  };
  const std::pair all{true, true}, none{false, false};
  EXPECT_EQ(runs_of(1, {}, {}), all);
  EXPECT_EQ(runs_of(2, {}, {}), none);
  EXPECT_EQ(runs_of(1, {.y_planes = false}, {}), none);
  EXPECT_EQ(runs_of(1, {}, {.exported = true}), none);
}

/// Where no tap reads a neighbour and positions are inputs; every copy begins with a multiple of 16 bytes then,
/// and a box's positions follow one another.
TEST(Tiles, MapsServeWhereNoTapReadsANeighbour) {
  Geometry g{};
  g.groups = 1, g.group_in = 64, g.group_out = 32;
  g.kernel = g.stride = {1, 2, 2}, g.padding = {0, 0, 0}, g.dilation = {1, 1, 1};
  const auto mapped = [](const Geometry& layer, device::Math math, std::int64_t h, std::int64_t w,
                         const Access& access, const DeviceLimits& limits) {
    RowPlan plan;
    EXPECT_TRUE(make_wide_row_plan(layer, device::channels_per_word(math), 1, false, 1, plan));
    Shape shape;
    shape.batch = 3, shape.input = {1, h, w};
    for (std::size_t d = 0; d < 3; ++d)
      shape.output[d] = (shape.input[d] - 1) * layer.stride[d] - 2 * layer.padding[d] + layer.kernel[d];
    int count = 0;
    for (const TileChoice& choice : price_warpgroup_tiles(layer, math, plan, shape, access, limits)) {
      const auto& c = choice.config;
      if (!c.mapped) continue;
      ++count;
      EXPECT_FALSE(c.turned);
      EXPECT_TRUE(c.box.h >= h || c.box.h * w % 8 == 0);
      EXPECT_TRUE(c.box.w >= w || device::box_advance(c) % 8 == 0);
      EXPECT_TRUE(c.box.w == w || (!c.panel_flat && c.product_rows == 1));
      EXPECT_EQ(c.images > 1 && device::volume(c.box) % 64 != 0, false);
    }
    return count;
  };
  using device::Math;
  const Access access{.x_maps = true};
  EXPECT_GT(mapped(g, Math::f16, 16, 24, access, {}), 0);
  EXPECT_GT(mapped(g, Math::bf16, 8, 8, access, {}), 0);
  EXPECT_GT(mapped(g, Math::f16, 8, 13, access, {}), 0) << "eight rows of odd length";
  EXPECT_EQ(mapped(g, Math::f16, 16, 24, {}, {}), 0);
  EXPECT_EQ(mapped(g, Math::f16, 16, 24, access, {.exported = true}), 0);
  EXPECT_EQ(mapped(g, Math::tf32, 16, 24, access, {}), 0);
  Geometry other = g;
  other.kernel[2] = 3;
  EXPECT_EQ(mapped(other, Math::f16, 16, 24, access, {}), 0);
  other = g, other.padding[1] = 1;  // every input still has outputs
  EXPECT_GT(mapped(other, Math::f16, 16, 24, access, {}), 0);
  other.padding[1] = 2;
  EXPECT_EQ(mapped(other, Math::f16, 16, 24, access, {}), 0);
}

/// Runs begin before the image where padding is no multiple of the stride; a plan of whole rows has no other
/// tiles.
TEST(Tiles, RunsOfAllPhasesAlongTheHeight) {
  Geometry g{};
  g.groups = 1, g.group_in = 32, g.group_out = 64;
  g.kernel = {1, 3, 3}, g.stride = {1, 2, 2}, g.padding = {0, 1, 1}, g.dilation = {1, 1, 1};
  RowPlan plan;
  ASSERT_TRUE(make_wide_row_plan(g, 2, 1, false, 1, plan));
  const auto whole = with_whole_rows(g, 2, 1, plan);
  ASSERT_TRUE(whole);
  Shape shape;
  shape.batch = 4, shape.input = {1, 20, 43}, shape.output = {1, 39, 85};
  const auto runs_of = [&](const RowPlan& rows, const Access& access) {
    std::set<bool> kinds;
    for (const TileChoice& choice : price_warpgroup_tiles(g, device::Math::f16, rows, shape, access, {}))
      kinds.insert(choice.config.whole_rows);
    return kinds;
  };
  EXPECT_EQ(runs_of(plan, {}), std::set{false});
  EXPECT_EQ(runs_of(*whole, {}), std::set{true});
  EXPECT_EQ(runs_of(*whole, {.y_planes = false}), std::set<bool>{});
}

TEST(Tiles, EveryChoiceFitsTheDeviceAndCoversTheShape) {
  std::mt19937 rng(9);
  for (int round = 0; round < 60; ++round) {
    const Geometry g = random_geometry(rng);
    RowPlan plan;
    ASSERT_TRUE(make_row_plan(g, 1, 4, plan));
    Shape shape;
    shape.batch = 2;
    for (std::size_t d = 0; d < 3; ++d) {
      shape.input[d] = 1 + std::int64_t(rng() % 20);
      shape.output[d] = std::max<std::int64_t>(
          1, (shape.input[d] - 1) * g.stride[d] - 2 * g.padding[d] + g.dilation[d] * (g.kernel[d] - 1) + 1);
    }
    const auto choices = price_tiles(g, device::Math::tf32, plan, shape, {}, {});
    ASSERT_FALSE(choices.empty());
    for (const TileChoice& choice : choices) {
      const auto& c = choice.config;
      EXPECT_LE(device::shared_bytes(c), DeviceLimits{}.shared_per_block);
      EXPECT_EQ(c.warps_n * c.tiles_n * 8, device::volume(c.box));
      EXPECT_EQ(c.box.w % 8, 0);
      EXPECT_GT(choice.cycles, 0);
      // The boxes reach the last position that has an output.
      const Int3 boxes = boxes_of(c, shape);
      const auto covers = [](int count, int box, int first, int stride, int padding, std::int64_t output) {
        return (std::int64_t(first) + std::int64_t(count) * box) * stride - padding >= output &&
               std::int64_t(first) * stride - padding <= 0;
      };
      EXPECT_TRUE(covers(boxes.d, c.box.d, c.first_position.d, c.stride.d, c.padding.d, shape.output[0]));
      EXPECT_TRUE(covers(boxes.h, c.box.h, c.first_position.h, c.stride.h, c.padding.h, shape.output[1]));
      EXPECT_TRUE(covers(boxes.w, c.box.w, c.first_position.w, c.stride.w, c.padding.w, shape.output[2]));
    }
  }
}

}  // namespace
}  // namespace tconv::cuda
