// From the arguments of an operator to a binding ready to run, without planning anything twice.
#pragma once

#include <memory>

#include "problem.hpp"

namespace tconv::pytorch {

/// What a call needs besides its data; kept for the next call with tensors of the same kind.
struct Prepared {
  Problem problem;
  Binding binding;
};

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
