#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>

#include "cli/problems.hpp"
#include "cuda/preferences.hpp"
#include "cuda/tensor_views.hpp"
#include "gpu/commands.hpp"
#include "gpu/layer_on_gpu.hpp"
#include "reference/reference.hpp"

namespace tconv::cuda::check {
namespace {

/// What the march kernel asks of a layer.
void suit_march(Layer& layer) {
  layer.stride = {1, 1, 1}, layer.output_padding = {0, 0, 0};
  layer.dilation[0] = 1, layer.kernel[0] = std::max<std::int64_t>(layer.kernel[0], 2);
}

/// A random layer, small enough for the oracle. `few`: of few channels per group, with rows of several tiles.
/// `marches`: as the march kernel wants them.
cli::Problem random_problem(std::mt19937& rng, bool few, bool marches) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (;;) {
    cli::Problem p;
    Layer& l = p.layer;
    l.dims = pick(marches ? 2 : 1, 3);
    const int kind = pick(marches ? 1 : 0, 5);
    if (few) {
      const int in = kind < 3 ? 1 : pick(1, 8), out = kind < 3 ? 1 : pick(1, std::min(8, 16 / in));
      l.groups = pick(1, 70), l.in_channels = l.groups * in, l.out_channels = l.groups * out;
    } else if (kind == 0) {
      l.groups = pick(1, 40), l.in_channels = l.groups, l.out_channels = l.groups * pick(1, 2);
    } else if (kind == 1) {
      l.groups = pick(2, 6), l.in_channels = l.groups * pick(1, 24), l.out_channels = l.groups * pick(1, 24);
    } else {
      l.in_channels = pick(0, 3) ? pick(1, 80) : pick(1, 300);
      l.out_channels = pick(0, 3) ? pick(1, 80) : pick(1, 300);
    }
    const bool wide = pick(0, 9) == 0;
    double macs = double(l.in_channels) * double(l.out_channels / l.groups);
    for (int d = 0; d < l.dims; ++d) {
      const auto at = std::size_t(d);
      l.kernel[at] = pick(1, l.dims == 1 ? 11 : l.dims == 2 ? 7 : 4);
      l.stride[at] = pick(0, 2) ? pick(1, 3) : pick(1, 8);
      if (wide && d + 1 == l.dims) l.kernel[at] = pick(1, 24), l.stride[at] = pick(9, 17);
      l.dilation[at] = pick(0, 2) ? 1 : pick(1, 4);
      l.padding[at] = pick(0, 4);
      l.output_padding[at] = pick(0, int(std::max(l.stride[at], l.dilation[at])) - 1);
      p.input[at] = pick(1, l.dims == 1 ? 400 : l.dims == 2 ? 40 : 12);
      if (few && d + 1 == l.dims) {
        if (pick(0, 1)) p.input[at] = pick(1, l.dims == 1 ? 4000 : l.dims == 2 ? 700 : 300);
        if (pick(0, 1)) p.input[at] = (p.input[at] + 7) / 8 * 8;
      }
      macs *= double(p.input[at] * l.kernel[at]);
    }
    if (marches) suit_march(l);
    l.bias = pick(0, 1);
    p.batch = pick(1, 3);
    if (macs * double(p.batch) > 3e7) continue;
    try {
      (void)shape_of(l, p.batch, p.input);
    } catch (const Error&) {
      continue;
    }
    return p;
  }
}

struct Case {
  cli::Problem problem;
  Mode mode;
  Variation variation;
  int index;
};

std::string describe(const Case& c) {
  const Layer& l = c.problem.layer;
  const auto e = [&](const Extents& v) { return format_extents(l.dims, v); };
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  return "case " + n(c.index) + ": " + n(l.dims) + "D batch " + n(c.problem.batch) + ", " + n(l.in_channels) +
         "->" + n(l.out_channels) + " groups " + n(l.groups) + " input " + e(c.problem.input) + " kernel " +
         e(l.kernel) + " stride " + e(l.stride) + " padding " + e(l.padding) + " output padding " +
         e(l.output_padding) + " dilation " + e(l.dilation) + (l.bias ? " bias " : " ") + c.mode.name + " " +
         to_string(l.layout) + (c.variation.other_layout ? ", tensors in the other layout" : "") +
         (c.variation.spread ? ", spread" : "") + (c.variation.prepacked ? "" : ", packed by the run");
}

/// "" where all is right, else what is wrong.
std::string check(const Tools& tools, const Case& c, std::string& kernel) {
  const ContextScope context(gpu());
  const Layer& layer = c.problem.layer;
  const Geometry g = geometry_of(layer);
  const Shape s = shape_of(layer, c.problem.batch, c.problem.input);
  const Expected expected(g, s);
  LayerOnGpu run(layer, s, c.variation);
  run.randomize(tools, unsigned(c.index), expected);

  const auto want = reference::forward(
      g, s, expected.x.download<double>(std::size_t(s.batch * g.in_channels() * volume(s.input))),
      expected.w.download<double>(std::size_t(g.in_channels() * g.group_out * g.taps())),
      layer.bias ? expected.b.download<double>(std::size_t(g.out_channels())) : reference::Array{});
  // The float64 result of large problems is held against the oracle here.
  const auto wide = [](const Buffer& b) { return static_cast<double*>(b.get()); };
  const Buffer by_gpu(expected.y.bytes());
  reference_on_gpu(g, s, wide(expected.x), wide(expected.w), layer.bias ? wide(expected.b) : nullptr,
                   wide(by_gpu));
  expected.y.upload(want);
  const Outcome reference = tools.compare(
      dense_view(by_gpu.get(), DType::f64, s.batch, g.out_channels(), s.output, Layout::channels_first),
      wide(expected.y));
  if (!within(reference, 1e-13)) return "the float64 reference on the GPU is wrong";

  const Verdict verdict = run.check(tools, expected);
  kernel = run.kernel_name();
  // The bars are meant for sums of many products; a few outputs of a few products each may be a little above.
  if (verdict.right(c.mode.bar * 1.3)) return "";
  char text[160];
  std::snprintf(text, sizeof text, "error %.2e worst %.1e bad %.0f unequal %lld stray %lld", verdict.outcome.error,
                verdict.outcome.worst, verdict.outcome.bad, static_cast<long long>(verdict.differing_words),
                static_cast<long long>(verdict.stray_bytes));
  return text;
}

}  // namespace

