// The thread pool: every index once, shared by many callers, nested, after fork(), and asleep when idle.
#include "api/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

#include "support/expect_refusal.hpp"

namespace {

using std::int64_t;
using testing_support::refuses;

/// Calls `body(index)` for every index on the executor.
template <class Body>
void parallel(tconv::Executor& executor, int64_t count, Body& body) {
  executor.parallel_for(count, {[](void* object, int64_t index) { (*static_cast<Body*>(object))(index); }, &body});
}

/// Whether a parallel_for of `count` calls each index exactly once. Allocates nothing: the sanitizers' allocators
/// do not survive a fork() in the middle of another thread's call.
bool counts_right(tconv::Executor& executor, int64_t count) {
  std::array<std::atomic<int>, 1000> calls{};
  auto body = [&](int64_t index) { calls.at(std::size_t(index)).fetch_add(1); };
  parallel(executor, count, body);
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].load() != (int64_t(i) < count ? 1 : 0)) return false;
  return true;
}

TEST(ThreadPool, CallsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 5, 16}) {
    const auto pool = tconv::make_thread_pool(threads);
    EXPECT_EQ(pool->concurrency(), threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000})
      for (int round = 0; round < 20; ++round)
        ASSERT_TRUE(counts_right(*pool, count)) << threads << " threads, " << count << " indices";
  }
}

TEST(ThreadPool, ResultsAreVisibleToTheCaller) {
  // Plain memory: a missing happens-before would be a report of the thread sanitizer.
  const auto pool = tconv::make_thread_pool(4);
  std::vector<int64_t> values(100);
  for (int round = 1; round <= 500; ++round) {
    auto body = [&](int64_t index) { values[std::size_t(index)] += index; };
    parallel(*pool, 100, body);
  }
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(values[std::size_t(i)], 500 * i);
}

TEST(ThreadPool, UsesItsThreads) {
  // Two tasks that can only finish while both run: deadlock here means nobody helped.
  const auto pool = tconv::make_thread_pool(2);
  std::atomic<int> arrived{0};
  auto body = [&](int64_t) {
    arrived.fetch_add(1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (arrived.load() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // helpers are asleep and must be woken
  parallel(*pool, 2, body);
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ThreadPool, ServesManyCallers) {
  const auto pool = tconv::make_thread_pool(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 24; ++caller)  // more than it can hold at a time
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round)
        if (!counts_right(*pool, 1 + round % 9)) ++wrong;
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadPool, NestedCallsFinish) {
  const auto pool = tconv::make_thread_pool(3);
  std::atomic<int64_t> leaves{0};
  std::function<void(int)> descend = [&](int depth) {
    auto body = [&](int64_t) {
      if (depth == 0)
        leaves.fetch_add(1);
      else
        descend(depth - 1);
    };
    parallel(*pool, 4, body);
  };
  descend(4);
  EXPECT_EQ(leaves.load(), 4 * 4 * 4 * 4 * 4);
}

TEST(ThreadPool, WorksInAChildProcess) {
  const auto pool = tconv::make_thread_pool(4);
  ASSERT_TRUE(counts_right(*pool, 100));
  std::atomic<bool> stop{false};
  std::thread busy([&] {  // a caller in the middle of a job at the moment of fork()
    while (!stop.load()) counts_right(*pool, 50);
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(30);
      for (int i = 0; i < 20; ++i)
        if (!counts_right(*pool, 64)) _exit(1);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop.store(true);
  busy.join();
  EXPECT_TRUE(counts_right(*pool, 100));
}

TEST(ThreadPool, CanBeDestroyedInAChildProcess) {
  auto pool = tconv::make_thread_pool(3);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    pool.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(ThreadPool, SleepsWhenIdle) {
  const auto pool = tconv::make_thread_pool(4);
  ASSERT_TRUE(counts_right(*pool, 100));
  const auto cpu_time = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_time() - before, 0.1);
}

TEST(ThreadPool, StartsAndStops) {
  for (int round = 0; round < 100; ++round) {
    const auto pool = tconv::make_thread_pool(1 + round % 5);
    if (round % 3 == 0) {
      EXPECT_TRUE(counts_right(*pool, 10));
    }
  }
}

TEST(ThreadPool, Refusals) {
  EXPECT_TRUE(refuses([] { tconv::make_thread_pool(-1); }, {"threads", "got -1"}));
  EXPECT_TRUE(refuses([] { tconv::make_thread_pool(1'000'000); }, {"threads", "1024", "got 1000000"}));
  EXPECT_GE(tconv::make_thread_pool(0)->concurrency(), 1);
}

/// Runs `body` in a child process with TCONV_NUM_THREADS set, before anything has read it there.
template <class Body>
int status_with_threads(const char* value, const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    setenv("TCONV_NUM_THREADS", value, 1);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Nothing in this binary touches the default pool outside of child processes.
TEST(DefaultPool, TakesItsSizeFromTheEnvironment) {
  const auto threads = [] { return tconv::default_pool_threads(); };
  EXPECT_EQ(status_with_threads("3", threads), 3);
  EXPECT_GE(status_with_threads("", threads), 1);
  for (const char* nonsense : {"0", "-2", "many", "3x", "99999999999999999999"})
    EXPECT_EQ(
        status_with_threads(
            nonsense,
            [&] {
              return refuses([] { tconv::default_pool_threads(); }, {"TCONV_NUM_THREADS", nonsense}) ? 77 : 1;
            }),
        77)
        << nonsense;
}

}  // namespace
