// What can be said about a layer before it runs: its phases, and what it must cost.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/problems.hpp"

namespace tconv::cli {

/// A phase that has taps: k = first_tap + j·tap_step, which read inputs q − (first_shift + j·shift_step).
struct PhaseFacts {
  std::int64_t r;
  std::int64_t taps;
  std::int64_t first_tap, tap_step, first_shift, shift_step;
};

/// One spatial dimension. Nothing here takes longer for more taps, or a larger stride: a layer may have 10⁹ of
/// them.
struct DimensionFacts {
  std::int64_t kernel, stride, padding, output_padding, dilation;
  std::int64_t input, output;
  std::int64_t phases_with_taps;
  double real_products;            // pairs of an input and a tap that meet inside the output
  double zero_insertion_products;  // every tap at every output

  /// The input that tap k reads for output o, or -1 where it would read an inserted zero or nothing.
  std::int64_t input_of(std::int64_t o, std::int64_t k) const;
  /// The phase of output o; for cropped outputs (o < 0) too, as long as o + padding is not negative.
  std::int64_t phase_of(std::int64_t o) const { return (o + padding) % stride; }
  /// The first phases with taps, by ascending r.
  std::vector<PhaseFacts> first_phases(std::int64_t most) const;
  /// How many taps feed an output of phase r; there may be none.
  std::int64_t taps_of(std::int64_t r) const;
};

struct LayerFacts {
  explicit LayerFacts(const Problem& problem);

  Problem problem;
  Extents output;
  std::vector<DimensionFacts> dimensions;
  double phase_count = 1, phases_with_taps = 1;           // products over the dimensions
  double real_products = 0, zero_insertion_products = 0;  // of the whole layer and batch
  double flops = 0, bytes = 0;
  double input_bytes = 0, weight_bytes = 0, output_bytes = 0;
  double column_bytes = 0;  // of the buffer a col2im implementation writes and reads

  double intensity() const { return flops / bytes; }
};

}  // namespace tconv::cli
