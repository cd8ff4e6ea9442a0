#include "cuda/packings.hpp"

#include <algorithm>

#include "cuda/codegen.hpp"
#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/int3.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/layer_view.hpp"
#include "cuda/memory_alignment.hpp"
#include "cuda/preferences.hpp"

namespace tconv::cuda {
namespace {

template <class Params>
void set_strides(Params& params, const ConstTensor& weight) {
  params.stride_in = weight.strides[0], params.stride_out = weight.strides[1];
  params.stride_d = weight.strides[2], params.stride_h = weight.strides[3], params.stride_w = weight.strides[4];
}

}  // namespace

PackingOptions packing_options(const DeviceProperties& device) {
  const Preferences preferred = preferences();
  return {.warpgroups = device.major == 9 && !preferred.no_warpgroups,
          .exported = device.exported,
          .scaled = preferred.no_halves ? std::optional(false) : device.scaled,
          .inputs = preferred.inputs,
          .marches = !preferred.no_march,
          .doubles = preferred.doubles,
          .any_phases = preferred.panels && preferred.panels->channel_phases,
          .row_pairs = preferred.row_pairs};
}

Packings::Packings(const Geometry& geometry, std::vector<PackingPlan> plans, const DeviceProperties& device)
    : geometry_(geometry), device_(device) {
  std::vector<KernelRequest> requests;
  for (PackingPlan& plan : plans) {
    const device::Math math = plan.math;
    const int parts = plan.kernels == Kernels::general ? 1 : device::weight_parts(math);
    const Geometry viewed = seen(plan.view, geometry, plan.rows.channel_phases);
    Packing packing;
    packing.offset = aligned_up(bytes());
    packing.bytes = std::size_t(plan.rows.weight_words(geometry, device::channels_per_word(math), parts)) *
                    std::size_t(device::word_bytes(math));
    if (device::scales(math)) packing.scales = aligned_up(packing.offset + packing.bytes);
    requests.push_back({pack_source(pack_config(viewed, math, plan.rows), plan.rows, viewed), "pack", 0});
    packing.plan = std::move(plan);
    packings_.push_back(std::move(packing));
  }
  const bool any_scales = std::ranges::any_of(packings_, [](const Packing& p) { return p.scales > 0; });
  if (any_scales) requests.push_back({weight_scales_source(), "find", device::scale_shared_bytes});
  const auto kernels = get_kernels(requests, device);
  for (std::size_t i = 0; i < packings_.size(); ++i) {
    packings_[i].kernel = kernels[i];
    if (packings_[i].scales) packings_[i].find_scales = kernels.back();
  }
}

std::size_t Packings::bytes() const {
  if (packings_.empty()) return 0;
  const Packing& last = packings_.back();
  return last.scales ? last.scales + std::size_t(geometry_.out_channels()) * 4 : last.offset + last.bytes;
}

void Packings::pack(const Packing& packing, const ConstTensor& weight, void* packed, void* stream) const {
  unsigned char* const memory = static_cast<unsigned char*>(packed);
  float* const scales = packing.find_scales ? reinterpret_cast<float*>(memory + packing.scales) : nullptr;
  if (packing.find_scales) {
    device::ScaleParams params{};
    set_strides(params, weight);
    params.weight = static_cast<const float*>(weight.data), params.scales = scales;
    params.groups = int(geometry_.groups);
    params.group_in = int(geometry_.group_in), params.group_out = int(geometry_.group_out);
    params.kernel = int3(geometry_.kernel);
    packing.find_scales->launch(device::launch_of(params), params, stream);
  }
  device::PackParams params{};
  set_strides(params, weight);
  if (packing.plan.view == View::upright) std::swap(params.stride_d, params.stride_h);
  params.weight = weight.data, params.packed = reinterpret_cast<unsigned*>(memory + packing.offset);
  params.scales = scales;
  params.words = std::int64_t(packing.bytes) / device::word_bytes(packing.plan.math);
  packing.kernel->launch(device::launch_of(params, device_.multiprocessors), params, stream);
}

}  // namespace tconv::cuda
