#include "cpu/grad_weight_blocks.hpp"

#include <algorithm>

#include "cpu/compute_type.hpp"
#include "cpu/kernels/dot_product.hpp"
#include "cpu/kernels/outer_product.hpp"
#include "cpu/machine.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

struct Sizes {
  int64_t in, out, planes, taps;
  int64_t element_bytes;
};

/// Cycles of one position and tap: multiply-adds at two a cycle, loads of vectors and broadcasts likewise.
template <class Compute>
double outer_cycles(int64_t vector_channels, int64_t row_channels) {
  const auto& kernels = outer_product_kernels<Compute>();
  const int64_t panels = ceil_div(row_channels, kernels.rows), rows = ceil_div(row_channels, panels);
  const int64_t vectors = ceil_div(vector_channels, kernels.lanes);
  const int64_t strips = ceil_div(vectors, kernels.widest[rows]), width = ceil_div(vectors, strips);
  return double(panels * strips) * std::max(double(rows * width), double(rows + width)) / 2;
}

// Cycles, roughly: of an element on its way into a tile, and of a kernel call with the sums it adds to.
constexpr double load_and_transpose = 1.2;
constexpr double kernel_call = 60;

void block_outer(GradWeightBlocks& blocks, const Sizes& s, int64_t groups, double positions, int64_t lanes,
                 int64_t rows) {
  blocks.in_unit = blocks.inputs_in_vectors ? 2 * lanes : rows;
  blocks.out_unit = blocks.inputs_in_vectors ? rows : 2 * lanes;
  const GradWeightBlocks cut = blocks;
  const int64_t tile_bytes = second_level_cache() / 2;
  constexpr int64_t most_positions = 512, fewest_positions = 64;
  constexpr double most_sums = 4 << 20;  // bytes of a worker's sums
  constexpr int64_t most_blocks = 16;    // of a side: binding a shape is to be cheap
  const double chunks = std::clamp(positions / double(cut.fewest_chunk_positions), 1.0, double(cut.wanted_items));
  // Blocks that threads share load what they have in common once each: a thread should have something to multiply.
  const double most_shares = std::min(8, processors());
  constexpr double least_multiply_adds = 2e6;
  const double multiply_adds = positions * double(groups) * double(s.in) * double(s.out) * double(s.taps);
  const double wanted = std::clamp(multiply_adds / least_multiply_adds, 1.0, most_shares);

  // Large blocks load their tiles fewer times; small ones leave room for positions, over which a kernel call
  // spreads what it costs to begin, and give threads something to share.
  double least = 0;
  bool best_shares = false;
  for (int64_t in_blocks = 1; in_blocks <= std::min(ceil_div(s.in, cut.in_unit), most_blocks); ++in_blocks)
    for (int64_t out_blocks = 1; out_blocks <= std::min(ceil_div(s.out, cut.out_unit), most_blocks);
         ++out_blocks) {
      GradWeightBlocks candidate = cut;
      candidate.in_blocks = in_blocks;
      candidate.out_blocks = out_blocks;
      const int64_t in = candidate.most_in(s.in), out = candidate.most_out(s.out);
      const int64_t room = tile_bytes / ((in + out * s.planes) * s.element_bytes);
      candidate.positions = std::clamp(room, fewest_positions, most_positions);
      const double loads = double(s.in * out_blocks + s.out * s.planes * in_blocks) * load_and_transpose;
      const double calls = double(ceil_div(s.in, rows) * ceil_div(s.out, 2 * lanes) * s.taps) * kernel_call;
      // Beyond what the caches hold, or memory should, everything costs as many times more.
      const double too_large = std::max({1.0, double(fewest_positions) / double(std::max<int64_t>(room, 1)),
                                         double(in * out * s.taps) * double(s.element_bytes) / most_sums});
      const double cost = (loads + calls / double(candidate.positions)) * too_large;
      const bool shares = double(groups * in_blocks * out_blocks) * chunks >= wanted;
      if (least == 0 || (shares && !best_shares) || (shares == best_shares && cost < least)) {
        blocks = candidate;
        least = cost;
        best_shares = shares;
      }
    }
}

/// Blocks whose tiles fit the second-level cache at a thousand positions: a long run pays for adding up the lanes
/// at its end.
void block_dot(GradWeightBlocks& blocks, const Sizes& s) {
  blocks.positions = 1024;
  const int64_t channel_rows =
      std::max<int64_t>(8, second_level_cache() / 2 / (blocks.positions * s.element_bytes));
  blocks.in_blocks = ceil_div(s.in, std::max<int64_t>(4, channel_rows / 3));
  blocks.out_blocks = ceil_div(s.out, std::max<int64_t>(1, channel_rows * 2 / 3 / s.planes));
}

}  // namespace

GradWeightBlocks choose_blocks(const Convolution& mirror, bool wide, double positions) {
  const Sizes s{.in = mirror.row_channels,
                .out = mirror.sum_channels,
                .planes = int64_t(mirror.planes.size()),
                .taps = int64_t(mirror.classes[0].taps.size()),
                .element_bytes = wide ? 8 : 4};
  return with_compute(wide, [&](auto compute) {
    using Compute = decltype(compute);
    const auto& kernels = outer_product_kernels<Compute>();
    GradWeightBlocks blocks;
    blocks.outer = std::min(s.in, s.out) >= 16;
    if (blocks.outer) {
      blocks.inputs_in_vectors = outer_cycles<Compute>(s.in, s.out) < outer_cycles<Compute>(s.out, s.in);
      block_outer(blocks, s, mirror.groups, positions, kernels.lanes, kernels.rows);
    } else {
      block_dot(blocks, s);
    }
    return blocks;
  });
}

}  // namespace tconv::cpu
