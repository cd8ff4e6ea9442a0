// A GPU block on the CPU, for tests: compiled in front of a generated kernel, by the machine's own compiler.
//
// Every CUDA thread is a fiber. A fiber runs until it waits for others, at a barrier or a collective
// instruction, and is resumed when they have come. A block whose fibers all wait for each other is a deadlock,
// and said to be one. Blocks run one after the other, those of a cluster in turns; copies and products complete at
// once. What this finds is wrong indices, wrong layouts, misaligned copies, missing or doubled outputs, barriers
// that do not match, and accesses of shared memory that no barrier orders (races.hpp).
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "races.hpp"

#define __device__
#define __global__
#define __constant__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes)
#define __shared__

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline double2 make_double2(double x, double y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline unsigned __float_as_uint(float v) {
  unsigned bits;
  std::memcpy(&bits, &v, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = a | std::uint64_t(b) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= unsigned(bytes >> ((selector >> (4 * i) & 7) * 8) & 0xff) << (8 * i);
  return result;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((low | std::uint64_t(high) << 32) >> (shift & 31));
}
inline int min(int a, int b) {
  return a < b ? a : b;
}
inline int max(int a, int b) {
  return a > b ? a : b;
}

namespace emulation {

struct Index {
  unsigned x = 0;
};

inline unsigned shared_bytes = 0;  // that the kernel was launched with
/// The bytes that a block finds in shared memory: no number in any type.
constexpr unsigned char spoiled = 0xff;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "emulation: %s\n", what);
  std::_Exit(3);
}
inline void require(bool condition, const char* what) {
  if (!condition) fail(what);
}

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  Index thread;
  bool done = false;
};

struct NamedBarrier {
  int arrived = 0;
  unsigned generation = 0;
  races::Meeting meeting;
};

/// An mbarrier: completes a phase when all have arrived and all bytes have come.
struct PhaseBarrier {
  int expected = 0, pending = 0;
  long long bytes = 0;
  unsigned phase = 0;
  races::Meeting meeting;
};

struct Block {
  std::vector<Fiber> fibers;
  Fiber* current = nullptr;
  ucontext_t scheduler{};
  Index block, grid, size;
  std::map<int, NamedBarrier> named;
  std::map<unsigned, NamedBarrier> warps;
  std::map<unsigned, PhaseBarrier> phases;
  std::map<unsigned, std::vector<unsigned>> exchanged;  // by warp: what its lanes show each other
  std::function<void()> kernel;
  unsigned long long progress = 0;
};
inline Block state;

inline void yield() {
  Fiber* const self = state.current;
  swapcontext(&self->context, &state.scheduler);
}
template <class Condition>
void wait_until(const Condition& condition) {
  while (!condition()) yield();
}

/// Waits until so many threads have arrived. `complete` is called by the last of them.
template <class Complete>
void arrive_and_wait(NamedBarrier& barrier, int threads, const Complete& complete) {
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == threads) {
    complete();
    barrier.arrived = 0, ++barrier.generation, ++state.progress;
  } else {
    wait_until([&] { return barrier.generation != generation; });
  }
}
/// A barrier that orders accesses of memory.
inline void synchronize(NamedBarrier& barrier, int threads) {
  races::arrive(barrier.meeting);
  arrive_and_wait(barrier, threads, [&] { races::complete(barrier.meeting); });
  races::leave(barrier.meeting);
}
inline unsigned warp() {
  return state.current->thread.x / 32;
}
inline unsigned lane() {
  return state.current->thread.x % 32;
}
/// All lanes come here. That alone orders no accesses of memory.
inline void meet_warp() {
  arrive_and_wait(state.warps[warp()], 32, [] {});
}

/// Every lane shows `Words` words; `read` sees those of all lanes.
template <int Words, class Read>
void exchange(const unsigned (&words)[Words], const Read& read) {
  std::vector<unsigned>& all = state.exchanged[warp()];
  if (all.size() < 32u * Words) all.resize(32u * Words);
  for (int i = 0; i < Words; ++i) all[lane() * Words + unsigned(i)] = words[i];
  meet_warp();
  read(all);
  meet_warp();
}

inline void complete_if_due(PhaseBarrier& b) {
  require(b.pending >= 0, "more arrivals at a barrier than it expects");
  if (b.pending != 0 || b.bytes != 0) return;
  races::complete(b.meeting);
  b.pending = b.expected, b.phase ^= 1, ++state.progress;
}

inline void enter() {
  state.kernel();
  state.current->done = true, ++state.progress;
  yield();
}

