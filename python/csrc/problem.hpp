// One call of an operator, checked: the layer, the batch and the sizes it means.
//
// The operators take the geometry of a layer as one list of 4·dims integers, stride, padding,
// output_padding and dilation one after the other: each list an operator takes costs a call about half a
// microsecond, and four of them would cost more than PyTorch's whole operator.
//
// Refusals are worded like PyTorch's own. They are the only checks an eager call passes; the fake kernels
// in python/tconv/_fake.py repeat them for shapes that are not numbers yet.
#pragma once

#include <optional>
#include <vector>

#include "tensor_view.hpp"

namespace tconv::pytorch {

struct Problem {
  Layer layer;
  std::int64_t batch = 0;
  Extents input{1, 1, 1};
  Extents output{1, 1, 1};

  /// No image, or an output without elements, which PyTorch allows: there is nothing to sum.
  bool is_empty() const;
};

/// y = T(x, w) + bias
Problem forward_problem(const TorchTensor& input, const TorchTensor& weight,
                        const std::optional<TorchTensor>& bias, const std::vector<std::int64_t>& geometry,
                        std::int64_t groups);

/// gx = C(gy, w). The input size follows from the output's: geometry holds the output padding.
Problem grad_input_problem(const TorchTensor& grad_output, const TorchTensor& weight,
                           const std::vector<std::int64_t>& geometry, std::int64_t groups);

/// gw = W(x, gy)
Problem grad_weight_problem(const TorchTensor& input, const TorchTensor& grad_output,
                            const std::vector<std::int64_t>& kernel_size,
                            const std::vector<std::int64_t>& geometry, std::int64_t groups);

}  // namespace tconv::pytorch
