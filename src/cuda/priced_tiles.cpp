#include "cuda/priced_tiles.hpp"

#include <algorithm>
#include <set>

#include "cuda/engine.hpp"
#include "cuda/heuristics/shape_class.hpp"
#include "cuda/kernel_name.hpp"
#include "cuda/tensor_views.hpp"
#include "cuda/tile_choice.hpp"

namespace tconv::cuda {

PricedTiles priced_tiles(const Layer& layer, std::int64_t batch, const Extents& input,
                         const DeviceProperties& described) {
  KernelRecord record;  // nothing is compiled
  DeviceProperties device = described;
  device.record = &record;
  const Shape shape = shape_of(layer, std::max<std::int64_t>(batch, 1), input);
  const DenseKernel chosen = dense_kernel(layer, shape, device);
  PricedTiles result{shape_class(layer, shape), chosen.name, {}};
  if (!chosen.tiled) return result;

  const Geometry geometry = geometry_of(layer);
  const Access access = dense_access(geometry, shape, layer.dtype, layer.layout);
  for (const PackingPlan& plan : plan_packings(geometry, math_of(layer), layer.layout, packing_options(device)))
    for (const TileChoice& tile : tiles_of(plan, geometry, result.shape, access, limits_of(device)))
      result.tiles.push_back({kernel_name(tile.config), tile.cycles});
  std::ranges::stable_sort(result.tiles, {}, &PricedTile::cycles);
  std::set<std::string> seen;
  std::erase_if(result.tiles, [&](const PricedTile& tile) { return !seen.insert(tile.kernel).second; });
  return result;
}

}  // namespace tconv::cuda
