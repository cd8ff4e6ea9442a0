// Races of emulated kernels (emulation/races.hpp), as tests see them.
#pragma once

#include <string>
#include <vector>

namespace emulation::races {

/// Before the launches of a layer. What products read in doubt is forgotten, or reads as NaN in launches that are
/// the same as those since the last call.
enum class Doubts { forgotten, poisoned };
void begin_layer(Doubts doubts);

/// Which accesses, and where in the kernel's sources.
struct Found {
  std::vector<std::string> races;   // of threads and copies
  std::vector<std::string> doubts;  // of products, which may not need what they read
};
/// Those found since the layer began.
Found found();

}  // namespace emulation::races
