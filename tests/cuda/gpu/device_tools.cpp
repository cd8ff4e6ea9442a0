#include "gpu/device_tools.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "cuda/codegen.hpp"
#include "cuda/kernels/launch_params.cuh"

namespace tconv::cuda::check {
namespace {

using std::int64_t;

const char tools_source[] = R"(
#include "element.cuh"
namespace tconv::device {
struct View { void* data; long long count, sizes[5], strides[5]; int dtype; };
struct RandomizeParams { View tensor; double* wide; unsigned seed; double scale; };
struct CompareParams { View got; const double* want; double* result; };
struct DifferingParams { const unsigned *a, *b; long long words; unsigned long long* result; };

__device__ inline u64 scramble(u64 v) {
  v ^= v >> 31; v *= 0x9E3779B97F4A7C15ull; v ^= v >> 29; v *= 0xBF58476D1CE4E5B9ull; return v ^ v >> 32;
}
__device__ inline i64 offset_of(const View& v, i64 index) {
  i64 at = 0;
  for (int d = 4; d >= 0; --d) { at += index % v.sizes[d] * v.strides[d]; index /= v.sizes[d]; }
  return at;
}
template <class T, class A> __device__ double put(const View& v, i64 at, A value) {
  const T element = to_element<T>(value);
  static_cast<T*>(v.data)[at] = element;
  return load_as_accumulator(element);
}
template <class T> __device__ double get(const View& v, i64 at) {
  return load_as_accumulator(static_cast<const T*>(v.data)[at]);
}
__device__ inline i64 first() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline i64 step() { return i64(gridDim.x) * blockDim.x; }

extern "C" __global__ void randomize(const __grid_constant__ RandomizeParams p) {
  for (i64 i = first(); i < p.tensor.count; i += step()) {
    const double unit = double(scramble(u64(i) * 2654435761ull + p.seed) >> 11) * (1.0 / (1ull << 53));
    const double value = p.scale * (2 * unit - 1);
    const i64 at = offset_of(p.tensor, i);
    double rounded;
    switch (p.tensor.dtype) {
      case 0: rounded = put<float>(p.tensor, at, float(value)); break;
      case 1: rounded = put<double>(p.tensor, at, value); break;
      case 2: rounded = put<F16>(p.tensor, at, float(value)); break;
      default: rounded = put<BF16>(p.tensor, at, float(value));
    }
    if (p.wide) p.wide[i] = rounded;
  }
}
extern "C" __global__ void compare(const __grid_constant__ CompareParams p) {
  double error = 0, norm = 0, worst = 0, largest = 0, bad = 0;
  for (i64 i = first(); i < p.got.count; i += step()) {
    const i64 at = offset_of(p.got, i);
    double value;
    switch (p.got.dtype) {
      case 0: value = get<float>(p.got, at); break;
      case 1: value = get<double>(p.got, at); break;
      case 2: value = get<F16>(p.got, at); break;
      default: value = get<BF16>(p.got, at);
    }
    const double want = p.want[i], difference = value - want;
    norm += want * want; largest = max(largest, abs(want));
    if (!(abs(difference) < 1e300)) { bad += 1; continue; }
    error += difference * difference; worst = max(worst, abs(difference));
  }
  atomicAdd(p.result, error); atomicAdd(p.result + 1, norm); atomicAdd(p.result + 4, bad);
  atomicMax(reinterpret_cast<u64*>(p.result + 2), u64(__double_as_longlong(worst)));
  atomicMax(reinterpret_cast<u64*>(p.result + 3), u64(__double_as_longlong(largest)));
}
extern "C" __global__ void differing(const __grid_constant__ DifferingParams p) {
  u64 count = 0;
  for (i64 i = first(); i < p.words; i += step()) count += p.a[i] != p.b[i];
  if (count) atomicAdd(p.result, count);
}
}
)";

// The same structs for the host.
struct View {
  void* data;
  long long count, sizes[5], strides[5];
  int dtype;
};
struct RandomizeParams {
  View tensor;
  double* wide;
  unsigned seed;
  double scale;
};
struct CompareParams {
  View got;
  const double* want;
  double* result;
};
struct DifferingParams {
  const void *a, *b;
  long long words;
  void* result;
};

View view_of(const Tensor& t) {
  View v{t.data, 1, {}, {}, int(t.dtype)};
  for (std::size_t d = 0; d < 5; ++d) v.count *= t.sizes[d], v.sizes[d] = t.sizes[d], v.strides[d] = t.strides[d];
  return v;
}

constexpr unsigned blocks = 1024, threads = 256;

}  // namespace

const DeviceProperties& gpu() {
  return device_properties(0);
}

