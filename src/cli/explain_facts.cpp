#include "cli/explain_facts.hpp"

#include <algorithm>

#include "layer/phases.hpp"

namespace tconv::cli {
namespace {

using std::int64_t;

// Numbers that are multiplied before they are divided.
__extension__ typedef __int128 Wide;

/// The number that times `value` leaves 1 modulo `modulus`; they have no divisor in common.
int64_t inverse(int64_t value, int64_t modulus) {
  int64_t rest = modulus, next_rest = value % modulus, factor = 0, next_factor = 1;
  while (next_rest != 0) {
    const int64_t quotient = rest / next_rest;
    rest -= quotient * next_rest, std::swap(rest, next_rest);
    factor -= quotient * next_factor, std::swap(factor, next_factor);
  }
  return (factor % modulus + modulus) % modulus;
}

/// The sum of ⌊(a·i + b) / m⌋ over 0 ≤ i < n, for a, b ≥ 0: points under a line, counted as Euclid's algorithm
/// divides.
double floor_sum(Wide n, Wide m, Wide a, Wide b) {
  double sum = 0;
  while (n > 0) {
    sum += double(a / m) * double(n) * double(n - 1) / 2 + double(b / m) * double(n);
    a %= m, b %= m;
    // What is left lies below the diagonal: rows of points take the place of columns.
    const Wide top = a * n + b;
    n = top / m, b = top % m;
    std::swap(a, m);
  }
  return sum;
}

/// Pairs of an input i ≥ 0 and a tap k with i·s + k·d < limit.
double pairs_below(const DimensionFacts& f, int64_t limit) {
  // Tap k meets min(⌈(limit − k·d) / s⌉, input) inputs: all of them up to `all`, none from `none` on.
  const auto taps_up_to = [&](int64_t reach) {
    return reach > 0 ? std::min((reach - 1) / f.dilation + 1, f.kernel) : 0;
  };
  const int64_t all = taps_up_to(limit - (f.input - 1) * f.stride), none = taps_up_to(limit);
  const int64_t least = limit - (none - 1) * f.dilation;
  return double(all) * double(f.input) + floor_sum(none - all, f.stride, f.dilation, Wide(least) + f.stride - 1);
}

DimensionFacts facts_of(const Problem& problem, const Extents& output, std::size_t d) {
  const Layer& layer = problem.layer;
  DimensionFacts f{.kernel = layer.kernel[d],
                   .stride = layer.stride[d],
                   .padding = layer.padding[d],
                   .output_padding = layer.output_padding[d],
                   .dilation = layer.dilation[d],
                   .input = problem.input[d],
                   .output = output[d],
                   .phases_with_taps = 0,
                   .real_products = 0,
                   .zero_insertion_products = double(output[d]) * double(layer.kernel[d])};
  // Taps k and k + step belong to one phase: the first `step` taps name all phases that have any.
  f.phases_with_taps = std::min(f.stride / greatest_common_divisor(f.stride, f.dilation), f.kernel);
  f.real_products = pairs_below(f, f.padding + f.output) - pairs_below(f, f.padding);
  return f;
}

/// The phase r, with no taps where it has none.
PhaseFacts phase_facts(const DimensionFacts& f, int64_t r) {
  const int64_t g = greatest_common_divisor(f.stride, f.dilation), step = f.stride / g;
  PhaseFacts phase{
      .r = r, .taps = 0, .first_tap = 0, .tap_step = step, .first_shift = 0, .shift_step = f.dilation / g};
  if (r % g != 0) return phase;
  phase.first_tap = int64_t(Wide(r / g) * inverse(f.dilation / g, step) % step);
  if (phase.first_tap >= f.kernel) return phase;
  phase.taps = (f.kernel - 1 - phase.first_tap) / step + 1;
  phase.first_shift = int64_t((Wide(phase.first_tap) * f.dilation - r) / f.stride);
  return phase;
}

}  // namespace

int64_t DimensionFacts::input_of(int64_t o, int64_t k) const {
  const int64_t reach = o + padding - k * dilation;
  return reach >= 0 && reach % stride == 0 && reach / stride < input ? reach / stride : -1;
}

int64_t DimensionFacts::taps_of(int64_t r) const {
  return phase_facts(*this, r).taps;
}

std::vector<PhaseFacts> DimensionFacts::first_phases(int64_t most) const {
  std::vector<int64_t> candidates;
  constexpr int64_t few = 1 << 16;
  const int64_t g = greatest_common_divisor(stride, dilation);
  if (phases_with_taps <= few) {  // the phases of the first taps, in their order
    for (int64_t k = 0; k < phases_with_taps; ++k) candidates.push_back(int64_t(Wide(k) * dilation % stride));
    std::sort(candidates.begin(), candidates.end());
  } else {
    for (int64_t r = 0; r < stride && int64_t(candidates.size()) < few; r += g) candidates.push_back(r);
  }
  std::vector<PhaseFacts> phases;
  for (const int64_t r : candidates) {
    if (int64_t(phases.size()) == most) break;
    if (const PhaseFacts phase = phase_facts(*this, r); phase.taps > 0) phases.push_back(phase);
  }
  return phases;
}

LayerFacts::LayerFacts(const Problem& p) : problem(p), output(output_size(p.layer, p.input)) {
  const Layer& layer = problem.layer;
  const Work cost = work(layer, problem.batch, problem.input);
  flops = cost.flops;
  bytes = cost.bytes;
  const double element = double(size_of(layer.dtype));
  real_products = zero_insertion_products =
      double(problem.batch) * double(layer.in_channels) * double(layer.out_channels / layer.groups);
  input_bytes = double(problem.batch) * double(layer.in_channels) * element;
  output_bytes = double(problem.batch) * double(layer.out_channels) * element;
  weight_bytes = double(layer.in_channels) * double(layer.out_channels / layer.groups) * element;
  column_bytes = output_bytes;
  for (std::size_t d = 0; d < std::size_t(layer.dims); ++d) {
    dimensions.push_back(facts_of(problem, output, d));
    const DimensionFacts& f = dimensions.back();
    phase_count *= double(f.stride);
    phases_with_taps *= double(f.phases_with_taps);
    real_products *= f.real_products;
    zero_insertion_products *= f.zero_insertion_products;
    input_bytes *= double(f.input);
    output_bytes *= double(f.output);
    weight_bytes *= double(f.kernel);
    column_bytes *= double(f.input) * double(f.kernel);
  }
}

}  // namespace tconv::cli
