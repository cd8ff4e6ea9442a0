// Sharing a run's work items between the threads of an executor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tconv/tconv.hpp"

namespace tconv::cpu {

/// Hands out pieces of one block of memory, each aligned to a cache line. Measuring and cutting are the same
/// calls: an arena without memory only counts.
class Arena {
 public:
  explicit Arena(void* memory = nullptr) : next_(reinterpret_cast<std::uintptr_t>(memory)), begin_(next_) {}

  template <class T>
  T* take(std::int64_t count) {
    next_ = (next_ + alignment - 1) / alignment * alignment;
    T* piece = reinterpret_cast<T*>(next_);
    next_ += std::uintptr_t(count) * sizeof(T);
    return piece;
  }

  /// Bytes taken so far, with room to align a block of any address.
  std::size_t bytes() const { return next_ - begin_ + alignment; }

 private:
  static constexpr std::uintptr_t alignment = 64;
  std::uintptr_t next_;
  std::uintptr_t begin_;
};

/// Calls body(worker, item) for every item in [0, items), each once. `worker` < workers names a slot no other
/// thread uses at the same time. Which worker gets which item is left to chance; results must not depend on it.
template <class Body>
void share(Executor* executor, int workers, std::int64_t items, const Body& body) {
  if (items < workers) workers = int(items);
  if (workers <= 1 || executor == nullptr) {
    for (std::int64_t item = 0; item < items; ++item) body(0, item);
    return;
  }
  struct Shared {
    const Body& body;
    std::int64_t items;
    std::atomic<std::int64_t> next{0};
  } shared{body, items};
  executor->parallel_for(workers, Task{.call =
                                           [](void* object, std::int64_t worker) {
                                             Shared& s = *static_cast<Shared*>(object);
                                             for (std::int64_t item; (item = s.next.fetch_add(1)) < s.items;)
                                               s.body(int(worker), item);
                                           },
                                       .object = &shared});
}

}  // namespace tconv::cpu
