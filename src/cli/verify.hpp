// Is the result right? The whole of a small version of a problem against the oracle, and single elements of
// the full-size one against the definition, in float64.
//
// An element passes if its error is explained by rounding: a few units of the accumulation's precision times
// the sum of the magnitudes that went into it, plus half a unit of the type it is stored in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cli/layer_run.hpp"
#include "cli/problems.hpp"

namespace tconv::cli {

struct Verdict {
  std::int64_t checked = 0;
  double largest_difference = 0;
  double largest_value = 0;
  std::string complaint;  // about the first element that is wrong; empty if all are right

  bool right() const { return complaint.empty(); }
  /// The largest difference, relative to the largest value.
  double error() const { return largest_value > 0 ? largest_difference / largest_value : largest_difference; }
  void add(const Verdict& other);
};

/// The problem's layer on a small input: same channels, kernel and all other parameters.
Problem reduced(const Problem& problem);

/// Runs every pass on the reduced problem and compares all elements with the oracle. One verdict per pass.
std::map<Pass, Verdict> verify_reduced(const Problem& problem, const std::vector<Pass>& passes,
                                       std::shared_ptr<Executor> executor, std::uint64_t seed);

/// Compares corners and random elements of what `run` last wrote in `pass`.
Verdict spot_check(const LayerRun& run, Pass pass, std::uint64_t seed);

}  // namespace tconv::cli
