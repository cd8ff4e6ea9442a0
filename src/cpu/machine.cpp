#include "cpu/machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "cpu/kernels/simd.hpp"
#include "tconv/tconv.hpp"

// After simd.hpp, which says what the binary carries.
#include <hwy/highway.h>

namespace tconv::cpu {

namespace {

/// Empty: none.
const std::string& isa_limit() {
  static const std::string limit = [] {
    const char* const value = std::getenv("TCONV_MAX_CPU_ISA");
    return std::string(value ? value : "");
  }();
  return limit;
}

}  // namespace

bool allows_avx512_bf16() {
  return isa_limit().empty() || isa_limit() == "avx512_bf16";
}

void obey_isa_limit() {
  static const bool done = [] {
    const std::string& limit = isa_limit();
    if (allows_avx512_bf16() || limit == "avx512") return true;
#if HWY_ARCH_X86
    const std::int64_t newer_than_avx2 = HWY_AVX2 - 1;  // targets are bits, the best one lowest
    if (limit == "avx2")
      hwy::DisableTargets(newer_than_avx2);
    else if (limit == "scalar")
      hwy::DisableTargets(newer_than_avx2 | HWY_AVX2);
    else
#endif
      throw InvalidArgument("TCONV_MAX_CPU_ISA must be avx512_bf16, avx512, avx2 or scalar, got \"" + limit +
                            "\"");
    return true;
  }();
  static_cast<void>(done);
}

int processors() {
  static const int count = std::max(1, int(std::thread::hardware_concurrency()));
  return count;
}

std::int64_t streaming_bytes() {
  static const std::int64_t bytes = [] {
    std::int64_t found = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    found = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    // A last-level cache is shared by many cores, on servers by many machines.
    return std::clamp<std::int64_t>(found / 2, 16 << 20, 64 << 20);
  }();
  return bytes;
}

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
