#include "cpu/tiling.hpp"

#include <algorithm>

#include "cpu/packed_weight.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

// Cycles, roughly, on a machine with two multiply-add units. Only their ratios matter.
constexpr double cycles_per_multiply_add = 0.5;  // of a vector
constexpr double contiguous_element = 0.5;       // moved between a tensor and a tile
constexpr double transposed_element = 1.0;       // the same, where the tile has the batch innermost
constexpr double scattered_element = 2.0;        // the same, of too few samples for vectors
constexpr double stack_start = 60;               // rows of one channel and plane are begun together
constexpr double row_start = 15;                 // a row of a tensor begins on a line of its own
constexpr double piece_start = 30;               // rows that do not follow each other begin on a page of their own
constexpr double transposed_row_start = 5;       // the same where they are read side by side with others
constexpr double transposed_piece_start = 10;
constexpr int64_t page_positions = 256;  // of a plane; four planes of floats are a page
constexpr double kernel_call = 30;
constexpr double row_addition = 3;  // a vector of products added to sums
constexpr double row_call = 5;      // and what its row of them costs to begin

/// Fills in everything that follows from order, extents and run_from.
void lay_out(Tiling& t, const TileCosts& costs) {
  int64_t pitch = 1;
  for (int d = 3; d >= 0; --d) {
    t.tiles[d] = ceil_div(t.count[d], t.extent[d]);
    t.pitch[d] = pitch;
    pitch *= t.extent[d] + t.reach[d];
    if (d == 3 && t.dim[3] == batch_dim) pitch += costs.sample_gap;
    if (d == t.run_from) pitch += costs.run_tail;
  }
  t.plane_elements = pitch;
  t.run_count = 1;
  for (int d = 0; d < t.run_from; ++d) t.run_count *= t.extent[d];
  t.run_pitch = round_up(run_length(t, Box{.begin = {}, .extent = t.extent}), costs.column_unit);
}

/// The longest extents of the innermost two dimensions that a tiling may have.
struct Longest {
  int64_t row;
  int64_t stack;  // of rows
};

/// Extents of about `columns` positions, inner dimensions first, each dimension cut into equal parts.
void choose_extents(Tiling& t, int64_t columns, const Longest& longest) {
  for (int d = 3; d >= 0; --d) {
    const int64_t limit = d == 3 ? longest.row : d == 2 ? longest.stack : columns;
    const int64_t parts = ceil_div(t.count[d], std::max<int64_t>(std::min(columns, limit), 1));
    t.extent[d] = ceil_div(t.count[d], parts);
    columns /= t.extent[d];
  }
}

/// Elements of a source plane that are ever touched.
double touched_elements(const Tiling& t, const Grid& grid) {
  double share = 1;
  for (int d = 0; t.skips_padding && d < t.run_from; ++d) {
    const int64_t widened = t.extent[d] + t.reach[d];
    share *= double(std::min(widened, grid.real[std::size_t(t.dim[d])])) / double(widened);
  }
  return share * double(t.plane_elements);
}

double cost_per_position(const Tiling& t, const Grid& grid, const TileCosts& costs) {
  const auto real_extent = [&](int d) {
    return std::min(t.extent[d] + t.reach[d], grid.real[std::size_t(t.dim[d])]);
  };
  double positions = 1, widened = 1, useful = 1;
  for (int d = 0; d < 4; ++d) {
    positions *= double(t.extent[d]);
    widened *= double(real_extent(d));
    if (d < t.run_from) useful *= grid.useful_taps[t.dim[d]];
  }
  const int64_t units = t.run_pitch / costs.column_unit;
  const int64_t calls = ceil_div(units, costs.units);
  const double per_run =
      (double(units) + costs.call_units * double(calls)) * costs.multiply_adds * useful * cycles_per_multiply_add;
  const bool transposed = t.dim[3] == batch_dim && grid.count[batch_dim] > 1;
  const double moved = !transposed ? contiguous_element : t.extent[3] < 4 ? scattered_element : transposed_element;
  const bool many = transposed && t.extent[3] >= costs.lanes;  // samples: their rows are read side by side
  // Rows of the tensors run along the width, wherever the tile has it. Samples that are in a tile with all they
  // have are one row each.
  const int width = transposed ? 2 : 3;
  const bool samples =
      transposed && t.extent[0] == t.count[0] && t.extent[1] == t.count[1] && t.extent[2] == t.count[2];
  const double source_rows =
      samples ? double(t.extent[3]) : widened / double(real_extent(width)) * costs.source_elements;
  const double sum_rows = samples ? double(t.extent[3]) : positions / double(t.extent[width]) * costs.sum_rows;
  const bool together = t.extent[width] == t.count[width] || grid.real[2] * grid.real[3] <= page_positions;
  const double source_pieces = together && !samples ? source_rows / double(real_extent(width - 1)) : source_rows;
  const double sum_pieces = together && !samples ? sum_rows / double(t.extent[width - 1]) : sum_rows;
  const double stacks =
      transposed ? 0 : double(real_extent(0) * real_extent(1)) * (costs.source_elements + costs.sum_rows);
  const double total = double(t.run_count) * (per_run + double(calls) * kernel_call) +
                       (widened * costs.source_elements + positions * costs.sum_elements) * moved +
                       (many ? transposed_row_start : row_start) * (source_rows + sum_rows) +
                       (many ? transposed_piece_start : piece_start) * (source_pieces + sum_pieces) +
                       stack_start * stacks;
  return total / positions;
}

}  // namespace

