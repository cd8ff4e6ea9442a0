// From the arguments of an operator to a binding ready to run, without planning anything twice.
#pragma once

#include <memory>

#include "problem.hpp"

namespace tconv::pytorch {

/// A plan and a number no other plan of the process has had: packed weights are kept by it.
struct NumberedPlan {
  Plan plan;
  std::int64_t number;
};

/// What a call needs besides its data; kept for the next call with tensors of the same kind. An empty problem has
/// no plan.
struct Prepared {
  Problem problem;
  std::shared_ptr<const NumberedPlan> plan;
  Binding binding;
  std::string refusal;  // why tconv has no plan for a valid call on a GPU, where PyTorch has; else empty
};

/// Whether an error on a GPU is one that need not stand in PyTorch's way: a driver or a compiler that is
/// missing or fails, a GPU that is too old.
bool leaves_pytorch(const Error& error);

/// Sees to it that a call with these arguments is valid, and returns its plan bound to its shape. Plans
/// and bindings are kept in two bounded caches: a new length costs a bind, a repeated one a look-up.
std::shared_ptr<const Prepared> prepare_forward(const TorchTensor& input, const TorchTensor& weight,
                                                const std::optional<TorchTensor>& bias,
                                                const std::vector<std::int64_t>& geometry, std::int64_t groups,
                                                Precision precision);
std::shared_ptr<const Prepared> prepare_grad_input(const TorchTensor& grad_output, const TorchTensor& weight,
                                                   const std::vector<std::int64_t>& geometry, std::int64_t groups,
                                                   Precision precision);
std::shared_ptr<const Prepared> prepare_grad_weight(const TorchTensor& input, const TorchTensor& grad_output,
                                                    const std::vector<std::int64_t>& kernel_size,
                                                    const std::vector<std::int64_t>& geometry, std::int64_t groups,
                                                    Precision precision);

}  // namespace tconv::pytorch
