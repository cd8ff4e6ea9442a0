// TCONV_VERBOSE=1: one line per run on stderr, saying what ran, on what, and for how long; on a GPU, how long it
// took to launch.
#pragma once

#include <chrono>
#include <string>

#include "tconv/tconv.hpp"

namespace tconv {

/// Whether the environment asks for lines. Read once per process.
bool verbose() noexcept;

struct VerboseRun {
  const char* engine;
  std::string kernel;
  Pass pass;
  const Layer& layer;
  std::int64_t batch;
  const Extents& input;
  const Extents& output;
};

/// Starts when made.
class VerboseTimer {
 public:
  void print(const VerboseRun& run) const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The line without its time and newline:
/// tconv,cpu,forward,<kernel>,f32,channels_first,n16 g1 ci32 co64 k3 s2 p1 d2,131072->262145
std::string verbose_line(const VerboseRun& run);

}  // namespace tconv
