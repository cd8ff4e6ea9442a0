#include "emulation/races.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "emulated/races.hpp"

namespace emulation::races {
namespace {

using std::uint32_t;
using Agent = unsigned;

// Shared memory is told apart by pairs of bytes: no element is smaller.
constexpr unsigned unit = 2;

enum class Proxy : unsigned char { generic, async };

struct Access {
  Agent agent = 0;
  uint32_t time = 0;  // 0: none yet
  const void* place = nullptr;
};

struct Cell {
  Access store;
  Proxy proxy = Proxy::generic;  // of the store
  std::vector<Access> loads;     // since it, none of them before another
};

/// Copies or products of one agent beside a thread: how many began, and how many had when groups were closed.
struct Groups {
  uint32_t begun = 0;
  std::vector<uint32_t> closed;
  /// How many are complete when all but the newest `pending` groups are.
  uint32_t complete(unsigned pending) const {
    return closed.size() > pending ? closed[closed.size() - 1 - pending] : 0;
  }
};

struct Thread {
  Clock clock;
  Groups copies, products;
};

uint32_t time_of(const std::vector<uint32_t>& times, Agent agent) {
  return agent < times.size() ? times[agent] : 0;
}
void raise(std::vector<uint32_t>& times, Agent agent, uint32_t time) {
  if (times.size() <= agent) times.resize(agent + 1);
  times[agent] = std::max(times[agent], time);
}
void join(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  uint32_t* const a = to.data();
  const uint32_t* const b = from.data();
  for (std::size_t i = 0; i < from.size(); ++i) a[i] = std::max(a[i], b[i]);
}
void join(Clock& to, const Clock& from) {
  join(to.known, from.known), join(to.fenced, from.fenced);
}

/// What accesses memory beside threads: the first letter of these is its kind.
constexpr char tensor_core[] = "products of warp ", bulk_copies[] = "copies to the barrier at byte ",
               thread_copies[] = "asynchronous copies of thread ";

/// The products of a tensor core in a launch.
struct Product {
  unsigned launch;
  Agent agent;
  auto operator<=>(const Product&) const = default;
};
/// What those of some times read in doubt.
struct Doubt {
  uint32_t first, last;
  unsigned unit;
  auto operator<=>(const Doubt&) const = default;
};
/// Memory, and what was there before.
struct Unit {
  unsigned char* at;
  unsigned char was[unit];
};

struct Detector {
  const unsigned char* memories[2] = {};
  unsigned memory_bytes = 0;
  unsigned threads_of_block = 0, block = 0;
  Agent current = nobody;
  std::vector<Thread> threads;
  std::vector<std::vector<Cell>> cells;                      // of each block
  std::map<std::pair<unsigned, unsigned>, Access> barriers;  // by block and address: who initialised them
  std::map<std::array<unsigned, 3>, Agent> agents;           // beside threads: kind, block, number
  std::vector<std::string> names;
  std::map<Agent, uint32_t> begun;  // copies of a barrier
  std::set<std::tuple<const void*, const void*>> reported;
  Found found;
  unsigned launch = 0;  // of the layer
  std::map<Product, std::vector<Doubt>> doubts;
  Doubts poison = Doubts::forgotten;
  std::vector<Unit> poisoned;  // by the product that is formed

  Thread& thread() { return threads[current]; }

  Agent beside(const char* kind, unsigned number) {
    const auto [at, is_new] =
        agents.try_emplace({unsigned(kind[0]), block, number}, Agent(threads.size() + names.size()));
    if (is_new) names.push_back(kind + std::to_string(number) + of_block(block));
    return at->second;
  }
  std::string of_block(unsigned of) const { return cells.size() > 1 ? " of block " + std::to_string(of) : ""; }
  std::string name(Agent agent) const {
    if (agent >= threads.size()) return names[agent - threads.size()];
    return "thread " + std::to_string(agent % threads_of_block) + of_block(agent / threads_of_block);
  }

  bool is_product(const Access& access) const {
    return access.agent >= threads.size() && names[access.agent - threads.size()][0] == tensor_core[0];
  }

