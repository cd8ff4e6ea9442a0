// Large blocks of host memory for results and workspaces, kept from one call to the next.
//
// Memory fresh from the system is cleared at the first touch, which for large results takes longer than the layer.
// A block whose tensor is gone is therefore kept for the next result of about its size, and the system is told
// that it may take the pages back whenever it is short of memory. Kept blocks together are no larger than a limit;
// a block beyond it, or one the system will not take back by itself, is returned at once. Where address space
// itself runs out, all of them are returned before a result is given up.
#pragma once

#include <cstdint>

namespace tconv::pytorch {

/// Where a block pays for itself; below, PyTorch's allocator mostly reuses memory as well.
constexpr std::int64_t fewest_block_bytes = 8 << 20;

struct Block {
  void* data;          // aligned to a huge page
  std::int64_t bytes;  // at least as many as were asked for
};

/// A block with room for `bytes`, its contents whatever they are; null data where nothing is to be kept or the
/// system has no memory. Threads may call both at once.
Block take_block(std::int64_t bytes) noexcept;
void return_block(const Block& block) noexcept;

/// Returns all that is kept to the system; the number of bytes.
std::int64_t release_kept() noexcept;

/// Asks for huge pages under [data, data + bytes), where it is large enough to have some.
void prefer_huge_pages(void* data, std::int64_t bytes) noexcept;

}  // namespace tconv::pytorch

// For Python, see python/tconv/cpu_memory.py. No operators: they are nothing a graph should hold.
extern "C" {
#define TCONV_TORCH_EXPORT __attribute__((visibility("default")))
TCONV_TORCH_EXPORT std::int64_t tconv_torch_kept_bytes();
TCONV_TORCH_EXPORT std::int64_t tconv_torch_kept_limit();
/// Returns what is beyond the new limit. Zero keeps nothing, and leaves large results to PyTorch's allocator.
TCONV_TORCH_EXPORT void tconv_torch_set_kept_limit(std::int64_t bytes);
/// Returns all that is kept; the number of bytes.
TCONV_TORCH_EXPORT std::int64_t tconv_torch_release_kept();
#undef TCONV_TORCH_EXPORT
}
