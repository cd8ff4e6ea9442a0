// Plan and Binding: check everything, make the canonical views, hand over to the engine.
#include <algorithm>
#include <new>

#include "api/checks.hpp"
#include "api/engines.hpp"
#include "api/thread_pool.hpp"
#include "api/verbose.hpp"

namespace tconv {

using std::int64_t;

namespace detail {

struct PlanState {
  Layer layer;
  Device device;
  Geometry geometry;
  std::unique_ptr<EnginePlan> engine;
};

struct BindingState {
  std::shared_ptr<const PlanState> plan;
  Extents input{1, 1, 1};  // as the caller gave it
  Extents output{1, 1, 1};
  Shape shape;
  std::unique_ptr<EngineBinding> engine;  // null where batch is zero: there is nothing to compute
};

}  // namespace detail

namespace {

using detail::BindingState;
using detail::PlanState;

/// Memory that runs out while planning is an error of ours as well: callers catch one family.
template <class Make>
auto reporting_memory(const char* what, const Make& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, std::string("out of memory while ") + what);
  }
}

const PlanState& usable(const std::shared_ptr<const PlanState>& state) {
  if (!state) throw InvalidArgument("plan is empty: it has been moved from");
  return *state;
}

const BindingState& usable(const std::shared_ptr<const BindingState>& state) {
  if (!state) throw InvalidArgument("binding is empty: make one with Plan::bind()");
  return *state;
}

void check_pass(Pass pass) {
  if (pass > Pass::grad_bias)
    throw InvalidArgument("pass must be forward, grad_input, grad_weight or grad_bias, got " +
                          std::to_string(int(pass)));
}

Expected expected_activation(const char* name, const PlanState& plan, int64_t batch, int64_t channels,
                             const Extents& spatial) {
  return {.name = name,
          .dims = plan.layer.dims,
          .dtype = plan.layer.dtype,
          .sizes = {batch, channels, spatial[0], spatial[1], spatial[2]}};
}

Expected expected_input(const char* name, const BindingState& b) {
  return expected_activation(name, *b.plan, b.shape.batch, b.plan->layer.in_channels, b.shape.input);
}

Expected expected_output(const char* name, const BindingState& b) {
  return expected_activation(name, *b.plan, b.shape.batch, b.plan->layer.out_channels, b.shape.output);
}

Expected expected_weight(const char* name, const PlanState& plan) {
  return expected_activation(name, plan, plan.layer.in_channels, plan.geometry.group_out, plan.geometry.kernel);
}

/// Zeros, whatever the strides: the bits of zero are zero in every dtype.
void fill_zero(const Tensor& tensor, int dim = 0, int64_t offset = 0) {
  if (dim == tensor.rank) {
    const std::size_t bytes = size_of(tensor.dtype);
    std::byte* element = static_cast<std::byte*>(tensor.data) + offset * int64_t(bytes);
    std::fill_n(element, bytes, std::byte{0});
    return;
  }
  for (int64_t i = 0; i < tensor.sizes[dim]; ++i) fill_zero(tensor, dim + 1, offset + i * tensor.strides[dim]);
}

/// The last step of every run: memory that is lent, executor, engine.
void dispatch(const BindingState& b, Pass pass, const Operands& operands, const RunOptions& options) {
  if (operands.weight != nullptr)
    check_packed("packed_weight", options.packed_weight, b.plan->engine->packed_weight_alignment());
  check_workspace(pass, b.engine->workspace_bytes(pass, 1, options.packed_weight == nullptr), options);
  RunOptions run_options = options;
  if (run_options.executor == nullptr && b.plan->device.kind == DeviceKind::cpu)
    run_options.executor = &default_pool();
  if (!verbose()) {
    b.engine->run(pass, operands, run_options);
    return;
  }
  const VerboseTimer timer;
  const std::string kernel = b.engine->run_named(pass, operands, run_options);
  timer.print({.engine = b.plan->engine->engine_name(),
               .kernel = kernel,
               .pass = pass,
               .layer = b.plan->layer,
               .batch = b.shape.batch,
               .input = b.input,
               .output = b.output});
}

}  // namespace

// ---------------------------------------------------------------------------------------------
// Plan

Plan::Plan(const Layer& layer, const Device& device) {
  validate(layer);
  state_ = reporting_memory("planning the layer", [&] {
    auto state = std::make_shared<PlanState>();
    state->layer = layer;
    state->device = device;
    state->geometry = geometry_of(layer);
    state->engine = make_engine_plan(layer, device);
    return state;
  });
}

const Layer& Plan::layer() const noexcept {
  return state_->layer;
}

const Device& Plan::device() const noexcept {
  return state_->device;
}

Binding Plan::bind(int64_t batch, const Extents& input) const {
  const PlanState& plan = usable(state_);
  const Shape shape = shape_of(plan.layer, batch, input);
  Binding binding;
  binding.state_ = reporting_memory("binding the plan to a shape", [&] {
    auto state = std::make_shared<BindingState>();
    state->plan = state_;
    for (int d = 0; d < plan.layer.dims; ++d) {
      state->input[d] = shape.input[3 - plan.layer.dims + d];
      state->output[d] = shape.output[3 - plan.layer.dims + d];
    }
    state->shape = shape;
    if (batch > 0) state->engine = plan.engine->bind(shape);
    return state;
  });
  return binding;
}

