#include "cuda/heuristics/panel_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "cuda/heuristics/team_cost.hpp"

namespace tconv::cuda {
namespace {

using device::ceil_div;
using device::GemmConfig;
using device::Math;
using device::round_up;
using std::int64_t;

constexpr double l2_bytes_per_cycle = 18.4;
constexpr double weight_share = 0.34;  // of the cost of other bytes: all multiprocessors read the same
constexpr double fill_share = 1.28;    // of x that threads load
// Times that, where two warpgroups load, and where threads hold a second chunk: more loads are under way.
constexpr double second_loader = 0.914;
constexpr double second_buffer = 1.23;
constexpr double second_scaled_buffer = 0.751;
constexpr double memory_bytes_per_cycle = 18.5;
constexpr double ragged_bytes = 119;       // what a run's two partial sectors cost
constexpr double ragged_row_bytes = 60.4;  // and of one that is a whole row, whose neighbour completes them
constexpr double group_latency = 154;      // a barrier, descriptors made uniform
// The same where nobody else multiplies meanwhile: in turns, of teams and of members of one.
constexpr double turn_group_latency = 175;
constexpr double shared_turn_group_latency = 39.9;
constexpr double split_pair_latency = 70.2;  // of fp32 whose sums are added while others are formed, and of other
constexpr double split_group_latency = 429;  // of fp32, whose sums are added after each few products
constexpr double chunk_latency = 98.6;       // a barrier
constexpr double weight_latency = 943;       // from the request of a slab to its use
constexpr double refill_latency = 362;       // of a slab that a thread who multiplies has requested
constexpr double fill_latency = 97.4;        // of a chunk that is loaded when the one before it is in its panel
constexpr double loading_overlap = 1.47;     // of a chunk that is loaded while the one before it is put there
constexpr double load_cycles = 1.93;         // of a thread, for each load
constexpr double scale_latency = 751;        // of the largest number of a chunk, which all its threads wait for
// Times what it takes to put a slice into a panel, where that is eight numbers, scaled and rounded; and channels
// last.
constexpr double half_put = 3.15;
constexpr double half_slice_put = 0.665;
constexpr double tile_latency = 752;     // its place and its runs worked out
constexpr double pass_latency = 66.6;    // of the epilogue
constexpr double window_latency = 46;    // and more of one whose runs start at whole sectors
constexpr double joined_latency = 3.89;  // and more for each other row that the product covers
constexpr double part_latency = 157;     // of the part of a sum that another tile has left
constexpr double issue_cycles = 2.02;    // of a warp, for an instruction outside the products
constexpr double launch_latency = 296;
constexpr double warpgroup_latency = 970;        // and for each warpgroup of a block
constexpr double member_latency = 164;           // of a chunk, for each other channel block that reads its panel
constexpr double staged_instructions = 7.16;     // for an output of a product that is one row, staged
constexpr double stored_instructions = 24.4;     // for a vector of them, stored
constexpr double end_instructions = 48.3;        // and for the ends of a run
constexpr double flat_instructions = 4.83;       // for an output of flat products with a halo, staged
constexpr double run_vector_instructions = 164;  // for a vector of theirs, stored
constexpr double joined_vectors = 2.74;          // so much more where memory aligns rows otherwise
constexpr double run_instructions = 385;         // for a run of flat products
constexpr double filled_share = 0.321;  // of what an output takes that is staged, where it is filled with the bias
constexpr double shared_rate = 0.758;   // of 128 bytes a cycle
constexpr double put_instructions = 26.6;     // for each position and four words
constexpr double element_load_cycles = 28.1;  // of a thread, for each 16-bit element that it loads by itself
constexpr double slice_instructions = 2.05;   // channels last, for each position and four words
// Channels last: for a stored vector of a product of one row, of several, and of a flat one; and of a few
// positions of all rows, which meet in shared memory.
constexpr double vector_instructions = 8.03;
constexpr double joined_vector_instructions = 38.9;
constexpr double flat_vector_instructions = 66.2;
constexpr double part_staged_latency = 296;
constexpr double turn_latency = 4510;  // of the kernel that turns x, and from its end to the next one's begin
// Of x that is turned, bytes a cycle of a multiprocessor: of x itself, and of panels; and of those that are
// scaled, for which the inputs of a panel are read twice, from near.
constexpr double turn_read_rate = 152;
constexpr double turned_rate = 11;
constexpr double scaled_turned_rate = 6.55;
// Times that, where threads load single words or single 16-bit elements, not pairs.
constexpr double words_turned = 1.09;
constexpr double halves_turned = 1.48;
constexpr double copy_latency = 1470;  // from the request of a turned panel to its use
// Of what teams could hide of each other, and members of one team, who wait for the same panels; and in turns.
constexpr double overlap_lost = 0.302;
constexpr double shared_overlap_lost = 0.278;
constexpr double overlap_lost_in_turns = 0.278;
constexpr double shared_overlap_lost_in_turns = 0.061;
constexpr double parts_overlap_lost_in_turns = 0.185;  // of members that are parts of a box
constexpr double product_cycles = 0.22;                // of the tensor cores, for each product beside its columns

/// The fewest positions of a tile, and of a product. Of several inputs each, few are many inputs, and no other
/// kernel serves what would be less.
int least_positions(const GemmConfig& c) {
  return c.x_phases > 1 ? 16 : 64;
}
int least_columns(const GemmConfig& c) {
  return c.x_phases > 1 ? 8 : 32;
}

constexpr double most_turned_bytes = 1 << 30;  // of workspace
constexpr int most_product_rows = 16;
constexpr int most_panels = 6;    // slots
constexpr int most_splits = 16;   // tiles that share a sum
constexpr int least_joined = 96;  // positions of a tile whose products cover several rows

int panel_positions(const GemmConfig& c) {
  return c.panel_columns * c.position_tiles;
}

bool fits(const GemmConfig& c, const DeviceLimits& limits) {
  const int shared = device::panel_shared_bytes(c);
  const int sums =
      (panel_positions(c) + (device::splits(c.math) ? device::split_buffers(c) * c.panel_columns : 0)) / 2;
  return shared <= limits.shared_per_block &&
         c.blocks_per_sm * (shared + 1024) <= limits.shared_per_multiprocessor &&
         (c.turned || device::fills_panels(c)) && device::loading_registers(c) <= device::entry_registers(c) &&
         sums + 60 <= device::multiplying_registers(c) &&
         device::entry_registers(c) >= c.panel_columns / 2 + 32 &&  // the assembler wants room for a product
         device::panel_run_stride(c) < 1 << 16;
}

/// Boxes whose rows are cut into products of equal width.
void add_rows(GemmConfig c, const Int3& positions, std::vector<GemmConfig>& found) {
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
        }
      }
    }
}

