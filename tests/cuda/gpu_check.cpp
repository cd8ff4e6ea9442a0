// The GPU's correctness and speed in one command.
//
//   gpu_check problems FILE [name…]   every problem of a list in every precision: the whole output against
//                                     float64 on the GPU, then the time of a run
//   gpu_check tune FILE MODE COUNT [name…]   times the COUNT tiles the cost model likes best
//   gpu_check sweep COUNT SEED [few]  random layers against the float64 oracle on the CPU; few: of few
//                                     channels per group alone, with rows of several tiles
//
// The float64 result of large problems comes from the generic kernel in double, which the sweep checks
// against the oracle. Outputs are poisoned first. Exit status 1 if anything is off.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda/codegen.hpp"
#include "cuda/engine.hpp"
#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/kernels/launch_params.cuh"
#include "cuda/runtime/kernel.hpp"
#include "problem_list.hpp"
#include "reference/reference.hpp"

namespace {

using namespace tconv;
using namespace tconv::cuda;
using std::int64_t;

const char tools_source[] = R"(
#include "element.cuh"
namespace tconv::device {
struct FillParams { void* data; double* wide; long long count; unsigned seed; int kind; float low, high; };
struct CompareParams { const void* got; const double* want; long long count; int kind; double* result;
                       long long sizes[5], strides[5]; };
__device__ inline unsigned scramble(u64 v) {
  v ^= v >> 31; v *= 0x9E3779B97F4A7C15ull; v ^= v >> 29; v *= 0xBF58476D1CE4E5B9ull; v ^= v >> 32;
  return unsigned(v);
}
template <class T> __device__ void put(const FillParams& p, i64 i, float v) {
  T t = to_element<T>(v); static_cast<T*>(p.data)[i] = t; p.wide[i] = load_as_accumulator(t);
}
extern "C" __global__ void fill(const __grid_constant__ FillParams p) {
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count; i += i64(gridDim.x) * blockDim.x) {
    const float v = p.low + (p.high - p.low) * (scramble(i * 2654435761ull + p.seed) >> 8) * (1.f / 16777216.f);
    if (p.kind == 0) put<float>(p, i, v);
    else if (p.kind == 1) { static_cast<double*>(p.data)[i] = v; p.wide[i] = v; }
    else if (p.kind == 2) put<F16>(p, i, v);
    else put<BF16>(p, i, v);
  }
}
extern "C" __global__ void compare(const __grid_constant__ CompareParams p) {
  double error = 0, norm = 0, worst = 0, largest = 0, bad = 0;
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count; i += i64(gridDim.x) * blockDim.x) {
    i64 rest = i, at = 0;
    for (int d = 4; d >= 0; --d) { at += rest % p.sizes[d] * p.strides[d]; rest /= p.sizes[d]; }
    double v;
    if (p.kind == 0) v = static_cast<const float*>(p.got)[at];
    else if (p.kind == 1) v = static_cast<const double*>(p.got)[at];
    else if (p.kind == 2) v = load_as_accumulator(static_cast<const F16*>(p.got)[at]);
    else v = load_as_accumulator(static_cast<const BF16*>(p.got)[at]);
    const double r = p.want[i], e = v - r;
    if (!(e == e) || e > 1e300 || e < -1e300) { bad += 1; continue; }
    error += e * e; norm += r * r; worst = max(worst, abs(e)); largest = max(largest, abs(r));
  }
  atomicAdd(p.result, error); atomicAdd(p.result + 1, norm); atomicAdd(p.result + 4, bad);
  atomicMax(reinterpret_cast<u64*>(p.result + 2), u64(__double_as_longlong(worst)));
  atomicMax(reinterpret_cast<u64*>(p.result + 3), u64(__double_as_longlong(largest)));
}
}
)";

struct FillParams {
  void* data;
  double* wide;
  long long count;
  unsigned seed;
  int kind;
  float low, high;
};
struct CompareParams {
  const void* got;
  const double* want;
  long long count;
  int kind;
  double* result;
  long long sizes[5], strides[5];
};

