#include "cuda/tile_choice.hpp"

#include "cuda/heuristics/march_tiles.hpp"
#include "cuda/heuristics/shape_class.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/memory_alignment.hpp"
#include "cuda/preferences.hpp"

namespace tconv::cuda {

DeviceLimits limits_of(const DeviceProperties& device) {
  DeviceLimits limits{.multiprocessors = device.multiprocessors,
                      .shared_per_block = device.shared_per_block,
                      .shared_per_multiprocessor = device.shared_per_multiprocessor,
                      .exported = device.exported,
                      .turns = device.turns || !device.exported};
  if (const auto bytes = preferences().turned_bytes) limits.most_turned_bytes = *bytes;
  return limits;
}

TileChooser::TileChooser(const Layer& layer, const DeviceProperties& device)
    : layer_(layer), geometry_(geometry_of(layer)), limits_(limits_of(device)) {}

std::vector<TileChoice> tiles_of(const PackingPlan& plan, const Geometry& geometry, const Shape& shape,
                                 const Access& access, const DeviceLimits& limits) {
  const device::ChannelPhases& phases = plan.rows.channel_phases;
  if (plan.view == View::channel_phases && !access.y_rows) return {};
  // Output padding may add a slice.
  if (plan.view == View::upright && (shape.input[0] > 1 || shape.output[0] > 1)) return {};
  const auto price = plan.kernels == Kernels::march     ? price_march_tiles
                     : plan.kernels == Kernels::general ? price_tiles
                                                        : price_warpgroup_tiles;
  return price(seen(plan.view, geometry, phases), plan.math, plan.rows, seen(plan.view, shape, phases),
               seen(plan.view, access, shape, phases), limits);
}

/// Those that there is workspace for, in the order that is preferred.
std::vector<TileChoice> TileChooser::choices(const PackingPlan& plan, const Shape& shape, const Access& access,
                                             std::optional<std::size_t> workspace) const {
  auto choices = tiles_of(plan, geometry_, shape_class(layer_, shape), access, limits_);
  if (workspace)
    std::erase_if(choices, [&](const TileChoice& choice) {
      return choice.config.turned && turned_bytes(plan.view, choice.config, shape) > *workspace;
    });
  if (const auto preferred = preferences().panels) move_to_front(*preferred, choices);
  return choices;
}

namespace {

/// What prices of the march kernel are multiplied by where another kernel is preferred, or this one.
double march_share(const PackingPlan& plan) {
  if (plan.kernels != Kernels::march) return 1;
  return preferences().march ? 1e-6 : preferences().panels ? 1e6 : 1;
}

}  // namespace

ChosenTile TileChooser::choose(const Packings& packings, const Shape& shape, const Access& access,
                               std::optional<std::size_t> workspace) const {
  const Shape shapes = shape_class(layer_, shape);
  if (!workspace) {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_)
      if (known.shape == shapes && known.access == access) return known.chosen;
  }
  ChosenTile result;
  for (const Packing& packing : packings) {
    const auto tiles = choices(packing.plan, shape, access, workspace);
    if (tiles.empty()) continue;
    const device::Math math = packing.plan.math;
    const Preferences preferred = preferences();
    const bool last_choice = (device::element_bytes(math) == 4 && !device::scales(math) && preferred.halves) ||
                             (preferred.panels && !is_preferred(*preferred.panels, tiles.front().config));
    const double cycles = tiles.front().cycles * (last_choice ? 1e6 : 1) * march_share(packing.plan);
    if (result.packing && result.tile.cycles <= cycles) continue;
    result = {&packing, {tiles.front().config, cycles}};
  }
  if (!workspace) {
    const std::lock_guard lock(mutex_);
    if (known_.size() == most_known) known_.pop_front();
    known_.push_back({shapes, access, result});
  }
  return result;
}

std::size_t turned_bytes(View view, const device::GemmConfig& config, const Shape& shape) {
  const device::ForwardParams params = forward_params(view, config, shape);
  return aligned_up(std::size_t(device::turned_workspace_bytes(config, params)));
}

}  // namespace tconv::cuda