/// Boxes whose products cover several rows each: wider products read less of shared memory for what they multiply.
/// `joins` says where whole rows of outputs may be one run.
void add_joined_rows(GemmConfig c, const Int3& positions, const std::function<bool(const GemmConfig&)>& joins,
                     std::vector<GemmConfig>& found) {
  c.panel_flat = false, c.images = 1;
  const int widest = device::members_of(c) > 1 ? 256 : 192, alignment = std::max(device::x_alignment(c), 2);
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
          // Long runs take shared memory.
          std::set<int> run_rows{1};
          if (joins(c)) run_rows.insert({c.product_rows, ceil_div(c.product_rows, 2)});
          for (const int rows : run_rows) {
            c.run_rows = rows;
            found.push_back(c);
          }
          c.run_rows = 1;
        }
      }
    }
}

/// Zeros on both sides of x along one dimension, where a box has all of its positions: as many as there are on
/// either.
int zeros_around(int first_position, int reach, int positions, int64_t input) {
  return int(std::clamp<int64_t>(first_position + positions - input, 0, std::max(0, reach - first_position)));
}

/// Boxes of whole, short rows, whose products run over them and their halo.
void add_flat(GemmConfig c, const Int3& positions, const Shape& shape,
              const std::function<bool(const GemmConfig&)>& joins, std::vector<GemmConfig>& found) {
  const int64_t batch = shape.batch;
  if (positions.w > 96) return;
  c.panel_flat = true, c.box.w = positions.w, c.window = 1, c.product_rows = 1;
  const int widest = device::members_of(c) > 1 ? 256 : 192;
  const auto consider = [&](int images, int d, int h) {
    c.images = images, c.box.d = d, c.box.h = h;
    // Rows, slices and images that have zeros on both sides share them.
    c.shared_halo = {0, 0, 0};
    if (c.turned && c.x_phases == 1 && c.x_vector == 1) {
      c.shared_halo.w = zeros_around(c.first_position.w, c.reach.w, positions.w, shape.input[2]);
      if (h == positions.h) {
        c.shared_halo.h = zeros_around(c.first_position.h, c.reach.h, positions.h, shape.input[1]);
        if (d == positions.d)
          c.shared_halo.d = zeros_around(c.first_position.d, c.reach.d, positions.d, shape.input[0]);
      }
    }
    const int needed = (device::panel_flat_rows(c) - 1) * device::x_extent(c).w + positions.w;
    for (const int tiles : {1, 2, 4}) {
      c.position_tiles = tiles, c.panel_columns = round_up(ceil_div(needed, tiles), 8);
      // Rows of one slice that share no zeros are joined, and stored one after the other: that takes a tenth less.
      const bool joined = c.turned && !c.channel_rows && images * d == 1 && h > 1 && h <= most_product_rows;
      if (joined && panel_positions(c) >= least_joined && c.shared_halo == Int3{0, 0, 0}) continue;
      if (c.panel_columns < least_columns(c) || c.panel_columns > widest || panel_positions(c) > 256) continue;
      c.run_rows = h > 1 && joins(c) ? h : 1;
      found.push_back(c);
      c.run_rows = 1;
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
      for (int images = 2; images <= std::min<int64_t>(batch, 64); ++images) consider(images, d, h);
    }
}

double turned_bytes(const GemmConfig& c, const Shape& shape) {
  device::ForwardParams call{};  // of which this takes sizes
  call.batch = int(shape.batch), call.boxes = boxes_of(c, shape);
  return double(device::turned_bytes(c, device::turn_params(c, call)));
}

/// What it takes to turn x: it is read, and written as panels.
double turn_cycles(const GemmConfig& c, const Shape& shape, const DeviceLimits& limits) {
  const double turned = turned_bytes(c, shape);
  const double x = double(shape.batch) * c.groups * c.group_in * device::element_bytes(c) *
                   double(shape.input[0] * shape.input[1] * shape.input[2]);
  const double slower = c.x_vector > 1 ? 1 : device::element_bytes(c) == 2 ? halves_turned : words_turned;
  const double written = turned / (device::scales(c.math) ? scaled_turned_rate : turned_rate);
  return turn_latency + slower * (x / turn_read_rate + written) / limits.multiprocessors;
}

}  // namespace

