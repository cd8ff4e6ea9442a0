#include "cli/explain_facts.hpp"

#include <algorithm>

namespace tconv::cli {
namespace {

using std::int64_t;

/// Inputs i that tap k brings inside the output: 0 ≤ i·s + k·d − p < output. They are a range of the phase.
double meetings(const DimensionFacts& f, int64_t k) {
  const MirrorTap tap = mirror_tap(k, f.stride, f.dilation);
  const Range q = phase_range(tap.r, f.stride, f.padding, f.output);
  return double(
      std::max<int64_t>(0, std::min(q.end - tap.shift, f.input) - std::max<int64_t>(q.begin - tap.shift, 0)));
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
                   .phases = phases_of(layer.kernel[d], layer.stride[d], layer.dilation[d]),
                   .real_products = 0,
                   .zero_insertion_products = double(output[d]) * double(layer.kernel[d])};
  for (int64_t k = 0; k < f.kernel; ++k) f.real_products += meetings(f, k);
  return f;
}

}  // namespace

int64_t DimensionFacts::input_of(int64_t o, int64_t k) const {
  const int64_t reach = o + padding - k * dilation;
  return reach >= 0 && reach % stride == 0 && reach / stride < input ? reach / stride : -1;
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
    phases_with_taps *= double(f.phases.size());
    real_products *= f.real_products;
    zero_insertion_products *= f.zero_insertion_products;
    input_bytes *= double(f.input);
    output_bytes *= double(f.output);
    weight_bytes *= double(f.kernel);
    column_bytes *= double(f.input) * double(f.kernel);
  }
}

}  // namespace tconv::cli
