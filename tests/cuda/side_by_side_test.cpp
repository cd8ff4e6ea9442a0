// Kernels are loaded side by side, and all the same where the system gives no threads. No NVRTC, no GPU.
#include "cuda/runtime/side_by_side.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

/// How often work(i) was called, where `threads` can be begun and no more.
std::vector<int> calls(std::size_t count, int threads) {
  std::vector<std::atomic<int>> times(count);
  side_by_side(
      count, [&](std::size_t i) { ++times[i]; },
      [&](const Work& work) {
        if (threads-- <= 0)
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        return in_a_thread(work);
      });
  return {times.begin(), times.end()};
}

TEST(SideBySide, WithWhateverThreadsThereAreEachIsDoneOnce) {
  for (const std::size_t count : {0, 1, 2, 7})
    for (const int threads : {0, 1, 3, 7}) EXPECT_EQ(calls(count, threads), std::vector<int>(count, 1)) << threads;
}

TEST(SideBySide, ThreadsAreOthers) {
  std::atomic<int> here{0};
  side_by_side(
      3, [&, caller = std::this_thread::get_id()](std::size_t) { here += std::this_thread::get_id() == caller; });
  EXPECT_EQ(here, 0);
}

TEST(SideBySide, WhatFailsToLoadFailsForEverybodyAndIsTriedAgain) {
  if (find_driver()) GTEST_SKIP() << "there is a GPU here";
  const DeviceProperties device = absent_device("sm_90a");  // without a record: kernels are to be loaded
  const std::vector<KernelRequest> requests{
      {"a source", "forward", 0}, {"another", "forward", 0}, {"a source", "forward", 0}};
  for (int time = 0; time < 2; ++time) {
    EXPECT_THROW(get_kernels(requests, device), Unsupported);
    EXPECT_THROW(get_kernel(requests[1], device), Unsupported);
  }
}

}  // namespace
}  // namespace tconv::cuda