inline void start_block(unsigned index, unsigned grid, unsigned threads, const std::function<void()>& kernel) {
  state = Block{};
  state.block.x = index, state.grid.x = grid, state.size.x = threads, state.kernel = kernel;
  state.fibers = std::vector<Fiber>(threads);
  constexpr std::size_t stack_bytes = 96 * 1024;
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& f = state.fibers[i];
    f.thread.x = i, f.stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get(), f.context.uc_stack.ss_size = stack_bytes,
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
  }
}

/// Resumes the fibers of a block, of a number in its cluster, until all are done, which it returns, or all wait.
inline bool run_fibers(unsigned block) {
  for (;;) {
    const unsigned long long before = state.progress;
    bool alive = false;
    for (Fiber& f : state.fibers) {
      if (f.done) continue;
      alive = true, state.current = &f;
      races::run(block, f.thread.x);
      swapcontext(&state.scheduler, &f.context);
      races::run(block, races::nobody);
    }
    if (!alive) return true;
    if (state.progress == before) return false;
  }
}

/// Blocks of a cluster take turns: each runs until its threads wait. Those that do not run keep their shared
/// memory here.
struct Cluster {
  std::vector<Block> blocks;
  std::vector<std::vector<unsigned char>> memories;
  unsigned running = 0;
  NamedBarrier barrier;
};
inline Cluster cluster;

inline void run_cluster(unsigned first, unsigned blocks, unsigned grid, unsigned threads, unsigned char* memory,
                        const std::function<void()>& kernel) {
  races::begin(blocks, threads, shared_bytes);
  cluster = Cluster{};
  cluster.blocks = std::vector<Block>(blocks);
  cluster.memories.assign(blocks, std::vector<unsigned char>(shared_bytes, spoiled));
  for (unsigned i = 0; i < blocks; ++i) {
    start_block(first + i, grid, threads, kernel);
    std::swap(state, cluster.blocks[i]);
  }
  for (;;) {
    bool alive = false, went_on = false;
    for (unsigned i = 0; i < blocks; ++i) {
      cluster.running = i;
      std::swap(state, cluster.blocks[i]);
      std::memcpy(memory, cluster.memories[i].data(), shared_bytes);
      const unsigned long long before = state.progress;
      alive = !run_fibers(i) || alive;
      went_on = state.progress != before || went_on;
      std::memcpy(cluster.memories[i].data(), memory, shared_bytes);
      std::swap(state, cluster.blocks[i]);
    }
    if (!alive) return;
    require(went_on, "deadlock: every thread of a cluster waits");
  }
}

inline void run_block(unsigned index, unsigned grid, unsigned threads, const std::function<void()>& kernel) {
  races::begin(1, threads, shared_bytes);
  start_block(index, grid, threads, kernel);
  require(run_fibers(0), "deadlock: every thread of a block waits");
}

}  // namespace emulation

#define threadIdx (emulation::state.current->thread)
#define blockIdx (emulation::state.block)
#define gridDim (emulation::state.grid)
#define blockDim (emulation::state.size)

inline void __syncthreads() {
  emulation::synchronize(emulation::state.named[0], int(blockDim.x));
}
inline void __syncwarp() {
  emulation::synchronize(emulation::state.warps[emulation::warp()], 32);
}
inline unsigned __shfl_sync(unsigned, unsigned value, int from) {
  unsigned result = 0;
  emulation::exchange<1>({value}, [&](const std::vector<unsigned>& all) { result = all[std::size_t(from)]; });
  return result;
}

inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* at, unsigned value) {
  const unsigned before = *at;
  *at += value;
  return before;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  unsigned result = 0;
  emulation::exchange<1>({value}, [&](const std::vector<unsigned>& all) {
    for (unsigned i = 0; i < 32; ++i) result = all[i] > result ? all[i] : result;
  });
  return result;
}

inline bool __all_sync(unsigned, bool value) {
  bool result = true;
  emulation::exchange<1>({unsigned(value)}, [&](const std::vector<unsigned>& all) {
    for (const unsigned one : all) result = result && one;
  });
  return result;
}

namespace tconv::device {

// Shared memory, as the kernels declare it.
alignas(1024) unsigned char memory[232448];
alignas(1024) unsigned shared[58112];

inline void spoil_shared_memory() {
  std::memset(memory, emulation::spoiled, emulation::shared_bytes);
  std::memset(shared, emulation::spoiled, emulation::shared_bytes);
}

}  // namespace tconv::device
