#include "cuda/heuristics/march_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "cuda/heuristics/team_cost.hpp"
#include "cuda/kernels/sizes/block.cuh"

namespace tconv::cuda {
namespace {

using device::ceil_div;
using device::GemmConfig;
using device::Math;
using device::round_up;

// In cycles of a multiprocessor, fitted to 617 times of tiles of ten benchmark layers on an H200
// (docs/kernels.md).
constexpr double shared_rate = 0.843;        // of 128 bytes a cycle
constexpr double l2_bytes_per_cycle = 17.1;  // x with its halo, outputs, and
constexpr double ragged_bytes = 348;         // what a run's two partial sectors cost;
constexpr double aligned_share = 0.419;    // so much of it where runs are whole sectors, but for the ends of rows
constexpr double product_cycles = 9.5;     // of the tensor cores, for each product beside its columns
constexpr double parts_latency = 68;       // of halves, whose sums are waited for and added
constexpr double slice_latency = 149;      // barriers
constexpr double issue_cycles = 2.25;      // of a warp, for an instruction outside the products
constexpr double fill_latency = 1067;      // of a chunk, from its loads to its panel
constexpr double load_cycles = 22;         // of a thread, for each load
constexpr double scale_latency = 283;      // of the largest number of a chunk, which all its threads wait for
constexpr double put_instructions = 20.5;  // for each position and four words
constexpr double half_put = 2.72;          // times that, where eight numbers are scaled and rounded,
constexpr double halves_put = 5.33;        // or split
constexpr double staged_instructions = 12.3;  // for an output
constexpr double run_instructions = 106;      // of a warp, for a run that is stored, and
constexpr double vector_instructions = 12.9;  // for a vector of each lane
constexpr double overlap_lost = 0.251;        // of what warpgroups could hide of each other
// Not told apart by layers that take long: of small ones little is known, and others are known better.
constexpr double tile_latency = 1500;
constexpr double launch_latency = 7000;
constexpr double doubt = 1.05;

bool fits(const GemmConfig& c, const DeviceLimits& limits) {
  const int shared = device::march_shared_bytes(c);
  const int sums = c.position_tiles * c.rows / 2 + (device::splits(c.math) ? c.rows / 2 : 0);
  // Of what is not scaled, places and counters: a few words in memory once a slice cost less than a narrower tile.
  const int others = (device::scales(c.math) ? 40 : 36) + 6 * c.position_tiles;
  return shared <= limits.shared_per_block && device::fills_panels(device::slice_of(c)) &&
         device::march_loading_registers(c) <= 232 && sums + others <= device::march_multiplying_registers(c) &&
         device::march_entry_registers(c) >= c.rows / 2 + 32 && device::march_run_pitch(c) < 1 << 15;
}

double march_cycles(const GemmConfig& c, const Shape& shape, const DeviceLimits& limits) {
  const GemmConfig slice = device::slice_of(c);
  const double chunks = device::chunks_of(c), element = device::element_bytes(c), members = c.box_parts;
  const Int3 boxes = boxes_of(c, shape);

  // Of a slice of x: what all share.
  const double own =
      double(c.resident_steps) * device::octets_of(c) * products_per_step(c.math) * c.position_tiles;
  const double tensor = members * own * (c.rows / 2.0 + product_cycles);
  const double x_words = double(device::x_inputs(slice)) * chunks * c.chunk_words;
  const double outputs = double(device::slot_rows(c)) * c.box.h * c.box.w;
  const double shared = members * own * (64 + c.rows) / 4.0 + x_words * device::weight_parts(c) / 32 +
                        outputs * (2 + element / 4) / 32;
  const double runs = double(device::slot_rows(c)) * device::march_runs(c);
  const double ragged = runs * (c.window > 1 ? aligned_share + 1.0 / boxes.w : 1) * ragged_bytes;
  const double l2 = x_words * device::channels_per_word(c) * element + outputs * element + ragged;
  const double resources = std::max({tensor, shared / shared_rate, l2 / l2_bytes_per_cycle});

  // What each kind of warpgroup takes by itself.
  const int lanes = device::panel_lanes(slice), unit = device::panel_unit(slice);
  const double units = device::panel_units(slice, lanes) * device::panel_depth(slice, lanes);
  const double slice_channels = 4 * device::channels_per_word(c);
  const double put = units * unit * put_instructions *
                     (c.math == Math::half     ? half_put
                      : c.math == Math::halves ? halves_put
                                               : 1) *
                     issue_cycles;
  const double loading =
      fill_latency + units * slice_channels * load_cycles + (device::scales(c.math) ? scale_latency : 0);
  const double filling = chunks * (c.fill_buffers == 1 ? loading + put : std::max(loading, put));
  const double parts = !device::splits(c.math) ? 0
                                               : c.resident_steps * chunks / c.steps_per_slab * c.position_tiles *
                                                     ceil_div(c.steps_per_slab, device::split_steps(c));
  const double staged = double(device::slot_rows(c)) / 2 * c.position_tiles * staged_instructions * issue_cycles;
  const double multiplying = own * c.rows / 2.0 + parts * parts_latency + staged + slice_latency;
  const double vectors = c.run_rows * c.box.w * element / 16;
  const double lanes_of_run = std::min(32.0, std::exp2(std::ceil(std::log2(std::max(vectors, 8.0)))));
  const double stored =
      runs / 4 * (run_instructions * lanes_of_run / 32 + std::ceil(vectors / 32) * vector_instructions) *
          issue_cycles +
      slice_latency;
  const double chain = std::max({multiplying, filling, stored});

  const double tiles = double(boxes.d) * boxes.h * boxes.w * double(shape.batch);
  const double blocks = std::max(1.0, std::floor(limits.multiprocessors / double(device::block_sets_of(c))));
  const double slices = std::min<double>(double(shape.output[0]) / boxes.d + c.march - 1, double(shape.input[0]));
  const double of_slice = std::max(resources, chain) + overlap_lost * std::min(resources, chain);
  return doubt * std::ceil(tiles / blocks) * (slices * of_slice + tile_latency) + launch_latency +
         device::resident_bytes(c) / copy_bytes_per_cycle;
}

}  // namespace

bool suits_march(const Geometry& g, Math math, const RowPlan& rows) {
  if (device::channels_per_word(math) == 1 || g.group_in < 16) return false;
  const double sums = double(g.group_in) * double(g.taps());
  return rows.rows() >= 16 && sums >= (math == Math::halves ? 96 : 16);
}

std::vector<TileChoice> price_march_tiles(const Geometry& g, Math math, const RowPlan& rows, const Shape& shape,
                                          const Access& access, const DeviceLimits& limits) {
  std::vector<TileChoice> choices;
  GemmConfig c = layer_config(g, math, rows);
  if (!access.y_rows || access.x_channels_last || limits.exported ||
      device::block_sets_of(c) > limits.multiprocessors)
    return choices;
  c.y_rows = true, c.x_vector = std::min(access.x_vector, 2), c.y_channels = 1;
  c.warps_m = c.warps_n = c.tiles_m = c.tiles_n = 1;
  c.rows = c.panel_columns = rows.rows(), c.march = rows.march;
  c.teams = c.blocks_per_sm = c.product_rows = 1, c.stage_rows = c.rows;
  const int steps = int(rows.types[0].steps.size());
  c.resident_steps = steps;
  const Int3 positions = positions_of(c, shape);
  const int alignment = std::max(device::x_alignment(c), 2);

  const auto with_stages = [&] {
    const int issued = device::substeps_of(c) * c.position_tiles * products_per_step(math);
    for (int group = 1; group <= steps; ++group)
      if (steps % group == 0 && (group == 1 || group * issued <= 32)) c.steps_per_slab = group;
    // As many slots as there is room for; to prices they are all the same.
    for (c.stage_buffers = 2; c.stage_buffers >= 1; --c.stage_buffers)
      for (c.panel_stages = 4; c.panel_stages >= 2; --c.panel_stages) {
        if (!fits(c, limits)) continue;
        choices.push_back({c, march_cycles(c, shape, limits)});
        return;
      }
  };
  const auto with_loaders = [&] {
    for (const int octets : {4, 3, 2, 1}) {
      if (device::octets_of(c) % octets != 0) continue;
      c.chunk_words = 8 * octets;
      for (c.loaders = 1; c.loaders <= 2; ++c.loaders)
        for (c.fill_buffers = 1; c.fill_buffers <= 2; ++c.fill_buffers) with_stages();
    }
  };
  std::set<int> depths;
  for (const int parts : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    const int depth = ceil_div(positions.d, parts);
    if (parts == 1 || depth >= 2 * c.march) depths.insert(depth);
  }
  std::set<int> widths;
  for (int parts = 1; parts <= 16; ++parts) widths.insert(round_up(ceil_div(positions.w, parts), alignment));
  const auto with_depths = [&] {
    for (const int depth : depths) {
      c.box.d = depth;
      with_loaders();
    }
  };
  for (c.box_parts = 1; c.box_parts <= 4; ++c.box_parts)
    for (c.position_tiles = 1; c.position_tiles <= 4; ++c.position_tiles) {
      const int all = device::march_positions(c);
      for (const int width : widths) {
        c.box = {1, 1, width}, c.run_rows = c.window = 1;
        const int pitch = device::x_extent(c).w;
        if (width > all) continue;
        // As many rows as there are positions for; all boxes equally many.
        const int most = std::min((all - width) / pitch + 1, positions.h);
        c.box.h = ceil_div(positions.h, ceil_div(positions.h, most));
        if (2 * device::march_span(c) < all) continue;
        if (width >= positions.w && c.box.h > 1 && access.y_planes) c.run_rows = c.box.h;
        with_depths();
      }
      // Boxes that overlap, so that each stores whole sectors: as wide as there are positions for.
      c.window = 32 / device::element_bytes(c), c.run_rows = 1;
      for (int h = 1; h <= std::min(positions.h, 8); ++h) {
        c.box = {1, h, (all - (h - 1) * (c.reach.w + alignment)) / h / alignment * alignment};
        // And as wide as loading threads have pairs for.
        for (const int width : {c.box.w, all / h / alignment * alignment - round_up(c.reach.w, alignment)}) {
          c.box.w = width;
          if (c.box.w < positions.w && c.box.w > 2 * c.window) with_depths();
        }
      }
    }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const TileChoice& a, const TileChoice& b) { return a.cycles < b.cycles; });
  return choices;
}

}  // namespace tconv::cuda
