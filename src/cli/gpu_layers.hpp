// Which layers, in which types and layouts, on which GPUs, which need not be here: what commands ask that plan for
// one.
#pragma once

#include <string>
#include <vector>

#include "cli/problem_choice.hpp"
#include "cuda/runtime/driver.hpp"

namespace tconv::cli {

class GpuLayers {
 public:
  void add_to(Flags& add);
  void add_layer_to(Flags& add) { choice_.add_layer_to(add); }

  /// At least one; each with every batch that was asked for.
  std::vector<Problem> problems(const char* command) const;
  /// The layers of a problem in every type and layout.
  std::vector<Layer> variants(const Problem& problem) const;
  std::vector<cuda::DeviceProperties> devices() const;

 private:
  ProblemChoice choice_;
  std::vector<std::string> architectures_, dtypes_{"f32"}, precisions_{"fp32", "tf32"}, layouts_{"channels_first"};
  std::vector<std::string> batches_;
  std::int64_t multiprocessors_ = 0;
};

}  // namespace tconv::cli
