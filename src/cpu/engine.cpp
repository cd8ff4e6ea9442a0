#include "cpu/engine.hpp"

#include <algorithm>
#include <memory>

#include "cpu/convolve.hpp"
#include "cpu/gradients.hpp"
#include "cpu/kernels/bf16_pairs.hpp"
#include "cpu/kernels/rows.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

// Plans list every tap. A kernel this large is a mistake, or a Fourier transform's job.
constexpr int64_t most_taps = int64_t(1) << 20;

/// What is shared between a plan and its bindings.
struct State {
  Layer layer;
  Geometry geometry;
  ConvolutionPlan forward;
  ConvolutionPlan grad_input;

  explicit State(const Layer& l)
      : layer(l),
        geometry(geometry_of(l)),
        forward(forward_convolution(geometry), l.dtype),
        grad_input(grad_input_convolution(geometry), l.dtype) {}
};

/// The bindings of the four passes.
class CpuBinding final : public EngineBinding {
 public:
  CpuBinding(std::shared_ptr<const State> state, const Shape& shape)
      : state_(std::move(state)),
        forward_(state_->forward, shape.batch, shape.input, shape.output),
        grad_input_(state_->grad_input, shape.batch, shape.output, shape.input),
        grad_weight_(state_->grad_input.conv, state_->layer.dtype, shape),
        grad_bias_(state_->geometry.out_channels(), state_->layer.dtype, shape) {}

  std::size_t workspace_bytes(Pass pass, int workers, bool packs) const override {
    switch (pass) {
      case Pass::forward:
        return forward_.workspace_bytes(workers, packs);
      case Pass::grad_input:
        return grad_input_.workspace_bytes(workers, packs);
      case Pass::grad_weight:
        return grad_weight_.workspace_bytes(workers);
      default:
        return grad_bias_.workspace_bytes(workers);
    }
  }

  void run(Pass pass, const Operands& operands, const RunOptions& options) const override {
    const bool packs = options.packed_weight == nullptr;
    int workers = std::max(1, options.executor ? options.executor->concurrency() : 1);
    // As many workers as the workspace has room for.
    const std::size_t one = workspace_bytes(pass, 1, packs), two = workspace_bytes(pass, 2, packs);
    if (two > one) {
      const std::size_t room = options.workspace_bytes > one ? (options.workspace_bytes - one) / (two - one) : 0;
      workers = int(std::min<std::size_t>(std::size_t(workers), room + 1));
    }
    switch (pass) {
      case Pass::forward:
        return forward_.run(*operands.input, *operands.weight, operands.bias, *operands.output,
                            options.packed_weight, options, workers);
      case Pass::grad_input:
        return grad_input_.run(*operands.grad_output, *operands.weight, nullptr, *operands.output,
                               options.packed_weight, options, workers);
      case Pass::grad_weight:
        return grad_weight_.run(*operands.input, *operands.grad_output, *operands.output, options, workers);
      case Pass::grad_bias:
        return grad_bias_.run(*operands.grad_output, *operands.output, options, workers);
    }
  }

  std::string kernel_name(Pass pass) const override {
    const auto tile = [](const Tiling& t) {
      std::string text = t.dim[3] == batch_dim ? "batch" : "rows";
      for (int d = 0; d < 4; ++d) text += (d ? "x" : ":") + std::to_string(t.extent[d]);
      return text;
    };
    const auto products = [&](const ConvolutionPlan& plan, const ConvolutionBinding& binding) {
      const bool pairs = plan.operand == OperandKind::bf16_pair;
      return std::string(pairs ? "outer_product_bf16:" : "outer_product:") +
             (binding.by_inputs() ? "inputs_" : "") + tile(binding.tiling());
    };
    switch (pass) {
      case Pass::forward:
        return products(state_->forward, forward_);
      case Pass::grad_input:
        return products(state_->grad_input, grad_input_);
      case Pass::grad_weight:
        return (!grad_weight_.outer()  ? "dot_product:"
                : grad_weight_.pairs() ? "outer_product_bf16:"
                                       : "outer_product:") +
               tile(grad_weight_.tiling());
      default:
        return "row_sum";
    }
  }

 private:
  std::shared_ptr<const State> state_;
  ConvolutionBinding forward_;
  ConvolutionBinding grad_input_;
  GradWeightBinding grad_weight_;
  GradBiasBinding grad_bias_;
};

class CpuPlan final : public EnginePlan {
 public:
  explicit CpuPlan(const Layer& layer) : state_(std::make_shared<State>(layer)) {}

  const char* engine_name() const override { return "cpu"; }

  std::unique_ptr<EngineBinding> bind(const Shape& shape) const override {
    return std::make_unique<CpuBinding>(state_, shape);
  }

  std::size_t packed_weight_bytes(Pass pass) const override {
    if (pass == Pass::forward) return state_->forward.packed_bytes();
    if (pass == Pass::grad_input) return state_->grad_input.packed_bytes();
    return 0;
  }

  void pack_weight(Pass pass, const ConstTensor& weight, void* packed, const RunOptions& options) const override {
    const int workers = options.executor ? options.executor->concurrency() : 1;
    if (pass == Pass::forward) cpu::pack_weight(state_->forward, weight, packed, options.executor, workers);
    if (pass == Pass::grad_input) cpu::pack_weight(state_->grad_input, weight, packed, options.executor, workers);
  }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace

std::unique_ptr<EnginePlan> make_plan(const Layer& layer) {
  int64_t taps = 1;
  for (int d = 0; d < layer.dims; ++d) {
    taps = layer.kernel[d] <= most_taps ? taps * layer.kernel[d] : most_taps + 1;
    if (taps > most_taps)
      throw Unsupported("the CPU engine takes kernels of at most " + std::to_string(most_taps) + " taps, got " +
                        format_extents(layer.dims, layer.kernel));
  }
  return std::make_unique<CpuPlan>(layer);
}

std::string instruction_set() {
  return std::string(instruction_set_name()) + (multiplies_bf16_pairs() ? " and BF16" : "");
}

}  // namespace tconv::cpu
