// Packs a weight [in, out / groups, kernel…] of any strides in the order its kernel reads it. A row is a phase
// of a channel and a step a shift; the tap that joins them is
//   k·dilation = shift·stride + phase,  if there is one.
#pragma once

#include "mma/split.cuh"
#include "ptx/mma.cuh"
#include "tile.cuh"

namespace tconv::device {

/// The tap of one dimension at which `phase` reads input q − shift, or -1.
__device__ inline int tap_of(int shift, int phase, int stride, int dilation, int kernel) {
  const int target = shift * stride + phase;
  const int k = target / dilation;
  return target % dilation == 0 && k < kernel ? k : -1;
}

/// Where an element of the packed weight comes from: one row, one step, one channel of a group.
struct Origin {
  int group, channel_block, word;
  Int3 shift;
};

/// The weights of a row at a shift, from channel word `word`, as bits; zero where there is no such tap.
template <GemmConfig C, class Row>
__device__ u32 gather_word(const PackParams& p, const Origin& at, const Row& row) {
  using Element = ElementOf<C>;
  constexpr int per_word = channels_per_word(C);
  const int co = at.channel_block * C.channels_per_block + row.channel;
  const int kd = tap_of(at.shift.d, row.phase.d, C.stride.d, C.dilation.d, C.kernel.d);
  const int kh = tap_of(at.shift.h, row.phase.h, C.stride.h, C.dilation.h, C.kernel.h);
  const int kw = tap_of(at.shift.w, row.phase.w, C.stride.w, C.dilation.w, C.kernel.w);
  const bool exists = row.channel >= 0 && at.shift.d >= 0 && co < C.group_out && kd >= 0 && kh >= 0 && kw >= 0;
  const Element* filter = static_cast<const Element*>(p.weight) + i64(co) * p.stride_out + kd * p.stride_d +
                          kh * p.stride_h + kw * p.stride_w;
  Element value[per_word] = {};
#pragma unroll
  for (int i = 0; i < per_word; ++i) {
    const int ci = at.word * per_word + i;
    if (exists && ci < C.group_in) value[i] = filter[(i64(at.group) * C.group_in + ci) * p.stride_in];
  }
  if constexpr (per_word == 2) {
    return value[0].bits | u32(value[1].bits) << 16;
  } else {
    const u32 bits = __float_as_uint(value[0]);
    return C.math == Math::tf32 ? ptx::round_tf32(bits) : bits;
  }
}

/// Takes the fastest index off a running index.
__device__ inline int take(i64& rest, int size) {
  const int index = int(rest % size);
  rest /= size;
  return index;
}

/// [type][group][channel block][octet][step][row tile][lane][4]: A fragments of mma.sync.
template <GemmConfig C, class Tables>
__device__ void pack_fragments(const PackParams& p) {
  constexpr bool paired = C.chunk_words < 8;
  for (i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x; index < p.words; index += i64(gridDim.x) * blockDim.x) {
    int type = 0;
    while (type + 1 < C.types && index >= Tables::weight_base(type + 1)) ++type;
    i64 rest = index - Tables::weight_base(type);
    const int j = take(rest, 4), lane = take(rest, warp_size), row_tile = take(rest, row_tiles_of(C));
    const int step = take(rest, Tables::steps(type)), octet = take(rest, octets_of(C));
    const int channel_block = take(rest, C.channel_blocks), group = int(rest);
    const bool upper = j / 2 == 1;
    const Origin at{group, channel_block, octet * 8 + lane % 4 + (upper && !paired ? 4 : 0),
                    Tables::step_shift(type, step, paired && upper)};
    p.packed[index] = gather_word<C>(p, at, Tables::row(type, row_tile * 16 + lane / 4 + j % 2 * 8));
  }
}

/// [type][group][channel block][octet][step][part][row / 8][word / 4][row % 8][4]: operands of wgmma. In fp32 a
/// part is the head or the remainder of the weights.
template <GemmConfig C, class Tables>
__device__ void pack_rows(const PackParams& p) {
  constexpr int parts = weight_parts(C);
  for (i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x; index < p.words; index += i64(gridDim.x) * blockDim.x) {
    int type = 0;
    while (type + 1 < C.types && index >= Tables::weight_base(type + 1)) ++type;
    i64 rest = index - Tables::weight_base(type);
    const int low_word = take(rest, 4), low_row = take(rest, 8), high_word = take(rest, 2);
    const int row = take(rest, C.rows / 8) * 8 + low_row, part = take(rest, parts);
    const int step = take(rest, Tables::steps(type)), octet = take(rest, octets_of(C));
    const int channel_block = take(rest, C.channel_blocks), group = int(rest);
    const Origin at{group, channel_block, octet * 8 + high_word * 4 + low_word, Tables::step_shift(type, step, false)};
    u32 word = gather_word<C>(p, at, Tables::row(type, row));
    if constexpr (parts == 2) {
      u32 head, remainder;
      split_tf32(word, head, remainder);
      word = part == 0 ? head : ptx::round_tf32(remainder);
    }
    p.packed[index] = word;
  }
}

}  // namespace tconv::device