const DeviceProperties& gpu() {
  return device_properties(0);
}

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) {
    driver().check(driver().cuMemAlloc(&address_, std::max<std::size_t>(bytes, 16)), "cuMemAlloc",
                   "allocating " + std::to_string(bytes) + " bytes");
  }
  ~Buffer() { driver().cuMemFree(address_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return reinterpret_cast<void*>(address_); }
  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

void synchronize(const std::string& doing) {
  driver().check(driver().cuCtxSynchronize(), "cuCtxSynchronize", doing);
}

struct Tools {
  std::shared_ptr<const Kernel> fill = get_kernel({tools_source, "fill", 0}, gpu());
  std::shared_ptr<const Kernel> compare = get_kernel({tools_source, "compare", 0}, gpu());
};

/// A tensor of random values and its exact double copy.
struct Random {
  Buffer data, wide;
  Random(const Tools& tools, int64_t count, DType dtype, unsigned seed, float low, float high)
      : data(std::size_t(count) * size_of(dtype)), wide(std::size_t(count) * 8) {
    tools.fill->launch(
        2048, 256, FillParams{data.get(), static_cast<double*>(wide.get()), count, seed, int(dtype), low, high},
        nullptr);
  }
};

int64_t volume(const Extents& e) {
  return e[0] * e[1] * e[2];
}

Tensor tensor5(void* data, DType dtype, int64_t n, int64_t c, const Extents& s, bool last) {
  Tensor t;
  t.data = data, t.dtype = dtype, t.rank = 5;
  t.sizes = {n, c, s[0], s[1], s[2]};
  if (last)
    t.strides = {volume(s) * c, 1, s[1] * s[2] * c, s[2] * c, c};
  else
    t.strides = {volume(s) * c, volume(s), s[1] * s[2], s[2], 1};
  return t;
}

struct Outcome {
  double error = 0;  // relative in norm
  double worst = 0;  // largest difference over the largest output
  double bad = 0;    // NaN, infinite or never written
};

Outcome compare(const Tools& tools, const Tensor& got, const double* want) {
  Buffer result(40);
  driver().cuMemsetD8(result.address(), 0, 40);
  int64_t count = 1;
  CompareParams p{got.data, want, 0, int(got.dtype), static_cast<double*>(result.get()), {}, {}};
  for (std::size_t d = 0; d < 5; ++d)
    count *= got.sizes[d], p.sizes[d] = got.sizes[d], p.strides[d] = got.strides[d];
  p.count = count;
  tools.compare->launch(1024, 256, p, nullptr);
  synchronize("comparing");
  double h[5];
  driver().check(driver().cuMemcpyDtoH(h, result.address(), 40), "cuMemcpyDtoH", "comparing");
  return {std::sqrt(h[0] / std::max(h[1], 1e-300)), h[2] / std::max(h[3], 1e-300), h[4]};
}

struct Mode {
  const char* name;
  DType dtype;
  Precision precision;
  double bar;
};
const Mode modes[] = {{"tf32", DType::f32, Precision::tf32, 4e-4},
                      {"fp32", DType::f32, Precision::fp32, 1e-6},
                      {"fp16", DType::f16, Precision::fp32, 1e-3},
                      {"bf16", DType::bf16, Precision::fp32, 8e-3},
                      {"fp64", DType::f64, Precision::fp32, 1e-13}};

bool within(const Outcome& o, double bar) {
  return o.bad == 0 && o.error <= bar && o.worst <= 50 * std::max(o.error, bar * 1e-3);
}

double median_ms(const std::function<void()>& run, int repetitions) {
  const Driver& d = driver();
  std::vector<CUevent> events(std::size_t(repetitions) + 1);
  for (CUevent& e : events) d.cuEventCreate(&e, 0);
  run();
  d.cuEventRecord(events[0], nullptr);
  for (int i = 0; i < repetitions; ++i) {
    run();
    d.cuEventRecord(events[std::size_t(i) + 1], nullptr);
  }
  synchronize("timing");
  std::vector<float> times;
  for (int i = 0; i < repetitions; ++i) {
    float ms = 0;
    d.cuEventElapsedTime(&ms, events[std::size_t(i)], events[std::size_t(i) + 1]);
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// The generic kernel in double on the device.
void reference_on_device(const Geometry& g, const Shape& s, const Tensor& x, const Buffer& w, const Buffer& b,
                         double* y) {
  const auto kernel = get_kernel({generic_source(g, DType::f64), "forward", 0}, gpu());
  const Tensor wide_w = tensor5(w.get(), DType::f64, g.in_channels(), g.group_out, g.kernel, false);
  const Tensor wide_y = tensor5(y, DType::f64, s.batch, g.out_channels(), s.output, false);
  const auto strides = [](const Tensor& t) {
    return device::Strides5{t.strides[0], t.strides[1], t.strides[2], t.strides[3], t.strides[4]};
  };
  kernel->launch(
      132 * 64, 256,
      device::GenericParams{x.data, w.get(), b.get(), y, strides(x), strides(wide_w), strides(wide_y), s.batch,
                            s.input[0], s.input[1], s.input[2], s.output[0], s.output[1], s.output[2]},
      nullptr);
}

struct Case {
  test::Problem problem;
  Mode mode;
  bool last;
};

/// Runs `work(i)` for all i below `count` on all cores.
void in_parallel(int count, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    workers.emplace_back([&] {
      for (int i; (i = next++) < count;) work(i);
    });
  for (auto& w : workers) w.join();
}

bool wanted(const char* variable, const char* name) {
  const char* list = std::getenv(variable);
  return !list || std::string(list).find(name) != std::string::npos;
}

int check_problems(const std::string& file, const std::vector<std::string>& only) {
  const Tools tools;
  int failures = 0;
  const auto problems = test::read_problems(file);
  std::vector<Case> cases;
  for (const auto& problem : problems) {
    if (!only.empty() && std::find(only.begin(), only.end(), problem.name) == only.end()) continue;
    for (const bool last : {false, true}) {
      if ((last && problem.layer.dims == 1) || !wanted("GPU_CHECK_LAYOUTS", last ? "last" : "first")) continue;
      for (const Mode& mode : modes) {
        const double flops = work(problem.layer, problem.batch, problem.input).flops;
        if ((mode.dtype == DType::f64 && (last || flops > 1e11)) || !wanted("GPU_CHECK_MODES", mode.name))
          continue;
        Case c{problem, mode, last};
        c.problem.layer.dtype = mode.dtype, c.problem.layer.precision = mode.precision;
        c.problem.layer.layout = last ? Layout::channels_last : Layout::channels_first,
        c.problem.layer.bias = true;
        cases.push_back(c);
      }
    }
  }
  // Compile everything first, in parallel: the machine has more cores than one compile uses.
  in_parallel(int(cases.size()), [&](int i) {
    try {
      const Case& c = cases[std::size_t(i)];
      make_plan(c.problem.layer, 0)->bind(shape_of(c.problem.layer, c.problem.batch, c.problem.input));
    } catch (const std::exception&) {
      // Reported below, where the case is run.
    }
  });
  for (const auto& [problem, mode, last] : cases) {
    const Layer& layer = problem.layer;
    try {
      const Geometry g = geometry_of(layer);
      const Shape s = shape_of(layer, problem.batch, problem.input);
      const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
      const int64_t y_count = s.batch * g.out_channels() * volume(s.output);
      const int64_t w_count = g.in_channels() * g.group_out * g.taps();
      const float scale = 1.f / std::sqrt(float(g.group_in * g.taps()));
      const Random x(tools, x_count, mode.dtype, 1, -1, 1), w(tools, w_count, mode.dtype, 2, -scale, scale),
          b(tools, g.out_channels(), mode.dtype, 3, -1, 1);
      const Buffer y(std::size_t(y_count) * size_of(mode.dtype)), want(std::size_t(y_count) * 8);
      driver().cuMemsetD8(y.address(), 0xff, std::size_t(y_count) * size_of(mode.dtype));
      reference_on_device(g, s, tensor5(x.wide.get(), DType::f64, s.batch, g.in_channels(), s.input, last), w.wide,
                          b.wide, static_cast<double*>(want.get()));
      const auto plan = make_plan(layer, 0);
      const auto binding = plan->bind(s);
      const Buffer packed(plan->packed_weight_bytes(Pass::forward));
      const Tensor xt = tensor5(x.data.get(), mode.dtype, s.batch, g.in_channels(), s.input, last);
      const Tensor wt = tensor5(w.data.get(), mode.dtype, g.in_channels(), g.group_out, g.kernel, false);
      const Tensor yt = tensor5(y.get(), mode.dtype, s.batch, g.out_channels(), s.output, last);
      Tensor bt;
      bt.data = b.data.get();
      const ConstTensor xc = xt, wc = wt, bc = bt;
      plan->pack_weight(Pass::forward, wc, packed.get(), {});
      RunOptions options;
      options.packed_weight = packed.get();
      const Operands operands{.input = &xc, .weight = &wc, .bias = &bc, .grad_output = nullptr, .output = &yt};
      const auto run = [&] { binding->run(Pass::forward, operands, options); };
      run();
      synchronize("running " + problem.name);
      const Outcome outcome = compare(tools, yt, static_cast<const double*>(want.get()));
      const double flops = work(layer, s.batch, problem.input).flops,
                   bytes = work(layer, s.batch, problem.input).bytes;
      const double ms = median_ms(run, 11);
      const bool ok = within(outcome, mode.bar);
      failures += !ok;
      std::printf("%-18s %-5s %s  %8.4f ms  %6.1f TFLOP/s %5.2f TB/s  error %.2e worst %.1e bad %.0f  %s  %s\n",
                  problem.name.c_str(), mode.name, last ? "NHWC" : "NCHW", ms, flops / ms / 1e9, bytes / ms / 1e9,
                  outcome.error, outcome.worst, outcome.bad, ok ? "ok" : "WRONG",
                  binding->kernel_name(Pass::forward).c_str());
    } catch (const std::exception& e) {
      ++failures;
      std::printf("%-18s %-5s %s  FAILED: %s\n", problem.name.c_str(), mode.name, last ? "NHWC" : "NCHW",
                  e.what());
    }
    std::fflush(stdout);
  }
  std::printf("%d failures\n", failures);
  return failures ? 1 : 0;
}

/// Times the tiles the cost model likes best, one line each with the model's price beside it.
int tune(const std::string& file, const std::string& mode_name, int count, const std::vector<std::string>& only) {
  const Tools tools;
  const Mode& mode =
      *std::find_if(std::begin(modes), std::end(modes), [&](const Mode& m) { return mode_name == m.name; });
  struct Entry {
    test::Problem problem;
    TileChoice choice;
    RowPlan rows;
    std::shared_ptr<const Kernel> kernel;
  };
  std::vector<Entry> entries;
  for (auto problem : test::read_problems(file)) {
    if (!only.empty() && std::find(only.begin(), only.end(), problem.name) == only.end()) continue;
    problem.layer.dtype = mode.dtype, problem.layer.precision = mode.precision;
    const Geometry g = geometry_of(problem.layer);
    const Shape s = shape_of(problem.layer, problem.batch, problem.input);
    const device::Math math = mode.dtype == DType::f16            ? device::Math::f16
                              : mode.dtype == DType::bf16         ? device::Math::bf16
                              : mode.precision == Precision::tf32 ? device::Math::tf32
                                                                  : device::Math::fp32;
    const int per_word = size_of(mode.dtype) == 2 ? 2 : 1;
    Access access;
    access.x_vector = s.input[2] % (4 * per_word) == 0 ? 4 * per_word : s.input[2] % per_word == 0 ? per_word : 1;
    RowPlan rows;
    if (!make_row_plan(g, per_word, 4, rows)) continue;
    // The best of each kind: tiles that differ in more than their pipeline first.
    std::map<std::string, int> seen;
    int taken = 0;
    for (const TileChoice& choice : price_tiles(g, math, rows, s, access, {})) {
      const auto& c = choice.config;
      const std::string kind = std::to_string(c.box.w) + "." + std::to_string(c.box.h) + "." +
                               std::to_string(c.warps_m) + "." + std::to_string(c.warps_n);
      if (seen[kind]++ >= 2) continue;
      entries.push_back({problem, choice, rows, nullptr});
      if (++taken == count) break;
    }
  }
  in_parallel(int(entries.size()), [&](int i) {
    Entry& e = entries[std::size_t(i)];
    try {
      e.kernel = get_kernel(
          {gemm_source(e.choice.config, e.rows), "forward", device::shared_bytes(e.choice.config)}, gpu());
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", e.problem.name.c_str(), error.what());
    }
  });
  for (const Entry& e : entries) {
    if (!e.kernel) continue;
    const Geometry g = geometry_of(e.problem.layer);
    const Shape s = shape_of(e.problem.layer, e.problem.batch, e.problem.input);
    const auto& c = e.choice.config;
    const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
    const int64_t y_count = s.batch * g.out_channels() * volume(s.output);
    const int64_t packed = e.rows.weight_words(g, device::channels_per_word(c), 8);
    const Random x(tools, x_count, mode.dtype, 1, -1, 1), w(tools, packed, DType::f32, 2, -1, 1);
    const Buffer y(std::size_t(y_count) * size_of(mode.dtype));
    const Tensor xt = tensor5(x.data.get(), mode.dtype, s.batch, g.in_channels(), s.input, false);
    const Tensor yt = tensor5(y.get(), mode.dtype, s.batch, g.out_channels(), s.output, false);
    const auto image = [](const Tensor& t) {
      return device::ImageStrides{t.strides[0], t.strides[1], int(t.strides[2]), int(t.strides[3]),
                                  int(t.strides[4])};
    };
    const auto int3 = [](const Extents& v) { return Int3{int(v[0]), int(v[1]), int(v[2])}; };
    const Int3 boxes = boxes_of(c, s);
    const int tiles = int(c.types * c.channel_blocks * c.groups * boxes.d * boxes.h * boxes.w * s.batch);
    const device::ForwardParams params{x.data.get(),  static_cast<const unsigned*>(w.data.get()),
                                       nullptr,       y.get(),
                                       image(xt),     image(yt),
                                       int3(s.input), int3(s.output),
                                       boxes,         tiles};
    const unsigned blocks = unsigned(std::min(tiles, gpu().multiprocessors * c.blocks_per_sm));
    const double ms =
        median_ms([&] { e.kernel->launch(blocks, unsigned(device::threads_of(c)), params, nullptr); }, 5);
    std::printf(
        "%-18s %s model %8.4f ms %8.4f  box %d,%d,%d warps %dx%d tiles %dx%d chunk %d sps %d st %d xst %d res %d "
        "smem %d occ %d types %d\n",
        e.problem.name.c_str(), mode.name, e.choice.cycles / 1.755e6, ms, c.box.d, c.box.h, c.box.w, c.warps_m,
        c.warps_n, c.tiles_m, c.tiles_n, c.chunk_words, c.steps_per_slab, c.stages, c.x_stages, c.resident_steps,
        device::shared_bytes(c), c.blocks_per_sm, c.types);
    std::fflush(stdout);
  }
  return 0;
}

/// A random layer of the sweep, small enough for the oracle.
test::Problem random_problem(std::mt19937& rng, bool few) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (;;) {
    test::Problem p;
    Layer& l = p.layer;
    l.dims = pick(1, 3);
    const int kind = pick(0, 5);
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
    double size = 1;
    for (int d = 0; d < l.dims; ++d) {
      const auto at = std::size_t(d);
      l.kernel[at] = pick(1, l.dims == 1 ? 11 : l.dims == 2 ? 7 : 4);
      l.stride[at] = pick(0, 2) ? pick(1, 3) : pick(1, 8);
      l.dilation[at] = pick(0, 2) ? 1 : pick(1, 4);
      l.padding[at] = pick(0, 4);
      l.output_padding[at] = pick(0, int(std::max(l.stride[at], l.dilation[at])) - 1);
      p.input[at] = pick(1, l.dims == 1 ? 400 : l.dims == 2 ? 40 : 12);
      // Rows of more than one tile, and rows of whole vectors.
      if (few && d + 1 == l.dims && pick(0, 1))
        p.input[at] = pick(1, l.dims == 1 ? 4000 : l.dims == 2 ? 700 : 300);
      if (few && d + 1 == l.dims && pick(0, 1)) p.input[at] = (p.input[at] + 7) / 8 * 8;
      size *= double(p.input[at]);
    }
    l.bias = pick(0, 1);
    p.batch = pick(1, 3);
    const double macs = size * double(p.batch) * double(l.in_channels * (l.out_channels / l.groups)) *
                        double(l.kernel[0] * (l.dims > 1 ? l.kernel[1] : 1) * (l.dims > 2 ? l.kernel[2] : 1));
    if (macs > 3e7) continue;
    try {
      (void)shape_of(l, p.batch, p.input);
    } catch (const Error&) {
      continue;
    }
    return p;
  }
}

template <class T>
std::vector<T> download(const Buffer& b, std::size_t count) {
  std::vector<T> host(count);
  driver().check(driver().cuMemcpyDtoH(host.data(), b.address(), count * sizeof(T)), "cuMemcpyDtoH",
                 "downloading");
  return host;
}

struct SweepCase {
  test::Problem problem;
  Mode mode;
  bool last;
  int odd;  // strides no dense layout has
  int index;
};

std::string describe_case(const SweepCase& c) {
  const Layer& l = c.problem.layer;
  const auto e = [&](const Extents& v) { return format_extents(l.dims, v); };
  return "case " + std::to_string(c.index) + ": " + std::to_string(l.dims) + "D n" +
         std::to_string(c.problem.batch) + " " + std::to_string(l.in_channels) + "->" +
         std::to_string(l.out_channels) + " g" + std::to_string(l.groups) + " in " + e(c.problem.input) + " k " +
         e(l.kernel) + " s " + e(l.stride) + " p " + e(l.padding) + " op " + e(l.output_padding) + " d " +
         e(l.dilation) + (l.bias ? " bias " : " ") + c.mode.name + (c.last ? " NHWC" : " NCHW") +
         (c.odd ? " odd strides" : "");
}

int sweep(int count, unsigned seed, bool few) {
  const Tools tools;
  std::mt19937 rng(seed);
  std::vector<SweepCase> cases;
  for (int i = 0; i < count; ++i) {
    SweepCase c{random_problem(rng, few), modes[rng() % 5], rng() % 3 == 0, rng() % 8 == 0, i};
    c.problem.layer.dtype = c.mode.dtype, c.problem.layer.precision = c.mode.precision;
    cases.push_back(c);
  }
  std::atomic<int> failures{0};
  std::map<std::string, int> kernels;
  std::mutex print;
  const auto work_on = [&](const SweepCase& c) {
    const ContextScope context(gpu());
    const Layer& layer = c.problem.layer;
    const Geometry g = geometry_of(layer);
    const Shape s = shape_of(layer, c.problem.batch, c.problem.input);
    const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
    const int64_t w_count = g.in_channels() * g.group_out * g.taps();
    const DType dtype = layer.dtype;
    const float scale = 1.f / std::sqrt(float(g.group_in * g.taps()));
    const int64_t w_step = c.odd ? 2 : 1;
    const Random x(tools, x_count, dtype, 1, -1, 1), w(tools, w_count * w_step, dtype, 2, -scale, scale),
        b(tools, g.out_channels(), dtype, 3, -1, 1);
    Tensor xt = tensor5(x.data.get(), dtype, s.batch, g.in_channels(), s.input, c.last);
    Tensor wt = tensor5(w.data.get(), dtype, g.in_channels(), g.group_out, g.kernel, false);
    for (auto& stride : wt.strides) stride *= w_step;
    Tensor yt = tensor5(nullptr, dtype, s.batch, g.out_channels(), s.output, c.last);
    // Odd strides: rows of the output with a gap, columns two apart, and so are weights.
    int64_t span = s.batch * g.out_channels() * volume(s.output);
    if (c.odd) {
      for (auto& stride : yt.strides) stride *= 2;
      span = span * 2 + 3;
    }
    const Buffer y(std::size_t(span) * size_of(dtype));
    driver().cuMemsetD8(y.address(), 0xff, std::size_t(span) * size_of(dtype));
    yt.data = y.get();
    const auto plan = make_plan(layer, 0);
    const auto binding = plan->bind(s);
    const Buffer workspace(binding->workspace_bytes(Pass::forward, 1));
    Tensor bt;
    bt.data = b.data.get();
    const ConstTensor xc = xt, wc = wt, bc = bt;
    RunOptions options;
    options.workspace = workspace.get();
    const Operands operands{
        .input = &xc, .weight = &wc, .bias = layer.bias ? &bc : nullptr, .grad_output = nullptr, .output = &yt};
    binding->run(Pass::forward, operands, options);

    // The oracle wants dense, channels first.
    auto wide = download<double>(x.wide, std::size_t(x_count));
    reference::Array xs(wide.size());
    for (int64_t i = 0; i < x_count; ++i) {
      int64_t rest = i, at = 0;
      for (int d = 4; d >= 0; --d) {
        const auto dim = std::size_t(d);
        at += rest % xt.sizes[dim] * xt.strides[dim];
        rest /= xt.sizes[dim];
      }
      xs[std::size_t(i)] = wide[std::size_t(at)];
    }
    const auto wide_w = download<double>(w.wide, std::size_t(w_count * w_step));
    reference::Array ws;
    for (int64_t i = 0; i < w_count; ++i) ws.push_back(wide_w[std::size_t(i * w_step)]);
    const auto want = reference::forward(
        g, s, xs, ws, layer.bias ? download<double>(b.wide, std::size_t(g.out_channels())) : reference::Array{});
    const Buffer want_device(want.size() * 8);
    driver().cuMemcpyHtoD(want_device.address(), want.data(), want.size() * 8);
    const Outcome outcome = compare(tools, yt, static_cast<const double*>(want_device.get()));
    const std::lock_guard lock(print);
    kernels[binding->kernel_name(Pass::forward).substr(0, 19)]++;
    if (!within(outcome, c.mode.bar * 1.3)) {
      ++failures;
      std::printf("WRONG: %s: error %.2e worst %.1e bad %.0f [%s]\n", describe_case(c).c_str(), outcome.error,
                  outcome.worst, outcome.bad, binding->kernel_name(Pass::forward).c_str());
      if (std::getenv("GPU_CHECK_DETAILS") && layer.dtype == DType::f32) {
        const auto got = download<float>(y, std::size_t(span));
        int shown = 0;
        for (std::size_t i = 0; i < want.size() && shown < 24; ++i) {
          int64_t rest = int64_t(i), at = 0;
          std::array<int64_t, 5> index{};
          for (std::size_t d = 5; d-- > 0;) {
            index[d] = rest % yt.sizes[d], at += index[d] * yt.strides[d];
            rest /= yt.sizes[d];
          }
          if (!(std::abs(got[std::size_t(at)] - want[i]) > 0.01)) continue;
          ++shown;
          std::printf("  [%d %d %d %d %d] got %g want %g\n", int(index[0]), int(index[1]), int(index[2]),
                      int(index[3]), int(index[4]), got[std::size_t(at)], want[i]);
        }
      }
      std::fflush(stdout);
    }
  };
  in_parallel(count, [&](int i) {
    if (const char* only = std::getenv("GPU_CHECK_CASE"); only && std::atoi(only) != i) return;
    try {
      work_on(cases[std::size_t(i)]);
    } catch (const std::exception& e) {
      ++failures;
      const std::lock_guard lock(print);
      std::printf("FAILED: %s: %s\n", describe_case(cases[std::size_t(i)]).c_str(), e.what());
      std::fflush(stdout);
    }
  });
  for (const auto& [name, times] : kernels) std::printf("%5d layers by %s\n", times, name.c_str());
  std::printf("sweep of %d layers, seed %u: %d failures\n", count, seed, failures.load());
  return failures ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const ContextScope context(gpu());
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "problems" && argc > 2) return check_problems(argv[2], {argv + 3, argv + argc});
    if (command == "tune" && argc > 4) return tune(argv[2], argv[3], std::atoi(argv[4]), {argv + 5, argv + argc});
    if (command == "sweep" && argc > 3)
      return sweep(std::atoi(argv[2]), unsigned(std::atoi(argv[3])), argc > 4 && std::string(argv[4]) == "few");
    std::fprintf(stderr, "usage: gpu_check problems FILE [name...] | gpu_check sweep COUNT SEED [few]\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_check: %s\n", e.what());
  }
  return 2;
}
