#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "cuda/engine.hpp"
#include "cuda/preferences.hpp"
#include "engine/environment.hpp"
#include "gpu/commands.hpp"
#include "gpu/layer_on_gpu.hpp"

namespace tconv::cuda::check {
namespace {

using std::int64_t;

struct Small {
  const char* name;
  Layer layer;
  int64_t batch;
  Extents input;
};

Layer layer(int dims, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
            int64_t groups) {
  Layer l;
  l.dims = dims, l.in_channels = in, l.out_channels = out, l.groups = groups, l.bias = true;
  for (std::size_t d = 0; d < std::size_t(dims); ++d)
    l.kernel[d] = kernel, l.stride[d] = stride, l.padding[d] = padding, l.dilation[d] = dilation;
  return l;
}

/// One layer for each thing that makes a kernel different; lengths of both alignments.
std::vector<Small> layers() {
  return {{"1D", layer(1, 64, 64, 3, 1, 0, 1, 1), 2, {320}},
          {"1D, rows that are not aligned", layer(1, 64, 64, 3, 1, 0, 1, 1), 2, {301}},
          {"1D strided", layer(1, 64, 32, 16, 8, 4, 1, 1), 2, {64}},
          {"1D of a stride beyond eight", layer(1, 64, 16, 18, 9, 4, 1, 1), 2, {64}},
          {"1D of a stride beyond 16", layer(1, 64, 16, 34, 17, 4, 1, 1), 2, {40}},
          {"1D with phases that have no taps", layer(1, 32, 64, 3, 2, 1, 2, 1), 2, {203}},
          {"2D", layer(2, 32, 64, 3, 1, 1, 1, 1), 1, {20, 24}},
          {"2D strided and dilated", layer(2, 32, 64, 3, 5, 1, 2, 1), 1, {9, 16}},
          {"2D with one output channel", layer(2, 56, 1, 9, 4, 4, 1, 1), 1, {12, 20}},
          {"2D groups", layer(2, 32, 64, 3, 2, 1, 1, 4), 1, {12, 17}},
          {"2D few input channels", layer(2, 3, 24, 3, 1, 1, 1, 1), 1, {16, 20}},
          {"3D", layer(3, 32, 32, 3, 2, 1, 1, 1), 1, {4, 6, 9}},
          {"3D of stride 1", layer(3, 32, 16, 3, 1, 1, 1, 1), 1, {5, 8, 20}},
          {"3D of taps that reach far", layer(3, 32, 32, 3, 1, 0, 4, 1), 1, {3, 4, 9}},
          {"2D upsampling", layer(2, 64, 32, 2, 2, 0, 1, 1), 2, {12, 24}},
          {"2D upsampling of long rows", layer(2, 48, 64, 2, 2, 0, 1, 1), 1, {3, 264}},
          {"2D upsampling of small images", layer(2, 40, 64, 2, 2, 0, 1, 1), 5, {8, 8}},
          {"2D of small images", layer(2, 32, 64, 4, 2, 1, 1, 1), 5, {4, 4}},
          {"1D upsampling, groups", layer(1, 80, 64, 4, 4, 0, 1, 2), 2, {200}},
          {"depthwise", layer(1, 32, 32, 6, 3, 2, 1, 32), 2, {200}},
          {"2D depthwise", layer(2, 16, 16, 4, 2, 1, 1, 16), 1, {20, 21}},
          {"a stride beyond every block of rows", layer(1, 4, 20, 300, 300, 0, 1, 1), 1, {3}}};
}

struct Case {
  std::string name;
  Mode mode;
  Layer layer;
  Shape shape;
};

/// Every layer in every type; channels last in one type of each width, for that changes only loads and stores.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Small& small : layers())
    for (const Mode& mode : wanted_modes())
      for (const Layout layout : {Layout::channels_first, Layout::channels_last}) {
        const bool one_of_its_width = mode.name == std::string("tf32") || mode.name == std::string("fp16");
        if (layout == Layout::channels_last && !one_of_its_width) continue;
        Layer l = small.layer;
        l.dtype = mode.dtype, l.precision = mode.precision, l.layout = layout;
        all.push_back({std::string(small.name) + ", " + mode.name + ", " + to_string(layout), mode, l,
                       shape_of(l, small.batch, small.input)});
      }
  return all;
}

constexpr const char *shared_sums = "panel_gemm, shared sums", *halves = "panel_gemm, fp32 of halves",
                     *half = "panel_gemm, TF32 as fp16", *loaders = "panel_gemm, two loading warpgroups",
                     *whole_rows = "panel_gemm, runs of several rows", *mapped = "panel_gemm, mapped x",
                     *once = "panel_gemm, x turned once", *shifts = "panel_gemm, panels of one shift",
                     *beside = "panel_gemm, rows of images side by side", *clusters = "panel_gemm, clusters",
                     *doubles = "implicit_gemm, doubles", *pairs = "panel_gemm, paired rows";

/// What has been checked: a layer that several preferences leave to the same kernel is checked once.
struct Seen {
  std::set<std::string> layers, touched;
  int checked = 0;
};

int check(const Tools& tools, const Case& c, const std::string& part, Seen& seen) {
  const Geometry g = geometry_of(c.layer);
  LayerOnGpu run(c.layer, c.shape, {.prepacked = false});
  if (run.kernel_name().find(part) == std::string::npos) return 0;
  if (!seen.layers.insert(c.name + " " + run.kernel_name()).second) return 0;
  ++seen.checked;
  // So that what a sanitizer reports has a name.
  if (is_on("GPU_CHECK_NAMES")) std::printf("%s: %s\n", c.name.c_str(), run.kernel_name().c_str());
  std::fflush(stdout);
  const Expected expected(g, c.shape);
  run.randomize(tools, 1, expected);
  const auto wide = [](const Buffer& b) { return static_cast<double*>(b.get()); };
  reference_on_gpu(g, c.shape, wide(expected.x), wide(expected.w), wide(expected.b), wide(expected.y));
  const Verdict verdict = run.check(tools, expected);
  seen.touched.insert(family_of(run.kernel_name()));
  for (const auto& [of_name, name] : {std::pair{"_turned", "turn_x"},
                                      {"_split", shared_sums},
                                      {"_halves", halves},
                                      {"_half_", half},
                                      {"_l2", loaders},
                                      {"_runs", whole_rows},
                                      {"_mapped", mapped},
                                      {"_once", once},
                                      {"_shifts", shifts},
                                      {"_beside", beside},
                                      {"_f64", doubles},
                                      {"_pairs", pairs},
                                      {"_cluster", clusters}})
    if (run.kernel_name().find(of_name) != std::string::npos) seen.touched.insert(name);
  if (verdict.right(c.mode.bar * 1.3)) return 0;
  std::printf("WRONG: %s: error %.2e worst %.1e bad %.0f unequal %lld stray %lld [%s]\n", c.name.c_str(),
              verdict.outcome.error, verdict.outcome.worst, verdict.outcome.bad,
              static_cast<long long>(verdict.differing_words), static_cast<long long>(verdict.stray_bytes),
              run.kernel_name().c_str());
  return 1;
}

struct Asked {
  std::string word, variable, value,
      part;  // of kernels' names that are meant: others are checked where nobody asks
};

/// The portable kernels first: on Hopper they would stand back behind those for wgmma. Then panels of every kind,
/// which are the choice for layers larger than these; the march kernel; paired rows, of panels or of other
/// kernels; and tensor cores for doubles.
std::vector<Asked> all_asked() {
  const std::map<std::string, std::string> parts = {{"turned", "_turned"},
                                                    {"once", "_once"},
                                                    {"shifts", "_shifts"},
                                                    {"beside", "_beside"},
                                                    {"mapped", "_mapped"},
                                                    {"split", "_split"},
                                                    {"clusters", "_cluster"},
                                                    {"mapped_clusters", "_cluster"},
                                                    {"turned_clusters", "_cluster"},
                                                    {"turns", "_turns"},
                                                    {"joined", "_rows"},
                                                    {"runs", "_runs"},
                                                    {"phases", "_phases"},
                                                    {"loaders", "_l2"}};
  std::vector<Asked> all = {{"TCONV_NO_WGMMA", "TCONV_NO_WGMMA", "1", ""}};
  for (const std::string& value : panel_preferences()) {
    const auto part = parts.find(value);
    all.push_back({value == "1" ? "PANELS=1" : value, "TCONV_PREFER_PANELS", value,
                   part == parts.end() ? "panel" : part->second});
  }
  all.push_back({"MARCH", "TCONV_PREFER_MARCH", "1", "march"});
  all.push_back({"PAIRS", "TCONV_PREFER_PAIRS", "1", "_pairs"});
  all.push_back({"DOUBLES", "TCONV_PREFER_DOUBLES", "1", "_f64"});
  all.push_back({"none", "", "", ""});
  return all;
}

}  // namespace