std::size_t Plan::packed_weight_bytes(Pass pass) const {
  check_pass(pass);
  const PlanState& plan = usable(state_);
  const bool reads_weight = pass == Pass::forward || pass == Pass::grad_input;
  return reads_weight ? plan.engine->packed_weight_bytes(pass) : 0;
}

void Plan::pack_weight(Pass pass, const ConstTensor& weight, void* packed, const RunOptions& options) const {
  check_pass(pass);
  const PlanState& plan = usable(state_);
  if (pass != Pass::forward && pass != Pass::grad_input)
    throw InvalidArgument(std::string("pass must be forward or grad_input, the ones that read a weight, got ") +
                          to_string(pass));
  const auto w = check_input(expected_weight("weight", plan), weight);
  const std::size_t bytes = packed_weight_bytes(pass);
  if (bytes == 0) return;
  if (packed == nullptr)
    throw InvalidArgument("packed must point to " + std::to_string(bytes) + " bytes, got a null pointer");
  const auto begin = reinterpret_cast<std::uintptr_t>(packed);
  check_apart("packed", {.begin = begin, .end = begin + bytes, .dense = true}, "weight", w.footprint);
  check_packed("packed", packed, plan.engine->packed_weight_alignment());
  RunOptions run_options = options;
  if (run_options.executor == nullptr && plan.device.kind == DeviceKind::cpu)
    run_options.executor = &default_pool();
  plan.engine->pack_weight(pass, w.view, packed, run_options);
}

// ---------------------------------------------------------------------------------------------
// Binding

int64_t Binding::batch() const noexcept {
  return state_->shape.batch;
}

const Extents& Binding::input_size() const noexcept {
  return state_->input;
}

const Extents& Binding::output_size() const noexcept {
  return state_->output;
}

std::size_t Binding::workspace_bytes(Pass pass, int workers, bool packed_weight) const {
  check_pass(pass);
  if (workers < 0)
    throw InvalidArgument("workers must be 0 (as many as the default pool has) or positive, got " +
                          std::to_string(workers));
  const BindingState& b = usable(state_);
  if (!b.engine) return 0;
  return b.engine->workspace_bytes(pass, workers == 0 ? default_pool_threads() : workers, !packed_weight);
}

void Binding::forward(const ConstTensor& x, const ConstTensor& weight, const ConstTensor* bias, const Tensor& y,
                      const RunOptions& options) const {
  const BindingState& b = usable(state_);
  const Layer& layer = b.plan->layer;
  const auto input = check_input(expected_input("x", b), x);
  const auto w = check_input(expected_weight("weight", *b.plan), weight);
  const auto output = check_output(expected_output("y", b), y);
  check_apart("y", output.footprint, "x", input.footprint);
  check_apart("y", output.footprint, "weight", w.footprint);
  Operands operands{.input = &input.view, .weight = &w.view, .output = &output.view};
  Checked<ConstTensor> bias_checked;
  if (bias != nullptr) {
    if (!layer.bias)
      throw InvalidArgument("bias must be null for a layer without bias; make the layer with bias = true");
    bias_checked = check_input_vector("bias", layer.dtype, layer.out_channels, *bias);
    check_apart("y", output.footprint, "bias", bias_checked.footprint);
    operands.bias = &bias_checked.view;
  }
  if (b.engine) dispatch(b, Pass::forward, operands, options);
}

void Binding::grad_input(const ConstTensor& gy, const ConstTensor& weight, const Tensor& gx,
                         const RunOptions& options) const {
  const BindingState& b = usable(state_);
  const auto grad_output = check_input(expected_output("gy", b), gy);
  const auto w = check_input(expected_weight("weight", *b.plan), weight);
  const auto output = check_output(expected_input("gx", b), gx);
  check_apart("gx", output.footprint, "gy", grad_output.footprint);
  check_apart("gx", output.footprint, "weight", w.footprint);
  if (!b.engine) return;
  dispatch(b, Pass::grad_input, {.weight = &w.view, .grad_output = &grad_output.view, .output = &output.view},
           options);
}

void Binding::grad_weight(const ConstTensor& x, const ConstTensor& gy, const Tensor& gw,
                          const RunOptions& options) const {
  const BindingState& b = usable(state_);
  const auto input = check_input(expected_input("x", b), x);
  const auto grad_output = check_input(expected_output("gy", b), gy);
  const auto output = check_output(expected_weight("gw", *b.plan), gw);
  check_apart("gw", output.footprint, "x", input.footprint);
  check_apart("gw", output.footprint, "gy", grad_output.footprint);
  if (!b.engine) return fill_zero(output.view);
  dispatch(b, Pass::grad_weight, {.input = &input.view, .grad_output = &grad_output.view, .output = &output.view},
           options);
}

void Binding::grad_bias(const ConstTensor& gy, const Tensor& gb, const RunOptions& options) const {
  const BindingState& b = usable(state_);
  const auto grad_output = check_input(expected_output("gy", b), gy);
  const auto output = check_output_vector("gb", b.plan->layer.dtype, b.plan->layer.out_channels, gb);
  check_apart("gb", output.footprint, "gy", grad_output.footprint);
  if (!b.engine) return fill_zero(output.view);
  dispatch(b, Pass::grad_bias, {.grad_output = &grad_output.view, .output = &output.view}, options);
}

}  // namespace tconv
