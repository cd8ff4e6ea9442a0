// The checks every tensor passes before an engine sees it, and the canonical views engines are given.
//
// All of a run's tensors are checked before any element is written, and no check allocates: text is made
// only for a refusal.
#pragma once

#include <array>

#include "layer/layer.hpp"

namespace tconv {

/// Sizes of a canonical five-dimensional tensor.
using Sizes5 = std::array<std::int64_t, 5>;

/// What a tensor must be: the layer's dims tell how its dimensions map to the canonical ones.
struct Expected {
  const char* name;  // of the argument, for messages
  int dims;
  DType dtype;
  Sizes5 sizes;
};

/// The bytes a tensor reaches: its lowest one and one past its highest. `dense` if every element of that
/// range belongs to the tensor.
struct Footprint {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool dense = false;
};

/// A checked tensor in canonical form. Strides of dimensions of size one mean nothing; they are set to one,
/// so that asking whether the innermost dimension is contiguous has one answer.
template <class AnyTensor>
struct Checked {
  AnyTensor view;
  Footprint footprint;
};

Checked<ConstTensor> check_input(const Expected& expected, const ConstTensor& tensor);

/// Outputs must also be such that no two elements share memory.
Checked<Tensor> check_output(const Expected& expected, const Tensor& tensor);

/// The same for a bias or its gradient, a vector of `channels` elements.
Checked<ConstTensor> check_input_vector(const char* name, DType dtype, std::int64_t channels,
                                        const ConstTensor& tensor);
Checked<Tensor> check_output_vector(const char* name, DType dtype, std::int64_t channels, const Tensor& tensor);

/// Refuses an output whose memory is certainly read as an input, too. Views that interleave in one buffer
/// without sharing elements are fine.
void check_apart(const char* output_name, const Footprint& output, const char* input_name, const Footprint& input);

/// Refuses memory of a packed weight that does not begin at a multiple of `alignment` bytes.
void check_packed(const char* name, const void* packed, std::size_t alignment);

/// Refuses a workspace that does not have the bytes one worker needs.
void check_workspace(Pass pass, std::size_t needed, const RunOptions& options);

}  // namespace tconv
