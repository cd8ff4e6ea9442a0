#include "cuda/heuristics/panel_tiles.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "cuda/heuristics/panel_prices.hpp"
#include "cuda/heuristics/team_cost.hpp"
#include "cuda/kernels/sizes/block.cuh"

namespace tconv::cuda {
namespace {

using device::ceil_div;
using device::GemmConfig;
using device::round_up;
using std::int64_t;

/// The fewest positions of a tile, and of a product. Of several inputs each, few are many inputs, and no other
/// kernel serves what would be less.
int least_positions(const GemmConfig& c) {
  return c.x_phases > 1 ? 16 : 64;
}
int least_columns(const GemmConfig& c) {
  return c.x_phases > 1 ? 8 : 32;
}

constexpr int most_product_rows = 16;
constexpr int most_panels = 6;    // slots
constexpr int most_splits = 16;   // tiles that share a sum
constexpr int least_joined = 96;  // positions of a tile whose products cover several rows

bool fits(const GemmConfig& c, const DeviceLimits& limits) {
  const int shared = device::panel_shared_bytes(c);
  const int sums =
      (panel_positions(c) + (device::splits(c.math) ? device::split_buffers(c) * c.panel_columns : 0)) / 2;
  return shared <= limits.shared_per_block &&
         c.blocks_per_sm * (shared + 1024) <= limits.shared_per_multiprocessor &&
         (device::copies_x(c) || device::fills_panels(c)) &&
         device::loading_registers(c) <= device::entry_registers(c) &&
         sums + 60 <= device::multiplying_registers(c) &&
         device::entry_registers(c) >= c.panel_columns / 2 + 32 &&  // the assembler wants room for a product
         device::panel_run_stride(c) < 1 << 16;
}

/// Whether whole rows of outputs of a box, which follow one another, may be one run.
using Joins = std::function<bool(const GemmConfig&)>;

/// A box with runs of whole rows, of `counts` rows of positions each, as far as that joins any.
void add_runs(GemmConfig c, const std::set<int>& counts, const Joins& joins, std::vector<GemmConfig>& found) {
  if (!joins(c)) return;
  c.whole_rows = true;
  for (const int rows : counts)
    if (rows * c.run_phases > 1) {
      c.run_rows = rows;
      found.push_back(c);
    }
}

/// Boxes whose rows are cut into products of equal width.
void add_rows(GemmConfig c, const Int3& positions, const Joins& joins, std::vector<GemmConfig>& found) {
  c.panel_flat = false, c.images = 1, c.product_rows = 1;
  const int widest = device::members_of(c) > 1 ? 256 : 192;
  for (const int tiles : {1, 2, 4})
    for (const int per_row : {1, 2}) {
      if (tiles % per_row != 0) continue;
      std::set<int> widths{least_positions(c), 64, 96, 128, 160, 192, 224, 256};
      for (int parts = 1; parts <= 24; ++parts)
        widths.insert(round_up(ceil_div(ceil_div(positions.w, parts), per_row), 8));
      for (const int width : widths) {
        if (width < least_columns(c) || width > widest || width * tiles < least_positions(c) ||
            width * tiles > 256)
          continue;
        c.panel_columns = width, c.position_tiles = tiles, c.box.w = width * per_row;
        if (ceil_div(positions.w, c.box.w) * c.box.w > 1.4 * positions.w + 8) continue;
        const int rows = c.box_parts * tiles / per_row;
        for (int h = 1; h <= rows; h *= 2) {
          const int d = rows / h;
          if (h > positions.h || d > positions.d) continue;
          c.box.d = d, c.box.h = h;
          if (c.box_parts > 1 && device::panel_part_stride(c) < 0) continue;
          found.push_back(c);
          // Long runs take shared memory.
          std::set<int> run_rows{1};
          for (int count = 2; count <= tiles && h % count == 0; count *= 2) run_rows.insert(count);
          if (per_row == 1) add_runs(c, run_rows, joins, found);
        }
      }
    }
}

/// Boxes whose products cover several rows each: wider products read less of shared memory for what they multiply.
void add_joined_rows(GemmConfig c, const Int3& positions, const Joins& joins, std::vector<GemmConfig>& found) {
  c.panel_flat = false, c.images = 1;
  const int widest = device::members_of(c) > 1 ? 256 : 192;
  const int alignment = c.mapped ? 1 : std::max(device::x_alignment(c), 2);
  std::set<int> widths;
  for (int parts = 1; parts <= 8; ++parts) widths.insert(round_up(ceil_div(positions.w, parts), alignment));
  for (const int width : widths)
    for (c.product_rows = 2; c.product_rows <= std::min(positions.h, most_product_rows); ++c.product_rows) {
      c.box.w = width;
      c.panel_columns = round_up((c.product_rows - 1) * device::x_extent(c).w + width, 8);
      if (c.panel_columns > widest) break;
      for (const int tiles : {1, 2}) {
        c.position_tiles = tiles;
        if (panel_positions(c) > 256 || panel_positions(c) < least_joined) continue;
        // Two products of several rows each are slower than one of all of them, where rows are long; but of turned
        // x, two slices of a box share what they read of others, which is turned once for both.
        if (tiles > 1 && (c.turned ? c.reach.d == 0 : c.x_phases == 1)) continue;
        const int products = c.box_parts * tiles;
        for (int high = 1; high <= products; high *= 2) {
          c.box.h = c.product_rows * high, c.box.d = products / high;
          if (c.box.d > positions.d || (high > 1 && c.box.h > positions.h + c.product_rows - 1)) continue;
          if (c.box_parts > 1 && device::panel_part_stride(c) < 0) continue;
          found.push_back(c);
          add_runs(c, {1, c.product_rows, ceil_div(c.product_rows, 2)}, joins, found);
        }
      }
    }
}

/// Zeros on both sides of x along one dimension, where a box has all of its positions: as many as there are on
/// either.
int zeros_around(int first_position, int reach, int positions, int64_t input) {
  return int(std::clamp<int64_t>(first_position + positions - input, 0, std::max(0, reach - first_position)));
}

/// Whether a tensor map brings the x of a layer: no tap reads a neighbour, and positions are inputs.
bool maps_x(const GemmConfig& c, const Int3& positions, const Shape& shape, const Access& access) {
  const bool same = positions == Int3{int(shape.input[0]), int(shape.input[1]), int(shape.input[2])};
  return access.x_maps && device::element_bytes(c) == 2 && c.x_phases == 1 && c.reach == Int3{0, 0, 0} &&
         c.first_position == Int3{0, 0, 0} && same;
}

/// And that of a box: the positions of a product follow one another in memory, and a copy begins with a multiple
/// of 16 bytes.
bool maps_box(const GemmConfig& c, const Int3& positions) {
  constexpr int vector = 8;
  const bool whole_rows = c.box.w == positions.w, whole_slices = whole_rows && c.box.h == positions.h;
  if ((c.panel_flat || c.product_rows > 1) && !whole_rows) return false;
  if (c.panel_flat && c.box.d * c.images > 1 && !whole_slices) return false;
  if (c.panel_flat && c.images > 1 &&
      (volume(c.box) % device::mapped_positions != 0 ||
       (c.position_tiles > 1 && c.panel_columns % device::mapped_positions != 0)))
    return false;
  const auto begins = [&](int d, int h, int w) { return ((d * positions.h + h) * positions.w + w) % vector == 0; };
  for (int t = 0; t < c.position_tiles && !c.panel_flat; ++t) {
    const int row = t / device::panels_per_row(c) * c.product_rows;
    if (!begins(row / c.box.h, row % c.box.h, t % device::panels_per_row(c) * c.panel_columns)) return false;
  }
  return (c.box.d >= positions.d || begins(c.box.d, 0, 0)) && (c.box.h >= positions.h || begins(0, c.box.h, 0)) &&
         (c.box.w >= positions.w || begins(0, 0, device::box_advance(c)));
}

/// Whether of each pair of steps the second half of an operand lies behind the first one: descriptors have no
/// negative distances. Where rows share zeros, a shift of the row behind may be the place before.
bool has_pairs_in_order(const GemmConfig& c, const RowPlan& rows) {
  for (const BlockType& type : rows.types)
    for (const Step& step : type.steps)
      if (rows.paired && step.high.d >= 0 && device::step_offset(c, step.high) < device::step_offset(c, step.low))
        return false;
  return true;
}

/// Boxes of whole, short rows, whose products run over them and their halo.
void add_flat(GemmConfig c, const Int3& positions, const Shape& shape, const Joins& joins,
              std::vector<GemmConfig>& found) {
  const int64_t batch = shape.batch;
  if (positions.w > 96) return;
  c.panel_flat = true, c.box.w = positions.w, c.window = 1, c.product_rows = 1;
  const int widest = device::members_of(c) > 1 ? 256 : 192;
  const auto consider = [&](int images, int d, int h, bool rows_beside = false) {
    c.images = images, c.box.d = d, c.box.h = h, c.rows_beside = rows_beside;
    // Rows, slices and images that have zeros on both sides share them.
    c.shared_halo = {0, 0, 0};
    if (c.turned && c.x_phases == 1 && c.x_vector == 1 && !device::panels_by_shift(c)) {
      c.shared_halo.w = zeros_around(c.first_position.w, c.reach.w, positions.w, shape.input[2]);
      if (h == positions.h && !rows_beside) {
        c.shared_halo.h = zeros_around(c.first_position.h, c.reach.h, positions.h, shape.input[1]);
        if (d == positions.d)
          c.shared_halo.d = zeros_around(c.first_position.d, c.reach.d, positions.d, shape.input[0]);
      }
    }
    const int needed = (device::panel_flat_rows(c) - 1) * device::x_extent(c).w + positions.w;
    const bool all = images == batch && d == positions.d && h == positions.h;
    for (const int tiles : {1, 2, 4}) {
      c.position_tiles = tiles, c.panel_columns = round_up(ceil_div(needed, tiles), 8);
      // Rows of one slice that share no zeros are joined, and stored one after the other: that takes a tenth less.
      const bool joined =
          device::copies_x(c) && !c.channel_rows && images * d == 1 && h > 1 && h <= most_product_rows;
      if (joined && panel_positions(c) >= least_joined && c.shared_halo == Int3{0, 0, 0}) continue;
      // Products as narrow as can be are for what has no more positions.
      if (c.panel_columns < (all ? 8 : least_columns(c)) || c.panel_columns > widest || panel_positions(c) > 256)
        continue;
      const std::size_t before = found.size();
      if (!rows_beside) add_runs(c, {h}, joins, found);
      if (found.size() == before) found.push_back(c);
    }
  };
  const auto sizes = [](int limit) {
    std::set<int> all;
    for (int i = 1; i <= limit; i = i < 8 ? i + 1 : i * 2) all.insert(std::min(i, limit));
    all.insert(limit);
    return all;
  };
  for (const int h : sizes(std::min(positions.h, 64)))
    for (const int d :
         h == positions.h ? sizes(std::min(positions.d, 16)) : std::set<int>{1, std::min(2, positions.d)}) {
      consider(1, d, h);
      if (h < positions.h || d < positions.d) continue;
      const bool reaches = c.reach.h > 0 || (c.reach.d > 0 && d > 1);
      for (int images = 2; images <= std::min<int64_t>(batch, 64); ++images) {
        consider(images, d, h);
        if (reaches && c.turned && c.x_phases == 1 && !device::panels_by_shift(c)) consider(images, d, h, true);
      }
    }
}

/// Bytes of an image that is turned once for all boxes: what it takes is counted in 31 bits.
double turned_image_bytes(const GemmConfig& c, const Int3& boxes) {
  const double inputs =
      double(boxes.d * c.box.d + c.reach.d) * (boxes.h * c.box.h + c.reach.h) * device::x_extent(c).w;
  return inputs * c.x_phases * c.group_in * device::element_bytes(c) * device::weight_parts(c);
}

/// How many steps have the same shift along depth and height, where any type has several such shifts: as many for
/// each of them, those along the width. 0 where a panel cannot be of one shift.
int steps_of_a_shift(const RowPlan& rows) {
  if (rows.paired) return 0;
  std::set<std::size_t> counts;
  bool several = false;
  for (const BlockType& type : rows.types)
    for (std::size_t first = 0, end; first < type.steps.size(); first = end) {
      const auto same = [&](std::size_t i) {
        return type.steps[i].low.d == type.steps[first].low.d && type.steps[i].low.h == type.steps[first].low.h;
      };
      for (end = first + 1; end < type.steps.size() && same(end);) ++end;
      counts.insert(end - first);
      several = several || end - first < type.steps.size();
    }
  return several && counts.size() == 1 ? int(*counts.begin()) : 0;
}

}  // namespace

std::vector<TileChoice> price_panel_tiles(const GemmConfig& layer, const RowPlan& rows, const Shape& shape,
                                          const Access& access, const DeviceLimits& limits) {
  std::vector<TileChoice> choices;
  const bool stores = layer.channel_rows || (layer.y_rows && device::are_whole_lines(layer.width_slots));
  if (rows.rows() > device::panel_rows || !stores) return choices;
  const Steps steps(rows);
  const auto consider = [&](GemmConfig c) {
    if (c.turned && turned_panel_bytes(c, shape) > limits.most_turned_bytes) return;
    const auto price = [&] {
      for (const bool turns : {false, true}) {
        c.in_turns = turns;
        // A tile without products would wait for a turn that it does not need.
        if (!turns || (steps.types == c.types && device::allows_turns(c) && fits(c, limits)))
          choices.push_back({c, panel_cycles(c, rows, shape, limits)});
      }
      c.in_turns = false;
      // Tiles share sums where there are not enough of them for all multiprocessors.
      const double teams = double(limits.multiprocessors) * c.teams * c.blocks_per_sm;
      const double tiles = TeamRounds(c, shape, limits).tiles;
      for (c.depth_splits = 2;
           c.turned && !limits.exported && c.resident_steps == 0 && steps.types == c.types &&
           c.depth_splits <= std::min(most_splits, device::chunks_of(c)) && tiles * (c.depth_splits - 1) < teams;
           c.depth_splits *= 2)
        if (fits(c, limits)) choices.push_back({c, panel_cycles(c, rows, shape, limits)});
      // As a cluster, where each block has one of them at most.
      c.depth_splits = 2, c.clustered = true;
      if (device::allows_clusters(c) && steps.types == c.types && c.depth_splits <= device::chunks_of(c) &&
          tiles * c.depth_splits <= teams && !limits.exported && fits(c, limits))
        choices.push_back({c, panel_cycles(c, rows, shape, limits)});
      c.depth_splits = 1, c.clustered = false;
    };
    c.in_turns = false;
    for (const auto& [loaders, buffers] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
      if (device::copies_x(c) && loaders * buffers > 1) continue;
      c.loaders = loaders, c.fill_buffers = buffers;
      // Slots as there is room for, of panels and of weights: those that one has are not there for the other.
      int most_stages = -1;
      // Shared memory is not there for the cache of what threads load: many slots are for who gains by them.
      const bool many =
          device::copies_x(c) || (c.fill_buffers == 2 && device::scales(c.math) && c.resident_steps > 0);
      for (c.panel_stages = many ? most_panels : 4; c.panel_stages >= 2; --c.panel_stages) {
        const int least = c.resident_steps ? 0 : 3;
        c.stages = c.resident_steps ? 0 : 8;
        while (c.stages > least && !fits(c, limits)) --c.stages;
        if (c.stages <= most_stages || !fits(c, limits)) continue;
        // A second chunk in registers does what a third slot does, but where all threads agree on a scale first.
        if (c.fill_buffers == 1 || device::scales(c.math) || (c.panel_stages == 2 && most_stages < 0)) price();
        most_stages = c.stages;
      }
    }
  };
  const auto with_weights = [&](GemmConfig c) {
    const int octets = device::substeps_of(c);
    const int per_step = octets * device::weight_parts(c) * device::row_step_bytes(c);
    const int issued = octets * c.position_tiles * products_per_step(c.math);
    const int common = device::panels_by_shift(c) ? c.panel_steps : steps.common;
    int slab = 1, group = 1;
    for (int g = 1; g <= common; ++g) {
      if (common % g != 0 || g * issued > 48) continue;
      if (g * per_step <= 16 * 1024) slab = g;
      group = g;
    }
    c.resident_steps = 0, c.steps_per_slab = slab;
    c.teams = 1, c.blocks_per_sm = 1;
    if (c.x_phases > 1) consider(c);  // many inputs may want the registers of two blocks
    c.blocks_per_sm = device::members_of(c) > 1 ? 1 : 2;
    consider(c);
    if (device::members_of(c) == 1) {
      c.teams = 2, c.blocks_per_sm = 1;
      consider(c);
      c.teams = 1, c.blocks_per_sm = 2;
    }
    if (!steps.equal || device::block_sets_of(c) > limits.multiprocessors) return;
    c.resident_steps = steps.most, c.steps_per_slab = group;
    consider(c);
    if (device::members_of(c) > 1) return;
    c.teams = 2, c.blocks_per_sm = 1;
    consider(c);
  };

  std::vector<GemmConfig> boxes;
  const Int3 positions = positions_of(layer, shape);
  GemmConfig c = layer;
  c.round_on_load = false, c.window = 1, c.stage_rows = c.rows, c.stage_buffers = 1;
  c.x_stages = 0, c.loaders = c.fill_buffers = 1, c.product_rows = 1;
  c.fills = steps.types < c.types && device::element_bytes(c) == 2;
  if (!c.x_channels_last) c.x_vector = std::min(c.x_vector, 2);  // a thread loads one or two positions
  c.panel_columns = 8, c.images = 1;                             // so that sizes are those of this kernel
  const bool loads = !c.x_channels_last || c.x_vector == 4;
  const auto joins = [&](const GemmConfig& box) {
    return !box.channel_rows && access.y_planes && !limits.exported && box.box.w >= positions.w &&
           device::joins_whole_rows(box, int(shape.output[2]));
  };
  const GemmConfig any_tile = c;
  if (loads) {
    for (c.team_blocks = 1; c.team_blocks <= 4; ++c.team_blocks) {
      if (c.channel_blocks % c.team_blocks != 0) continue;
      add_rows(c, positions, joins, boxes);
      add_joined_rows(c, positions, joins, boxes);
      add_flat(c, positions, shape, joins, boxes);
    }
    c.team_blocks = 1, c.box_parts = 2;
    add_rows(c, positions, joins, boxes);
    add_joined_rows(c, positions, joins, boxes);
    c.box_parts = 1;
  }
  // Turned x pays where many row blocks read it, where threads would load it element by element, where its
  // tiles are more than their registers hold, and where tiles are so few that they share sums.
  const bool few =
      double(shape.batch) * positions.d * positions.h * positions.w * layer.types * layer.channel_blocks <=
      64.0 * limits.multiprocessors;
  if (limits.turns && (layer.types * layer.channel_blocks >= 2 || layer.x_phases > 1 || few || !loads)) {
    const int widest_load = c.x_channels_last ? 1 : c.x_vector;
    c.turned = true, c.x_channels_last = false;
    for (c.x_vector = 1; c.x_vector <= widest_load; ++c.x_vector)
      for (c.team_blocks = 1; c.team_blocks <= 3; ++c.team_blocks) {
        if (c.channel_blocks % c.team_blocks != 0) continue;
        if (c.x_vector == widest_load) {
          add_rows(c, positions, joins, boxes);
          if (!limits.exported) add_joined_rows(c, positions, joins, boxes);
        }
        if (!limits.exported) add_flat(c, positions, shape, joins, boxes);
      }
  }
  std::erase_if(boxes, [&](const GemmConfig& box) { return !has_pairs_in_order(box, rows); });
  // The second half of an operand of few channels would be what lies behind them.
  if (maps_x(layer, positions, shape, access) && !rows.paired && !limits.exported) {
    std::vector<GemmConfig> mapped;
    c.turned = false, c.mapped = true, c.x_channels_last = false, c.x_vector = 1;
    for (c.team_blocks = 1; c.team_blocks <= 3; ++c.team_blocks) {
      if (c.channel_blocks % c.team_blocks != 0) continue;
      add_rows(c, positions, joins, mapped);
      add_joined_rows(c, positions, joins, mapped);
      add_flat(c, positions, shape, joins, mapped);
    }
    std::ranges::copy_if(mapped, std::back_inserter(boxes),
                         [&](const GemmConfig& box) { return maps_box(box, positions); });
  }
  // Where boxes share inputs of a halo, x may be turned once for all of them, and a panel is more copies then.
  // What is scaled has the scale of a panel.
  const std::size_t count = boxes.size();
  for (std::size_t i = 0; i < count; ++i) {
    GemmConfig box = boxes[i];
    const Int3 all = boxes_of(box, shape);
    const bool shares = (all.d > 1 && box.reach.d > 0) || (all.h > 1 && box.reach.h > 0);
    if (limits.exported || !box.turned || !shares || device::scales(box.math) || box.images > 1 ||
        box.shared_halo != Int3{0, 0, 0})
      continue;
    if (turned_image_bytes(box, all) > limits.most_turned_bytes) continue;
    box.turned_once = true;
    boxes.push_back(box);
  }
  // Where taps reach so far that most of a panel is halo, or none fits, each of their shifts has panels of its
  // own.
  const int shift_steps = steps_of_a_shift(rows);
  constexpr int most_reach = 0xffff;  // what a table has bits for (codegen.cpp)
  if (shift_steps > 0 && std::max(layer.reach.d, layer.reach.h) <= most_reach &&
      device::reaches_far(layer.reach) && !device::scales(layer.math) && !limits.exported) {
    std::vector<GemmConfig> by_shift;
    c = any_tile;
    c.turned = c.turned_once = true, c.panel_steps = shift_steps, c.x_channels_last = false;
    if (layer.x_channels_last) c.x_vector = 1;
    for (c.team_blocks = 1; c.team_blocks <= 3; ++c.team_blocks) {
      if (c.channel_blocks % c.team_blocks != 0) continue;
      add_rows(c, positions, joins, by_shift);
      add_joined_rows(c, positions, joins, by_shift);
      add_flat(c, positions, shape, joins, by_shift);
    }
    std::ranges::copy_if(by_shift, std::back_inserter(boxes), [&](const GemmConfig& box) {
      return box.images == 1 && turned_image_bytes(box, boxes_of(box, shape)) <= limits.most_turned_bytes;
    });
  }
  if (rows.whole_rows) std::erase_if(boxes, [](const GemmConfig& box) { return !box.whole_rows; });
  // In 32 bits fills of single rows were no faster: stores that come faster than memory takes ragged rows are
  // slower in the end.
  for (GemmConfig& box : boxes)
    box.fills = box.fills || (steps.types < c.types && box.whole_rows && !box.panel_flat);
  for (GemmConfig& box : boxes)
    for (const int window : {1, 32 / device::element_bytes(c)}) {
      box.window = window;
      if (box.mapped && !maps_box(box, positions)) continue;  // overlapping boxes begin elsewhere
      if (window > 1 && (box.panel_flat || box.channel_rows || positions.w <= box.box.w ||
                         device::box_advance(box) * 2 <= box.box.w))
        continue;
      for (const int octets : {4, 2, 1}) {
        if (octets > 1 && device::octets_of(c) % octets != 0) continue;
        box.chunk_words = rows.paired ? 4 : 8 * octets;
        with_weights(box);
      }
    }
  return choices;
}

}  // namespace tconv::cuda
