// A bound layer with random operands of its own: what verification and timing both run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/host_array.hpp"
#include "layer/layer.hpp"

namespace tconv::cli {

class LayerRun {
 public:
  /// Allocates and fills what the passes need. `prepack` packs the weights once, outside of run().
  LayerRun(const Layer& layer, std::int64_t batch, const Extents& input, const std::vector<Pass>& passes,
           std::shared_ptr<Executor> executor, std::uint64_t seed, bool prepack = false);

  void run(Pass pass);

  /// Bytes of operands, for all the passes.
  static double operand_bytes(const Layer& layer, std::int64_t batch, const Extents& input,
                              const std::vector<Pass>& passes);

  const Geometry& geometry() const { return geometry_; }
  const Shape& shape() const { return shape_; }
  const Layer& layer() const { return layer_; }

  /// The operands by their names in the mathematics. Those no pass needs are empty.
  HostArray x, w, bias, gy;
  /// What a pass wrote: y, gx, gw or gb.
  const HostArray& result(Pass pass) const { return results_[std::size_t(pass)]; }

 private:
  Layer layer_;
  Geometry geometry_;
  Shape shape_;
  Binding binding_;
  std::shared_ptr<Executor> executor_;
  HostArray results_[4];
  std::vector<std::byte> workspace_;
  std::vector<std::byte> packed_[4];
};

}  // namespace tconv::cli
