// One plan, one binding, many threads: the test the thread sanitizer runs.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "support/cases.hpp"

namespace {

using namespace testing_support;

const Case cases[] = {
    {.layer = {.in_channels = 12, .out_channels = 20, .kernel = {4}, .stride = {2}, .padding = {1}, .bias = true},
     .batch = 2,
     .input = {90}},
    {.layer = {.dims = 2,
               .in_channels = 8,
               .out_channels = 6,
               .kernel = {3, 3},
               .stride = {2, 2},
               .groups = 2,
               .layout = tconv::Layout::channels_last},
     .batch = 2,
     .input = {7, 9}},
    {.layer = {.dims = 2,
               .in_channels = 16,
               .out_channels = 16,
               .kernel = {3, 3},
               .stride = {2, 2},
               .groups = 16,
               .dtype = tconv::DType::f16},
     .batch = 1,
     .input = {9, 9}},
};

/// `threads` threads run all passes of the cases' shared bindings at once; each checks its own results.
void run_together(int threads, tconv::Executor* executor) {
  std::vector<tconv::Binding> bindings;
  for (const Case& c : cases) bindings.push_back(tconv::Plan(c.layer).bind(c.batch, c.input));
  std::vector<std::string> mistakes(static_cast<std::size_t>(threads));
  std::barrier start(threads);
  std::vector<std::thread> runners;
  for (int t = 0; t < threads; ++t)
    runners.emplace_back([&, t] {
      Random random(std::uint64_t(t) + 1);
      start.arrive_and_wait();
      for (int round = 0; round < 6; ++round) {
        const std::size_t which = std::size_t(t + round) % std::size(cases);
        Step step(cases[which], native_orders(cases[which].layer), random);
        step.run(bindings[which], executor, 1 + round % 3);
        const std::string mistake = step.mistakes();
        if (!mistake.empty()) mistakes[std::size_t(t)] = mistake + " in " + describe(cases[which]);
      }
    });
  for (std::thread& runner : runners) runner.join();
  for (const std::string& mistake : mistakes) EXPECT_EQ(mistake, "");
}

TEST(Concurrency, OverTheDefaultPool) {
  run_together(8, nullptr);
}

TEST(Concurrency, OverOnePool) {
  const auto pool = tconv::make_thread_pool(3);
  run_together(8, pool.get());
}

TEST(Concurrency, EachInItsOwnThread) {
  SerialExecutor serial;
  run_together(8, &serial);
}

TEST(Concurrency, PlansMadeAtTheSameTime) {
  std::vector<std::thread> makers;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    makers.emplace_back([&, t] {
      Random random{std::uint64_t(t)};
      for (const Case& c : cases)
        if (!check_case(c, native_orders(c.layer), random).empty()) ++wrong;
    });
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Concurrency, RunsFromInsideTasks) {
  // A program that parallelises over layers on the very pool the layers run on.
  const auto pool = tconv::make_thread_pool(3);
  struct Shared {
    tconv::Executor* pool;
    std::atomic<int> wrong{0};
  } shared{pool.get()};
  pool->parallel_for(12, {[](void* object, std::int64_t index) {
                            auto& s = *static_cast<Shared*>(object);
                            Random random{std::uint64_t(index)};
                            const Case& c = cases[std::size_t(index) % std::size(cases)];
                            if (!check_case(c, native_orders(c.layer), random, s.pool, 2).empty()) ++s.wrong;
                          },
                          &shared});
  EXPECT_EQ(shared.wrong.load(), 0);
}

}  // namespace
