// Packs a weight [in, out / groups, kernel…] of any strides into A fragments, in the order of
// tiles/weight_slab.cuh. A row is a phase of a channel and a step a shift; the tap that joins them is
//   k·dilation = shift·stride + phase,  if there is one.
#pragma once

#include "ptx/mma.cuh"
#include "tile.cuh"

namespace tconv::device {

/// The tap of one dimension at which `phase` reads input q − shift, or -1.
__device__ inline int tap_of(int shift, int phase, int stride, int dilation, int kernel) {
  const int target = shift * stride + phase;
  const int k = target / dilation;
  return target % dilation == 0 && k < kernel ? k : -1;
}

template <GemmConfig C, class Tables>
__device__ void pack_weights(const PackParams& p) {
  using Element = ElementOf<C>;
  constexpr int per_word = channels_per_word(C);
  constexpr bool paired = C.chunk_words < 8;

  for (i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x; index < p.words; index += i64(gridDim.x) * blockDim.x) {
    int type = 0;
    while (type + 1 < C.types && index >= Tables::weight_base(type + 1)) ++type;
    i64 rest = index - Tables::weight_base(type);
    const int steps = Tables::steps(type);
    const int j = rest % 4;
    rest /= 4;
    const int lane = rest % warp_size;
    rest /= warp_size;
    const int row_tile = rest % row_tiles_of(C);
    rest /= row_tiles_of(C);
    const int step = rest % steps;
    rest /= steps;
    const int octet = rest % octets_of(C);
    rest /= octets_of(C);
    const int channel_block = rest % C.channel_blocks;
    const int group = rest / C.channel_blocks;

    const auto row = Tables::row(type, row_tile, lane / 4 + j % 2 * 8);
    const bool upper = j / 2 == 1;
    const Int3 shift = Tables::step_shift(type, step, paired && upper);
    const int word = octet * 8 + lane % 4 + (upper && !paired ? 4 : 0);
    const int co = channel_block * C.channels_per_block + row.channel;
    const int kd = tap_of(shift.d, row.phase.d, C.stride.d, C.dilation.d, C.kernel.d);
    const int kh = tap_of(shift.h, row.phase.h, C.stride.h, C.dilation.h, C.kernel.h);
    const int kw = tap_of(shift.w, row.phase.w, C.stride.w, C.dilation.w, C.kernel.w);
    const bool exists = row.channel >= 0 && shift.d >= 0 && co < C.group_out && kd >= 0 && kh >= 0 && kw >= 0;

    Element value[per_word] = {};
#pragma unroll
    for (int i = 0; i < per_word; ++i) {
      const int ci = word * per_word + i;
      if (exists && ci < C.group_in)
        value[i] = static_cast<const Element*>(p.weight)[(i64(group) * C.group_in + ci) * p.stride_in + co * p.stride_out + kd * p.stride_d +
                            kh * p.stride_h + kw * p.stride_w];
    }
    if constexpr (per_word == 2) {
      p.packed[index] = value[0].bits | u32(value[1].bits) << 16;
    } else {
      const u32 bits = __float_as_uint(value[0]);
      p.packed[index] = C.math == Math::tf32 ? ptx::round_tf32(bits) : bits;
    }
  }
}

}  // namespace tconv::device
