// The two ceilings. The compute kernel is the heart of a matrix product (broadcast, load, multiply-add on a
// register tile) on operands in L1: what a well-blocked sgemm comes close to and nothing can pass.
#include "cli/ceilings.hpp"

#include "cpu/kernels/simd.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cli/ceilings.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tconv::cli::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Registers for rows × 2 accumulators, two columns of b and a broadcast: 27 of 32, or 15 of 16.
constexpr int tile_rows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 12 : 6;
constexpr int tile_depth = 128;

template <class T>
double multiply_tiles(long repetitions) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t lanes = hn::MaxLanes(hn::ScalableTag<T>());
  alignas(64) T a[tile_depth * tile_rows];
  alignas(64) T b[tile_depth * 2 * lanes];
  for (T& value : a) value = T(1e-3);
  for (T& value : b) value = T(1e-3);
  V sum = hn::Zero(d);
  for (long repetition = 0; repetition < repetitions; ++repetition) {
    V c[tile_rows][2];
#pragma GCC unroll 16
    for (int row = 0; row < tile_rows; ++row) c[row][0] = c[row][1] = hn::Zero(d);
    for (int k = 0; k < tile_depth; ++k) {
      const V b0 = hn::Load(d, b + std::size_t(k) * 2 * lanes);
      const V b1 = hn::Load(d, b + std::size_t(k) * 2 * lanes + lanes);
#pragma GCC unroll 16
      for (int row = 0; row < tile_rows; ++row) {
        const V broadcast = hn::Set(d, a[k * tile_rows + row]);
        c[row][0] = hn::MulAdd(broadcast, b0, c[row][0]);
        c[row][1] = hn::MulAdd(broadcast, b1, c[row][1]);
      }
    }
#pragma GCC unroll 16
    for (int row = 0; row < tile_rows; ++row) sum = hn::Add(sum, hn::Add(c[row][0], c[row][1]));
    a[0] = hn::GetLane(sum) * T(1e-9);  // keeps the compiler from doing all repetitions at once
  }
  return double(hn::GetLane(hn::SumOfLanes(d, sum)));
}

double multiply_f32(long repetitions) {
  return multiply_tiles<float>(repetitions);
}

double multiply_f64(long repetitions) {
#if HWY_HAVE_FLOAT64
  return multiply_tiles<double>(repetitions);
#else
  return multiply_tiles<float>(repetitions);
#endif
}

/// FLOPs of one repetition.
double flops_f32() {
  return 2.0 * tile_rows * tile_depth * 2 * double(hn::Lanes(hn::ScalableTag<float>()));
}

double flops_f64() {
#if HWY_HAVE_FLOAT64
  return 2.0 * tile_rows * tile_depth * 2 * double(hn::Lanes(hn::ScalableTag<double>()));
#else
  return flops_f32();
#endif
}

/// A copy past the caches, as the best copy is on machines whose stores first read what they overwrite.
void stream_copy(const std::uint8_t* from, std::uint8_t* to, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::Stream(hn::Load(d, from + i), d, to + i);
  for (; i < bytes; ++i) to[i] = from[i];
  hwy::FlushStream();
}

}  // namespace tconv::cli::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <chrono>
#include <cstring>

#include "cli/host_array.hpp"

namespace tconv::cli {
namespace {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(flops_f32);
HWY_EXPORT(flops_f64);
HWY_EXPORT(stream_copy);

using Clock = std::chrono::steady_clock;

template <class Work>
double seconds_of(const Work& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The shortest of the runs that fit into the time: a ceiling is what can be reached, not what is usual.
template <class Work>
double best_seconds(double budget, const Work& work) {
  const auto end = Clock::now() + std::chrono::duration<double>(budget);
  double best = seconds_of(work);
  do best = std::min(best, seconds_of(work));
  while (Clock::now() < end);
  return best;
}

double measure_flops(Executor& executor, bool f64, double budget) {
  volatile double sink = 0;
  const auto multiply = [&](long repetitions) {
    sink = f64 ? HWY_DYNAMIC_DISPATCH(multiply_f64)(repetitions) : HWY_DYNAMIC_DISPATCH(multiply_f32)(repetitions);
  };
  constexpr long repetitions = 4000;
  const std::int64_t tasks = executor.concurrency();
  const double seconds = best_seconds(budget, [&] {
    for_each_slice(executor, tasks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) multiply(repetitions);
    });
  });
  const double flops = f64 ? HWY_DYNAMIC_DISPATCH(flops_f64)() : HWY_DYNAMIC_DISPATCH(flops_f32)();
  return flops * repetitions * double(tasks) / seconds;
}

double measure_copy(Executor& executor, double budget) {
  // Larger than caches, small enough for anyone. Without time to measure, a glance has to do.
  const std::int64_t elements = std::int64_t(budget < 0.05 ? 8 : 256) << 20 >> 2;
  HostArray from(DType::f32, {elements}), to(DType::f32, {elements});
  const auto copy_with = [&](auto copy) {
    for_each_slice(executor, elements / 64, [&](std::int64_t begin, std::int64_t end) {
      copy(static_cast<std::uint8_t*>(from.view().data) + begin * 256,
           static_cast<std::uint8_t*>(to.view().data) + begin * 256, std::size_t(end - begin) * 256);
    });
  };
  std::memset(from.view().data, 1, from.bytes());  // memory that was never written to may not exist yet
  std::memset(to.view().data, 2, to.bytes());
  const double plain = best_seconds(budget / 2, [&] {
    copy_with([](const void* source, void* target, std::size_t n) { std::memcpy(target, source, n); });
  });
  const double streamed = best_seconds(budget / 2, [&] {
    copy_with([](const std::uint8_t* source, std::uint8_t* target, std::size_t n) {
      HWY_DYNAMIC_DISPATCH(stream_copy)(source, target, n);
    });
  });
  return 2.0 * double(from.bytes()) / std::min(plain, streamed);
}

}  // namespace

Ceilings measure_ceilings(Executor& executor, DType dtype, double seconds) {
  return {.copy_bytes_per_second = measure_copy(executor, seconds / 2),
          .flops_per_second = measure_flops(executor, dtype == DType::f64, seconds / 2)};
}

Floor floor_of(const Ceilings& ceilings, double flops, double bytes) {
  const double compute = flops / ceilings.flops_per_second;
  const double memory = bytes / ceilings.copy_bytes_per_second;
  return {.seconds = std::max(compute, memory), .memory_bound = memory >= compute};
}

}  // namespace tconv::cli
#endif
