// PyTorch's own operator, for layers on machines tconv's CUDA engine cannot be used on. The checks, the autograd
// formulas and everything above are the same.
#include "cuda_fallback.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "call_failed.hpp"
#include "new_tensor.hpp"

namespace tconv::pytorch::cuda {
namespace {

using std::int64_t;
using torch::stable::detail::from;
using torch::stable::detail::to;

bool verbose() {
  static const bool asked = [] {
    const char* value = std::getenv("TCONV_VERBOSE");
    return value != nullptr && *value != '\0' && std::string(value) != "0";
  }();
  return asked;
}

/// A line per call where TCONV_VERBOSE asks for it, like the engines' own.
void say(const Problem& problem, const std::string& why) {
  if (!verbose()) return;
  const Layer& layer = problem.layer;
  std::fprintf(stderr, "tconv,pytorch,forward,fallback: %s,%s,%s,%dd n%lld g%lld ci%lld co%lld\n", why.c_str(),
               to_string(layer.dtype), to_string(layer.layout), layer.dims, static_cast<long long>(problem.batch),
               static_cast<long long>(layer.groups), static_cast<long long>(layer.in_channels),
               static_cast<long long>(layer.out_channels));
}

/// A warning of PyTorch's, once for each reason: whoever asked for tconv should know that it does not run.
void warn_once(const std::string& why) {
  static std::mutex mutex;
  static auto& told = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!told.insert(why).second) return;
  }
  const std::string text = "tconv's CUDA engine cannot be used here, so PyTorch's own operator computes: " + why;
  aoti_torch_warn("conv_transpose", __FILE__, __LINE__, text.c_str());
}

}  // namespace

TorchTensor fallback_conv_transpose(const TorchTensor& input, const TorchTensor& weight,
                                    const OptionalTensor& bias, const Integers& geometry, const Problem& problem,
                                    bool allow_tf32, const std::string& why) {
  warn_once(why);
  say(problem, why);
  const Layer& layer = problem.layer;
  // By way of Python (python/tconv/_pytorch.py): the Stable ABI has none of the switches PyTorch's operator obeys.
  std::array<StableIValue, 6> stack{from(input),    from(weight),       from(bias),
                                    from(geometry), from(layer.groups), from(allow_tf32)};
  if (torch_call_dispatcher("tconv::_conv_transpose_by_pytorch", "", stack.data(), TORCH_ABI_VERSION) !=
      TORCH_SUCCESS)
    throw CallFailed("PyTorch's own operator did not work");
  const auto output = to<TorchTensor>(stack[0]);
  // The memory format tconv promises, which is what the fake kernels say; PyTorch's differs in a few cases.
  const bool channels_last = is_channels_last(input) || is_channels_last(weight);
  if (is_channels_last(output) == channels_last) return output;
  TorchTensor promised =
      new_activation(input, problem.batch, layer.out_channels, layer.dims, problem.output, channels_last);
  return torch::stable::copy_(promised, output);
}

}  // namespace tconv::pytorch::cuda
