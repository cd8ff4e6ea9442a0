#include "cuda/heuristics/gemm_tiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/int3.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/kernels/sizes/general.cuh"

namespace tconv::cuda {
namespace {

using device::GemmConfig;
using device::Math;
using std::int64_t;

constexpr double cycles_per_product = 1.5;  // of one multiprocessor, m16n8k8 tf32 or m16n8k16
constexpr double cycles_per_double_product = 8;
constexpr double l2_bytes_per_cycle = 26;
constexpr double memory_bytes_per_cycle = 18;
constexpr double step_latency = 60;  // shared-memory read, convert, first product
constexpr double slab_latency = 80;  // barrier and copy issue
constexpr int registers_per_multiprocessor = 65536;

int products_per_step(Math math) {
  return math == Math::fp32 ? 3 : 1;
}

int registers_of(const GemmConfig& c) {
  const int sums = c.tiles_m * c.tiles_n * device::word_bytes(c);
  const int fragments = (c.tiles_m * 4 + c.tiles_n * 2) * device::word_bytes(c) / 4;
  const int split = c.math == Math::fp32 ? c.tiles_n * 4 + 8 + 56 : 0;  // heads, remainders, partial sums
  // Offsets a thread keeps of the x tile: one for each unit it copies.
  const int units = device::volume(device::x_extent(c)) *
                    (c.x_channels_last ? (c.x_vector ? c.chunk_words / c.x_vector : 2 * c.chunk_words) : 1);
  const int slots = (c.x_channels_last ? 3 * device::ceil_div(units, device::threads_of(c)) + 16 : 6) +
                    (c.chunk_words < 8 ? 24 : 0);  // two shifts in a step
  return sums + 2 * fragments + split + c.tiles_n + slots + (c.masked ? 56 : 46);
}

/// How many blocks fit a multiprocessor; 0 if not one.
int occupancy(const GemmConfig& c, const DeviceLimits& limits) {
  const int shared = device::shared_bytes(c);
  if (shared > limits.shared_per_block) return 0;
  const int threads = device::threads_of(c);
  const int by_shared = limits.shared_per_multiprocessor / (shared + 1024);
  const int registers = registers_of(c);
  const int most = c.math == Math::fp32 ? 288 : c.math == Math::f64 ? 270 : 280;
  if (registers > most) return 0;  // the compiler does better than the estimate, but not by more
  const int by_registers =
      registers_per_multiprocessor / (threads * device::round_up(std::min(registers, 255), 8));
  return std::min({by_shared, by_registers, 2048 / threads, 8});
}

double price(const GemmConfig& c, const RowPlan& rows, const Shape& shape, const DeviceLimits& limits) {
  const Int3 boxes = boxes_of(c, shape);
  const double columns = device::volume(c.box);
  const double warps = c.warps_m * c.warps_n;
  const int chunks = device::chunks_of(c), substeps = device::substeps_of(c);
  const double element = device::element_bytes(c), word = device::word_bytes(c);
  const bool doubles = c.math == Math::f64;
  const double product_cycles = doubles ? cycles_per_double_product : cycles_per_product;
  const double product_latency = doubles ? 4 * cycles_per_double_product : 6.0;  // of a warp, one after another
  double products = 0, fragments = 0, slabs = 0, weights = 0, x_words = 0, chain = 0;
  for (const BlockType& type : rows.types) {
    double active = 0;
    for (const Step& step : type.steps) active += std::popcount(step.mask);
    const double steps = double(type.steps.size()) * chunks * substeps;  // of one octet each
    products += active * chunks * substeps * columns / 8 * products_per_step(c.math);
    fragments += steps * warps * (c.tiles_m * 4 + c.tiles_n * 2);
    slabs += chunks * std::ceil(double(type.steps.size()) / c.steps_per_slab);
    weights += c.resident_steps ? 0 : steps * device::step_words(c);
    x_words += type.steps.empty() ? 0 : double(chunks) * device::x_tile_words(c);
    chain += steps * (c.tiles_m * c.tiles_n * products_per_step(c.math) * product_latency + step_latency);
  }
  const double types = double(rows.types.size());
  const double staged = device::row_tiles_of(c) * 16 * columns * types;
  const double x_copies =
      c.x_vector * word >= 16 || c.x_channels_last ? 1.0 : 4.0;  // narrow copies take more slots
  const double shared = (fragments + (weights + x_words * x_copies + 2 * staged) / 32) * word / 4;
  const double l2 = (weights + x_words) * word + staged * element;
  // Runs of outputs: whole lines are cheap, ragged ends are paid twice, and each run has its own set-up.
  const double runs = types * c.channels_per_block * c.box.d * c.box.h;
  const double run_bytes = c.box.w * c.stride.w * element;
  const double stored = c.y_rows ? runs * (run_bytes + 64) : runs * run_bytes;
  const double store_issue =
      c.y_rows ? runs * (20 + 10 * (run_bytes / 128 + 1)) / 4 : runs * run_bytes / element * 12 / 32;
  const double memory = stored + columns * c.group_in * element;
  // Products stop while a block stores, unless another block of the multiprocessor has some.
  const double overlap = c.blocks_per_sm == 1 ? 1.0 : c.blocks_per_sm == 2 ? 0.4 : 0.25;
  const double epilogue = store_issue + 2 * staged * word / 128;
  const double main = std::max({products * product_cycles / 0.8, shared / 0.85, l2 / l2_bytes_per_cycle});
  const double per_tile =
      std::max(main + overlap * epilogue + slabs * slab_latency * overlap, memory / memory_bytes_per_cycle);

  // Tiles of all types together: `per_tile` is the sum over one set of them.
  const double sets = double(c.channel_blocks) * c.groups * boxes.d * boxes.h * boxes.w * double(shape.batch);
  const double per_sm = sets * types / limits.multiprocessors;
  const double throughput = std::max(per_sm, 1.0) * per_tile / types;
  const double rounds = std::ceil(sets * types / (double(limits.multiprocessors) * c.blocks_per_sm));
  const double resident = std::min(double(c.blocks_per_sm), std::max(1.0, per_sm));
  const double latency = rounds * (chain / types + 2500) * std::max(1.0, resident * warps / 8);
  const double waves = std::ceil(per_sm) / std::max(per_sm, 1e-9);
  return std::max(per_sm < 8 ? throughput * std::max(1.0, std::min(waves, 2.0)) : throughput, latency);
}

/// Divides a column count over depth and height so that little falls outside the shape.
std::vector<Int3> boxes_for(int columns, const Int3& positions) {
  std::vector<Int3> boxes;
  for (int w = 8; w <= columns; w += 8) {
    if (columns % w || (w > 8 && w - 8 >= device::round_up(positions.w, 8))) continue;
    const int rows = columns / w;
    for (int h = 1; h <= rows; ++h) {
      if (rows % h || (h > positions.h && h > 1)) continue;
      const int d = rows / h;
      if (d > positions.d && d > 1) continue;
      boxes.push_back({d, h, w});
    }
  }
  // Images smaller than any box have one all the same.
  if (boxes.empty()) boxes.push_back({1, columns / 8, 8});
  return boxes;
}

}  // namespace

GemmConfig layer_config(const Geometry& g, Math math, const RowPlan& rows) {
  GemmConfig c{};
  c.clustered = false, c.team_blocks = c.box_parts = c.depth_splits = c.loaders = c.run_rows = 1,
  c.octet_group = rows.octet_group;
  c.math = math;
  c.groups = int(g.groups), c.group_in = int(g.group_in), c.group_out = int(g.group_out);
  c.kernel = int3(g.kernel), c.stride = int3(g.stride), c.padding = int3(g.padding), c.dilation = int3(g.dilation);
  c.x_phases = rows.x_phases, c.stride.w *= c.x_phases;
  c.first_position = {c.padding.d / c.stride.d + (rows.first_phase.d < 0),
                      c.padding.h / c.stride.h + (rows.first_phase.h < 0), c.padding.w / c.stride.w};
  c.reach = rows.reach, c.channel_phases = rows.channel_phases;
  c.types = int(rows.types.size());
  c.channel_blocks = rows.channel_blocks, c.channels_per_block = rows.channels_per_block;
  c.phase_major = rows.phase_major, c.width_phases = rows.width_phases, c.width_slots = rows.width_slots;
  c.line_phases = rows.line_phases, c.run_phases = rows.run_phases, c.row_pairs = rows.row_pairs;
  c.stage_group_tiles = rows.stage_group_tiles, c.stage_group_lines = rows.stage_group_lines;
  c.masked = rows.masked;
  c.images = 1, c.window = 1;
  return c;
}

Int3 positions_of(const GemmConfig& c, const Shape& shape) {
  return device::positions_of(c, int3(shape.output));
}

GemmConfig pack_config(const Geometry& g, Math math, const RowPlan& rows) {
  GemmConfig c = layer_config(g, math, rows);
  c.warps_m = c.warps_n = c.tiles_n = 1, c.tiles_m = rows.row_tiles;
  c.box = {1, 1, 8}, c.x_vector = 1, c.chunk_words = rows.paired ? 4 : 8;
  c.steps_per_slab = 1, c.stages = c.x_stages = 2, c.blocks_per_sm = 1;
  if (rows.tile_rows == 8) c.teams = 1, c.rows = rows.rows(), c.channel_rows = rows.channel_rows;
  return c;
}

Int3 boxes_of(const GemmConfig& c, const Shape& shape) {
  return device::boxes_of(c, int3(shape.output));
}

std::vector<TileChoice> price_tiles(const Geometry& g, Math math, const RowPlan& rows, const Shape& shape,
                                    const Access& access, const DeviceLimits& limits) {
  GemmConfig c = layer_config(g, math, rows);
  c.x_channels_last = access.x_channels_last, c.x_vector = access.x_vector, c.y_rows = access.y_rows;

  std::size_t most_steps = 0, least_steps = SIZE_MAX, types_with_steps = 0;
  for (const BlockType& type : rows.types) {
    if (type.steps.empty()) continue;
    most_steps = std::max(most_steps, type.steps.size());
    least_steps = std::min(least_steps, type.steps.size());
    ++types_with_steps;
  }
  const Int3 positions = positions_of(c, shape);
  const int max_sums = math == Math::fp32 || math == Math::f64 ? 64 : 128;
  const bool one_block = rows.channel_blocks == 1 && g.groups == 1 && rows.types.size() == 1;

  // Prices are so much too low beside those of the warpgroups' kernels: most where x is loaded by single 16-bit
  // elements, and where most of it is halo.
  constexpr double latency = 7000, of_halo = 2.5;
  const double share = (device::element_bytes(math) >= 4 ? 1.7
                        : access.x_vector > 1            ? 2.5
                                                         : 5) *
                       (device::reaches_far(c.reach) ? of_halo : 1);
  std::vector<TileChoice> choices;
  const auto consider = [&](const GemmConfig& candidate) {
    GemmConfig k = candidate;
    k.blocks_per_sm = occupancy(k, limits);
    if (k.blocks_per_sm == 0) return;
    choices.push_back({k, latency + share * price(k, rows, shape, limits)});
  };
  for (int warps_m = 1; warps_m <= 4; warps_m *= 2) {
    if (rows.row_tiles % warps_m) continue;
    c.warps_m = warps_m, c.tiles_m = rows.row_tiles / warps_m;
    const bool spanning = rows.stage_group_tiles > c.tiles_m;
    if (spanning ? rows.stage_group_tiles != rows.row_tiles : c.tiles_m % rows.stage_group_tiles != 0) continue;
    for (c.warps_n = 1; c.warps_n <= 8; c.warps_n *= 2) {
      const int warps = warps_m * c.warps_n;
      if (warps != 4 && warps != 8) continue;
      for (c.tiles_n = 1; c.tiles_n <= 8; ++c.tiles_n) {
        if (c.tiles_m * c.tiles_n * 4 > max_sums) continue;
        for (const Int3& box : boxes_for(c.warps_n * c.tiles_n * 8, positions)) {
          c.box = box;
          for (const int octets : {1, 2, 4}) {
            if (rows.paired ? octets != 1 : device::octets_of(c) % octets != 0) continue;
            // Split products of several octets in a row are more than the registers hold.
            if (math == Math::fp32 && octets > 1) continue;
            c.chunk_words = rows.paired ? 4 : 8 * octets;
            for (const int slab_bytes : {12 * 1024, 24 * 1024, 48 * 1024}) {
              const int per_step = octets * device::step_words(c) * device::word_bytes(c);
              const int slabs = std::max(1, device::ceil_div(int(most_steps) * per_step, slab_bytes));
              c.steps_per_slab = device::ceil_div(int(most_steps), slabs);
              c.resident_steps = 0;
              for (c.stages = 2; c.stages <= 4; ++c.stages) {
                const int least_slabs = std::max(1, device::ceil_div(int(least_steps), c.steps_per_slab));
                c.x_stages = device::ceil_div(c.stages - 1, least_slabs) + 1;
                consider(c);
              }
            }
            const int64_t all_bytes =
                int64_t(most_steps) * device::octets_of(c) * device::step_words(c) * device::word_bytes(c);
            if (one_block && all_bytes <= 150 * 1024) {
              c.steps_per_slab = c.resident_steps = int(most_steps);
              for (c.stages = 2; c.stages <= 4; ++c.stages) {
                c.x_stages = c.stages;
                consider(c);
              }
            }
          }
        }
      }
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const TileChoice& a, const TileChoice& b) { return a.cycles < b.cycles; });
  return choices;
}

}  // namespace tconv::cuda
