// One plan, one binding, many threads: the test the thread sanitizer runs.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <thread>

#include "support/cases.hpp"

namespace {

using namespace testing_support;

// Large enough for an engine to share them between threads.
const Case cases[] = {
    {.layer = {.in_channels = 32, .out_channels = 48, .kernel = {4}, .stride = {2}, .padding = {1}, .bias = true},
     .batch = 2,
     .input = {300}},
    {.layer = {.dims = 2,
               .in_channels = 32,
               .out_channels = 32,
               .kernel = {3, 3},
               .stride = {2, 2},
               .groups = 2,
               .layout = tconv::Layout::channels_last},
     .batch = 2,
     .input = {18, 19}},
    {.layer = {.dims = 2,
               .in_channels = 64,
               .out_channels = 64,
               .kernel = {3, 3},
               .stride = {2, 2},
               .groups = 64,
               .dtype = tconv::DType::f16},
     .batch = 2,
     .input = {39, 40}},
};

using Results = std::array<std::vector<std::byte>, 4>;

Results results_of(const Step& step) {
  using tconv::Pass;
  return {step.memory(Pass::forward), step.memory(Pass::grad_input), step.memory(Pass::grad_weight),
          step.memory(Pass::grad_bias)};
}

/// A case's operands, and what one thread alone makes of them, checked against the oracle. Everybody else must
/// get the same bits.
struct Expected {
  Step step;
  Results results;
};

const Expected& expected(std::size_t which) {
  static const std::vector<Expected> all = [] {
    std::vector<Expected> made;
    SerialExecutor serial;
    Random random(7);
    for (const Case& c : cases) {
      Step step(c, native_orders(c.layer), random);
      step.run(tconv::Plan(c.layer).bind(c.batch, c.input), &serial);
      EXPECT_EQ(step.mistakes(), "") << describe(c);
      made.push_back({step, results_of(step)});
    }
    return made;
  }();
  return all[which];
}

bool runs_right(const tconv::Binding& binding, std::size_t which, tconv::Executor* executor, int workers) {
  Step step = expected(which).step;
  step.run(binding, executor, workers);
  return results_of(step) == expected(which).results;
}

/// `threads` threads run all passes of the cases' shared bindings at once.
void run_together(int threads, tconv::Executor* executor) {
  std::vector<tconv::Binding> bindings;
  for (const Case& c : cases) bindings.push_back(tconv::Plan(c.layer).bind(c.batch, c.input));
  expected(0);
  std::atomic<int> wrong{0};
  std::barrier start(threads);
  std::vector<std::thread> runners;
  for (int t = 0; t < threads; ++t)
    runners.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int round = 0; round < 3; ++round) {
        const std::size_t which = std::size_t(t + round) % std::size(cases);
        if (!runs_right(bindings[which], which, executor, 1 + round % 3)) ++wrong;
      }
    });
  for (std::thread& runner : runners) runner.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Concurrency, OverTheDefaultPool) {
  run_together(6, nullptr);
}

TEST(Concurrency, OverOnePool) {
  const auto pool = tconv::make_thread_pool(3);
  run_together(6, pool.get());
}

TEST(Concurrency, EachInItsOwnThread) {
  SerialExecutor serial;
  run_together(6, &serial);
}

TEST(Concurrency, PlansMadeAtTheSameTime) {
  expected(0);
  std::vector<std::thread> makers;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    makers.emplace_back([&] {
      for (std::size_t which = 0; which < std::size(cases); ++which) {
        const tconv::Plan plan(cases[which].layer);
        if (!runs_right(plan.bind(cases[which].batch, cases[which].input), which, nullptr, 2)) ++wrong;
      }
    });
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Concurrency, RunsFromInsideTasks) {
  // A program that parallelises over layers on the very pool the layers run on.
  expected(0);
  const auto pool = tconv::make_thread_pool(3);
  struct Shared {
    tconv::Executor* pool;
    std::atomic<int> wrong{0};
  } shared{pool.get()};
  pool->parallel_for(12, {[](void* object, std::int64_t index) {
                            auto& s = *static_cast<Shared*>(object);
                            const std::size_t which = std::size_t(index) % std::size(cases);
                            const Case& c = cases[which];
                            const tconv::Binding binding = tconv::Plan(c.layer).bind(c.batch, c.input);
                            if (!runs_right(binding, which, s.pool, 2)) ++s.wrong;
                          },
                          &shared});
  EXPECT_EQ(shared.wrong.load(), 0);
}

}  // namespace
