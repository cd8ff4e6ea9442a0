#include "support/cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "reference/reference.hpp"
#include "support/dtype.hpp"

namespace testing_support {
namespace {

using std::int64_t;
using tconv::Extents;
using tconv::Layer;
using tconv::Pass;

std::string list(const char* name, int dims, const Extents& extents) {
  std::string text = std::string(" ") + name + " ";
  for (int d = 0; d < dims; ++d) text.append(d ? "x" : "").append(std::to_string(extents[d]));
  return text;
}

Values absolute(Values values) {
  for (double& v : values) v = std::fabs(v);
  return values;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

int64_t volume(const Sizes& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

Values oracle(const Case& c, Pass pass, const Operands& operands) {
  namespace ref = tconv::reference;
  if (c.batch == 0) {  // sums over nothing; the spatial sizes may be beyond anything the oracle could count
    if (pass == Pass::grad_weight) return Values(std::size_t(volume(weight_sizes(c))), 0.0);
    return Values(pass == Pass::grad_bias ? std::size_t(c.layer.out_channels) : 0, 0.0);
  }
  const tconv::Geometry g = geometry_of(c.layer);
  const tconv::Shape shape = shape_of(c.layer, c.batch, c.input);
  switch (pass) {
    case Pass::forward:
      return ref::forward(g, shape, operands.x, operands.weight, operands.bias);
    case Pass::grad_input:
      return ref::grad_input(g, shape, operands.gy, operands.weight);
    case Pass::grad_weight:
      return ref::grad_weight(g, shape, operands.x, operands.gy);
    case Pass::grad_bias:
      return ref::grad_bias(g, shape, operands.gy);
  }
  return {};
}

}  // namespace

Truth truth(const Case& c, Pass pass, const Operands& operands) {
  const Operands positive{.x = absolute(operands.x),
                          .weight = absolute(operands.weight),
                          .bias = absolute(operands.bias),
                          .gy = absolute(operands.gy)};
  return {.exact = oracle(c, pass, operands), .magnitude = oracle(c, pass, positive)};
}

std::string compare(const char* name, tconv::DType dtype, const Values& got, const Truth& want) {
  if (got.size() != want.exact.size())
    return std::string(name) + " has " + std::to_string(got.size()) + " elements, not " +
           std::to_string(want.exact.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double exact = want.exact[i], magnitude = want.magnitude[i];
    const double allowed = magnitude == 0 ? 0
                                          : 1.01 * storage_rounding(dtype) * std::fabs(exact) +
                                                storage_underflow(dtype) + accumulation_error(dtype) * magnitude;
    if (!(std::fabs(got[i] - exact) <= allowed)) {
      char text[200];
      std::snprintf(text, sizeof text, "%s[%zu] is %.17g, not %.17g (difference %.3g, allowed %.3g)", name, i,
                    got[i], exact, got[i] - exact, allowed);
      return text;
    }
  }
  return {};
}

std::string describe(const Case& c) {
  const Layer& l = c.layer;
  return std::to_string(l.dims) + "D " + to_string(l.dtype) + " " + to_string(l.layout) + " batch " +
         std::to_string(c.batch) + " channels " + std::to_string(l.in_channels) + "->" +
         std::to_string(l.out_channels) + " groups " + std::to_string(l.groups) + list("input", l.dims, c.input) +
         list("kernel", l.dims, l.kernel) + list("stride", l.dims, l.stride) + list("padding", l.dims, l.padding) +
         list("output_padding", l.dims, l.output_padding) + list("dilation", l.dims, l.dilation) +
         (l.bias ? " bias" : "");
}

double multiply_adds(const Case& c) {
  return work(c.layer, c.batch, c.input).flops / 2;
}

Case random_case(Random& random, double max_multiply_adds) {
  for (;;) {
    Case c;
    Layer& l = c.layer;
    l.dims = int(random.integer(1, 3));
    l.dtype = random.pick(all_dtypes);
    l.layout = random.chance(0.5) ? tconv::Layout::channels_first : tconv::Layout::channels_last;
    l.precision = random.chance(0.9) ? tconv::Precision::fp32 : tconv::Precision::tf32;
    l.bias = random.chance(0.5);
    const int64_t most = random.chance(0.5) ? 4 : 40;
    const double kind = random.real();
    if (kind < -0.4) {  // dense
      l.in_channels = random.integer(1, most);
      l.out_channels = random.integer(1, most);
    } else if (kind < 0.4) {  // grouped
      l.groups = random.integer(2, 4);
      l.in_channels = l.groups * random.integer(1, (most + 3) / 4);
      l.out_channels = l.groups * random.integer(1, (most + 3) / 4);
    } else {  // depthwise, sometimes with a multiplier on either side
      l.groups = random.integer(1, most);
      l.in_channels = l.groups * (random.chance(0.2) ? 2 : 1);
      l.out_channels = l.groups * (random.chance(0.2) ? 3 : 1);
    }
    const int64_t longest = l.dims == 1 ? (random.chance(0.3) ? 300 : 40) : l.dims == 2 ? 20 : 8;
    for (int d = 0; d < l.dims; ++d) {
      l.kernel[d] = random.chance(0.1) ? random.integer(6, 16) : random.integer(1, 5);
      l.stride[d] = random.chance(0.1) ? random.integer(5, 12) : random.integer(1, 4);
      l.dilation[d] = random.chance(0.5) ? 1 : random.integer(1, 5);
      l.padding[d] = random.integer(0, random.chance(0.9) ? 4 : 12);
      l.output_padding[d] = random.integer(0, std::max(l.stride[d], l.dilation[d]) - 1);
      c.input[d] = random.integer(1, longest);
    }
    c.batch = random.integer(1, 3);
    try {
      if (multiply_adds(c) <= max_multiply_adds && work(l, c.batch, c.input).bytes <= 8e6) return c;
    } catch (const tconv::InvalidArgument&) {
      // More padding than output: draw again.
    }
  }
}

Sizes activation_sizes(const Case& c, int64_t channels, const Extents& spatial) {
  Sizes sizes{c.batch, channels};
  sizes.insert(sizes.end(), spatial.begin(), spatial.begin() + c.layer.dims);
  return sizes;
}

Sizes input_sizes(const Case& c) {
  return activation_sizes(c, c.layer.in_channels, c.input);
}

Sizes output_sizes(const Case& c) {
  return activation_sizes(c, c.layer.out_channels, output_size(c.layer, c.input));
}

Sizes weight_sizes(const Case& c) {
  Sizes sizes{c.layer.in_channels, c.layer.out_channels / c.layer.groups};
  sizes.insert(sizes.end(), c.layer.kernel.begin(), c.layer.kernel.begin() + c.layer.dims);
  return sizes;
}

Orders native_orders(const Layer& layer) {
  const Order order = layer.layout == tconv::Layout::channels_first ? Order::channels_first : Order::channels_last;
  // Weights stay in their own order: channels_last models keep them so as often as not.
  return {order, Order::channels_first, order, order, order, Order::channels_first};
}

Orders random_orders(Random& random) {
  constexpr Order inputs[] = {Order::channels_first, Order::channels_last, Order::strided, Order::expanded};
  constexpr Order outputs[] = {Order::channels_first, Order::channels_last, Order::strided};
  return {random.pick(inputs),  random.pick(inputs),  random.pick(inputs),
          random.pick(outputs), random.pick(outputs), random.pick(outputs)};
}

Step::Step(const Case& c, const Orders& orders, Random& random)
    : case_(c),
      x_(c.layer.dtype, input_sizes(c), orders.x, random),
      weight_(c.layer.dtype, weight_sizes(c), orders.weight, random),
      bias_(c.layer.dtype, {c.layer.out_channels}, orders.weight, random),
      gy_(c.layer.dtype, output_sizes(c), orders.gy, random),
      y_(c.layer.dtype, output_sizes(c), orders.y, random),
      gx_(c.layer.dtype, input_sizes(c), orders.gx, random),
      gw_(c.layer.dtype, weight_sizes(c), orders.gw, random),
      gb_(c.layer.dtype, {c.layer.out_channels}, orders.gw, random) {
  for (Buffer* operand : {&x_, &weight_, &bias_, &gy_}) {
    operand->fill_random(random);
    operand->watch();
  }
}

void Step::run(const tconv::Binding& binding, tconv::Executor* executor, int workers) {
  for (Buffer* result : {&y_, &gx_, &gw_, &gb_}) result->poison();
  const auto with_workspace = [&](Pass pass, const auto& call) {
    Workspace workspace(binding.workspace_bytes(pass, workers));
    call(tconv::RunOptions{
        .workspace = workspace.data(), .workspace_bytes = workspace.size(), .executor = executor});
  };
  const tconv::ConstTensor bias = bias_.const_tensor();
  with_workspace(Pass::forward, [&](const tconv::RunOptions& options) {
    binding.forward(x_.tensor(), weight_.tensor(), case_.layer.bias ? &bias : nullptr, y_.tensor(), options);
  });
  with_workspace(Pass::grad_input, [&](const tconv::RunOptions& options) {
    binding.grad_input(gy_.tensor(), weight_.tensor(), gx_.tensor(), options);
  });
  with_workspace(Pass::grad_weight, [&](const tconv::RunOptions& options) {
    binding.grad_weight(x_.tensor(), gy_.tensor(), gw_.tensor(), options);
  });
  with_workspace(Pass::grad_bias, [&](const tconv::RunOptions& options) {
    binding.grad_bias(gy_.tensor(), gb_.tensor(), options);
  });
}

StepValues Step::results() const {
  return {.y = y_.values(), .gx = gx_.values(), .gw = gw_.values(), .gb = gb_.values()};
}

const std::vector<std::byte>& Step::memory(Pass pass) const {
  return (pass == Pass::forward       ? y_
          : pass == Pass::grad_input  ? gx_
          : pass == Pass::grad_weight ? gw_
                                      : gb_)
      .memory();
}

std::string Step::mistakes() const {
  const tconv::DType dtype = case_.layer.dtype;
  const Operands operands{.x = x_.values(),
                          .weight = weight_.values(),
                          .bias = case_.layer.bias ? bias_.values() : Values{},
                          .gy = gy_.values()};
  const Values &x = operands.x, &w = operands.weight, &bias = operands.bias, &gy = operands.gy;
  const StepValues got = results();
  const Truth y = truth(case_, Pass::forward, operands);
  for (const std::string& mistake :
       {compare("y", dtype, got.y, y), compare("gx", dtype, got.gx, truth(case_, Pass::grad_input, operands)),
        compare("gw", dtype, got.gw, truth(case_, Pass::grad_weight, operands)),
        compare("gb", dtype, got.gb, truth(case_, Pass::grad_bias, operands))})
    if (!mistake.empty()) return mistake;

  // The gradients are the adjoints of the forward: <T(x,w) + b, gy> = <x, gx> + <b, gb> = <w, gw> + <b, gb>.
  const Values no_bias(got.gb.size(), 0.0);
  const double bias_part = dot(bias.empty() ? no_bias : bias, got.gb);
  const double forward = dot(got.y, gy), input = dot(x, got.gx) + bias_part, weight = dot(w, got.gw) + bias_part;
  const double terms = dot(y.magnitude, absolute(gy));
  const double allowed = 2 * (storage_rounding(dtype) + accumulation_error(dtype)) * terms +
                         storage_underflow(dtype) * double(got.y.size() + got.gx.size() + got.gw.size());
  if (!(std::fabs(forward - input) <= allowed))
    return "<y, gy> = " + std::to_string(forward) + " is not <x, gx> = " + std::to_string(input);
  if (!(std::fabs(forward - weight) <= allowed))
    return "<y, gy> = " + std::to_string(forward) + " is not <w, gw> = " + std::to_string(weight);

  for (const Buffer* operand : {&x_, &weight_, &bias_, &gy_})
    if (operand->changed()) return "an input was written";
  for (const Buffer* result : {&y_, &gx_, &gw_, &gb_})
    if (result->gaps_changed()) return "memory between the elements of an output was written";
  return {};
}

std::string check_case(const Case& c, const Orders& orders, Random& random, tconv::Executor* executor,
                       int workers) {
  try {
    Step step(c, orders, random);
    step.run(tconv::Plan(c.layer).bind(c.batch, c.input), executor, workers);
    return step.mistakes();
  } catch (const tconv::Error& error) {
    return std::string("refused: ") + error.what();
  }
}

}  // namespace testing_support