  void report(const char* what, unsigned at, const Access& before, const Access& now) {
    if (poison == Doubts::poisoned || !reported.insert({before.place, now.place}).second) return;
    const bool product = is_product(before) || is_product(now);
    (product ? found.doubts : found.races)
        .push_back(std::string(what) + " at byte " + std::to_string(at * unit) + " of shared memory:\n  " +
                   name(before.agent) + source_line(before.place) + "\n  " + name(now.agent) +
                   source_line(now.place));
  }
  /// Faults on a GPU, and x86 lets it pass.
  void misaligned(const void* at, unsigned alignment, const void* place) {
    if (reported.insert({place, nullptr}).second)
      found.races.push_back("an access at " + std::to_string(reinterpret_cast<std::uintptr_t>(at) % alignment) +
                            " bytes behind a multiple of " + std::to_string(alignment) + source_line(place));
  }
  /// Of the products that `load` is the last one of, those after time `known` read in doubt.
  void doubt(const Access& load, uint32_t known, unsigned at) {
    if (poison == Doubts::poisoned || !is_product(load)) return;
    std::vector<Doubt>& of_agent = doubts[{launch, load.agent}];
    const Doubt found_now{known + 1, load.time, at};
    if (of_agent.empty() || of_agent.back() != found_now) of_agent.push_back(found_now);
  }

  /// The kernel's line, by the tool that comes with the compiler.
  static std::string source_line(const void* place) {
    Dl_info library;
    if (!dladdr(place, &library) || !library.dli_fname) return "";
    const auto offset = static_cast<const char*>(place) - static_cast<const char*>(library.dli_fbase) - 1;
    char command[1200];
    std::snprintf(command, sizeof command, "addr2line -Cfis -e '%s' 0x%lx 2>/dev/null", library.dli_fname,
                  static_cast<unsigned long>(offset));
    std::string lines, text;
    if (FILE* const pipe = popen(command, "r")) {
      char part[512];
      while (std::fgets(part, sizeof part, pipe)) lines += part;
      pclose(pipe);
    }
    // A function's name, then its file and line, from the innermost of those that are inlined outwards.
    for (std::size_t at = 0; at < lines.size();) {
      const auto middle = lines.find('\n', at), end = lines.find('\n', middle + 1);
      if (middle == std::string::npos || end == std::string::npos) break;
      const std::string line = lines.substr(middle + 1, end - middle - 1);
      if (line.find(".cuh") != std::string::npos) text += (text.empty() ? ", " : " < ") + line;
      at = end + 1;
    }
    return text.empty() ? ", " + std::string(library.dli_fname) : text;
  }

  /// What is wrong with an access after a store.
  const char* after_store(const Cell& cell, Proxy proxy, const Clock& clock, bool stores) const {
    if (cell.store.time == 0) return nullptr;
    if (time_of(clock.known, cell.store.agent) < cell.store.time)
      return stores ? "two stores" : "a store and a load";
    const bool fenced = proxy == Proxy::generic || cell.proxy == Proxy::async ||
                        time_of(clock.fenced, cell.store.agent) >= cell.store.time;
    return fenced   ? nullptr
           : stores ? "a store without a fence and an asynchronous store"
                    : "a store without a fence and an asynchronous load";
  }

  /// A load of a proxy, of one whose clock this is.
  void load(unsigned of, unsigned byte, unsigned bytes, Proxy proxy, const Clock& clock, const Access& access) {
    for (unsigned i = byte / unit; i <= (byte + bytes - 1) / unit; ++i) {
      Cell& cell = cells[of][i];
      if (const char* const wrong = after_store(cell, proxy, clock, false)) {
        report(wrong, i, cell.store, access);
        doubt(access, access.time - 1, i);
      }
      if (!cell.loads.empty() && cell.loads.back().agent == access.agent) {
        cell.loads.back() = access;
        continue;
      }
      // Who stores next and knows of a thread's load knows of those before it.
      std::erase_if(cell.loads, [&](const Access& a) {
        return a.agent == access.agent || (proxy == Proxy::generic && time_of(clock.known, a.agent) >= a.time);
      });
      cell.loads.push_back(access);
    }
  }

