#include "cuda/heuristics/panel_prices.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/heuristics/team_cost.hpp"
#include "cuda/kernels/sizes/block.cuh"

namespace tconv::cuda {
namespace {

using device::ceil_div;
using device::GemmConfig;
using device::Math;

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
constexpr double copied_turn_group_latency = 85;  // of teams, where loading threads see to weights
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
constexpr double tile_latency = 752;      // its place and its runs worked out
constexpr double pass_latency = 66.6;     // of the epilogue
constexpr double window_latency = 46;     // and more of one whose runs start at whole sectors
constexpr double joined_latency = 3.89;   // and more for each other row that the product covers
constexpr double part_latency = 157;      // of the part of a sum that another tile has left
constexpr double cluster_latency = 1000;  // of the sums that the other block of a cluster gives
constexpr double issue_cycles = 2.02;     // of a warp, for an instruction outside the products
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
constexpr double paired_share = 0.6;    // of what an output takes that is staged, where rows are paired: by count
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
constexpr double early_turn_latency = 3000;  // the same where it begins before the kernel before it ends
// Of x that is turned, bytes a cycle of a multiprocessor: of x itself, and of panels; and of those that are
// scaled, for which the inputs of a panel are read twice, from near.
constexpr double turn_read_rate = 152;
constexpr double turned_rate = 11;
constexpr double scaled_turned_rate = 6.55;
// The same of what goes through memory, read and written, and what caches hold of it.
constexpr double turned_memory_rate = 13.8;
constexpr double cache_bytes = 50e6;
// Times that, where threads load single words or single 16-bit elements, not pairs.
constexpr double words_turned = 1.09;
constexpr double halves_turned = 1.48;
constexpr double copy_latency = 1470;  // from the request of a panel that is copied to its use
// Of what teams could hide of each other, and members of one team, who wait for the same panels; and in turns.
constexpr double overlap_lost = 0.302;
constexpr double shared_overlap_lost = 0.278;
constexpr double shared_copies_overlap_lost = 0.15;  // the same, where panels and weights are copied
constexpr double overlap_lost_in_turns = 0.278;
constexpr double shared_overlap_lost_in_turns = 0.061;
constexpr double parts_overlap_lost_in_turns = 0.185;  // of members that are parts of a box
constexpr double product_cycles = 0.22;                // of the tensor cores, for each product beside its columns

/// What it takes to turn x: it is read, and written as panels.
double turn_cycles(const GemmConfig& c, const Shape& shape, const DeviceLimits& limits) {
  const double turned = turned_panel_bytes(c, shape);
  const double x = double(shape.batch) * c.groups * c.group_in * device::element_bytes(c) *
                   double(shape.input[0] * shape.input[1] * shape.input[2]);
  const double slower = c.x_vector > 1 ? 1 : device::element_bytes(c) == 2 ? halves_turned : words_turned;
  const double written = turned / (device::scales(c.math) ? scaled_turned_rate : turned_rate);
  // Memory has what caches have no room for, and inputs of a halo are read again.
  const double read =
      turned * device::element_bytes(c) * device::channels_per_word(c) / (4 * device::weight_parts(c));
  const double through_memory = (read + turned - cache_bytes) / turned_memory_rate;
  const double cycles = std::max(slower * (x / turn_read_rate + written), through_memory);
  device::ForwardParams call{};  // of which this takes sizes
  call.batch = int(shape.batch), call.boxes = boxes_of(c, shape);
  const double latency = device::turn_params(c, call).little ? early_turn_latency : turn_latency;
  return latency + cycles / limits.multiprocessors;
}

/// The share of steps whose panel is not left out, where panels are of one shift: of rows and slices of boxes.
double read_share(const GemmConfig& c, const Shape& shape) {
  if (!device::panels_by_shift(c)) return 1;
  const Int3 positions = positions_of(c, shape);
  const auto along = [](int box, std::int64_t input, int all) {
    return std::min(1.0, double(input + box - 1) / all);
  };
  return along(c.box.d, shape.input[0], positions.d) * along(c.box.h, shape.input[1], positions.h);
}

}  // namespace

double turned_panel_bytes(const GemmConfig& c, const Shape& shape) {
  device::ForwardParams call{};  // of which this takes sizes
  call.batch = int(shape.batch), call.boxes = boxes_of(c, shape);
  return double(device::turned_bytes(device::turn_params(c, call)));
}

double panel_cycles(const GemmConfig& c, const RowPlan& rows, const Shape& shape, const DeviceLimits& limits) {
  const Steps steps(rows);
  const Int3 boxes = boxes_of(c, shape);
  const double all_steps = steps.total * read_share(c, shape);
  const double panels = device::panels_by_shift(c) ? all_steps / c.panel_steps : steps.types;  // of a chunk
  const double types = double(rows.types.size());
  const double staged_types = c.fills ? steps.types + filled_share * (types - steps.types) : types;
  const double products = products_per_step(c.math);
  const double chunks = ceil_div(device::chunks_of(c), c.depth_splits);  // of a tile
  const double octets = device::octets_of(c) * chunks / device::chunks_of(c), tiles = c.position_tiles;
  const double element = device::element_bytes(c), parts = device::weight_parts(c);
  const double outputs = double(c.rows) * device::box_positions(c) / c.box_parts * c.stride.w / c.width_slots *
                         device::run_height(c) / device::run_lines(c);  // of a member
  const double members = device::members_of(c), team_blocks = c.team_blocks;

  // Sums over one set of types: products and stores of a member, what a team fills.
  const double issued = all_steps * octets * tiles * products;
  const double tensor = issued * (c.panel_columns / 2.0 + product_cycles);
  const double x_words = panels * chunks * c.chunk_words * device::x_inputs(c);
  const double loaded = device::channels_per_word(c) * element;  // bytes of x that become a word
  const double shared =
      members * (issued * (64 + c.panel_columns) / 4.0 + staged_types * outputs * (2 + element / 4) / 32) +
      x_words * ((device::copies_x(c) ? 0 : loaded / 4) + parts) / 32;
  const double weight_bytes =
      c.resident_steps ? 0 : all_steps * octets * parts * double(device::row_step_bytes(c));
  const double lines = double(c.rows) / c.width_slots;
  const double runs = types * lines / device::run_lines(c) *
                      (c.panel_flat ? device::flat_runs_of_line(c) : device::member_runs(c));
  const double ragged = c.window > 1 || c.channel_rows ? 0 : boxes.w == 1 ? ragged_row_bytes : ragged_bytes;
  const double overlap = c.window > 1 ? double(device::box_advance(c)) / c.box.w : 1;
  const double written = types * outputs * overlap * element / c.depth_splits;
  const double shared_sums =
      c.depth_splits > 1 && !c.clustered ? types * 2 * 4.0 * device::member_sums(c) : 0;  // left, and read
  const double stored = written + runs / c.depth_splits * ragged + shared_sums;  // partial sectors meet in L2
  const double x_unique =
      c.x_phases * device::box_positions(c) * double(c.group_in) * element / rows.channel_blocks;
  const double under_way = (c.loaders == 2 ? second_loader : 1) * (c.fill_buffers == 1      ? 1
                                                                   : device::scales(c.math) ? second_scaled_buffer
                                                                                            : second_buffer);
  const double x_copied =
      device::copies_x(c) ? x_words * 4 * parts * weight_share : x_words * loaded * fill_share * under_way;
  const double l2 = team_blocks * weight_bytes * weight_share + members * stored + x_copied;
  const double memory = members * written + team_blocks * x_unique;
  const double x_copies = c.mapped ? tiles * device::mapped_copies(c) : device::panel_copies(c);  // of a panel
  // Copies of weights and of panels, one after the other.
  const double copied =
      team_blocks * all_steps * chunks * device::copies_per_step(c) * copy_cycles +
      team_blocks * weight_bytes / copy_bytes_per_cycle +
      (device::copies_x(c)
           ? panels * chunks * (x_copies * copy_cycles + device::panel_bytes(c) / copy_bytes_per_cycle)
           : 0);
  const double resources = std::max({members * tensor, shared / shared_rate, l2 / l2_bytes_per_cycle, copied,
                                     memory / memory_bytes_per_cycle}) /
                           types;

  // One team alone, for one tile.
  const double groups = all_steps * chunks / c.steps_per_slab;
  const double passes = staged_types * device::panel_passes(c) * (c.panel_flat ? 1 : device::member_runs(c));
  const int vector = device::store_vector(c);
  // Flat products whose rows are staged as they follow one another.
  const bool dense = device::x_extent(c).w == c.box.w && device::panel_run_stride(c) == c.box.w * c.stride.w;
  const bool whole_planes = c.panel_flat && c.whole_rows && boxes.h == 1;
  const bool aligned = shape.output[2] * (whole_planes ? shape.output[1] : 1) % vector == 0;
  const double sums = staged_types * panel_positions(c) / 2.0;  // of a thread
  const double staged = sums * (c.panel_flat ? dense ? 3 : flat_instructions : staged_instructions) *
                        (c.row_pairs ? paired_share : 1) * c.stride.w / c.width_phases;
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
  const double stored_here = c.clustered ? 0.5 : 1;
  const double epilogue =
      c.channel_rows
          ? channels_stored
          : stored_here * passes *
                    (pass_latency + (c.window > 1 ? window_latency : 0) + (c.product_rows - 1) * joined_latency) +
                stored_here * (staged + vectors + described) * issue_cycles;
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
  const double chunk_filled = device::copies_x(c)   ? copy_latency / (c.panel_stages - 1)
                              : c.fill_buffers == 1 ? loading + put
                                                    : std::max(loading / loading_overlap, put);
  const double filling = panels / types * chunks * chunk_filled;

  // Members wait while others of them multiply; and for weights, of which all slots but one are under way, or but
  // two where parts of the box share them.
  const double streamed = c.resident_steps ? 0 : groups * weight_latency / (c.stages - c.box_parts);
  const double per_group = device::splits(c.math)
                               ? device::split_buffers(c) == 2 ? split_pair_latency : split_group_latency
                           : !c.in_turns         ? group_latency
                           : members > 1         ? shared_turn_group_latency
                           : device::copies_x(c) ? copied_turn_group_latency
                                                 : turn_group_latency;
  const double refilled = device::copies_x(c) || c.resident_steps ? 0 : refill_latency;
  const double own = tensor + groups * (per_group + refilled) +
                     panels * chunks * (chunk_latency + (team_blocks - 1) * member_latency);
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
  const double added = c.clustered ? cluster_latency + 5.0 * panel_positions(c)
                       : c.depth_splits > 1
                           ? part_latency * 4 + c.depth_splits * (part_latency + 5.0 * panel_positions(c))
                           : 0;
  const TeamRounds teams(c, shape, limits);
  const double together = teams.together(resources, limits);
  // The first panel, and weights that stay, come at the same time.
  const double resident_copied =
      c.resident_steps ? team_blocks * device::resident_bytes(c) / copy_bytes_per_cycle : 0;
  const double first = std::max(filling / std::max(1.0, chunks * panels / steps.types), resident_copied);
  const double alone = teams.rounds * std::max(chain, filling) + last_stored + added + first + 2000;
  const double lost = c.box_parts > 1 && c.in_turns ? parts_overlap_lost_in_turns
                      : members > 1                 ? c.in_turns            ? shared_overlap_lost_in_turns
                                                      : device::copies_x(c) ? shared_copies_overlap_lost
                                                                            : shared_overlap_lost
                      : c.in_turns                  ? overlap_lost_in_turns
                                                    : overlap_lost;
  return std::max(together, alone) + lost * std::min(together, alone) + launch_latency +
         device::warpgroups_of(c) * warpgroup_latency + (c.turned ? turn_cycles(c, shape, limits) : 0);
}

}  // namespace tconv::cuda
