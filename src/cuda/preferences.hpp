// What tests and timings ask of the engine through the environment, so that every kernel runs on layers of every
// size; users have TCONV_NO_HALVES alone (docs/command-line.md).
//
//   TCONV_NO_WGMMA=1       Hopper is left to the general kernel
//   TCONV_NO_HALVES=1      numbers of 32 bits are never multiplied as scaled fp16 ones
//   TCONV_PREFER_HALVES=1  they are wherever that can be done
//   TCONV_PREFER_DOUBLES=1  tensor cores multiply doubles
//   TCONV_PREFER_PAIRS=1   rows of neighbouring phases as a thread has them, for 16-bit outputs
//   TCONV_X_PHASES=1       a position is one input for every layer of the Hopper kernels; =2, =4 or =8: as many
//   TCONV_PREFER_MARCH=1   the march kernel serves wherever it can; TCONV_NO_MARCH=1: nowhere
//   TCONV_PREFER_PANELS=1  the panel kernel serves wherever it can, whatever it costs
//   TCONV_PREFER_PANELS=…  and tiles of a kind come first, by its name (preferences.cpp)
//
// Empty or 0 is off, as for every such variable; a value that means nothing is refused.
//
// Plans heed what is set when they are made, and bindings when they meet a new view of their tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/heuristics/gemm_tiles.hpp"

namespace tconv::cuda {

/// The least that a tile of the panel kernel must have to be preferred.
struct PreferredPanels {
  bool turned = false, mapped = false, clustered = false, by_shift = false;  // exactly so, not at least
  bool turned_once = false, rows_beside = false, in_turns = false, whole_rows = false, channel_phases = false;
  int depth_splits = 1, product_rows = 1, loaders = 1;
  int members = 1;  // where any has so many
};

struct Preferences {
  bool no_warpgroups = false, no_halves = false, halves = false, no_march = false, march = false, doubles = false;
  bool row_pairs = false;
  int inputs = 0;                   // of a position; 0: nobody asks
  std::optional<int> turned_bytes;  // of workspace, for tests
  std::optional<PreferredPanels> panels;
};

/// The values of TCONV_PREFER_PANELS.
std::vector<std::string> panel_preferences();

/// As the environment is now. Throws InvalidArgument for a value that means nothing.
Preferences preferences();

/// Whether a tile is, but for its members.
bool is_preferred(const PreferredPanels& preferred, const device::GemmConfig& config);

/// Moves the tiles that are preferred to the front; the order is otherwise as it was.
void move_to_front(const PreferredPanels& preferred, std::vector<TileChoice>& choices);

}  // namespace tconv::cuda
