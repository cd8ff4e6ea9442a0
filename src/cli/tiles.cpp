// tconv tiles: which GPU kernel serves a layer, and what the cost model says of the others.
#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/flags.hpp"
#include "cli/gpu_layers.hpp"
#include "cli/text.hpp"
#include "cuda/priced_tiles.hpp"
#include "cuda/runtime/kernel.hpp"

namespace tconv::cli {
namespace {

struct TilesFlags {
  GpuLayers layers;
  std::int64_t most = 5;
};

void add_flags(Flags& add, TilesFlags& flags) {
  flags.layers.add_to(add);
  add.integer("--most", flags.most, "Tiles to list, the cheapest first; 0: all (5)", "N", 0);
  flags.layers.add_layer_to(add);
  add.footer(R"(
No tile is timed when a layer is planned: each is priced by a cost model, and the cheapest one is taken. This
command lists what it chose among, in cycles of the GPU for a call. It needs neither a GPU nor NVRTC.

Examples:
  tconv tiles kb81 --arch sm_90a
  tconv tiles --size 64x64 --in 128 --out 64 --kernel 4 --stride 2 --padding 1 --arch sm_90a --dtype f16)");
}

/// "fp32", or the name of a type that has one precision.
const char* name_of_numbers(const Layer& layer) {
  return layer.dtype == DType::f32 ? to_string(layer.precision) : to_string(layer.dtype);
}

void print(const Problem& problem, const Layer& layer, const cuda::DeviceProperties& device, std::int64_t most) {
  const cuda::PricedTiles found = cuda::priced_tiles(layer, problem.batch, problem.input, device);
  fmt::print("{}, {}, {}, on {} with {} multiprocessors: {}\n", problem.name, name_of_numbers(layer),
             to_string(layer.layout), cuda::architecture_of(device), device.multiprocessors, found.chosen);
  if (found.tiles.empty()) {
    fmt::print("  the layer alone decides; there are no tiles to choose among\n\n");
    return;
  }
  if (layer.dims == 1 && found.shape.input[2] != problem.input[0])
    fmt::print("  priced for {} samples, which stand for all lengths from {} on\n", found.shape.input[2],
               found.shape.input[2] / 2 + 1);
  fmt::print("{:>14}  {:>6}  tile\n", "1,000 cycles", "");
  const std::size_t shown = most > 0 ? std::min(std::size_t(most), found.tiles.size()) : found.tiles.size();
  for (std::size_t i = 0; i < shown; ++i) {
    const cuda::PricedTile& tile = found.tiles[i];
    fmt::print("{:>14.1f}  {:>5.2f}x  {}\n", tile.cycles / 1000, tile.cycles / found.tiles.front().cycles,
               tile.kernel);
  }
  if (shown < found.tiles.size()) fmt::print("{:>14}  and {} more\n", "", found.tiles.size() - shown);
  fmt::print("\n");
}

int execute(const TilesFlags& flags) {
  const auto problems = flags.layers.problems("tiles");
  const auto devices = flags.layers.devices();
  for (const Problem& problem : problems)
    for (const Layer& layer : flags.layers.variants(problem))
      for (const cuda::DeviceProperties& device : devices) print(problem, layer, device, flags.most);
  return exit_ok;
}

}  // namespace

Command add_tiles(CommandLine& line) {
  return command_of(line, "tiles", "List the GPU kernels a layer may take, and their prices", add_flags, execute);
}

}  // namespace tconv::cli