  void store(unsigned of, unsigned byte, unsigned bytes, Proxy proxy, const Clock& clock, const Access& access) {
    for (unsigned i = byte / unit; i <= (byte + bytes - 1) / unit; ++i) {
      Cell& cell = cells[of][i];
      if (const char* const wrong = after_store(cell, proxy, clock, true)) report(wrong, i, cell.store, access);
      for (const Access& load : cell.loads)
        if (const uint32_t known = time_of(clock.known, load.agent); known < load.time) {
          report("a load and a store", i, load, access);
          doubt(load, known, i);
        }
      cell.loads.clear();
      cell.store = access, cell.proxy = proxy;
    }
  }

  Access own(const void* place) { return {current, thread().clock.known[current], place}; }

  /// What follows is later than what others know of by now.
  void tick() { ++thread().clock.known[current]; }

  void plain(const void* at, unsigned bytes, bool stores, const void* place) {
    if (current == nobody || poison == Doubts::poisoned) return;
    for (const unsigned char* const memory : memories) {
      const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(at) - memory);
      if (offset >= memory_bytes) continue;
      if (offset + bytes > cells[block].size() * unit) return;  // elsewhere said to be outside
      if (stores)
        store(block, unsigned(offset), bytes, Proxy::generic, thread().clock, own(place));
      else
        load(block, unsigned(offset), bytes, Proxy::generic, thread().clock, own(place));
    }
  }
};

Detector detector;

}  // namespace

void begin_layer(Doubts doubts) {
  detector.poison = doubts, detector.launch = 0;
  detector.reported.clear();
  detector.found = {};
  if (doubts == Doubts::forgotten) return detector.doubts.clear();
  for (auto& [product, of_agent] : detector.doubts) {
    std::sort(of_agent.begin(), of_agent.end());
    of_agent.erase(std::unique(of_agent.begin(), of_agent.end()), of_agent.end());
  }
}

Found found() {
  return detector.found;
}

void begin(unsigned blocks, unsigned threads, unsigned shared_bytes) {
  Detector& d = detector;
  d.threads_of_block = threads, d.block = 0, d.current = nobody;
  d.threads.assign(std::size_t(blocks) * threads, {});
  for (Agent t = 0; t < d.threads.size(); ++t) raise(d.threads[t].clock.known, t, 1);
  d.cells.assign(blocks, std::vector<Cell>((shared_bytes + unit - 1) / unit));
  d.barriers.clear(), d.agents.clear(), d.names.clear(), d.begun.clear();
  ++d.launch;
}

void memory_is_at(const void* memory, const void* other, unsigned bytes) {
  detector.memories[0] = static_cast<const unsigned char*>(memory);
  detector.memories[1] = static_cast<const unsigned char*>(other);
  detector.memory_bytes = bytes;
}

void run(unsigned block, unsigned thread) {
  detector.block = thread == nobody ? detector.block : block;
  detector.current = thread == nobody ? nobody : block * detector.threads_of_block + thread;
}

unsigned stop() {
  return std::exchange(detector.current, nobody);
}
void go_on(unsigned stopped) {
  detector.current = stopped;
}

void arrive(Meeting& meeting) {
  join(meeting.gathering, detector.thread().clock);
  detector.tick();
}
void complete(Meeting& meeting) {
  join(meeting.complete, meeting.gathering);
  meeting.gathering = {};
}
void leave(const Meeting& meeting) {
  join(detector.thread().clock, meeting.complete);
}

void initialised(unsigned block, unsigned barrier) {
  detector.barriers[{block, barrier}] = detector.own(__builtin_return_address(0));
}
void uses_barrier(unsigned block, unsigned barrier) {
  const auto at = detector.barriers.find({block, barrier});
  if (at != detector.barriers.end() && time_of(detector.thread().clock.known, at->second.agent) < at->second.time)
    detector.report("a barrier's initialisation and its use", barrier / unit, at->second,
                    detector.own(__builtin_return_address(0)));
}

void fence() {
  Clock& clock = detector.thread().clock;
  join(clock.fenced, clock.known);
  detector.tick();
}

void stores_to_block(unsigned block, unsigned address, unsigned bytes) {
  detector.store(block, address, bytes, Proxy::generic, detector.thread().clock,
                 detector.own(__builtin_return_address(0)));
}

void copies(unsigned address, unsigned bytes, unsigned barrier, Meeting& meeting) {
  const Agent agent = detector.beside(bulk_copies, barrier);
  const uint32_t time = ++detector.begun[agent];
  detector.store(detector.block, address, bytes, Proxy::async, detector.thread().clock,
                 {agent, time, __builtin_return_address(0)});
  raise(meeting.gathering.known, agent, time), raise(meeting.gathering.fenced, agent, time);
}

