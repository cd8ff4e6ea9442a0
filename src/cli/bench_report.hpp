// What a benchmark found: a table for people, JSON for machines.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_measure.hpp"

namespace tconv::cli {

struct BenchReport {
  SystemInfo system;
  int threads = 0;
  std::uint64_t seed = 0;  // with it, --seed makes the same data again
  DType dtype = DType::f32;
  Layout layout = Layout::channels_first;
  Ceilings ceilings;
  std::vector<Measurement> measurements;
  std::vector<std::string> complaints;  // problems that could not be run at all
};

/// True if every result was right and every problem could be run.
bool all_right(const BenchReport& report);

std::string table_of(const BenchReport& report, bool colour, bool unicode);
std::string json_of(const BenchReport& report);

}  // namespace tconv::cli
