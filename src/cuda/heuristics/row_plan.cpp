#include "cuda/heuristics/row_plan.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "cuda/int3.hpp"
#include "cuda/kernels/sizes/panel_store.cuh"
#include "layer/phases.hpp"

namespace tconv::cuda {
namespace {

using std::int64_t;

constexpr int max_row_tiles = 32;  // bits of a step's mask

bool too_many_phases(const Geometry& g) {
  for (int d = 0; d < 3; ++d)
    if (g.stride[d] > 255 || g.kernel[d] > 1024 || g.kernel[d] * g.dilation[d] > 100'000) return true;
  return g.taps() > 4096 || g.stride[0] * g.stride[1] > 256;
}

/// The shifts of every phase of one dimension; empty where a phase has no taps.
std::vector<std::vector<int>> shifts_by_phase(const Geometry& g, int dim) {
  std::vector<std::vector<int>> shifts(std::size_t(g.stride[dim]));
  for (const Phase& phase : phases_of(g.kernel[dim], g.stride[dim], g.dilation[dim]))
    for (const Tap& tap : phase.taps) shifts[std::size_t(phase.r)].push_back(int(tap.shift));
  return shifts;
}

/// Whether the tables of a kernel (codegen.cpp), a few words for each type, step and line, are no more than
/// constant memory holds. Strides of 16 and more along two dimensions have so many types.
bool tables_fit(const RowPlan& plan) {
  constexpr std::size_t most_bytes = 60 * 1024;  // of 64 KB: the compiler keeps constants of its own there
  std::size_t bytes = 0;
  for (const BlockType& type : plan.types) bytes += 16 + 16 * type.steps.size() + 4 * type.lines.size();
  return bytes <= most_bytes;
}

struct PhasePair {
  int d, h;
};

struct Pairs {
  std::vector<PhasePair> with_taps, without;
};

struct Shifts {
  std::vector<std::vector<int>> d, h, w;
  int x_phases;

  /// Along the width the phases of a position's first input come first, and those of the next one follow: they
  /// read the same inputs, one shift nearer.
  explicit Shifts(const Geometry& g, int inputs = 1)
      : d(shifts_by_phase(g, 0)), h(shifts_by_phase(g, 1)), w(shifts_by_phase(g, 2)), x_phases(inputs) {
    const std::size_t stride = w.size();
    for (std::size_t r = stride; r < stride * std::size_t(x_phases); ++r) {
      w.push_back(w[r - stride]);
      for (int& shift : w.back()) --shift;
    }
  }

  /// The largest shift along each dimension, in positions.
  Int3 reach() const {
    const auto largest = [](const std::vector<std::vector<int>>& by_phase) {
      int result = 0;
      for (const auto& set : by_phase)
        for (int s : set) result = std::max(result, s);
      return result;
    };
    return {largest(d), largest(h), device::ceil_div(largest(w), x_phases)};
  }
  /// The phases along the width that have taps; and those along the height.
  std::vector<int> width_phases() const { return phases_with_taps(w); }
  std::vector<int> height_phases() const { return phases_with_taps(h); }
  bool same_along_height() const {
    return std::all_of(h.begin(), h.end(), [&](const auto& of_phase) { return of_phase == h[0]; });
  }
  /// The shifts of any phase along the height.
  std::vector<int> any_height() const {
    std::set<int> all;
    for (const auto& set : h) all.insert(set.begin(), set.end());
    return {all.begin(), all.end()};
  }
  Pairs pairs() const {
    Pairs all;
    for (int i = 0; i < int(d.size()); ++i)
      for (int j = 0; j < int(h.size()); ++j) (has_taps({i, j}) ? all.with_taps : all.without).push_back({i, j});
    return all;
  }
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

 private:
  static std::vector<int> phases_with_taps(const std::vector<std::vector<int>>& by_phase) {
    std::vector<int> phases;
    for (std::size_t r = 0; r < by_phase.size(); ++r)
      if (!by_phase[r].empty()) phases.push_back(int(r));
    return phases;
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
      if (plan.tile_rows == 16 && shifts.has_tap(type.rows[i], shift)) mask |= 1u << (i / 16);
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
  // The panel kernel counts positions from the one that the first shift of a pair reads to that of the second.
  if (plan.tile_rows == 8)
    for (Step& step : steps)
      if (step.high.d >= 0) std::swap(step.low, step.high);
  return steps;
}

}  // namespace

int64_t RowPlan::weight_base(int type, const Geometry& geometry, int channels_per_word, int parts) const {
  const int64_t channels = int64_t(8) * channels_per_word;
  const int64_t octets = device::round_up(int((geometry.group_in + channels - 1) / channels), octet_group);
  int64_t steps = 0;
  for (int t = 0; t < type; ++t) steps += int64_t(types[std::size_t(t)].steps.size());
  return steps * rows() * 8 * parts * octets * geometry.groups * channel_blocks;
}

bool make_row_plan(const Geometry& g, int channels_per_word, int target_row_tiles, RowPlan& plan) {
  if (too_many_phases(g)) return false;
  plan = RowPlan{};
  const Shifts shifts(g);
  plan.reach = shifts.reach();
  const std::vector<int> width_phases = shifts.width_phases();
  plan.width_phases = plan.width_slots = int(width_phases.size());
  if (plan.width_phases > max_row_tiles) return false;

  plan.paired = g.group_in <= 4 * channels_per_word;

  const auto [with_taps, without] = shifts.pairs();

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
  return tables_fit(plan);
}

namespace {

/// Phase pairs that a wide block may share, and what they cost: shared-memory or tensor-core cycles of 64
/// positions and eight words, whichever are more.
struct WideTypes {
  std::vector<std::vector<PhasePair>> types;
  double cycles = 0;
};

double step_cycles(int rows) {
  return std::max(rows / 2.0, 16 + rows / 4.0);
}

int count_steps(const Shifts& shifts, const std::vector<PhasePair>& pairs) {
  std::set<std::pair<int, int>> wanted;
  for (const PhasePair& pair : pairs)
    for (int d : shifts.d[std::size_t(pair.d)])
      for (int h : shifts.h[std::size_t(pair.h)]) wanted.insert({d, h});
  return int(wanted.size());
}

/// Blocks of up to `size` pairs: of pairs with the same shifts, or in order.
WideTypes divide(const Shifts& shifts, std::vector<PhasePair> pairs, int size, int rows_per_pair,
                 bool same_shifts) {
  const auto key = [&](const PhasePair& p) {
    return std::tie(shifts.d[std::size_t(p.d)], shifts.h[std::size_t(p.h)]);
  };
  if (same_shifts)
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&](const PhasePair& a, const PhasePair& b) { return key(a) < key(b); });
  WideTypes result;
  for (const PhasePair& pair : pairs) {
    const bool fits = !result.types.empty() && int(result.types.back().size()) < size &&
                      (!same_shifts || key(result.types.back().front()) == key(pair));
    if (!fits) result.types.emplace_back();
    result.types.back().push_back(pair);
  }
  for (const auto& type : result.types)
    result.cycles += count_steps(shifts, type) * step_cycles((size * rows_per_pair + 7) / 8 * 8);
  return result;
}

/// Whether lines of different phases along the height are neighbours; and in a plan for whole rows alone, which is
/// the panel kernel's.
enum class Lines { apart, together, whole_rows };

/// False also where lines together would not be whole in eight rows.
bool make_wide_row_plan(const Geometry& g, int channels_per_word, int weight_parts, const RowOrder& order,
                        int x_phases, Lines lines, RowPlan& plan) {
  if (too_many_phases(g)) return false;
  const bool channel_rows = order.channels;
  plan = RowPlan{};
  plan.channel_phases = order.phases;
  plan.tile_rows = 8, plan.channel_rows = channel_rows, plan.phase_major = channel_rows, plan.x_phases = x_phases;
  const Shifts shifts(g, x_phases);
  plan.reach = shifts.reach();
  const std::vector<int> width_phases = shifts.width_phases();
  plan.width_phases = plan.width_slots = int(width_phases.size());
  // Eight rows are whole lines to the panel kernel, or 16: a line of 3 phases has a row of padding, one of 5 to 7
  // or 9 to 15 has some. Three of eight are too many in TF32, where the other kernel is not as far behind.
  const bool pads = !channel_rows && (channels_per_word == 2 ? plan.width_phases <= 16
                                                             : plan.width_phases <= 8 && plan.width_phases != 5);
  while (pads && !device::are_whole_lines(plan.width_slots)) ++plan.width_slots;
  // Of lines that are together one phase along the height stands for all, in pairs and for steps.
  std::vector<int> line_phases{0};
  Shifts of_lines = shifts;
  if (lines != Lines::apart) {
    line_phases = shifts.height_phases(), plan.whole_rows = lines == Lines::whole_rows;
    plan.line_phases = int(line_phases.size()), plan.run_phases = int(g.stride[1]);
    if (8 % (plan.width_slots * plan.line_phases) != 0) return false;
    of_lines.h = {shifts.any_height()};
  }
  const auto [with_taps, without] = of_lines.pairs();
  if (plan.width_phases == 0 || plan.width_phases > 128 || with_taps.empty()) return false;

  plan.paired = g.group_in <= 4 * channels_per_word && x_phases == 1;

  // How many rows: many, so that positions are read from shared memory for as many products as can be; but
  // where weights cannot stay there, half as many rows leave registers for twice as many positions.
  constexpr int64_t resident_limit = 64 * 1024;
  const int64_t octets = (g.group_in + 8 * channels_per_word - 1) / (8 * channels_per_word);
  const auto [d, h] = with_taps.front();
  const int64_t steps = int64_t(of_lines.d[std::size_t(d)].size() * of_lines.h[std::size_t(h)].size()) *
                        (g.kernel[2] + plan.width_phases - 1) / plan.width_phases;
  const int64_t row_bytes = steps * octets * 32 * weight_parts;
  // The panel kernel has 64 rows in any case, and in 16 bits and channels last it is ahead of the other, which has
  // no pairs of steps.
  const bool panels = x_phases > 1 || channel_rows || plan.whole_rows || plan.paired ||
                      (channels_per_word == 2 && device::are_whole_lines(plan.width_slots));
  const int most_rows = row_bytes * 128 <= resident_limit && !panels ? 128 : std::max(64, plan.width_slots);

  const int rows_of_channel = plan.width_slots * plan.line_phases;
  const int64_t pair_rows = g.group_out * rows_of_channel;
  const int64_t lines_per_block = std::max<int64_t>(1, most_rows / rows_of_channel);
  plan.channel_blocks = int((g.group_out + lines_per_block - 1) / lines_per_block);
  plan.channels_per_block = int((g.group_out + plan.channel_blocks - 1) / plan.channel_blocks);
  if (g.group_out > 8) {  // in eights, so that only the last block has rows of padding
    plan.channels_per_block = (plan.channels_per_block + 7) / 8 * 8;
    if (plan.channels_per_block > lines_per_block && plan.width_phases > 1)  // channels last, whole vectors
      plan.channels_per_block =
          int(channel_rows && lines_per_block >= 8 ? lines_per_block / 8 * 8 : lines_per_block);
    plan.channel_blocks = int((g.group_out + plan.channels_per_block - 1) / plan.channels_per_block);
  }

  int pairs_per_type = 1;
  WideTypes best = divide(of_lines, with_taps, 1, plan.channels_per_block * rows_of_channel, true);
  if (plan.channel_blocks == 1) {
    for (int size = 2; size <= int(with_taps.size()) && size * pair_rows <= most_rows; ++size)
      for (const bool same : {true, false}) {
        WideTypes candidate = divide(of_lines, with_taps, size, int(pair_rows), same);
        if (candidate.cycles < best.cycles * 0.99) best = std::move(candidate), pairs_per_type = size;
      }
  }
  const int rows = pairs_per_type * plan.channels_per_block * rows_of_channel;
  plan.row_tiles = (rows + 7) / 8;
  if (plan.rows() > 256) return false;

  const auto add_type = [&](const std::vector<PhasePair>& pairs, bool taps) {
    BlockType type;
    for (const PhasePair& pair : pairs)
      for (int channel = 0; channel < plan.channels_per_block; ++channel)
        for (const int phase : line_phases) type.lines.push_back({channel, pair.d, pair.h + phase});
    type.rows.resize(std::size_t(plan.rows()));
    const int channels = plan.channels_per_block, slots = plan.width_slots;
    for (int i = 0; i < int(type.lines.size()) * slots; ++i) {
      const int phase = channel_rows ? i / channels % slots : i % slots;
      const int line = channel_rows ? i / (channels * slots) * channels + i % channels : i / slots;
      if (phase >= plan.width_phases) continue;
      const Line& at = type.lines[std::size_t(line)];
      type.rows[std::size_t(i)] = Row{at.channel, {at.phase_d, at.phase_h, width_phases[std::size_t(phase)]}};
    }
    type.lines.resize(std::size_t(plan.rows() / slots), Line{-1, 0, 0});
    if (taps) type.steps = steps_of(plan, type, shifts);
    plan.types.push_back(std::move(type));
  };
  for (const auto& pairs : best.types) add_type(pairs, true);
  for (std::size_t first = 0; first < without.size(); first += std::size_t(pairs_per_type))
    add_type({without.begin() + std::ptrdiff_t(first),
              without.begin() + std::ptrdiff_t(std::min(without.size(), first + std::size_t(pairs_per_type)))},
             false);

  // A copy of few weights takes almost as long as one of many: octets lie together until all steps of a group of
  // them are about as many bytes as a slab.
  constexpr int64_t slab_bytes = 16 * 1024;
  int64_t most_steps = 1;
  for (const BlockType& type : plan.types) most_steps = std::max(most_steps, int64_t(type.steps.size()));
  for (const int group : {2, 4}) {
    const int64_t padded = (octets + group - 1) / group * group;
    if (padded * 10 <= octets * 11 && group * most_steps * plan.rows() * 32 * weight_parts <= slab_bytes)
      plan.octet_group = group;
  }
  return tables_fit(plan);
}

/// Products of the panel kernel for each input along the width.
double products_per_input(const RowPlan& plan) {
  double steps = 0;
  for (const BlockType& type : plan.types) steps += double(type.steps.size());
  return steps * plan.channel_blocks / plan.x_phases;
}

}  // namespace

bool make_wide_row_plan(const Geometry& g, int channels_per_word, int weight_parts, const RowOrder& order,
                        int x_phases, RowPlan& plan) {
  const auto make = [&](Lines lines, RowPlan& as) {
    return make_wide_row_plan(g, channels_per_word, weight_parts, order, x_phases, lines, as);
  };
  if (!make(Lines::apart, plan)) return false;
  RowPlan together;
  if (g.stride[1] > 1 && !order.channels && make(Lines::together, together) &&
      together.line_phases == together.run_phases &&
      (Shifts(g).same_along_height() || products_per_input(together) <= products_per_input(plan)))
    plan = std::move(together);
  return true;
}

std::optional<RowPlan> with_whole_rows(const Geometry& g, int channels_per_word, int weight_parts,
                                       const RowPlan& plan) {
  RowPlan together;
  if (g.stride[1] == 1 || plan.channel_rows || plan.run_phases > 1 ||
      !make_wide_row_plan(g, channels_per_word, weight_parts, false, plan.x_phases, Lines::whole_rows, together) ||
      together.rows() > device::panel_rows)
    return std::nullopt;
  if (products_per_input(together) <= products_per_input(plan)) return together;
  // More products are worth it where stores take long: of a position, in cycles, at the rate at which memory takes
  // whole rows, and so many times that at which it takes ragged ones.
  constexpr double bytes_per_cycle = 18.5, ragged = 2.5;
  const double octets = std::ceil(double(g.group_in) / (8 * channels_per_word));
  const double products = products_per_input(together) * octets * (weight_parts > 1 ? 3 : 1) / 2;
  const double outputs = double(g.group_out * g.stride[0] * g.stride[1] * g.stride[2]);
  if (products > ragged * outputs * 4 / bytes_per_cycle) return std::nullopt;
  return together;
}

std::optional<RowPlan> with_lines_apart(const Geometry& g, int channels_per_word, int weight_parts,
                                        const RowPlan& plan) {
  RowPlan apart;
  if (plan.line_phases == 1 || plan.whole_rows || plan.channel_rows ||
      !make_wide_row_plan(g, channels_per_word, weight_parts, false, plan.x_phases, Lines::apart, apart) ||
      !from_first_output(apart, int3(g.stride), int3(g.padding)))
    return std::nullopt;
  return apart;
}

std::optional<RowPlan> from_first_output(const RowPlan& plan, Int3 stride, Int3 padding) {
  RowPlan moved = plan;
  const auto move = [&](int Int3::*dim, int Line::*phase, int size, int behind) {
    const int residue = behind % size;
    if (residue == 0 || (dim == &Int3::h && moved.run_phases > 1)) return;
    const auto below_zero = [&](const Line& line) { return line.*phase >= residue; };
    for (const BlockType& type : moved.types)
      for (const Line& line : type.lines)
        if (!type.steps.empty() && line.channel >= 0 && below_zero(line) != below_zero(type.lines.front())) return;
    for (BlockType& type : moved.types) {
      if (!type.steps.empty() && below_zero(type.lines.front()))
        for (Step& step : type.steps) {
          ++(step.low.*dim);
          if (step.high.d >= 0) ++(step.high.*dim);
        }
      for (Line& line : type.lines)
        if (below_zero(line)) line.*phase -= size;
      for (const Step& step : type.steps) moved.reach.*dim = std::max(moved.reach.*dim, step.low.*dim);
    }
    moved.first_phase.*dim = residue - size;
  };
  move(&Int3::d, &Line::phase_d, stride.d, padding.d);
  move(&Int3::h, &Line::phase_h, stride.h, padding.h);
  if (moved.first_phase == Int3{0, 0, 0}) return std::nullopt;
  return moved;
}

namespace {

/// Whether threads can load x for panels: channels last in whole vectors.
bool loads_panels(const Geometry& g, int channels_per_word, const RowPlan& plan) {
  const bool x_last = plan.channel_rows && plan.channel_phases.count == 1;
  return !x_last || g.group_in % (4 * channels_per_word) == 0;
}
/// Whether a panel kernel has the rows, and stores them.
bool stores_panels(const RowPlan& plan) {
  return plan.rows() <= device::panel_rows && (plan.channel_rows || device::are_whole_lines(plan.width_slots));
}

}  // namespace

void pair_rows(const Geometry& g, RowPlan& plan) {
  const bool whole_phases =
      plan.width_slots == plan.width_phases && plan.width_phases == g.stride[2] * plan.x_phases;
  if (plan.tile_rows != 8 || plan.channel_rows || !whole_phases || plan.width_slots % 2 != 0 ||
      !stores_panels(plan))
    return;
  plan.row_pairs = true;
  plan.row_tiles = device::round_up(plan.row_tiles, 2);
  for (BlockType& type : plan.types) {
    std::vector<Row> placed(std::size_t(plan.rows()));
    for (std::size_t i = 0; i < type.rows.size(); ++i)
      placed[std::size_t(device::place_of_row(int(i)))] = type.rows[i];
    type.rows = std::move(placed);
    type.lines.resize(std::size_t(plan.rows() / plan.width_slots), Line{-1, 0, 0});
  }
}

bool suits_panels(const Geometry& g, int channels_per_word, const RowPlan& plan) {
  // The loading threads hold the inputs of a box in registers. It may be as narrow as this.
  constexpr int64_t narrowest = 16, most_inputs = 1500;
  const int64_t inputs = plan.x_phases * (narrowest + plan.reach.w) * (1 + plan.reach.h) * (1 + plan.reach.d);
  return stores_panels(plan) && loads_panels(g, channels_per_word, plan) && inputs <= most_inputs;
}

bool make_wide_row_plan(const Geometry& g, int channels_per_word, int weight_parts, const RowOrder& order,
                        RowPlan& plan) {
  if (!make_wide_row_plan(g, channels_per_word, weight_parts, order, 1, plan)) return false;
  // In fp32, split into TF32, panels are behind the other kernels where rows are few.
  if (plan.rows() > device::panel_rows / 2 || (weight_parts > 1 && channels_per_word == 1)) return true;
  // Several must take a fifth less; where rows are too few for others than the general kernel, no more than one.
  // Twice as many must take a quarter less: products become narrower, and rows of positions shorter.
  constexpr int least_rows = 16;  // only more are served by panels
  const double single = products_per_input(plan);
  const RowPlan plain = plan;
  const auto choose = [&](const auto& suits) {
    double most = plain.rows() > least_rows ? 0.8 * single : single;
    for (const int x_phases : {2, 4, 8}) {
      RowPlan candidate;
      if (!make_wide_row_plan(g, channels_per_word, weight_parts, order, x_phases, candidate)) break;
      if (candidate.rows() <= least_rows) continue;
      // Lines of 16 rows instead of shorter ones are for layers that gain much by them: others were up to a fifth
      // slower.
      const bool longer = !order.channels && candidate.width_slots > 8 && plan.x_phases > 1;
      const double limit = longer ? std::min(most, 0.4 * single) : most;
      if (!suits(candidate) || products_per_input(candidate) > limit) continue;
      most = 0.75 * products_per_input(candidate);
      plan = std::move(candidate);
    }
    return plan.x_phases > 1;
  };
  // Where taps reach too far for threads that fill panels, or channels are no vectors, x may be turned before.
  if (!choose([&](const RowPlan& candidate) { return suits_panels(g, channels_per_word, candidate); }) &&
      (device::reaches_far(plain.reach) || !loads_panels(g, channels_per_word, plain)))
    choose(stores_panels);
  return true;
}

bool make_march_row_plan(const Geometry& g, int channels_per_word, int weight_parts, RowPlan& plan) {
  constexpr int most_slots = 8, most_blocks = 4, most_columns = 256;
  constexpr int64_t most_resident = 160 * 1024;
  if (too_many_phases(g) || g.stride != Extents{1, 1, 1} || g.dilation[0] != 1 || g.kernel[0] < 2 ||
      g.kernel[0] > most_slots)
    return false;
  plan = RowPlan{};
  plan.tile_rows = 8, plan.march = int(g.kernel[0]);
  const int64_t octets = (g.group_in + 8 * channels_per_word - 1) / (8 * channels_per_word);
  const int64_t steps = g.kernel[1] * g.kernel[2];
  const auto fits = [&] {
    plan.channels_per_block = device::round_up(device::ceil_div(int(g.group_out), plan.channel_blocks), 8);
    const int64_t columns = int64_t(plan.channels_per_block) * plan.march;
    return columns <= most_columns && steps * octets * columns * 32 * weight_parts <= most_resident;
  };
  for (plan.channel_blocks = 1; !fits(); ++plan.channel_blocks)
    if (plan.channel_blocks == most_blocks) return false;
  plan.row_tiles = plan.march * plan.channels_per_block / 8;

  Geometry slice = g;
  slice.kernel[0] = 1;
  const Shifts shifts(slice);
  plan.reach = shifts.reach();
  BlockType type;
  for (int tap = 0; tap < plan.march; ++tap)
    for (int channel = 0; channel < plan.channels_per_block; ++channel)
      type.rows.push_back(Row{channel, {tap, 0, 0}});
  for (int channel = 0; channel < plan.channels_per_block; ++channel) type.lines.push_back({channel, 0, 0});
  for (const int h : shifts.h[0])
    for (const int w : shifts.w[0]) type.steps.push_back({{0, h, w}, {0, h, w}, 0});
  plan.types.push_back(std::move(type));
  return true;
}

}  // namespace tconv::cuda
