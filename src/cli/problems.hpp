// Problems: a layer together with a batch and an input size, known by name or given by flags.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/flags.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cli {

struct Problem {
  std::string name;
  std::string about;
  bool mission = false;  // one of the four that `make run` times
  Layer layer;
  std::int64_t batch = 1;
  Extents input{1, 1, 1};
  std::vector<std::string> constructor;  // parameters of the benchmark's module, by name; empty: PyTorch's
  std::map<std::string, double> pytorch_h200_ms;  // PyTorch's times on one H200, by configuration
};

/// What was measured on the H200 on which PyTorch's times were taken.
struct H200Ceilings {
  double copy_bytes_per_second = 0;
  std::map<std::string, double> flops_per_second;  // of matrix products: "tf32", "fp32", "fp16", "bf16", "fp64"
};

/// The contents of bench/problems.json, built into the tool.
extern const char* const embedded_problems;
H200Ceilings h200_ceilings();

/// The problems in a file like bench/problems.json, or the built-in ones where `path` is empty.
std::vector<Problem> load_problems(const std::string& path);

/// Those of the given names, in the order asked for; an unknown name is an error that lists the known ones.
std::vector<Problem> problems_named(const std::vector<Problem>& known, const std::vector<std::string>& names);

/// A problem spelled out on the command line.
class ProblemFlags {
 public:
  void add_to(Flags& add);
  bool any() const;
  Problem problem() const;

 private:
  std::int64_t in_channels_ = 0, out_channels_ = 0, groups_ = 1;
  std::string size_, kernel_, stride_, padding_, output_padding_, dilation_;
  std::vector<Flag> flags_;
};

}  // namespace tconv::cli