void begins_copy(unsigned address, unsigned bytes) {
  const Agent agent = detector.beside(thread_copies, detector.current);
  detector.store(detector.block, address, bytes, Proxy::generic, detector.thread().clock,
                 {agent, ++detector.thread().copies.begun, __builtin_return_address(0)});
}
void commits_copies() {
  detector.thread().copies.closed.push_back(detector.thread().copies.begun);
}
void waits_for_copies(unsigned pending) {
  raise(detector.thread().clock.known, detector.beside(thread_copies, detector.current),
        detector.thread().copies.complete(pending));
}
void leaves_copies(Meeting& meeting) {
  raise(meeting.gathering.known, detector.beside(thread_copies, detector.current), detector.thread().copies.begun);
}

namespace {
Agent own_tensor_core() {
  return detector.beside(tensor_core, detector.current % detector.threads_of_block / 32);
}
}  // namespace

void begin_product(unsigned char* memory, const Range* ranges, unsigned count) {
  Groups& products = detector.thread().products;
  const uint32_t time = ++products.begun;
  const Agent agent = own_tensor_core();
  if (detector.poison == Doubts::poisoned) {
    const auto of_agent = detector.doubts.find({detector.launch, agent});
    if (of_agent == detector.doubts.end()) return;
    for (const Doubt& d : of_agent->second) {
      if (d.first > time) break;
      if (d.last < time) continue;
      const bool reads = std::any_of(ranges, ranges + count, [&](const Range& r) {
        return d.unit * unit >= r.address && d.unit * unit < r.address + r.bytes;
      });
      if (!reads) continue;
      Unit& poisoned = detector.poisoned.emplace_back();
      poisoned.at = memory + d.unit * unit;
      std::memcpy(poisoned.was, poisoned.at, unit);
      std::memset(poisoned.at, 0xff, unit);
    }
    return;
  }
  if (detector.current % 32 != time % 32) return;
  const Access access{agent, time, __builtin_return_address(0)};
  for (unsigned i = 0; i < count; ++i)
    detector.load(detector.block, ranges[i].address, ranges[i].bytes, Proxy::async, detector.thread().clock,
                  access);
}
void end_product() {
  // A unit may be here twice.
  for (auto u = detector.poisoned.rbegin(); u != detector.poisoned.rend(); ++u) std::memcpy(u->at, u->was, unit);
  detector.poisoned.clear();
}
void commits_products() {
  detector.thread().products.closed.push_back(detector.thread().products.begun);
}
void waits_for_products(unsigned pending) {
  raise(detector.thread().clock.known, own_tensor_core(), detector.thread().products.complete(pending));
}

}  // namespace emulation::races

// What the compiler calls at loads and stores.
#define HOOK(name, bytes, stores)                                                     \
  extern "C" void name(const void* at) {                                              \
    emulation::races::detector.plain(at, bytes, stores, __builtin_return_address(0)); \
  }
#define HOOKS(bytes)                               \
  HOOK(__tsan_read##bytes, bytes, false)           \
  HOOK(__tsan_write##bytes, bytes, true)           \
  HOOK(__tsan_unaligned_read##bytes, bytes, false) \
  HOOK(__tsan_unaligned_write##bytes, bytes, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" {
/// What -fsanitize=alignment calls: where the compiler says, what type it is of, and its alignment.
struct TypeMismatch {
  struct {
    const char* file;
    unsigned line, column;
  } place;
  const void* type;
  unsigned char log_alignment, kind;
};
void __ubsan_handle_type_mismatch_v1(const TypeMismatch* mismatch, std::uintptr_t at) {
  emulation::races::detector.misaligned(reinterpret_cast<const void*>(at), 1u << mismatch->log_alignment,
                                        __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(const void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(const void* at, unsigned long bytes) {
  emulation::races::detector.plain(at, unsigned(bytes), false, __builtin_return_address(0));
}
void __tsan_write_range(const void* at, unsigned long bytes) {
  emulation::races::detector.plain(at, unsigned(bytes), true, __builtin_return_address(0));
}
}
