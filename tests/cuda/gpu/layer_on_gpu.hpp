// One layer on the GPU: its tensors, its plan, and the verdict on what it computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "gpu/device_tools.hpp"

namespace tconv::cuda::check {

/// A precision and how far from float64 its results may be, relative in norm.
struct Mode {
  const char* name;
  DType dtype;
  Precision precision;
  double bar;
};
constexpr Mode modes[] = {{"tf32", DType::f32, Precision::tf32, 4e-4},
                          {"fp32", DType::f32, Precision::fp32, 1e-6},
                          {"fp16", DType::f16, Precision::fp32, 1e-3},
                          {"bf16", DType::bf16, Precision::fp32, 8e-3},
                          {"fp64", DType::f64, Precision::fp32, 1e-13}};
/// Throws for a name that is none.
const Mode& mode_named(const std::string& name);
/// Whether a variable of the environment lists a name, or does not exist: GPU_CHECK_MODES, GPU_CHECK_LAYOUTS.
bool wanted(const char* variable, const char* name);
/// Those of GPU_CHECK_MODES.
std::vector<Mode> wanted_modes();

/// Right in norm, every element written, and none far off: at most 50 times the error of the norm, scaled by the
/// largest output.
bool within(const Outcome& outcome, double bar);

/// Values of a layer's input, weight and bias as doubles, dense and channels first, and the layer's result.
struct Expected {
  Expected(const Geometry& geometry, const Shape& shape);
  Buffer x, w, b, y;
};

struct Verdict {
  Outcome outcome;
  std::int64_t differing_words = 0;  // between two runs
  std::int64_t stray_bytes = 0;      // written outside the output
  bool right(double bar) const { return within(outcome, bar) && differing_words == 0 && stray_bytes == 0; }
};

/// How a run differs from the plain one.
struct Variation {
  bool spread = false;        // elements of the output are two apart, so that no store may be wide
  bool other_layout = false;  // tensors in the layout the plan was not made for
  bool prepacked = true;      // weights are packed once; else in the workspace of every run
};

/// The family in a kernel's name: what stands before the precision or the tile.
std::string family_of(const std::string& kernel);

/// A layer with random data. Outputs are poisoned before every run, and lie between guards.
class LayerOnGpu {
 public:
  LayerOnGpu(const Layer& layer, const Shape& shape, const Variation& variation = {});

  /// Fills the tensors; `expected` gets their values. The same seed gives the same values in every layout.
  void randomize(const Tools& tools, unsigned seed, const Expected& expected);
  void run() const;
  /// Runs twice and compares.
  Verdict check(const Tools& tools, const Expected& expected) const;
  /// Of the kernel that ran last; before, of the one for dense tensors.
  std::string kernel_name() const { return kernel_name_; }

 private:
  static constexpr std::size_t guard_bytes = 512;
  std::int64_t spacing() const { return variation_.spread ? 2 : 1; }
  std::int64_t stray_bytes() const;

  Layer layer_;
  Geometry geometry_;
  Shape shape_;
  Variation variation_;
  std::unique_ptr<EnginePlan> plan_;
  std::unique_ptr<EngineBinding> binding_;
  mutable std::string kernel_name_;
  Buffer x_, w_, b_, y_, packed_, workspace_;
  Tensor xt_, wt_, bt_, yt_;
};

}  // namespace tconv::cuda::check
