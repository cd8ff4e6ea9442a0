// Emulated wgmma: a warp's quarter of a product, x from its lanes' registers, weights from shared memory.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/mma.cuh"

namespace tconv::device::ptx {

inline u64 wgmma_operand(u32 address) {
  emulation::require(address % 16 == 0, "a misaligned operand");
  return __shfl_sync(0xffffffff, address, 0) >> 4;
}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int Pending>
inline void wgmma_wait() {}
template <int Registers>
inline void registers_increase() {}
template <int Registers>
inline void registers_decrease() {}

}  // namespace tconv::device::ptx

namespace tconv::device {

template <int Rows, Math M>
struct EmulatedWgmma {
  static void multiply(float (&d)[Rows / 2], const u32 (&a)[4], u64 b, bool add) {
    const u32* const weights = reinterpret_cast<const u32*>(ptx::shared_pointer(u32(b) << 4, Rows * 32));
    emulation::exchange<4>(a, [&](const std::vector<unsigned>& all) {
      const u32 row = emulation::lane() / 4, column = emulation::lane() % 4 * 2;
      for (int n = 0; n < Rows / 8; ++n)
        for (u32 half = 0; half < 2; ++half)
          for (u32 e = 0; e < 2; ++e) {
            float& sum = d[u32(n) * 4 + half * 2 + e];
            double total = add ? sum : 0;
            for (u32 k = 0; k < 8; ++k)
              total += ptx::word_product<M>(all[(row * 4 + k % 4) * 4 + half + k / 4 * 2],
                                            weights[u32(n) * 64 + k / 4 * 32 + (column + e) * 4 + k % 4]);
            sum = float(total);
          }
    });
  }
};

}  // namespace tconv::device
