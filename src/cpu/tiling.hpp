// How a grid of positions is cut into tiles, and how a tile lies in memory.
//
// A grid has four dimensions: batch and the three spatial ones. A tile is a box of positions. Its source
// plane is the box widened by the reach of the taps, so that a tap is a constant shift; its sums are stored
// as runs of positions, each the flattened innermost dimensions of the box at the source's own pitch. The
// columns between two rows of a flattened run are computed and thrown away; in return short rows still
// make long runs. Dimensions outside the runs are looped over, and there taps that fall outside the source
// are skipped rather than multiplied by zero.
//
// With the batch innermost, positions of different samples lie side by side: the way to fill vectors when
// a sample has only a few positions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tconv::cpu {

constexpr int batch_dim = 0;  // tensor dimensions of a grid: 0 batch, 1 to 3 spatial

/// The grid of a convolution, in tensor order: batch, depth, height, width.
struct Grid {
  std::array<std::int64_t, 4> first{};          // first q
  std::array<std::int64_t, 4> count{};          // number of q
  std::array<std::int64_t, 4> lowest_offset{};  // reach of the taps
  std::array<std::int64_t, 4> highest_offset{};
  std::array<std::int64_t, 4> real{};             // q at which the source has elements; beyond them it is padding
  std::array<double, 4> useful_taps{1, 1, 1, 1};  // share of (q, tap) pairs that meet a real source element
  bool skips_padding = false;  // outside the runs, what is padding is never read, and need not be loaded as zeros
};

/// What one position of a tile costs, for choosing between tilings.
struct TileCosts {
  double multiply_adds = 0;    // per position, all rows and taps
  double source_elements = 0;  // loaded per position of the widened tile
  double sum_elements = 0;     // stored per position
  double sum_rows = 0;         // target rows they go to
  std::int64_t lanes = 1;
  std::int64_t column_unit = 1;          // runs are computed in whole units: vectors of columns, or single ones
  std::int64_t units = 1;                // of one call of the usual kernel
  double call_units = 0.35;              // what else a call costs, in units: a narrow kernel loads as many weights
  std::int64_t cache_bytes = 0;          // for the source and the sums of one tile
  double source_bytes_per_position = 0;  // of the widened tile
  double sum_bytes_per_position = 0;
  double additions = 0;  // of a row of inputs to the rows of sums of all taps, where products are by inputs
  std::int64_t wanted_columns = 512;
  std::int64_t fewest_tiles = 1;  // cut at least so many tiles, for the sake of threads
  std::int64_t run_tail = 0;      // source elements of padding behind each run
  std::int64_t sample_gap = 0;    // columns between the samples of two positions, where the batch is innermost
};

struct Tiling {
  // All arrays are in tile order, innermost last.
  std::array<int, 4> dim{0, 1, 2, 3};    // tensor dimension
  std::array<std::int64_t, 4> first{};   // first q of the grid
  std::array<std::int64_t, 4> count{};   // of the grid
  std::array<std::int64_t, 4> extent{};  // positions of a full tile
  std::array<std::int64_t, 4> tiles{};   // of the grid
  std::array<std::int64_t, 4> lowest_offset{};
  std::array<std::int64_t, 4> reach{};  // highest − lowest offset
  std::array<std::int64_t, 4> pitch{};  // of a source plane
  std::int64_t plane_elements = 0;
  bool skips_padding = false;  // as the grid's
  int run_from = 3;            // dimensions run_from … 3 are flattened into a run
  std::int64_t run_pitch = 0;  // columns from one run to the next
  std::int64_t run_count = 0;  // of a full tile
  double cost = 0;

  std::int64_t tile_count() const { return tiles[0] * tiles[1] * tiles[2] * tiles[3]; }
  std::int64_t columns() const { return run_pitch * run_count; }
  /// Columns of the sums from one position to the next in dimension d.
  std::int64_t column_stride(int d) const {
    if (d >= run_from) return pitch[d];
    std::int64_t stride = run_pitch;
    for (int inner = d + 1; inner < run_from; ++inner) stride *= extent[inner];
    return stride;
  }
};

/// A box of positions: one tile, clipped to the grid. Tile order.
struct Box {
  std::array<std::int64_t, 4> begin{};
  std::array<std::int64_t, 4> extent{};
};

Tiling choose_tiling(const Grid& grid, const TileCosts& costs);

/// Tiles of whole samples, for products by inputs: a product of all inputs of a tile with one tap is added to the
/// sums where that tap reaches them, so that nothing is multiplied with padding. `source` and `sums` are cut
/// alike.
struct WholeSamples {
  Tiling source;  // of the inputs, as they are
  Tiling sums;    // of the grid; its cost is comparable with that of choose_tiling
};

/// Of inputs of such a size, in tensor order. None where no sample fits the cache.
std::optional<WholeSamples> whole_samples(const Grid& grid, const std::array<std::int64_t, 4>& inputs,
                                          const TileCosts& costs);

/// Tile `index` of a tiling, innermost dimension fastest.
Box tile_box(const Tiling& tiling, std::int64_t index);

/// Positions of a run inside `box`, the thrown-away ones included.
std::int64_t run_length(const Tiling& tiling, const Box& box);

}  // namespace tconv::cpu