int sweep(int count, unsigned seed, bool few) {
  const Tools tools;
  std::mt19937 rng(seed);
  std::vector<Case> cases;
  const std::vector<Mode> asked = wanted_modes();
  for (int i = 0; i < count; ++i) {
    Case c{random_problem(rng, few, preferences().march), asked[rng() % asked.size()], {}, i};
    c.variation = {.spread = rng() % 8 == 0, .other_layout = rng() % 8 == 0, .prepacked = rng() % 2 == 0};
    Layer& layer = c.problem.layer;
    layer.dtype = c.mode.dtype, layer.precision = c.mode.precision;
    layer.layout = rng() % 3 == 0 ? Layout::channels_last : Layout::channels_first;
    cases.push_back(c);
  }
  const char* only = std::getenv("GPU_CHECK_CASE");
  std::atomic<int> failures{0};
  std::map<std::string, int> layers_by;
  std::mutex mutex;
  in_parallel(count, [&](int i) {
    if (only && std::atoi(only) != i) return;
    const Case& c = cases[std::size_t(i)];
    std::string kernel, complaint;
    try {
      complaint = check(tools, c, kernel);
    } catch (const std::exception& error) {
      complaint = error.what();
    }
    const std::lock_guard lock(mutex);
    ++layers_by[family_of(kernel)];
    if (complaint.empty()) return;
    ++failures;
    std::printf("WRONG: %s: %s [%s]\n", describe(c).c_str(), complaint.c_str(), kernel.c_str());
    std::fflush(stdout);
  });
  for (const auto& [name, layers] : layers_by) std::printf("%5d layers by %s\n", layers, name.c_str());
  std::printf("sweep of %d layers%s, seed %u: %d failures\n", count, few ? " of few channels" : "", seed,
              failures.load());
  return failures;
}

}  // namespace tconv::cuda::check