double panel_cycles(const GemmConfig& c, const RowPlan& rows, const Shape& shape, const DeviceLimits& limits) {
  const Steps steps(rows);
  const Int3 boxes = boxes_of(c, shape);
  const double types = double(rows.types.size());
  const double staged_types = c.fills ? steps.types + filled_share * (types - steps.types) : types;
  const double products = products_per_step(c.math);
  const double chunks = ceil_div(device::chunks_of(c), c.depth_splits);  // of a tile
  const double octets = device::octets_of(c) * chunks / device::chunks_of(c), tiles = c.position_tiles;
  const double element = device::element_bytes(c), parts = device::weight_parts(c);
  const double outputs =
      double(c.rows) * device::box_positions(c) / c.box_parts * c.stride.w / c.width_slots;  // of a member
  const double members = device::members_of(c), team_blocks = c.team_blocks;

  // Sums over one set of types: products and stores of a member, what a team fills.
  const double issued = steps.total * octets * tiles * products;
  const double tensor = issued * (c.panel_columns / 2.0 + product_cycles);
  const double x_words = double(steps.types) * chunks * c.chunk_words * device::x_inputs(c);
  const double loaded = device::channels_per_word(c) * element;  // bytes of x that become a word
  const double shared =
      members * (issued * (64 + c.panel_columns) / 4.0 + staged_types * outputs * (2 + element / 4) / 32) +
      x_words * ((c.turned ? 0 : loaded / 4) + parts) / 32;
  const double weight_bytes =
      c.resident_steps ? 0 : steps.total * octets * parts * double(device::row_step_bytes(c));
  const double lines = double(c.rows) / c.width_slots;
  const double runs = types * lines / device::run_lines(c) *
                      (c.panel_flat ? device::flat_runs_of_line(c) : c.position_tiles * device::product_runs(c));
  const double ragged = c.window > 1 || c.channel_rows ? 0 : boxes.w == 1 ? ragged_row_bytes : ragged_bytes;
  const double overlap = c.window > 1 ? double(device::box_advance(c)) / c.box.w : 1;
  const double written = types * outputs * overlap * element / c.depth_splits;
  const double shared_sums = c.depth_splits > 1 ? types * 2 * 4.0 * device::member_sums(c) : 0;  // left, and read
  const double stored = written + runs / c.depth_splits * ragged + shared_sums;  // partial sectors meet in L2
  const double x_unique =
      c.x_phases * device::box_positions(c) * double(c.group_in) * element / rows.channel_blocks;
  const double under_way = (c.loaders == 2 ? second_loader : 1) * (c.fill_buffers == 1      ? 1
                                                                   : device::scales(c.math) ? second_scaled_buffer
                                                                                            : second_buffer);
  const double x_copied =
      c.turned ? x_words * 4 * parts * weight_share : x_words * loaded * fill_share * under_way;
  const double l2 = team_blocks * weight_bytes * weight_share + members * stored + x_copied;
  const double memory = members * written + team_blocks * x_unique;
  // Copies of weights and of turned panels, one after the other.
  const double copied =
      team_blocks * steps.total * chunks * device::copies_per_step(c) * copy_cycles +
      team_blocks * weight_bytes / copy_bytes_per_cycle +
      (c.turned ? steps.types * chunks * (copy_cycles + device::panel_bytes(c) / copy_bytes_per_cycle) : 0);
  const double resources = std::max({members * tensor, shared / shared_rate, l2 / l2_bytes_per_cycle, copied,
                                     memory / memory_bytes_per_cycle}) /
                           types;

  // One team alone, for one tile.
  const double groups = steps.total * chunks / c.steps_per_slab;
  const double passes =
      staged_types * device::panel_passes(c) * (c.panel_flat ? 1 : c.position_tiles * device::product_runs(c));
  const int vector = device::store_vector(c);
  // Flat products whose rows are staged as they follow one another.
  const bool dense = device::x_extent(c).w == c.box.w && device::panel_run_stride(c) == c.box.w * c.stride.w;
  const bool whole_planes = c.panel_flat && c.run_rows > 1 && boxes.h == 1;
  const bool aligned = shape.output[2] * (whole_planes ? shape.output[1] : 1) % vector == 0;
  const double sums = staged_types * panel_positions(c) / 2.0;  // of a thread
  const double staged =
      sums * (c.panel_flat ? dense ? 3 : flat_instructions : staged_instructions) * c.stride.w / c.width_phases;
  // Of a run the lanes of its line store a vector each, some times over, and its ends.
  const int lanes_of_run = std::max(device::panel_line_lanes(c) * device::run_lines(c), 8);
  const double of_run =
      ceil_div(device::panel_run_stride(c) / vector, lanes_of_run) * stored_instructions + end_instructions;
  const double vectors = !c.panel_flat ? passes * device::panel_pass_runs(c) * lanes_of_run / 32.0 * of_run
                                       : staged_types * outputs / vector / 128 * run_vector_instructions *
                                             (aligned ? 1 : joined_vectors);
  const double described =
      !c.panel_flat ? 0
                    : passes * std::ceil(device::panel_pass_runs(c) * device::panel_runs(c) / c.run_rows / 32.0) *
                          run_instructions;
  // Channels last.
  const double parts_staged = staged_types * tiles * ceil_div(c.panel_columns, device::staged_columns(c));
  const double channels_stored =
      parts_staged * part_staged_latency + (sums * 3 + staged_types * outputs / device::channel_vector(c) / 128 *
                                                           (c.panel_flat         ? flat_vector_instructions
                                                            : c.product_rows > 1 ? joined_vector_instructions
                                                                                 : vector_instructions)) *
                                               issue_cycles;
  const double epilogue =
      c.channel_rows
          ? channels_stored
          : passes * (pass_latency + (c.window > 1 ? window_latency : 0) + (c.product_rows - 1) * joined_latency) +
                (staged + vectors + described) * issue_cycles;
  const int lanes = device::panel_lanes(c), unit = device::panel_unit(c);
  const double units = device::panel_units(c, lanes) * device::panel_depth(c, lanes);
  const bool as_it_is = c.x_channels_last && !device::scales(c.math);
  const double put = units * unit * (as_it_is ? slice_instructions : put_instructions) *
                     (c.math == Math::fp32     ? 1.4
                      : c.math == Math::halves ? 2.8
                      : c.math == Math::half   ? c.x_channels_last ? half_slice_put : half_put
                                               : 1) *
                     issue_cycles;
  const bool elements = device::element_bytes(c) == 2 && unit == 1 && !c.x_channels_last;
  const int slice_channels = 4 * device::channels_per_word(c);
  const double loads =
      units * (c.x_channels_last ? slice_channels * element / 16 : slice_channels);  // of a thread
  const double loading = fill_latency + loads * load_cycles + (device::scales(c.math) ? scale_latency : 0) +
                         (elements ? units * 8 * element_load_cycles : 0);
  const double chunk_filled = c.turned              ? copy_latency / (c.panel_stages - 1)
                              : c.fill_buffers == 1 ? loading + put
                                                    : std::max(loading / loading_overlap, put);
  const double filling = double(steps.types) / types * chunks * chunk_filled;

  // Members wait while others of them multiply; and for weights, of which all slots but one are under way, or but
  // two where parts of the box share them.
  const double streamed = c.resident_steps ? 0 : groups * weight_latency / (c.stages - c.box_parts);
  const double per_group = device::splits(c.math)
                               ? device::split_buffers(c) == 2 ? split_pair_latency : split_group_latency
                           : !c.in_turns ? group_latency
                           : members > 1 ? shared_turn_group_latency
                                         : turn_group_latency;
  const double refilled = c.turned || c.resident_steps ? 0 : refill_latency;
  const double own = tensor + groups * (per_group + refilled) +
                     steps.types * chunks * (chunk_latency + (team_blocks - 1) * member_latency);
  const double warpgroups = device::multiplying_warpgroups(c);
  // In turns, the panels of a tile stay until the last member has multiplied them: the next ones are filled beside
  // that as far as there are slots.
  const double slots = double(c.panel_stages) / device::chunks_of(c) - 1;
  const double unfilled = members > 1 ? (1 - std::clamp(slots, 0.0, 1.0)) * filling * types : 0;
  // In turns, others multiply meanwhile: many short runs wait for shared memory, which products read.
  const double busy = issued * (64 + c.panel_columns) / 4.0 / own;
  const double beside =
      c.product_rows > 1 && !c.channel_rows ? busy * (passes * pass_latency + vectors * issue_cycles) : 0;
  const double chain = (c.in_turns ? std::max({warpgroups * own + unfilled, own + epilogue + beside, streamed})
                                   : std::max({members * tensor, streamed, own}) + epilogue) /
                           types +
                       tile_latency;
  // The last one stores when all others are done; behind the last tile nothing is filled.
  const double last_stored = c.in_turns ? (std::min(epilogue, (warpgroups - 1) * own) - unfilled) / types : 0;
  const double added =
      c.depth_splits > 1 ? part_latency * 4 + c.depth_splits * (part_latency + 5.0 * panel_positions(c)) : 0;
  const TeamRounds teams(c, shape, limits);
  const double together = teams.together(resources, limits);
  // The first panel, and weights that stay, come at the same time.
  const double resident_copied =
      c.resident_steps ? team_blocks * device::resident_bytes(c) / copy_bytes_per_cycle : 0;
  const double first = std::max(filling / std::max(1.0, chunks), resident_copied);
  const double alone = teams.rounds * std::max(chain, filling) + last_stored + added + first + 2000;
  const double lost = c.box_parts > 1 && c.in_turns ? parts_overlap_lost_in_turns
                      : members > 1 ? c.in_turns ? shared_overlap_lost_in_turns : shared_overlap_lost
                      : c.in_turns  ? overlap_lost_in_turns
                                    : overlap_lost;
  return std::max(together, alone) + lost * std::min(together, alone) + launch_latency +
         device::warpgroups_of(c) * warpgroup_latency + (c.turned ? turn_cycles(c, shape, limits) : 0);
}

