#include "cuda/heuristics/warpgroup_tiles.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/heuristics/panel_tiles.hpp"
#include "cuda/heuristics/team_cost.hpp"
#include "cuda/kernels/sizes/block.cuh"

namespace tconv::cuda {
namespace {

using device::ceil_div;
using device::channels_per_word;
using device::GemmConfig;
using device::Math;
using std::int64_t;

// Fitted to the times of tiles of 27 benchmark and 55 random layers on an H200, those of panel_prices.cpp with
// them (docs/kernels.md).
constexpr double l2_bytes_per_cycle = 40;
constexpr double memory_bytes_per_cycle = 15.3;
constexpr double ragged_bytes = 0.00206;  // what a run's two partial sectors cost
constexpr double run_cycles = 5.52;       // set-up of a stored run
constexpr double batch_latency = 118;     // operands read, first product of a batch
constexpr double slab_latency = 62.3;     // a barrier
constexpr double tile_latency = 3910;     // first x of a tile, its place and lines worked out
constexpr double pass_latency = 6.2;      // barriers, and sums staged before the first is stored
constexpr double issue_cycles = 3.18;     // of a warp, for an instruction of the epilogue
constexpr double divided = 0.337;      // staging, where eight rows are not whole lines and places take a division
constexpr double load_latency = 1270;  // from the request of a slot to its use, under load
constexpr double through_latency =
    595;  // of 16-bit channels first, whose pairs are joined in registers: two loads, then stores
// What prices of this kernel do not know, which vary more than those of the other; in fp32 they do not.
constexpr double doubt = 1.25;
constexpr double launch_latency = 7000;
constexpr double overlap_lost = 0.58;  // of what teams could hide of each other

/// Of a chunk of 16-bit channels first: how many times in a row a loading thread waits for memory (x_tile.cuh).
int joined_passes(const GemmConfig& c) {
  if (device::channels_per_word(c) == 1 || c.x_channels_last) return 0;
  const int lanes = device::x_unit_lanes(c), deep = device::loading_threads(c) / lanes;
  return ceil_div(device::x_units(c), lanes) * ceil_div(ceil_div(c.chunk_words, deep), 2);
}

/// Registers a multiplying thread needs.
int registers_of(const GemmConfig& c) {
  const bool split = c.math == Math::fp32;
  const int sums = c.position_tiles * (split ? 2 : 1) * c.rows / 2;
  const int octets = device::substeps_of(c) * device::batch_steps_of(c);
  const int operands = octets * 4 * (split ? 2 : 1) * (c.position_tiles == 1 ? 1 : 2);
  const int columns = c.position_tiles * (c.box.w % 16 == 0 ? 1 : 2);
  // Addresses and counters. Where registers are many, sums that are stored already make room for them.
  const int others = 24 + (split ? 12 : 0) + (c.blocks_per_sm > 2 ? 12 : 0);
  return sums + operands + columns + others;
}

bool fits(const GemmConfig& c, const DeviceLimits& limits) {
  const int shared = device::warpgroup_shared_bytes(c);
  return shared <= limits.shared_per_block &&
         c.blocks_per_sm * (shared + 1024) <= limits.shared_per_multiprocessor &&
         registers_of(c) <= device::multiplying_registers(c) &&
         device::entry_registers(c) >= c.rows / 2 + 32;  // the assembler wants room for a product from the start
}

/// Boxes of at most `columns` positions that waste little: widths in eights, or a whole short row; then rows,
/// slices and images as they fit.
struct Box {
  Int3 box;
  int images;
};
std::vector<Box> boxes_for(int columns, const Int3& positions, int64_t batch) {
  std::vector<Box> boxes;
  const auto add = [&](int w) {
    const int rows = columns / w;
    for (int h = 1; h <= std::min(rows, positions.h); h = h < 8 ? h + 1 : h * 2) {
      if (h != positions.h && h > 8 && (h & (h - 1))) continue;
      const int slices = rows / h;
      for (int d = 1; d <= std::min(slices, positions.d); ++d) {
        if (d > 1 && h < positions.h && d > 4) break;
        const bool whole = w >= positions.w && h >= positions.h && d >= positions.d;
        const int images = whole ? int(std::min<int64_t>(slices / d, batch)) : 1;
        // At least three quarters of the columns are used, unless there is no more to use.
        if (!(whole && images == batch) && 4 * images * d * h * w < 3 * columns) continue;
        boxes.push_back({{d, h, w}, images});
      }
    }
    if (positions.h > 8 && positions.h <= rows && (positions.h & (positions.h - 1))) {
      const int slices = rows / positions.h, d = std::min(slices, positions.d);
      const bool whole = w >= positions.w && d >= positions.d;
      const int images = whole ? int(std::min<int64_t>(slices / d, batch)) : 1;
      if ((whole && images == batch) || 4 * images * d * positions.h * w >= 3 * columns)
        boxes.push_back({{d, positions.h, w}, images});
    }
  };
  for (int w = 8; w <= columns; w *= 2) {
    if (w / 2 >= positions.w) break;
    if (w < positions.w || w == 8) add(w);
  }
  if (positions.w <= columns && positions.w > 0) {
    add(positions.w);
    const int padded = device::round_up(positions.w, 8);
    if (padded != positions.w && padded <= columns) add(padded);
  }
  return boxes;
}

/// Of an output, over the types of rows on average.
double words_summed(const Geometry& g, int per_word, const RowPlan& rows) {
  return double(g.group_in) / per_word * Steps(rows).total * (rows.paired ? 2 : 1) / double(rows.types.size());
}

bool suits_halves(const Geometry& g, Math math, const RowPlan& rows) {
  return suits_panels(g, channels_per_word(math), rows) && rows.rows() > 16 && g.group_in >= 8 &&
         words_summed(g, 1, rows) >= 16;
}

}  // namespace

bool suits_warpgroups(const Geometry& g, Math math, const RowPlan& rows) {
  if (device::scales(math)) return suits_halves(g, math, rows);
  const int per_word = channels_per_word(math);
  if (g.group_in <= 4 * per_word) return false;
  // Few rows read positions from shared memory for few products, and short sums are soon stored: there the general
  // kernel, all of whose warps store, is ahead.
  const double depth = words_summed(g, per_word, rows);
  // Long sums in fp32 are more accurate here: the general kernel adds eight products at a time, and each addition
  // rounds.
  const bool long_sums = math == Math::fp32 && depth >= 1024;
  // Channels last, the general kernel stores single elements, and panels have whole lines.
  const bool panels = rows.channel_rows && (rows.channel_phases.count > 1 || g.group_in % (4 * per_word) == 0);
  return rows.rows() >= (long_sums ? 16 : 17) && depth >= (panels ? 8 : 24);
}

bool may_suit_warpgroups(Math math, const RowPlan& rows) {
  return !device::scales(math) && rows.rows() > 16;
}

double warpgroup_cycles(const GemmConfig& c, const RowPlan& rows, const Shape& shape, const DeviceLimits& limits) {
  const Steps steps(rows);
  const Int3 boxes = boxes_of(c, shape);
  const double types = double(rows.types.size());
  const double products = products_per_step(c.math);
  const double octets = device::octets_of(c), chunks = device::chunks_of(c), tiles64 = c.position_tiles;
  const double element = device::element_bytes(c);
  const int columns = device::box_positions(c);

  // Sums over one set of types.
  const double tensor = steps.total * octets * tiles64 * products * c.rows / 2.0;
  const double operands = steps.total * octets * tiles64 * (16 + products * c.rows / 4.0);
  const double x_words = double(steps.types) * chunks * device::x_tile_words(c);
  const double narrow = c.x_channels_last ? 1 : c.x_vector >= 4 ? 1 : 4;
  const double staged = types * c.rows * columns * (c.y_rows ? 1.0 : 0.3);
  const double rounded = c.round_on_load ? 2 * x_words : 0;
  // Pairs of channels that leave from registers: eight positions of a store are as many lines of memory.
  const double scattered = c.y_rows ? 0 : types * c.rows * columns / 8.0;
  const double shared = operands + (x_words * narrow + rounded + staged * (1.5 + element / 4)) / 32 + scattered;

  const double weight_bytes =
      c.resident_steps ? 0 : steps.total * octets * device::weight_parts(c) * double(device::row_step_bytes(c));
  const double runs = types * rows.channels_per_block * device::box_rows(c) *
                      std::max(1.0, double(rows.rows()) / (rows.channels_per_block * rows.width_slots));
  const double run_bytes = double(c.window > 1 ? device::box_advance(c) : c.box.w) * c.stride.w * element;
  const double ragged = c.window > 1 || boxes.w == 1 ? 0 : ragged_bytes;
  const double stored = c.y_rows ? runs * (run_bytes + ragged) : runs * run_bytes * 1.2;
  const double x_unique = double(columns) * c.group_in * element / double(rows.channel_blocks);
  const double l2 = weight_bytes + x_words * 4 + stored;
  const double memory = stored + x_unique;

  // Copies of weights, one after the other.
  const double copied =
      steps.total * chunks * device::copies_per_step(c) * copy_cycles + weight_bytes / copy_bytes_per_cycle;
  const double resources = std::max({tensor, copied, shared / 0.9 + (c.y_rows ? runs * run_cycles : 0),
                                     l2 / l2_bytes_per_cycle, memory / memory_bytes_per_cycle}) /
                           types;

  // One team alone, for one tile.
  const double batches = steps.total * chunks * tiles64 / device::batch_steps_of(c);
  const double slabs = chunks * (c.resident_steps ? steps.types : double(ceil_div(steps.total, c.steps_per_slab)));
  const double passes = types * (c.y_rows ? ceil_div(c.rows, c.stage_rows) : 1);
  // Sums staged, runs described by a thread each, vectors stored by a thread each.
  const double described = ceil_div(device::stage_lines(c) * device::box_rows(c), 128) * passes;
  const double stored_vectors = runs * device::run_stride(c) / device::store_vector(c) / 128;
  const double staging =
      (c.y_rows && device::box_rows(c) == 1 ? 7 : 12) * (8 % c.width_slots ? divided * tiles64 : 1);
  const double instructions =
      types * tiles64 * c.rows / 2 * staging + (c.y_rows ? described * 90 + stored_vectors * 16 : 0);
  const double epilogue = passes * pass_latency * (c.stage_buffers == 2 ? 0.6 : 1) + instructions * issue_cycles;
  const double chain = (tensor + batches * batch_latency + slabs * slab_latency + epilogue) / types + tile_latency;
  // Loads of a team: what it has under way arrives one latency later.
  const double x_bytes = x_words * 4 / types, x_ahead = (c.x_stages - 1) * double(device::x_tile_words(c)) * 4;
  const double weights_ahead = c.resident_steps ? 1 : (c.stages - 1) * double(device::row_slab_bytes(c));
  const double copies =
      load_latency * std::max(x_bytes / x_ahead, c.resident_steps ? 0.0 : weight_bytes / types / weights_ahead);
  const double loads = std::max(copies, chunks * steps.types / types * joined_passes(c) * through_latency);

  const TeamRounds teams(c, shape, limits);
  const double together = teams.together(resources, limits);
  const double alone = teams.rounds * std::max(chain, loads);
  const double resident_load = c.resident_steps ? device::resident_bytes(c) / l2_bytes_per_cycle : 0;
  const double cycles = std::max(together, alone) + overlap_lost * std::min(together, alone);
  const double share = c.math == Math::fp32 ? 1 : doubt;
  return cycles * share + launch_latency + resident_load;
}

std::vector<TileChoice> price_warpgroup_tiles(const Geometry& g, Math math, const RowPlan& rows,
                                              const Shape& shape, const Access& access,
                                              const DeviceLimits& limits) {
  GemmConfig c = layer_config(g, math, rows);
  c.x_channels_last = access.x_channels_last, c.x_vector = access.x_vector;
  c.y_rows = access.y_rows && !rows.channel_rows, c.y_channels = access.y_channels;
  c.rows = rows.rows(), c.channel_rows = rows.channel_rows;
  c.warps_m = c.warps_n = c.tiles_n = 1, c.tiles_m = 1;
  const GemmConfig layer = c;
  const Steps steps(rows);
  c.round_on_load = math == Math::tf32 && steps.total >= 4 * steps.types;
  const Int3 positions = positions_of(c, shape);
  const int64_t blocks = int64_t(c.types) * c.channel_blocks * c.groups;
  const int paired = c.row_pairs ? 16 : 8;
  const int pass_unit = paired * c.width_slots / device::gcd(paired, c.width_slots);

  std::vector<TileChoice> choices;
  const auto consider = [&](GemmConfig k) {
    // Staging buffers of different size; then as many stages as there is room for.
    int last_rows = 0;
    for (const int buffers : {1, 2})
      for (const int part : {1, 2, 4, 8}) {
        k.stage_buffers = buffers;
        k.stage_rows = std::min(k.rows, device::round_up(ceil_div(k.rows, part), pass_unit));
        if ((buffers == 2) == (k.stage_rows >= k.rows) || k.stage_rows == last_rows) continue;
        last_rows = k.stage_rows;
        // Streamed weights are wanted first, then x.
        for (k.stages = k.resident_steps ? 0 : 5; k.stages >= (k.resident_steps ? 0 : 3); --k.stages) {
          bool found = false;
          for (k.x_stages = 6; k.x_stages >= 2 && !found; --k.x_stages)
            if (fits(k, limits)) {
              choices.push_back({k, warpgroup_cycles(k, rows, shape, limits)});
              found = true;
            }
          if (found) break;
        }
      }
  };
  for (const int tiles64 : {1, 2, 4}) {
    // Only panels have the inputs of a position apart, scales, pairs of steps, runs of several rows, and channels
    // that are outputs along the width.
    if (rows.x_phases > 1 || device::scales(math) || rows.paired || rows.whole_rows ||
        rows.channel_phases.count > 1)
      break;
    c.position_tiles = tiles64;
    for (const Box& box : boxes_for(64 * tiles64, positions, shape.batch)) {
      c.box = box.box, c.images = box.images;
      for (const int window : {1, 32 / device::element_bytes(c)}) {
        c.window = window;
        if (window > 1 && (!c.y_rows || positions.w <= c.box.w || device::box_advance(c) * 2 <= c.box.w)) continue;
        for (const int octets : {4, 2, 1}) {
          // Whole chunks of channels, without octets that are padding.
          if (ceil_div(int(g.group_in), 8 * device::channels_per_word(c)) % octets != 0) continue;
          c.chunk_words = 8 * octets;
          // Streamed weights, one team.
          c.teams = 1, c.resident_steps = 0;
          for (const int slab_bytes : {8 * 1024, 12 * 1024}) {
            const int per_step = octets * device::weight_parts(c) * device::row_step_bytes(c);
            const int slabs = std::max(1, ceil_div(steps.most * per_step, slab_bytes));
            c.steps_per_slab = ceil_div(steps.most, slabs);
            // Whole batches, as far as there are.
            const int batch = std::max(1, 4 / octets);
            if (c.steps_per_slab > batch && c.steps_per_slab < steps.most)
              c.steps_per_slab =
                  device::round_up(c.steps_per_slab, c.steps_per_slab % 3 == 0 && octets == 1 ? 3 : batch);
            for (const int per_sm : {2, 3, 4}) {
              c.blocks_per_sm = per_sm;
              consider(c);
            }
          }
          if (!steps.equal || blocks > limits.multiprocessors) continue;
          c.resident_steps = c.steps_per_slab = steps.most;
          for (const int per_sm : {2, 3, 4}) {
            c.blocks_per_sm = per_sm;
            consider(c);
          }
          for (c.teams = 2, c.blocks_per_sm = 1; c.teams <= 3; ++c.teams) consider(c);
        }
      }
    }
  }
  const auto add_panels = [&](const GemmConfig& from, const RowPlan& plan) {
    const std::vector<TileChoice> panels = price_panel_tiles(from, plan, shape, access, limits);
    choices.insert(choices.end(), panels.begin(), panels.end());
  };
  add_panels(layer, rows);
  // A row of positions less is something to images of few.
  constexpr int few = 32;
  const bool small = (positions.h > 1 && positions.h <= few) || (positions.d > 1 && positions.d <= few);
  if (const auto moved = small ? from_first_output(rows, layer.stride, layer.padding) : std::nullopt) {
    GemmConfig from = layer;
    const GemmConfig of_rows = layer_config(g, math, *moved);
    from.first_position = of_rows.first_position, from.reach = of_rows.reach;
    add_panels(from, *moved);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const TileChoice& a, const TileChoice& b) { return a.cycles < b.cycles; });
  return choices;
}

}  // namespace tconv::cuda
