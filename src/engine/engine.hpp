// What an engine is: the one interface between api/, which checks and dispatches, and the engines,
// which compute. Engines know layer/, never each other and never api/.
//
// Everything an engine sees has been checked: layers are valid, tensors have the sizes and dtypes the
// layer asks for, and activations and weights are canonical five-dimensional views
// [batch, channels, depth, height, width] and [in, out / groups, depth, height, width].
#pragma once

#include <memory>
#include <string>

#include "layer/layer.hpp"

namespace tconv {

/// The tensors of one run. Which are set depends on the pass; `output` always is.
struct Operands {
  const ConstTensor* input = nullptr;        // x           (forward, grad_weight)
  const ConstTensor* weight = nullptr;       // w           (forward, grad_input)
  const ConstTensor* bias = nullptr;         // may be null (forward)
  const ConstTensor* grad_output = nullptr;  // gy          (grad_input, grad_weight, grad_bias)
  const Tensor* output = nullptr;            // y, gx, gw or gb
};

/// A plan bound to a shape. Immutable.
class EngineBinding {
 public:
  virtual ~EngineBinding() = default;
  /// Bytes of workspace for `workers` concurrent workers (at least 1). `packs`: the run packs its weight.
  virtual std::size_t workspace_bytes(Pass pass, int workers, bool packs) const = 0;
  /// Asynchronous where the device is. Never called with an empty output.
  virtual void run(Pass pass, const Operands& operands, const RunOptions& options) const = 0;
  /// The kernel that serves a pass where tensors are dense and aligned.
  virtual std::string kernel_name(Pass pass) const = 0;
  /// Runs, and names the kernel that served, for TCONV_VERBOSE. Where strides and alignment choose it, an engine
  /// has an answer of its own.
  virtual std::string run_named(Pass pass, const Operands& operands, const RunOptions& options) const {
    run(pass, operands, options);
    return kernel_name(pass);
  }
};

/// A layer planned for a device. Immutable. Is given packed weights that are aligned.
class EnginePlan {
 public:
  virtual ~EnginePlan() = default;
  virtual const char* engine_name() const = 0;
  virtual std::unique_ptr<EngineBinding> bind(const Shape& shape) const = 0;
  virtual std::size_t packed_weight_bytes(Pass pass) const = 0;
  /// What the address of a packed weight must be a multiple of: as the largest number in it asks for, or more.
  virtual std::size_t packed_weight_alignment() const { return alignof(double); }
  virtual void pack_weight(Pass pass, const ConstTensor& weight, void* packed,
                           const RunOptions& options) const = 0;
};

}  // namespace tconv
