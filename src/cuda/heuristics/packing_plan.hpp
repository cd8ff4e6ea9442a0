// In which ways the weights of a layer are packed: for which kernels, in which numbers, in blocks of which rows.
// The list depends on the layer and the kind of device alone; kernels and memory are packings.hpp.
#pragma once

#include <optional>
#include <vector>

#include "cuda/heuristics/row_plan.hpp"
#include "cuda/layer_view.hpp"

namespace tconv::cuda {

/// The numbers that a layer asks to be multiplied.
device::Math math_of(const Layer& layer);

/// The kernels that weights are packed for: the general one, those of teams of warpgroups, or the march kernel.
enum class Kernels { general, warpgroups, march };

/// One way of packing weights: any shape is served from it.
struct PackingPlan {
  Kernels kernels = Kernels::general;
  device::Math math{};
  RowPlan rows;
  View view = View::plain;
};

struct PackingOptions {
  bool warpgroups = false;  // the device has their instructions
  bool exported = false;    // weights are packed in as few ways as one kernel for every size needs
  // Numbers of 32 bits as scaled fp16 ones: always, never, or beside those as they are.
  std::optional<bool> scaled = std::nullopt;
  int inputs = 0;  // of a position; 0: one, and several where rows are few
  bool marches = true;
  bool doubles = false;     // fp64 by tensor cores
  bool any_phases = false;  // outputs along the width as channels wherever that can be done
  bool row_pairs = false;   // of 16-bit outputs, rows of neighbouring phases as a thread has them
};

/// In the order they lie in the packed weight; empty where the layer has too many phases for blocks of rows, or is
/// of doubles that are not for tensor cores, or would leave most of their rows idle.
std::vector<PackingPlan> plan_packings(const Geometry& geometry, device::Math math, Layout layout,
                                       const PackingOptions& options);

}  // namespace tconv::cuda
