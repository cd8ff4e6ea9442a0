// The packed weight of a layer: where each way of packing (heuristics/packing_plan.hpp) lies in it, and the
// kernels that write it.
#pragma once

#include <memory>
#include <vector>

#include "cuda/heuristics/packing_plan.hpp"
#include "cuda/runtime/kernel.hpp"

namespace tconv::cuda {

/// What the device and the preferences of tests allow.
PackingOptions packing_options(const DeviceProperties& device);

struct Packing {
  PackingPlan plan;
  std::size_t offset = 0, bytes = 0;  // in the packed weight
  std::size_t scales = 0;             // where those of output channels are in it, which scaled weights have
  std::shared_ptr<const Kernel> kernel, find_scales;
};

class Packings {
 public:
  /// Compiles the kernels. The device must outlive this.
  Packings(const Geometry& geometry, std::vector<PackingPlan> plans, const DeviceProperties& device);

  bool empty() const { return packings_.empty(); }
  auto begin() const { return packings_.begin(); }
  auto end() const { return packings_.end(); }
  const Packing& front() const { return packings_.front(); }

  /// Of all of them.
  std::size_t bytes() const;
  /// Packs a weight in one of these ways; `packed` is the memory of all of them. A context of the device must be
  /// current.
  void pack(const Packing& packing, const ConstTensor& weight, void* packed, void* stream) const;

 private:
  Geometry geometry_;
  const DeviceProperties& device_;
  std::vector<Packing> packings_;
};

}  // namespace tconv::cuda