int print_preferences(bool panels) {
  const auto print = [](const std::string& word) { std::printf("%s\n", word.c_str()); };
  if (panels)
    for (const std::string& value : panel_preferences()) print(value);
  else
    for (const Asked& asked : all_asked()) print(asked.word);
  return 0;
}

int families(const std::string& only) {
  const Tools tools;
  Seen seen;
  std::set<std::string> missing{"implicit_gemm", "direct", "generic", doubles};
  const bool hopper = gpu().major == 9;
  if (hopper)
    missing.insert({"warpgroup_gemm", "panel_gemm", "march_gemm", "turn_x", shared_sums, halves, half, loaders,
                    whole_rows, mapped, once, shifts, beside, clusters, pairs});
  const std::vector<Case> all = cases();
  int failures = 0;
  // 32-bit numbers are halves where two blocks are asked for, and shared sums.
  for (const Asked& asked : all_asked()) {
    if (!hopper && asked.variable != "TCONV_NO_WGMMA" && asked.variable != "TCONV_PREFER_DOUBLES") continue;
    if (!only.empty() && only != asked.word) continue;
    unsetenv("TCONV_NO_WGMMA"), unsetenv("TCONV_PREFER_PANELS"), unsetenv("TCONV_PREFER_HALVES");
    unsetenv("TCONV_PREFER_MARCH"), unsetenv("TCONV_PREFER_DOUBLES"), unsetenv("TCONV_PREFER_PAIRS");
    if (!asked.variable.empty()) setenv(asked.variable.c_str(), asked.value.c_str(), 1);
    if (asked.variable == "TCONV_PREFER_PAIRS") setenv("TCONV_PREFER_PANELS", "1", 1);
    if (asked.value == "2" || asked.value == "split") setenv("TCONV_PREFER_HALVES", "1", 1);
    in_parallel(int(all.size()),
                [&](int i) { make_plan(all[std::size_t(i)].layer, gpu())->bind(all[std::size_t(i)].shape); });
    for (const Case& c : all) failures += check(tools, c, asked.part, seen);
  }
  for (const std::string& name : seen.touched) {
    std::printf("touched %s\n", name.c_str());
    missing.erase(name);
  }
  if (!only.empty() || wanted_modes().size() < std::size(modes)) missing.clear();
  for (const std::string& name : missing) {
    std::printf("NOT TOUCHED: %s\n", name.c_str());
    ++failures;
  }
  std::printf("%d small layers: %d failures\n", seen.checked, failures);
  return failures;
}

}  // namespace tconv::cuda::check
