#include "cuda/heuristics/row_plan.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "layer/phases.hpp"

namespace tconv::cuda {
namespace {

using std::int64_t;

constexpr int max_row_tiles = 32;  // bits of a step's mask

/// The shifts of every phase of one dimension; empty where a phase has no taps.
std::vector<std::vector<int>> shifts_by_phase(const Geometry& g, int dim) {
  std::vector<std::vector<int>> shifts(std::size_t(g.stride[dim]));
  for (const Phase& phase : phases_of(g.kernel[dim], g.stride[dim], g.dilation[dim]))
    for (const Tap& tap : phase.taps) shifts[std::size_t(phase.r)].push_back(int(tap.shift));
  return shifts;
}

struct PhasePair {
  int d, h;
};

struct Shifts {
  std::vector<std::vector<int>> d, h, w;

  bool has_taps(PhasePair pair) const {
    return !d[std::size_t(pair.d)].empty() && !h[std::size_t(pair.h)].empty();
  }
  bool has_tap(const Row& row, const Int3& shift) const {
    const auto holds = [](const std::vector<int>& set, int s) {
      return std::find(set.begin(), set.end(), s) != set.end();
    };
    return row.channel >= 0 && holds(d[std::size_t(row.phase.d)], shift.d) &&
           holds(h[std::size_t(row.phase.h)], shift.h) && holds(w[std::size_t(row.phase.w)], shift.w);
  }
};

/// Lines of a type, in stage groups; a line of padding has channel -1.
std::vector<Line> lines_of(const RowPlan& plan, const std::vector<PhasePair>& pairs, int channels) {
  std::vector<Line> lines;
  for (const PhasePair& pair : pairs)
    for (int channel = 0; channel < channels; ++channel) lines.push_back({channel, pair.d, pair.h});
  const std::size_t capacity =
      std::size_t(plan.row_tiles / plan.stage_group_tiles) * std::size_t(plan.stage_group_lines);
  lines.resize(capacity, Line{-1, 0, 0});
  return lines;
}

/// Rows of a type's tiles: line by line, or phase by phase over 16 lines.
std::vector<Row> rows_of(const RowPlan& plan, const BlockType& type, const std::vector<int>& width_phases) {
  std::vector<Row> rows(std::size_t(plan.row_tiles) * 16);
  const int groups = plan.row_tiles / plan.stage_group_tiles;
  for (int group = 0; group < groups; ++group)
    for (int place = 0; place < plan.stage_group_tiles; ++place)
      for (int i = 0; i < 16; ++i) {
        const int in_group = place * 16 + i;
        const int line = plan.phase_major ? i : in_group / plan.width_phases;
        const int phase = plan.phase_major ? place : in_group % plan.width_phases;
        if (line >= plan.stage_group_lines || phase >= plan.width_phases) continue;
        const Line& at = type.lines[std::size_t(group * plan.stage_group_lines + line)];
        rows[std::size_t((group * plan.stage_group_tiles + place) * 16 + i)] =
            Row{at.channel, {at.phase_d, at.phase_h, width_phases[std::size_t(phase)]}};
      }
  return rows;
}

std::vector<Step> steps_of(const RowPlan& plan, const BlockType& type, const Shifts& shifts) {
  const auto key = [](const Int3& s) { return std::tuple(s.d, s.h, s.w); };
  std::set<std::tuple<int, int, int>> wanted;
  for (const Row& row : type.rows) {
    if (row.channel < 0) continue;
    for (int d : shifts.d[std::size_t(row.phase.d)])
      for (int h : shifts.h[std::size_t(row.phase.h)])
        for (int w : shifts.w[std::size_t(row.phase.w)]) wanted.insert(key({d, h, w}));
  }
  const auto mask_of = [&](const Int3& shift) {
    std::uint32_t mask = 0;
    for (std::size_t i = 0; i < type.rows.size(); ++i)
      if (shifts.has_tap(type.rows[i], shift)) mask |= 1u << (i / 16);
    return mask;
  };
  std::vector<Step> steps;
  for (const auto& [d, h, w] : wanted) {
    const Int3 shift{d, h, w};
    if (!plan.paired) {
      steps.push_back({shift, shift, mask_of(shift)});
    } else if (steps.empty() || steps.back().high.d >= 0) {
      steps.push_back({shift, {-1, -1, -1}, mask_of(shift)});
    } else {
      steps.back().high = shift;
      steps.back().mask |= mask_of(shift);
    }
  }
  return steps;
}

}  // namespace

int64_t RowPlan::weight_base(int type, const Geometry& geometry, int channels_per_word, int unit) const {
  const int64_t channels = int64_t(unit) * channels_per_word;
  const int64_t units = (geometry.group_in + channels - 1) / channels;
  int64_t steps = 0;
  for (int t = 0; t < type; ++t) steps += int64_t(types[std::size_t(t)].steps.size());
  return steps * row_tiles * 16 * unit * units * geometry.groups * channel_blocks;
}

bool make_row_plan(const Geometry& g, int channels_per_word, int target_row_tiles, RowPlan& plan, int multiple) {
  for (int d = 0; d < 3; ++d)
    if (g.stride[d] > 255 || g.kernel[d] > 1024 || g.kernel[d] * g.dilation[d] > 100'000) return false;
  if (g.taps() > 4096 || g.stride[0] * g.stride[1] > 256) return false;
  plan = RowPlan{};
  const Shifts shifts{shifts_by_phase(g, 0), shifts_by_phase(g, 1), shifts_by_phase(g, 2)};
  const auto reach = [](const std::vector<std::vector<int>>& by_phase) {
    int largest = 0;
    for (const auto& set : by_phase)
      for (int s : set) largest = std::max(largest, s);
    return largest;
  };
  plan.reach = {reach(shifts.d), reach(shifts.h), reach(shifts.w)};

  std::vector<int> width_phases;
  for (int r = 0; r < int(g.stride[2]); ++r) {
    if (!shifts.w[std::size_t(r)].empty()) width_phases.push_back(r);
  }
  plan.width_phases = int(width_phases.size());
  if (plan.width_phases > max_row_tiles) return false;

  plan.paired = g.group_in <= 4 * channels_per_word;

  std::vector<PhasePair> with_taps, without;
  for (int d = 0; d < int(g.stride[0]); ++d)
    for (int h = 0; h < int(g.stride[1]); ++h) (shifts.has_taps({d, h}) ? with_taps : without).push_back({d, h});

  // Channels fill row tiles where there are many; else a tile takes several lines with all their phases.
  int pairs_per_type;
  plan.phase_major = g.group_out > 8;
  if (plan.phase_major) {
    plan.stage_group_tiles = plan.width_phases;
    plan.stage_group_lines = 16;
    const int channel_groups = int((g.group_out + 15) / 16);
    const int wanted = std::max(1, target_row_tiles / plan.width_phases);
    // Blocks of equal height: no block is left with a sliver of the channels.
    const int blocks = (channel_groups + wanted - 1) / wanted;
    const int per_block = (channel_groups + blocks - 1) / blocks;
    plan.channels_per_block = per_block * 16;
    plan.channel_blocks = blocks;
    pairs_per_type =
        blocks > 1 ? 1 : std::clamp(wanted / channel_groups, 1, std::max<int>(1, int(with_taps.size())));
    if (g.group_out % 16 != 0) pairs_per_type = 1;  // a stage group is 16 lines of one pair
    plan.row_tiles = pairs_per_type * per_block * plan.width_phases;
  } else {
    plan.channels_per_block = int(g.group_out);
    plan.channel_blocks = 1;
    if (plan.width_phases <= 16) {
      plan.stage_group_tiles = 1;
      plan.stage_group_lines = 16 / plan.width_phases;
    } else {
      plan.stage_group_tiles = (plan.width_phases + 15) / 16;
      plan.stage_group_lines = 1;
    }
    const int lines_wanted = std::max(1, target_row_tiles / plan.stage_group_tiles) * plan.stage_group_lines;
    pairs_per_type = std::clamp(int(lines_wanted / g.group_out), 1, std::max<int>(1, int(with_taps.size())));
    const int lines = pairs_per_type * int(g.group_out);
    plan.row_tiles = (lines + plan.stage_group_lines - 1) / plan.stage_group_lines * plan.stage_group_tiles;
  }
  plan.row_tiles = (plan.row_tiles + multiple - 1) / multiple * multiple;
  if (plan.row_tiles > max_row_tiles) return false;

  const auto add_types = [&](const std::vector<PhasePair>& pairs) {
    for (std::size_t first = 0; first < pairs.size(); first += std::size_t(pairs_per_type)) {
      const std::size_t last = std::min(pairs.size(), first + std::size_t(pairs_per_type));
      BlockType type;
      type.lines = lines_of(plan, {pairs.begin() + std::ptrdiff_t(first), pairs.begin() + std::ptrdiff_t(last)},
                            plan.channels_per_block);
      type.rows = rows_of(plan, type, width_phases);
      if (shifts.has_taps(pairs[first])) type.steps = steps_of(plan, type, shifts);
      plan.types.push_back(std::move(type));
    }
  };
  add_types(with_taps);
  add_types(without);

  const std::uint32_t all = plan.row_tiles == 32 ? ~0u : (1u << plan.row_tiles) - 1;
  for (const BlockType& type : plan.types)
    for (const Step& step : type.steps) plan.masked = plan.masked || step.mask != all;
  return true;
}

}  // namespace tconv::cuda