std::vector<TileChoice> price_panel_tiles(const GemmConfig& layer, const RowPlan& rows, const Shape& shape,
                                          const Access& access, const DeviceLimits& limits) {
  std::vector<TileChoice> choices;
  const bool stores = layer.channel_rows || (layer.y_rows && device::are_whole_lines(layer.width_slots));
  if (rows.rows() > device::panel_rows || !stores) return choices;
  const Steps steps(rows);
  const auto consider = [&](GemmConfig c) {
    if (c.turned && turned_bytes(c, shape) > most_turned_bytes) return;
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
           c.turned && c.resident_steps == 0 && steps.types == c.types &&
           c.depth_splits <= std::min(most_splits, device::chunks_of(c)) && tiles * (c.depth_splits - 1) < teams;
           c.depth_splits *= 2)
        if (fits(c, limits)) choices.push_back({c, panel_cycles(c, rows, shape, limits)});
      c.depth_splits = 1;
    };
    c.in_turns = false;
    for (const auto& [loaders, buffers] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
      if (c.turned && loaders * buffers > 1) continue;
      c.loaders = loaders, c.fill_buffers = buffers;
      // Slots as there is room for, of panels and of weights: those that one has are not there for the other.
      int most_stages = -1;
      // Shared memory is not there for the cache of what threads load: many slots are for who gains by them.
      const bool many = c.turned || (c.fill_buffers == 2 && device::scales(c.math) && c.resident_steps > 0);
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
    int slab = 1, group = 1;
    for (int g = 1; g <= steps.common; ++g) {
      if (steps.common % g != 0 || g * issued > 48) continue;
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
  // In 32 bits fills were no faster: stores that come faster than memory takes ragged rows are slower in the end.
  c.fills = steps.types < c.types && device::element_bytes(c) == 2;
  if (!c.x_channels_last) c.x_vector = std::min(c.x_vector, 2);  // a thread loads one or two positions
  c.panel_columns = 8, c.images = 1;                             // so that sizes are those of this kernel
  const bool loads = !c.x_channels_last || c.x_vector == 4;
  const auto joins = [&](const GemmConfig& box) {
    return !box.channel_rows && access.y_planes && !limits.exported && box.box.w >= positions.w &&
           device::joins_whole_rows(box, int(shape.output[2]));
  };
  if (loads) {
    for (c.team_blocks = 1; c.team_blocks <= 4; ++c.team_blocks) {
      if (c.channel_blocks % c.team_blocks != 0) continue;
      add_rows(c, positions, boxes);
      add_joined_rows(c, positions, joins, boxes);
      add_flat(c, positions, shape, joins, boxes);
    }
    c.team_blocks = 1, c.box_parts = 2;
    add_rows(c, positions, boxes);
    add_joined_rows(c, positions, joins, boxes);
    c.box_parts = 1;
  }
  // Turned x pays where many row blocks read it, where threads would load it element by element, where its
  // tiles are more than their registers hold, and where tiles are so few that they share sums.
  const bool few =
      double(shape.batch) * positions.d * positions.h * positions.w * layer.types * layer.channel_blocks <=
      64.0 * limits.multiprocessors;
  if (!limits.exported && (layer.types * layer.channel_blocks >= 4 || layer.x_phases > 1 || few || !loads)) {
    const int widest_load = c.x_channels_last ? 1 : c.x_vector;
    c.turned = true, c.x_channels_last = false;
    for (c.x_vector = 1; c.x_vector <= widest_load; ++c.x_vector)
      for (c.team_blocks = 1; c.team_blocks <= 3; ++c.team_blocks) {
        if (c.channel_blocks % c.team_blocks != 0) continue;
        if (c.x_vector == widest_load) {
          add_rows(c, positions, boxes);
          add_joined_rows(c, positions, joins, boxes);
        }
        add_flat(c, positions, shape, joins, boxes);
      }
  }
  for (GemmConfig& box : boxes)
    for (const int window : {1, 32 / device::element_bytes(c)}) {
      box.window = window;
      if (window > 1 && (box.panel_flat || box.channel_rows || positions.w <= box.box.w ||
                         device::box_advance(box) * 2 <= box.box.w))
        continue;
      for (const int octets : {4, 2, 1}) {
        if (octets > 1 && device::octets_of(c) % octets != 0) continue;
        box.chunk_words = 8 * octets;
        with_weights(box);
      }
    }
  return choices;
}

}  // namespace tconv::cuda
