// One problem on this machine: verified, then timed, held against the floor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/ceilings.hpp"
#include "cli/problems.hpp"
#include "cli/terminal.hpp"
#include "cli/verify.hpp"

namespace tconv::cli {

/// What is timed as one: "backward" is the gradients of input and weight together.
struct TimedPass {
  std::string name;
  std::vector<Pass> passes;
};

struct BenchSettings {
  std::vector<TimedPass> timed;
  std::shared_ptr<Executor> executor;
  std::int64_t batch = 0;  // 0: the problem's own, reduced so that a run takes about a second
  double seconds = 2;      // of timing, per timed pass
  bool prepack = false;    // pack weights once instead of in every run
  std::uint64_t seed = 0;
};

struct Measurement {
  Problem problem;
  std::string pass;
  std::int64_t batch = 0;
  Verdict verdict;
  std::vector<double> seconds;  // of each repetition, ascending; empty where the result was wrong
  double flops = 0;
  double bytes = 0;
  Floor floor;

  bool right() const { return verdict.right() && !seconds.empty(); }
  double median() const;
  double times_floor() const { return median() / floor.seconds; }
};

/// How many steps measure() announces to `progress` for one problem.
int progress_steps(const BenchSettings& settings);

/// One measurement per timed pass. Throws Failure where the machine cannot hold the problem.
std::vector<Measurement> measure(const Problem& problem, const BenchSettings& settings, const Ceilings& ceilings,
                                 Progress& progress);

}  // namespace tconv::cli