int64_t run_length(const Tiling& t, const Box& box) {
  int64_t last = 0;
  for (int d = t.run_from; d < 4; ++d) last += (box.extent[d] - 1) * t.pitch[d];
  return last + 1;
}

Tiling choose_tiling(const Grid& grid, const TileCosts& costs) {
  Tiling best;
  for (const std::array<int, 4>& order : {std::array<int, 4>{0, 1, 2, 3}, std::array<int, 4>{1, 2, 3, 0}}) {
    Tiling t;
    t.dim = order;
    t.skips_padding = grid.skips_padding;
    for (int d = 0; d < 4; ++d) {
      t.first[d] = grid.first[order[d]];
      t.count[d] = grid.count[order[d]];
      t.lowest_offset[d] = grid.lowest_offset[order[d]];
      t.reach[d] = grid.highest_offset[order[d]] - grid.lowest_offset[order[d]];
    }
    // Short rows leave room for more of them, and short stacks for more of those, which then share what the taps
    // reach beyond them.
    const int64_t all = costs.wanted_columns;
    for (const Longest& longest : {Longest{all, all}, Longest{8 * costs.lanes, all}, Longest{2 * costs.lanes, all},
                                   Longest{8 * costs.lanes, 4}, Longest{2 * costs.lanes, 4}}) {
      if (longest.stack < all && t.count[1] == 1) continue;
      // Of two ways that cost the same the one that skips more padding.
      for (t.run_from = 3; t.run_from >= 0; --t.run_from) {
        for (int64_t columns = costs.wanted_columns;; columns /= 2) {
          choose_extents(t, columns, longest);
          lay_out(t, costs);
          const double bytes = touched_elements(t, grid) * costs.source_bytes_per_position +
                               double(t.columns()) * costs.sum_bytes_per_position;
          const bool fits = bytes <= double(costs.cache_bytes);
          // Threads want many tiles; below a few registers' width, a tile costs more than an idle thread.
          const bool enough = t.tile_count() >= costs.fewest_tiles || columns <= 8 * costs.lanes;
          if ((fits && enough) || columns <= costs.lanes) break;
        }
        t.cost = cost_per_position(t, grid, costs);
        if (best.cost == 0 || t.cost < best.cost) best = t;
      }
    }
  }
  return best;
}

std::optional<WholeSamples> whole_samples(const Grid& grid, const std::array<int64_t, 4>& inputs,
                                          const TileCosts& costs) {
  double input_count = 1, position_count = 1;
  for (int d = 1; d < 4; ++d)
    input_count *= double(inputs[std::size_t(d)]), position_count *= double(grid.count[d]);
  const double sample_bytes =
      input_count * costs.source_bytes_per_position + position_count * costs.sum_bytes_per_position;
  const double room = double(costs.cache_bytes) / sample_bytes;
  if (room < 1) return std::nullopt;
  const int64_t batch = grid.count[batch_dim];
  // As many as fill a few strips of vectors, but for threads no more than leave each a tile.
  int64_t samples = std::clamp<int64_t>(int64_t(double(costs.wanted_columns) / input_count), 1, int64_t(room));
  samples = std::clamp<int64_t>(samples, 1, std::max<int64_t>(1, batch / costs.fewest_tiles));

  const auto tiles_of = [&](const std::array<int64_t, 4>& first, const std::array<int64_t, 4>& count) {
    Tiling t;
    t.first = first, t.count = count;
    for (int d = 0; d < 4; ++d) t.extent[d] = d == batch_dim ? samples : count[std::size_t(d)];
    t.run_from = 0;
    TileCosts plain = costs;
    plain.run_tail = plain.sample_gap = 0;
    lay_out(t, plain);
    return t;
  };
  WholeSamples tiles{.source = tiles_of({}, inputs), .sums = tiles_of(grid.first, grid.count)};
  const double rows = double(samples) * double(inputs[1] * inputs[2]);
  const int64_t units = ceil_div(int64_t(double(samples) * input_count), costs.lanes);
  const int64_t calls = ceil_div(units, costs.units);
  const double row_vectors = double(ceil_div(inputs[3], costs.lanes));
  const double products =
      (double(units) + costs.call_units * double(calls)) * costs.multiply_adds * cycles_per_multiply_add;
  const double moved =
      double(samples) * (input_count * costs.source_elements + position_count * costs.sum_elements);
  const double sum_rows = double(samples) * position_count / double(grid.count[3]) * costs.sum_rows;
  const double total = products + rows * (row_addition * row_vectors + row_call) * costs.additions +
                       moved * contiguous_element +
                       row_start * (double(samples) * costs.source_elements + sum_rows) +
                       piece_start * (double(samples) * costs.source_elements + sum_rows / double(grid.count[2])) +
                       stack_start * double(samples) * (costs.source_elements + costs.sum_rows);
  tiles.sums.cost = total / (double(samples) * position_count);
  return tiles;
}

Box tile_box(const Tiling& t, int64_t index) {
  Box box;
  for (int d = 3; d >= 0; --d) {
    const Span span = piece(t.count[d], t.tiles[d], index % t.tiles[d]);
    index /= t.tiles[d];
    box.begin[d] = t.first[d] + span.begin;
    box.extent[d] = span.size();
  }
  return box;
}

}  // namespace tconv::cpu