void synchronize(const std::string& doing) {
  driver().check(driver().cuCtxSynchronize(), "cuCtxSynchronize", doing);
}

Buffer::Buffer(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 16)) {
  driver().check(driver().cuMemAlloc(&address_, bytes_), "cuMemAlloc",
                 "allocating " + std::to_string(bytes_) + " bytes");
}

Buffer::~Buffer() {
  driver().cuMemFree(address_);
}

void Buffer::fill(unsigned char byte) const {
  driver().check(driver().cuMemsetD8(address_, byte, bytes_), "cuMemsetD8", "filling a buffer");
}

void Buffer::copy_to_host(void* host, std::size_t bytes) const {
  driver().check(driver().cuMemcpyDtoH(host, address_, bytes), "cuMemcpyDtoH", "downloading");
}

void Buffer::copy_from_host(const void* host, std::size_t bytes) const {
  driver().check(driver().cuMemcpyHtoD(address_, host, bytes), "cuMemcpyHtoD", "uploading");
}

int64_t volume(const Extents& e) {
  return e[0] * e[1] * e[2];
}

Tools::Tools() {
  const auto kernels = get_kernels(
      {{tools_source, "randomize", 0}, {tools_source, "compare", 0}, {tools_source, "differing", 0}}, gpu());
  randomize_ = kernels[0], compare_ = kernels[1], differing_ = kernels[2];
}

void Tools::randomize(const Tensor& tensor, double* wide, unsigned seed, double scale) const {
  randomize_->launch(blocks, threads, RandomizeParams{view_of(tensor), wide, seed, scale}, nullptr);
}

Outcome Tools::compare(const Tensor& got, const double* want) const {
  const Buffer result(5 * sizeof(double));
  result.fill(0);
  compare_->launch(blocks, threads, CompareParams{view_of(got), want, static_cast<double*>(result.get())},
                   nullptr);
  synchronize("comparing");
  const auto sums = result.download<double>(5);
  return {std::sqrt(sums[0] / std::max(sums[1], 1e-300)), sums[2] / std::max(sums[3], 1e-300), sums[4]};
}

int64_t Tools::differing_words(const Buffer& a, const Buffer& b) const {
  const Buffer result(sizeof(int64_t));
  result.fill(0);
  const auto words = static_cast<long long>(std::min(a.bytes(), b.bytes()) / 4);
  differing_->launch(blocks, threads, DifferingParams{a.get(), b.get(), words, result.get()}, nullptr);
  return result.download<int64_t>(1).front();
}

void reference_on_gpu(const Geometry& g, const Shape& s, const double* x, const double* w, const double* b,
                      double* y) {
  const auto kernel = get_kernel({generic_source(g, DType::f64), "forward", 0}, gpu());
  const auto strides = [](int64_t channels, const Extents& size) {
    return device::Strides5{channels * volume(size), volume(size), size[1] * size[2], size[2], 1};
  };
  kernel->launch(unsigned(gpu().multiprocessors) * 64, 256,
                 device::GenericParams{.x = x,
                                       .weight = w,
                                       .bias = b,
                                       .y = y,
                                       .xs = strides(g.in_channels(), s.input),
                                       .ws = strides(g.group_out, g.kernel),
                                       .ys = strides(g.out_channels(), s.output),
                                       .bias_stride = 1,
                                       .batch = s.batch,
                                       .in_d = s.input[0],
                                       .in_h = s.input[1],
                                       .in_w = s.input[2],
                                       .out_d = s.output[0],
                                       .out_h = s.output[1],
                                       .out_w = s.output[2]},
                 nullptr);
}

double median_ms(const std::function<void()>& run, int repetitions) {
  const Driver& d = driver();
  std::vector<CUevent> events(std::size_t(repetitions) + 1);
  for (CUevent& e : events) d.check(d.cuEventCreate(&e, 0), "cuEventCreate", "timing");
  run();
  d.check(d.cuEventRecord(events[0], nullptr), "cuEventRecord", "timing");
  for (int i = 0; i < repetitions; ++i) {
    run();
    d.check(d.cuEventRecord(events[std::size_t(i) + 1], nullptr), "cuEventRecord", "timing");
  }
  synchronize("timing");
  std::vector<float> times;
  for (int i = 0; i < repetitions; ++i) {
    float ms = 0;
    d.check(d.cuEventElapsedTime(&ms, events[std::size_t(i)], events[std::size_t(i) + 1]), "cuEventElapsedTime",
            "timing");
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void in_parallel(int count, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    workers.emplace_back([&] {
      for (int i; (i = next++) < count;) work(i);
    });
  for (auto& w : workers) w.join();
}

}  // namespace tconv::cuda::check
