#include <cstdio>
#include <cstdlib>

#include "cli/problems.hpp"
#include "cuda/engine.hpp"
#include "gpu/commands.hpp"
#include "gpu/layer_on_gpu.hpp"

namespace tconv::cuda::check {
namespace {

struct Case {
  Mode mode;
  Layer layer;
};

/// The precisions and layouts of a problem, those that share their values side by side.
std::vector<Case> cases_of(const cli::Problem& problem) {
  std::vector<Case> cases;
  for (const Mode& mode : wanted_modes())
    for (const Layout layout : {Layout::channels_first, Layout::channels_last}) {
      const bool last = layout == Layout::channels_last;
      if ((last && problem.layer.dims == 1) || !wanted("GPU_CHECK_LAYOUTS", last ? "last" : "first")) continue;
      Case c{mode, problem.layer};
      c.layer.dtype = mode.dtype, c.layer.precision = mode.precision, c.layer.layout = layout, c.layer.bias = true;
      cases.push_back(c);
    }
  return cases;
}

/// Compiles the kernels of all cases, in parallel: the machine has more cores than one compile uses.
void compile_all(const std::vector<cli::Problem>& list) {
  std::vector<std::pair<Layer, Shape>> bindings;
  for (const cli::Problem& problem : list)
    for (const Case& c : cases_of(problem))
      bindings.emplace_back(c.layer, shape_of(c.layer, problem.batch, problem.input));
  in_parallel(int(bindings.size()), [&](int i) {
    const auto& [layer, shape] = bindings[std::size_t(i)];
    try {
      make_plan(layer, gpu())->bind(shape);
    } catch (const std::exception&) {
      // Reported where the case is run.
    }
  });
}

/// Prints a case and returns whether it failed.
bool report(const cli::Problem& problem, const Case& c, const Tools& tools, const Expected& expected) {
  const char* layout = c.layer.layout == Layout::channels_last ? "last " : "first";
  std::printf("%-18s %-5s %s  ", problem.name.c_str(), c.mode.name, layout);
  try {
    const Shape shape = shape_of(c.layer, problem.batch, problem.input);
    LayerOnGpu run(c.layer, shape);
    run.randomize(tools, 1, expected);
    const Verdict verdict = run.check(tools, expected);
    const double ms = median_ms([&] { run.run(); }, c.mode.dtype == DType::f64 ? 3 : 11);
    const Work work = tconv::work(c.layer, problem.batch, problem.input);
    const bool right = verdict.right(c.mode.bar);
    std::printf("%8.4f ms  %6.1f TFLOP/s %5.2f TB/s  error %.2e worst %.1e", ms, work.flops / ms / 1e9,
                work.bytes / ms / 1e9, verdict.outcome.error, verdict.outcome.worst);
    if (!right)
      std::printf(" bad %.0f unequal %lld stray %lld", verdict.outcome.bad,
                  static_cast<long long>(verdict.differing_words), static_cast<long long>(verdict.stray_bytes));
    std::printf("  %s  %s\n", right ? "ok" : "WRONG", run.kernel_name().c_str());
    return !right;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return true;
  }
}

}  // namespace

int problems(const std::vector<std::string>& names) {
  const Tools tools;
  std::vector<cli::Problem> list = cli::load_problems("");
  if (!names.empty()) list = cli::problems_named(list, names);
  compile_all(list);
  int failures = 0, count = 0;
  for (const cli::Problem& problem : list) {
    std::unique_ptr<Expected> expected;
    DType of = DType::f32;
    for (const Case& c : cases_of(problem)) {
      if (!expected || of != c.layer.dtype) {
        // A type's own rounding of the random values makes the result another one.
        const Geometry geometry = geometry_of(c.layer);
        const Shape shape = shape_of(c.layer, problem.batch, problem.input);
        expected = std::make_unique<Expected>(geometry, shape);
        of = c.layer.dtype;
        LayerOnGpu(c.layer, shape).randomize(tools, 1, *expected);
        const auto wide = [](const Buffer& b) { return static_cast<double*>(b.get()); };
        reference_on_gpu(geometry, shape, wide(expected->x), wide(expected->w), wide(expected->b),
                         wide(expected->y));
        synchronize("computing " + problem.name + " in float64");
      }
      failures += report(problem, c, tools, *expected);
      ++count;
      std::fflush(stdout);
    }
  }
  std::printf("%zu problems, %d cases: %d failures\n", list.size(), count, failures);
  return failures;
}

}  // namespace tconv::cuda::check
