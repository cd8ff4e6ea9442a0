// Included before Highway by every SIMD source: which instruction sets the binary carries.
//
// AVX-512 and AVX2 are what servers and desktops have; the baseline of the compiler (scalar code on x86-64,
// NEON on AArch64) serves the rest. The sets between and beyond them only cost compile time here. Scalable
// vectors (SVE, RVV) cannot live in arrays, which register tiles are made of.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
