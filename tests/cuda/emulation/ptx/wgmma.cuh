// Emulated wgmma: a warp's quarter of a product, weights from shared memory, x from its lanes' registers or from there.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/mma.cuh"

namespace tconv::device::ptx {

inline u64 wgmma_operand(u32 address) {
  emulation::require(address % 16 == 0, "a misaligned operand");
  return __shfl_sync(0xffffffff, address, 0) >> 4;
}
/// Where the operand begins, and how far its two slices are apart, in 16 bytes.
inline u64 wgmma_panel(u32 address, u32 slice_bytes) {
  emulation::require(address % 16 == 0 && slice_bytes % 16 == 0 && slice_bytes >> 4 < 1 << 14,
                     "a misaligned operand");
  return __shfl_sync(0xffffffff, address, 0) >> 4 | u64(slice_bytes >> 4) << 16;
}
/// Where the operand begins, how far its copies of 64 positions are apart, and that it is one of this kind.
constexpr u64 mapped_operand = u64(1) << 62;
inline u64 wgmma_mapped(u32 address, u32 copy_bytes) {
  emulation::require(address % 1024 == 0 && copy_bytes % 1024 == 0, "a misaligned operand");
  return __shfl_sync(0xffffffff, address, 0) >> 4 | u64(copy_bytes >> 4) << 16 | mapped_operand;
}
/// An address of 128 bytes that are swizzled: each eight of them begin with another 16 bytes.
inline u32 swizzled(u32 address) {
  return address ^ (address >> 7 & 7) << 4;
}
inline void wgmma_fence() {}
inline void wgmma_commit() { emulation::races::commits_products(); }
template <int Pending>
inline void wgmma_wait() {
  emulation::races::waits_for_products(Pending);
}
template <int Count>
inline void wgmma_sums(float (&)[Count]) {}
template <int Registers>
inline void registers_increase() {}
template <int Registers>
inline void registers_decrease() {}

}  // namespace tconv::device::ptx

namespace tconv::device {

template <int Rows, Math M, bool Panel>
struct EmulatedWgmma {
  static void multiply(float (&d)[Rows / 2], const u32 (&a)[4], u64 b, bool add) {
    const u32* const weights = reinterpret_cast<const u32*>(ptx::shared_pointer(u32(b) << 4, Rows * 32));
    const emulation::races::Range read{u32(b) << 4, Rows * 32};
    emulation::exchange<4>(a, [&](const std::vector<unsigned>& all) {
      emulation::races::product(ptx::shared_array, &read, 1, [&] {
        const u32 row = emulation::lane() / 4, column = emulation::lane() % 4 * 2;
        for (int n = 0; n < Rows / 8; ++n)
          for (u32 half = 0; half < 2; ++half)
            for (u32 e = 0; e < 2; ++e) {
              float& sum = d[u32(n) * 4 + half * 2 + e];
              double total = add ? sum : 0;
              for (u32 k = 0; k < 8; ++k)
                total += ptx::word_product<M>(all[(row * 4 + k % 4) * 4 + half + k / 4 * 2],
                                              weights[u32(n) * 64 + k / 4 * 32 + (column + e) * 4 + k % 4]);
              sum = ptx::truncated(total);
            }
      });
    });
  }
};

/// A warp's quarter of a product whose operands are both in shared memory: 64 rows of weights, Columns positions.
template <int Columns, Math M>
struct EmulatedWgmma<Columns, M, true> {
  static void multiply(float (&d)[Columns / 2], u64 a, u64 b, bool add) {
    const u32 warp = emulation::warp() % 4, slice = u32(b >> 16 & 0x3fff);
    const u32* const weights = reinterpret_cast<const u32*>(ptx::shared_pointer((u32(a) & 0xffff) << 4, 64 * 32));
    const u32 begin = (u32(b) & 0xffff) << 4;
    const bool mapped = b & ptx::mapped_operand;
    const u32* const x =
        mapped ? nullptr : reinterpret_cast<const u32*>(ptx::shared_pointer(begin, slice * 16 + Columns * 16));
    // Word `k` of eight, at a position.
    const auto x_word = [&](u32 k, u32 position) {
      if (!mapped) return x[k / 4 * slice * 4 + position * 4 + k % 4];
      const auto channel = [&](u32 c) {
        const u32 at = begin + position / 64 * slice * 16 + c * 128 + position % 64 * 2;
        return u32(*reinterpret_cast<const u16*>(ptx::shared_pointer(ptx::swizzled(at), 2)));
      };
      return channel(2 * k) | channel(2 * k + 1) << 16;
    };
    const u32 lane_row = warp * 16 + emulation::lane() / 4, column = emulation::lane() % 4 * 2;
    const std::vector<emulation::races::Range> read = reads(u32(a), begin, slice, mapped);
    emulation::races::product(ptx::shared_array, read.data(), unsigned(read.size()), [&] {
      for (u32 n = 0; n < Columns / 8; ++n)
        for (u32 half = 0; half < 2; ++half)
          for (u32 e = 0; e < 2; ++e) {
            const u32 row = lane_row + half * 8, position = n * 8 + column + e;
            float& sum = d[n * 4 + half * 2 + e];
            double total = add ? sum : 0;
            for (u32 k = 0; k < 8; ++k)
              total += ptx::word_product<M>(weights[row / 8 * 64 + k / 4 * 32 + row % 8 * 4 + k % 4],
                                            x_word(k, position));
            sum = ptx::truncated(total);
          }
    });
    emulation::meet_warp();
  }

