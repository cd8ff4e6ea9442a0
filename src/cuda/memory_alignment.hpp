// Where parts of the memory that callers lend begin.
#pragma once

#include <cstddef>

namespace tconv::cuda {

constexpr std::size_t memory_alignment = 256;

constexpr std::size_t aligned_up(std::size_t bytes) {
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

}  // namespace tconv::cuda
