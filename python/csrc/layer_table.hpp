// Layers by number, for eager calls.
//
// Handing a list of integers to an operator costs about half a microsecond, which is a tenth of what a small
// layer takes altogether. Eager calls write the parameters of a layer down once and name them by a number
// from then on. The table holds one entry for every combination of parameters a program uses and is never
// emptied: programs have few.
#pragma once

#include <cstdint>
#include <vector>

namespace tconv::pytorch {

struct LayerParameters {
  std::vector<std::int64_t> geometry;
  std::int64_t groups = 1;
  bool allow_tf32 = false;

  bool operator==(const LayerParameters&) const = default;
};

/// The number of a layer; the same for the same parameters.
std::int64_t number_of(const LayerParameters& parameters);

/// The layer of a number. The reference stays valid.
const LayerParameters& layer_of(std::int64_t number);

}  // namespace tconv::pytorch
