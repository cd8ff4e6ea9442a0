// Which packing of the weights and which tile serve a shape and a view of its tensors: the cheapest of all, by the
// cost models of heuristics/.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/packings.hpp"

namespace tconv::cuda {

struct ChosenTile {
  const Packing* packing = nullptr;  // null: no tile serves
  TileChoice tile;
};

DeviceLimits limits_of(const DeviceProperties& device);

/// The tiles that serve a shape from one packing of the weights, the best first.
std::vector<TileChoice> tiles_of(const PackingPlan& plan, const Geometry& geometry, const Shape& shape,
                                 const Access& access, const DeviceLimits& limits);

/// Of one layer on one device. Remembers what it chose, for pricing all tiles takes milliseconds.
class TileChooser {
 public:
  TileChooser(const Layer& layer, const DeviceProperties& device);

  /// `workspace`: bytes that x may be turned into; as many as it takes where they are not measured out yet.
  ChosenTile choose(const Packings& packings, const Shape& shape, const Access& access,
                    std::optional<std::size_t> workspace) const;

 private:
  struct Known {
    Shape shape;  // of a class, see heuristics/shape_class.hpp
    Access access;
    ChosenTile chosen;
  };
  static constexpr std::size_t most_known = 64;

  std::vector<TileChoice> choices(const PackingPlan& plan, const Shape& shape, const Access& access,
                                  std::optional<std::size_t> workspace) const;

  Layer layer_;
  Geometry geometry_;
  DeviceLimits limits_;
  mutable std::mutex mutex_;
  mutable std::deque<Known> known_;
};

/// Workspace that a tile turns the x of a shape into.
std::size_t turned_bytes(View view, const device::GemmConfig& config, const Shape& shape);

}  // namespace tconv::cuda
