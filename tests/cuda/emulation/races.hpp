// Accesses of shared memory that no barrier orders. The kernels are compiled with the compiler's instrumentation
// for ThreadSanitizer, whose functions are ours (emulated/races.cpp): every load and store is told, and the
// emulated instructions tell who waits for whom.
//
// Who accesses memory is an agent: a thread, or what works beside threads, the tensor core of a warp and the
// copies that complete on a barrier. Each agent has a clock, and knows of the others up to which time their
// accesses are before its own (vector clocks). Two accesses of the same bytes, one of them a store, of which
// neither is known to be before the other are a race, whatever order the emulation happens to run them in.
//
// Tensor cores and the copy engine see what threads have stored only if a fence for them stands between, so there
// is a second set of times: those up to which stores are fenced.
#pragma once

#include <cstdint>
#include <vector>

namespace emulation::races {

/// By agent: up to which time its accesses are known to be before, and its stores are fenced for tensor cores and
/// the copy engine.
struct Clock {
  std::vector<std::uint32_t> known, fenced;
};

/// What agents meet at.
struct Meeting {
  Clock gathering, complete;
};

/// A launch of blocks that run together begins: one, or those of a cluster, each with so much shared memory.
void begin(unsigned blocks, unsigned threads, unsigned shared_bytes);
/// Blocks lie at the same place when they run; `other` is where some kernels have it instead.
void memory_is_at(const void* memory, const void* other, unsigned bytes);
/// Whose accesses follow. `nobody` is the emulation itself.
constexpr unsigned nobody = ~0u;
void run(unsigned block, unsigned thread);
/// Calls what accesses memory and is told otherwise. It does not wait.
unsigned stop();
void go_on(unsigned stopped);
template <class Body>
void unrecorded(const Body& body) {
  const unsigned stopped = stop();
  body();
  go_on(stopped);
}

/// What the current thread has done is before what those do who come away from the meeting.
void arrive(Meeting& meeting);
/// All have arrived.
void complete(Meeting& meeting);
void leave(const Meeting& meeting);
/// A barrier of memory is named by its address: the current thread uses it, or has initialised it.
void initialised(unsigned block, unsigned barrier);
void uses_barrier(unsigned block, unsigned barrier);

/// fence.proxy.async.
void fence();

/// The current thread stores to another block of its cluster.
void stores_to_block(unsigned block, unsigned address, unsigned bytes);

/// The copy engine stores, and completes on a barrier, which `meeting` stands for.
void copies(unsigned address, unsigned bytes, unsigned barrier, Meeting& meeting);

/// cp.async: the current thread begins a copy, closes a group, waits for all but the newest groups, or has a
/// barrier wait for its copies.
void begins_copy(unsigned address, unsigned bytes);
void commits_copies();
void waits_for_copies(unsigned pending);
void leaves_copies(Meeting& meeting);

/// wgmma: the tensor core of the current thread's warp reads these ranges of shared memory, which begins at
/// `memory`, and `body` multiplies. All lanes call this, one of them is recorded.
///
/// Products may read more than they need: rows and positions of which nothing is stored. So a race of theirs is a
/// doubt, and the layer is run once more: what was in doubt reads as NaN then, and outputs say whether it
/// mattered.
struct Range {
  unsigned address, bytes;
};
void begin_product(unsigned char* memory, const Range* ranges, unsigned count);
void end_product();
template <class Body>
void product(unsigned char* memory, const Range* ranges, unsigned count, const Body& body) {
  begin_product(memory, ranges, count);
  unrecorded(body);
  end_product();
}
void commits_products();
void waits_for_products(unsigned pending);

}  // namespace emulation::races
