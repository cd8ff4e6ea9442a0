#include "kept_memory.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace tconv::pytorch {
namespace {

using std::int64_t;

constexpr int64_t huge_page = 2 << 20;

int64_t default_limit() {
  // An eighth of the machine: several results of a large model, and little beside what the model takes.
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? pages / 8 * page : int64_t(1) << 30;
}

constexpr std::size_t most_blocks = 64;

void unmap(const Block& block) noexcept {
  munmap(block.data, static_cast<std::size_t>(block.bytes));
}

/// Blocks on their way back to the system, once no lock is held any more.
struct Surplus {
  std::array<Block, most_blocks + 1> blocks;
  std::size_t count = 0;

  void add(const Block& block) noexcept { blocks[count++] = block; }
  ~Surplus() { std::for_each_n(blocks.begin(), count, unmap); }
};

struct Kept {
  // Results only try it and do not wait: passing by what is kept is always right.
  std::mutex mutex;
  std::array<Block, most_blocks + 1> blocks;  // longest kept first
  std::size_t count = 0;
  int64_t bytes = 0;
  std::atomic<int64_t> limit = default_limit();

  void add(const Block& block) noexcept {
    blocks[count++] = block;
    bytes += block.bytes;
  }

  Block remove(std::size_t index) noexcept {
    const Block block = blocks[index];
    std::copy(blocks.begin() + index + 1, blocks.begin() + count, blocks.begin() + index);
    --count;
    bytes -= block.bytes;
    return block;
  }

  void cut_to(int64_t most, Surplus& surplus) noexcept {
    while (bytes > most || count > most_blocks) surplus.add(remove(0));
  }
};

Kept*& current() {
  static Kept* instance = new Kept;  // never destroyed: tensors may outlive everything static
  return instance;
}

Kept& kept() {
  // A child process begins with nothing kept: another thread may have held the lock when it was forked.
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    const int64_t limit = current()->limit;
    current() = new Kept;
    current()->limit = limit;
  });
  static_cast<void>(registered);
  return *current();
}

Block map_block(int64_t bytes) {
  // Room to begin at a huge page; what is too much goes back.
  const auto wanted = static_cast<std::size_t>(bytes), room = wanted + huge_page;
  void* const mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return {nullptr, 0};
  char* const begin = static_cast<char*>(mapped);
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + wanted, room - before - wanted);
  prefer_huge_pages(begin + before, bytes);
  return {begin + before, bytes};
}

/// Lets the system take the pages back when it needs them; false: it will not.
bool make_reclaimable([[maybe_unused]] const Block& block) {
#ifdef MADV_FREE
  return madvise(block.data, static_cast<std::size_t>(block.bytes), MADV_FREE) == 0;
#else
  return false;
#endif
}

}  // namespace

Block take_block(int64_t bytes) noexcept {
  Kept& k = kept();
  if (bytes > k.limit) return {nullptr, 0};
  bytes = (bytes + huge_page - 1) / huge_page * huge_page;
  if (bytes > k.limit) return {nullptr, 0};
  if (const std::unique_lock lock(k.mutex, std::try_to_lock); lock) {
    // The smallest that fits, the latest of those. One much larger waits for a result of its own size.
    std::size_t best = k.count;
    for (std::size_t i = 0; i < k.count; ++i)
      if (k.blocks[i].bytes >= bytes && k.blocks[i].bytes <= 2 * bytes &&
          (best == k.count || k.blocks[i].bytes <= k.blocks[best].bytes))
        best = i;
    if (best < k.count) return k.remove(best);
  }
  const Block block = map_block(bytes);
  if (block.data) return block;
  // What is kept counts where address space or commitment is limited: it goes back before anything fails.
  release_kept();
  return map_block(bytes);
}

int64_t release_kept() noexcept {
  Surplus surplus;
  const std::lock_guard lock(kept().mutex);
  const int64_t bytes = kept().bytes;
  kept().cut_to(0, surplus);
  return bytes;
}

void return_block(const Block& block) noexcept {
  Kept& k = kept();
  if (block.bytes <= k.limit && make_reclaimable(block)) {
    Surplus surplus;
    if (const std::unique_lock lock(k.mutex, std::try_to_lock); lock) {
      k.add(block);
      return k.cut_to(k.limit, surplus);
    }
  }
  unmap(block);
}

void prefer_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t first = (begin + huge_page - 1) / huge_page * huge_page;
  const std::uintptr_t last = (begin + static_cast<std::uintptr_t>(bytes)) / huge_page * huge_page;
  // A wish: nothing depends on it.
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace tconv::pytorch

using tconv::pytorch::kept;
using tconv::pytorch::Surplus;

std::int64_t tconv_torch_kept_bytes() {
  const std::lock_guard lock(kept().mutex);
  return kept().bytes;
}

std::int64_t tconv_torch_kept_limit() {
  return kept().limit;
}

void tconv_torch_set_kept_limit(std::int64_t bytes) {
  Surplus surplus;
  kept().limit = std::max<std::int64_t>(bytes, 0);
  const std::lock_guard lock(kept().mutex);
  kept().cut_to(kept().limit, surplus);
}

std::int64_t tconv_torch_release_kept() {
  return tconv::pytorch::release_kept();
}
