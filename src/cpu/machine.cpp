#include "cpu/machine.hpp"

#include <unistd.h>

#include <algorithm>

namespace tconv::cpu {

std::int64_t second_level_cache() {
  static const std::int64_t bytes = [] {
    std::int64_t found = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    // Some machines do not say, some report what several cores share.
    return found > 0 ? std::clamp<std::int64_t>(found, 256 << 10, 2 << 20) : std::int64_t(1) << 20;
  }();
  return bytes;
}

}  // namespace tconv::cpu
