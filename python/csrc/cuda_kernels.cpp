// CUDA tensors: tconv's CUDA engine on PyTorch's current stream and PyTorch's memory. Nothing here waits for the
// GPU but the packing of a frozen weight, so that calls can be captured in CUDA graphs.
#include <torch/csrc/stable/ops.h>

#include "call_failed.hpp"
#include "cuda_fallback.hpp"
#include "cuda_stream.hpp"
#include "kernels.hpp"
#include "layer_table.hpp"
#include "new_tensor.hpp"
#include "packed_weights.hpp"
#include "prepared.hpp"

namespace tconv::pytorch::cuda {
namespace {

using std::int64_t;

/// A weight whose packings are kept: see packed_weights.hpp.
struct Kept {
  int64_t ticket;
  bool frozen;  // promised not to change: graphs may hold its packing, and all streams share one
};

/// Streams times plans of one weight (layouts and output paddings a program mixes). Few have more than two.
constexpr std::size_t max_packings = 8;

TorchTensor pack(const Plan& plan, const TorchTensor& weight, void* stream) {
  const auto bytes = static_cast<int64_t>(plan.packed_weight_bytes(Pass::forward));
  const TorchTensor packed = new_bytes(weight, bytes);
  plan.pack_weight(Pass::forward, view(weight), packed.mutable_data_ptr(), {.stream = stream});
  return packed;
}

/// The kept packing of a weight, made where there is none; nothing where this call has to pack for itself.
std::optional<TorchTensor> packed_weight(const NumberedPlan& plan, const TorchTensor& weight, const Kept& kept,
                                         void* stream) {
  if (plan.plan.packed_weight_bytes(Pass::forward) == 0) return std::nullopt;
  if (kept.frozen) {
    const PackingKey key{.plan = plan.number};
    if (auto packed = find_packed(kept.ticket, key)) return packed;
    if (is_capturing(stream)) return std::nullopt;  // waiting is not allowed
    const TorchTensor packed = pack(plan.plan, weight, stream);
    synchronize(stream, weight.get_device_index());
    keep_packed(kept.ticket, key, packed, /*most=*/SIZE_MAX);  // a graph may hold any of them
    return packed;
  }
  // A graph is replayed when the weight may have changed, and packs what it then finds.
  if (is_capturing(stream)) return std::nullopt;
  const PackingKey key{.plan = plan.number, .stream = stream};
  if (auto packed = find_packed(kept.ticket, key)) return packed;
  const TorchTensor packed = pack(plan.plan, weight, stream);
  keep_packed(kept.ticket, key, packed, max_packings);
  return packed;
}

/// One call of the engine, valid and prepared.
TorchTensor run_engine(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                       const Prepared& prepared, void* stream, const Kept* kept) {
  const Problem& problem = prepared.problem;
  const TorchTensor output = new_activation(input, problem.batch, problem.layer.out_channels, problem.layer.dims,
                                            problem.output, is_channels_last(input) || is_channels_last(weight));
  if (problem.is_empty()) return output;

  RunOptions options{.stream = stream};
  std::optional<TorchTensor> packed, workspace;
  if (kept) packed = packed_weight(*prepared.plan, weight, *kept, stream);
  if (packed) options.packed_weight = packed->const_data_ptr();
  options.workspace_bytes = prepared.binding.workspace_bytes(Pass::forward, 1, packed.has_value());
  if (options.workspace_bytes > 0) {
    workspace = new_bytes(input, static_cast<int64_t>(options.workspace_bytes));
    options.workspace = workspace->mutable_data_ptr();
  }
  // Of a bias with gaps the engine has a slow kernel alone.
  const OptionalTensor dense = bias && bias->stride(0) != 1 ? torch::stable::contiguous(*bias) : bias;
  const ConstTensor bias_view = dense ? view(*dense) : ConstTensor();
  prepared.binding.forward(view(input), view(weight), dense ? &bias_view : nullptr, mutable_view(output), options);
  return output;
}

TorchTensor forward(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                    const Integers& geometry, int64_t groups, bool allow_tf32, const Kept* kept) {
  const bool tf32 = allow_tf32 && dtype_of(input) == DType::f32;  // one plan, not two, where it means nothing
  std::shared_ptr<const Prepared> prepared;
  std::string refusal;
  try {
    prepared = prepare_forward(input, weight, bias, geometry, groups, tf32 ? Precision::tf32 : Precision::fp32);
    const std::optional<void*> stream = current_stream(input.get_device_index());
    refusal = stream ? prepared->refusal : "this PyTorch does not say which CUDA stream is the current one";
    if (refusal.empty()) return run_engine(input, weight, bias, *prepared, *stream, kept);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw CallFailed(error.what());
    if (!prepared || !leaves_pytorch(error)) throw;
    refusal = error.what();  // strides not seen before, say, that need a kernel which cannot be compiled
  }
  return fallback_conv_transpose(input, weight, bias, geometry, prepared->problem, allow_tf32, refusal);
}

}  // namespace

TorchTensor conv_transpose(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                           const Integers& geometry, int64_t groups, bool allow_tf32) {
  return forward(input, weight, bias, geometry, groups, allow_tf32, nullptr);
}

TorchTensor conv_transpose_kept(const TorchTensor& input, const TorchTensor& weight, const OptionalTensor& bias,
                                int64_t number, int64_t ticket, bool frozen) {
  const LayerParameters& layer = layer_of(number);
  const Kept kept{.ticket = ticket, .frozen = frozen};
  return forward(input, weight, bias, layer.geometry, layer.groups, layer.allow_tf32, &kept);
}

}  // namespace tconv::pytorch::cuda
