// A thread pool in which the caller of parallel_for could do everything alone, and the pool's threads help.
//
// A job lives in one of a few slots. Its caller opens the slot, claims indices like everybody else, and
// leaves when no index is unclaimed and no helper is inside. So nothing here ever waits for a thread that
// has not started: nested calls cannot deadlock, many callers can share the pool, and a child process, which
// has no threads after fork(), still finishes. For the same reason there is no mutex that a fork() could
// leave locked: slots and sleep go through atomics only.
#include "api/thread_pool.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "engine/environment.hpp"

namespace tconv {
namespace {

using std::int64_t;
using std::uint32_t;

constexpr int max_threads = 1024;

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Polls for about as long as falling asleep and being woken costs, which catches the gaps between the
/// layers of a model without burning a core that has nothing to do.
template <class Condition>
bool spin_until(const Condition& condition) {
  constexpr auto patience = std::chrono::microseconds(20);
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() - start < patience);
  return condition();
}

class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads) : owner_(getpid()) {
    helpers_.reserve(std::size_t(threads - 1));
    try {
      for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error&) {
      // The system gives no more threads: the pool is as large as it got.
    }
    concurrency_ = int(helpers_.size()) + 1;
  }

  ~ThreadPool() override {
    stopping_.store(true, std::memory_order_relaxed);
    announce(concurrency_);
    if (getpid() == owner_) {
      for (std::thread& helper : helpers_) helper.join();
    } else {
      // In a child process there is nothing to join, and a std::thread may not be destroyed unjoined.
      static_cast<void>(new std::vector<std::thread>(std::move(helpers_)));
    }
  }

  int concurrency() const noexcept override { return concurrency_; }

  void parallel_for(int64_t count, Task task) override {
    Slot* slot = count > 1 && concurrency_ > 1 ? open_slot(count, task) : nullptr;
    if (slot == nullptr) {
      for (int64_t index = 0; index < count; ++index) task(index);
      return;
    }
    announce(int(std::min<int64_t>(count - 1, concurrency_ - 1)));
    work_on(*slot);
    close(*slot);
  }

 private:
  // The state of a slot: `busy` while a caller owns it, `open` while helpers may enter, and the number of
  // helpers inside. Task and count change only while the slot is busy, not open, and nobody is inside.
  static constexpr uint32_t busy = 1u << 31, open = 1u << 30, inside_mask = open - 1;

  struct alignas(64) Slot {
    std::atomic<uint32_t> state{0};
    Task task{};
    int64_t count = 0;
    alignas(64) std::atomic<int64_t> next{0};
  };

  // Callers beyond this many at one time work alone: they already fill the machine.
  static constexpr int slot_count = 16;

  Slot* open_slot(int64_t count, Task task) {
    for (Slot& slot : slots_) {
      uint32_t free = 0;
      if (slot.state.load(std::memory_order_relaxed) != free ||
          !slot.state.compare_exchange_strong(free, busy, std::memory_order_acquire))
        continue;
      slot.task = task;
      slot.count = count;
      slot.next.store(0, std::memory_order_relaxed);
      slot.state.store(busy | open, std::memory_order_release);
      return &slot;
    }
    return nullptr;
  }

  /// Claims indices until none is left; then closes the door, so that nobody enters for nothing.
  static void work_on(Slot& slot) {
    for (;;) {
      const int64_t index = slot.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= slot.count) break;
      slot.task(index);
    }
    slot.state.fetch_and(~open, std::memory_order_relaxed);
  }

  /// Waits for the helpers inside and frees the slot.
  static void close(Slot& slot) {
    const auto empty = [&] { return slot.state.load(std::memory_order_acquire) == busy; };
    if (!spin_until(empty))
      for (uint32_t state; (state = slot.state.load(std::memory_order_acquire)) != busy;) slot.state.wait(state);
    slot.state.store(0, std::memory_order_release);
  }

  static bool enter(Slot& slot) {
    uint32_t state = slot.state.load(std::memory_order_relaxed);
    while (state & open)
      if (slot.state.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) return true;
    return false;
  }

  static void leave(Slot& slot) {
    const uint32_t before = slot.state.fetch_sub(1, std::memory_order_seq_cst);
    // After the last helper has left, the slot may belong to another job already; waking a caller for
    // nothing is harmless, and slots live as long as the pool.
    if ((before & inside_mask) == 1) slot.state.notify_all();
  }

  bool help_once() {
    bool helped = false;
    for (Slot& slot : slots_)
      if (enter(slot)) {
        work_on(slot);
        leave(slot);
        helped = true;
      }
    return helped;
  }

  void help() {
    for (;;) {
      // Read before looking: a job announced after the look changes it, and the wait returns at once.
      const uint32_t seen = announcements_.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_relaxed)) return;
      if (help_once()) continue;
      if (!spin_until([&] { return announcements_.load(std::memory_order_acquire) != seen; }))
        announcements_.wait(seen, std::memory_order_acquire);
    }
  }

  void announce(int helpers) {
    announcements_.fetch_add(1, std::memory_order_seq_cst);
    if (helpers >= concurrency_ - 1)
      announcements_.notify_all();
    else
      for (int i = 0; i < helpers; ++i) announcements_.notify_one();
  }

  std::array<Slot, slot_count> slots_;
  alignas(64) std::atomic<uint32_t> announcements_{0};
  std::atomic<bool> stopping_{false};
  const pid_t owner_;
  int concurrency_ = 1;
  std::vector<std::thread> helpers_;
};

/// CPUs in the affinity mask: containers and taskset narrow it, hardware_concurrency() may not see it.
int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 0;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  if (cpus <= 0) cpus = int(std::thread::hardware_concurrency());
  return cpus < 1 ? 1 : std::min(cpus, max_threads);
}

int threads_from_environment() {
  const char* text = setting("TCONV_NUM_THREADS");
  if (text == nullptr) return usable_cpus();
  char* end = nullptr;
  errno = 0;
  const long threads = std::strtol(text, &end, 10);
  if (errno != 0 || *end != '\0' || threads < 1 || threads > max_threads)
    throw InvalidArgument("TCONV_NUM_THREADS must be a number from 1 to " + std::to_string(max_threads) +
                          ", got '" + text + "'");
  return int(threads);
}

}  // namespace

Executor::~Executor() = default;

std::shared_ptr<Executor> make_thread_pool(int threads) {
  if (threads < 0 || threads > max_threads)
    throw InvalidArgument("threads must be from 0 (TCONV_NUM_THREADS, or one per CPU) to " +
                          std::to_string(max_threads) + ", got " + std::to_string(threads));
  return std::make_shared<ThreadPool>(threads == 0 ? threads_from_environment() : threads);
}

int default_pool_threads() {
  static const int threads = threads_from_environment();
  return threads;
}

Executor& default_pool() {
  // Never destroyed: runs may still be under way in other threads while the process exits.
  static ThreadPool* const pool = new ThreadPool(default_pool_threads());
  return *pool;
}

}  // namespace tconv
