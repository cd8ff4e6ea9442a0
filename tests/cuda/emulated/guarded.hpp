// A tensor with room around it: what lies outside is not a number, and must stay what it was.
#pragma once

#include <cmath>
#include <vector>

#include "support/dtype.hpp"

namespace tconv::cuda::emulated {

struct Guarded {
  static constexpr std::int64_t guard = 64;  // elements
  DType dtype;
  std::int64_t count;
  std::vector<unsigned char> bytes;
  Guarded(DType type, std::int64_t elements, double fill)
      : dtype(type), count(elements), bytes(std::size_t(elements + 2 * guard) * size_of(type) + 64) {
    for (std::int64_t i = 0; i < count + 2 * guard; ++i) testing_support::store_element(dtype, base(), i, fill);
  }
  unsigned char* base() { return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64; }
  void* data(std::int64_t element = 0) { return base() + std::size_t(guard + element) * size_of(dtype); }
  bool intact() {
    for (std::int64_t i = 0; i < guard; ++i)
      if (!std::isnan(testing_support::load_element(dtype, base(), i)) ||
          !std::isnan(testing_support::load_element(dtype, base(), guard + count + i)))
        return false;
    return true;
  }
};

}  // namespace tconv::cuda::emulated