 private:
  /// What is read: a warp reads its own rows of weights, and all positions.
  static std::vector<emulation::races::Range> reads(u32 weights, u32 x, u32 slice, bool mapped) {
    const u32 own = ((weights & 0xffff) << 4) + emulation::warp() % 4 * 512;
    std::vector<emulation::races::Range> read{{own, 512}};
    if (mapped)
      for (u32 at = 0; at < Columns; at += 64)
        for (u32 channel = 0; channel < 16; ++channel)
          read.push_back({x + at / 64 * slice * 16 + channel * 128, 128});
    else
      for (u32 of = 0; of < 2; ++of) read.push_back({x + of * slice * 16, Columns * 16});
    return read;
  }
};

/// The same where positions are the rows: 64 of them, and Columns rows of weights.
template <int Columns, Math M>
struct EmulatedMarchWgmma {
  static void multiply(float (&d)[Columns / 2], u64 a, u64 b, bool add) {
    const u32 warp = emulation::warp() % 4, slice = u32(a >> 16 & 0x3fff);
    const u32* const x =
        reinterpret_cast<const u32*>(ptx::shared_pointer((u32(a) & 0xffff) << 4, slice * 16 + 64 * 16));
    const u32* const weights = reinterpret_cast<const u32*>(ptx::shared_pointer((u32(b) & 0xffff) << 4, Columns * 32));
    const u32 first = warp * 16 + emulation::lane() / 4, column = emulation::lane() % 4 * 2;
    const u32 own = ((u32(a) & 0xffff) << 4) + warp * 256;  // a warp reads its own positions, and all weights
    const emulation::races::Range read[3] = {
        {own, 256}, {own + slice * 16, 256}, {(u32(b) & 0xffff) << 4, Columns * 32}};
    emulation::races::product(ptx::shared_array, read, 3, [&] {
      for (u32 n = 0; n < Columns / 8; ++n)
        for (u32 half = 0; half < 2; ++half)
          for (u32 e = 0; e < 2; ++e) {
            float& sum = d[n * 4 + half * 2 + e];
            double total = add ? sum : 0;
            for (u32 k = 0; k < 8; ++k)
              total += ptx::word_product<M>(x[k / 4 * slice * 4 + (first + half * 8) * 4 + k % 4],
                                            weights[n * 64 + k / 4 * 32 + (column + e) * 4 + k % 4]);
            sum = ptx::truncated(total);
          }
    });
    emulation::meet_warp();
  }
};

}  // namespace tconv::device
