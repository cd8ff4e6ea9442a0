#include "cli/layer_run.hpp"

#include <algorithm>

namespace tconv::cli {
namespace {

struct Needs {
  bool x = false, w = false, bias = false, gy = false;
};

Needs needs_of(const Layer& layer, const std::vector<Pass>& passes) {
  Needs needs;
  for (const Pass pass : passes) {
    needs.x |= pass == Pass::forward || pass == Pass::grad_weight;
    needs.w |= pass == Pass::forward || pass == Pass::grad_input;
    needs.bias |= pass == Pass::forward && layer.bias;
    needs.gy |= pass != Pass::forward;
  }
  return needs;
}

using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const Layer& layer, std::int64_t a, std::int64_t b, const Extents& spatial) {
  Sizes sizes{a, b};
  sizes.insert(sizes.end(), spatial.begin(), spatial.begin() + layer.dims);
  return sizes;
}

struct OperandSizes {
  OperandSizes(const Layer& layer, std::int64_t batch, const Extents& input)
      : x(sizes_of(layer, batch, layer.in_channels, input)),
        w(sizes_of(layer, layer.in_channels, layer.out_channels / layer.groups, layer.kernel)),
        y(sizes_of(layer, batch, layer.out_channels, output_size(layer, input))),
        bias{layer.out_channels} {}

  const Sizes& result_of(Pass pass) const {
    switch (pass) {
      case Pass::forward:
        return y;
      case Pass::grad_input:
        return x;
      case Pass::grad_weight:
        return w;
      case Pass::grad_bias:
        break;
    }
    return bias;
  }

  Sizes x, w, y, bias;
};

double count(const Sizes& sizes) {
  double elements = 1;
  for (const std::int64_t size : sizes) elements *= double(size);
  return elements;
}

}  // namespace

double LayerRun::operand_bytes(const Layer& layer, std::int64_t batch, const Extents& input,
                               const std::vector<Pass>& passes) {
  const OperandSizes sizes(layer, batch, input);
  const Needs needs = needs_of(layer, passes);
  double elements =
      (needs.x ? count(sizes.x) : 0) + (needs.w ? count(sizes.w) : 0) + (needs.gy ? count(sizes.y) : 0);
  for (const Pass pass : passes) elements += count(sizes.result_of(pass));
  return elements * double(size_of(layer.dtype));
}

LayerRun::LayerRun(const Layer& layer, std::int64_t batch, const Extents& input, const std::vector<Pass>& passes,
                   std::shared_ptr<Executor> executor, std::uint64_t seed, bool prepack)
    : layer_(layer),
      geometry_(geometry_of(layer)),
      shape_(shape_of(layer, batch, input)),
      executor_(std::move(executor)) {
  const Plan plan(layer);
  binding_ = plan.bind(batch, input);
  const OperandSizes sizes(layer, batch, input);
  const Needs needs = needs_of(layer, passes);
  const auto make = [&](HostArray& array, const Sizes& array_sizes, std::uint64_t salt) {
    array = HostArray(layer.dtype, array_sizes, array_sizes.size() > 2 ? layer.layout : Layout::channels_first);
    array.fill_random(seed * 16 + salt, *executor_);
  };
  if (needs.x) make(x, sizes.x, 1);
  if (needs.w) make(w, sizes.w, 2);
  if (needs.bias) make(bias, sizes.bias, 3);
  if (needs.gy) make(gy, sizes.y, 4);
  std::size_t workspace_bytes = 0;
  for (const Pass pass : passes) {
    make(results_[std::size_t(pass)], sizes.result_of(pass), 5);  // what a pass forgets to write will be seen
    workspace_bytes = std::max(workspace_bytes, binding_.workspace_bytes(pass, executor_->concurrency()));
  }
  workspace_.resize(workspace_bytes);
  if (!prepack) return;
  for (const Pass pass : passes) {
    const std::size_t bytes = plan.packed_weight_bytes(pass);
    if (bytes == 0) continue;
    packed_[std::size_t(pass)].resize(bytes);
    plan.pack_weight(pass, w.view(), packed_[std::size_t(pass)].data(), {.executor = executor_.get()});
  }
}

void LayerRun::run(Pass pass) {
  const std::vector<std::byte>& packed = packed_[std::size_t(pass)];
  const RunOptions options{.workspace = workspace_.data(),
                           .workspace_bytes = workspace_.size(),
                           .executor = executor_.get(),
                           .packed_weight = packed.empty() ? nullptr : packed.data()};
  const Tensor out = results_[std::size_t(pass)].view();
  const ConstTensor bias_view = bias.view();
  switch (pass) {
    case Pass::forward:
      return binding_.forward(x.view(), w.view(), bias.elements() ? &bias_view : nullptr, out, options);
    case Pass::grad_input:
      return binding_.grad_input(gy.view(), w.view(), out, options);
    case Pass::grad_weight:
      return binding_.grad_weight(x.view(), gy.view(), out, options);
    case Pass::grad_bias:
      return binding_.grad_bias(gy.view(), out, options);
  }
}

}  // namespace tconv::cli
