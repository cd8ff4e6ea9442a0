// Packs a weight [in, out / groups, kernel…] of any strides in the order its kernel reads it. A row is a phase
// of a channel and a step a shift; the tap that joins them is
//   k·dilation = shift·stride + phase,  if there is one.
// Where several inputs are one position, phases go on to the next ones and shifts may be negative.
//
// A warp takes a few row tiles of one octet and step at a time: what leads there is worked out once for many words,
// a warp stores whole lines, and the steps of an octet, which read the same sectors of the weight, are packed by
// neighbouring warps at the same time.
//
// The next kernel begins when this one has ended: so all that follow may read packed weights without waiting
// (panel_gemm.cuh).
#pragma once

#include "mma/split.cuh"
#include "ptx/launch.cuh"
#include "ptx/mma.cuh"
#include "sizes/weights.cuh"
#include "tile.cuh"
#include "words.cuh"

namespace tconv::device {

/// The tap of one dimension at which `phase` reads input q − shift, or -1.
__device__ inline int tap_of(int shift, int phase, int stride, int dilation, int kernel) {
  const int target = shift * stride + phase;
  const int k = target / dilation;
  return target >= 0 && target % dilation == 0 && k < kernel ? k : -1;
}

/// Takes the fastest index off a running index.
__device__ inline int take(u32& rest, int size) {
  const u32 index = rest % u32(size);
  rest /= u32(size);
  return int(index);
}

/// What a warp packs at a time: row tiles of one step, from `first_tile`.
struct Piece {
  static constexpr int tiles = 4;
  int type, group, channel_block, octet, step, first_tile;
  i64 first_word;  // of the step

  /// Pieces of a weight whose steps have so many words.
  template <int StepWords, int RowTiles>
  __device__ static i64 count(const PackParams& p) {
    return p.words / StepWords * ceil_div(RowTiles, tiles);
  }

  template <GemmConfig C, class Tables, int StepWords, int RowTiles>
  __device__ static Piece decode(const PackParams& p, u32 index) {
    Piece at;
    at.first_tile = take(index, ceil_div(RowTiles, tiles)) * tiles;
    at.first_word = i64(index) * StepWords;
    at.type = 0;
    while (at.type + 1 < C.types && at.first_word >= Tables::weight_base(at.type + 1)) ++at.type;
    u32 rest = u32((at.first_word - Tables::weight_base(at.type)) / StepWords);
    at.octet = take(rest, C.octet_group), at.step = take(rest, Tables::steps(at.type));
    at.octet += take(rest, octets_of(C) / C.octet_group) * C.octet_group;
    at.channel_block = take(rest, C.channel_blocks), at.group = int(rest);
    return at;
  }
};

/// Where a row's weights of a step are, in elements from those of an input channel.
struct Filter {
  bool exists;
  i64 offset;
};

template <GemmConfig C, class Row>
__device__ Filter filter_of(const PackParams& p, const Row& row, int channel_block, const Int3& shift) {
  const int co = channel_block * C.channels_per_block + row.channel;
  const int kd = tap_of(shift.d, row.phase.d, C.stride.d, C.dilation.d, C.kernel.d);
  const int kh = tap_of(shift.h, row.phase.h, C.stride.h, C.dilation.h, C.kernel.h);
  const int kw = tap_of(shift.w, row.phase.w, input_stride(C), C.dilation.w, C.kernel.w);
  Filter filter{row.channel >= 0 && shift.d >= 0 && co < C.group_out && kd >= 0 && kh >= 0 && kw >= 0,
                layer_channel(C, co) * p.stride_out};
  if constexpr (C.kernel.d > 1) filter.offset += kd * p.stride_d;
  if constexpr (C.kernel.h > 1) filter.offset += kh * p.stride_h;
  if constexpr (C.channel_phases.count > 1) {
    const int tap = kw * C.channel_phases.count + phase_of_channel(C, co) + C.channel_phases.first_tap;
    filter.exists = filter.exists && unsigned(tap) < unsigned(C.channel_phases.taps);
    filter.offset += tap * p.stride_w;
  } else if constexpr (C.kernel.w > 1) {
    filter.offset += kw * p.stride_w;
  }
  return filter;
}

/// A word of input channels.
template <GemmConfig C>
struct ChannelWord {
  static constexpr int per_word = channels_per_word(C);
  i64 offset;    // of its first channel
  int channels;  // how many there are from it on

  __device__ ChannelWord(const PackParams& p, int group, int word)
      : offset((i64(group) * C.group_in + word * per_word) * p.stride_in), channels(C.group_in - word * per_word) {}

  /// The weights of a row, as bits where they are not doubles; zero where there are none. Something is read always, and
  /// masks choose: a branch would keep the loads of a piece from being under way together.
  __device__ OperandWord<C> load(const PackParams& p, const Filter& filter) const {
    if constexpr (C.math == Math::f64) {
      const i64 there = -i64(filter.exists && channels > 0);
      const double weight = static_cast<const double*>(p.weight)[(offset + filter.offset) & there];
      return there ? weight : 0;
    } else {
      u32 word = 0;
#pragma unroll
      for (int i = 0; i < per_word; ++i) word |= load_channel(p, filter, i) << (16 * i);
      return C.math == Math::tf32 ? ptx::round_tf32(word) : word;
    }
  }
  __device__ u32 load_channel(const PackParams& p, const Filter& filter, int i) const {
    const int there = -int(filter.exists && i < channels);
    const i64 from = (offset + filter.offset + i * p.stride_in) & i64(there);
    return bits_of(static_cast<const ElementOf<C>*>(p.weight)[from]) & u32(there);
  }
};

__device__ inline u32 first_piece() { return blockIdx.x * (blockDim.x / warp_size) + warp_index(); }
__device__ inline u32 pieces_apart() { return gridDim.x * (blockDim.x / warp_size); }

/// A lane's part of a row tile, in 16 bytes that are next to those of other lanes.
__device__ inline void write_fragment(u32* tile, int lane, const u32 (&v)[4]) {
  reinterpret_cast<uint4*>(tile)[lane] = make_uint4(v[0], v[1], v[2], v[3]);
}
__device__ inline void write_fragment(double* tile, int lane, const double (&v)[4]) {
  reinterpret_cast<double2*>(tile)[lane] = make_double2(v[0], v[1]);
  reinterpret_cast<double2*>(tile)[warp_size + lane] = make_double2(v[2], v[3]);
}

/// [type][group][channel block][octet][step][row tile][lane][4]: A fragments of mma.sync (tiles/weight_slab.cuh).
template <GemmConfig C, class Tables>
__device__ void pack_fragments(const PackParams& p) {
  ptx::wait_for_previous();
  constexpr bool paired = C.chunk_words < 8;
  constexpr int tiles = row_tiles_of(C), tile_words = warp_size * 4, step_words = tiles * tile_words;
  const int lane = lane_index();
  const i64 count = Piece::count<step_words, tiles>(p);
  for (u32 index = first_piece(); index < count; index += pieces_apart()) {
    const Piece at = Piece::decode<C, Tables, step_words, tiles>(p, index);
    const Int3 low = Tables::step_shift(at.type, at.step, false);
    const Int3 high = paired ? Tables::step_shift(at.type, at.step, true) : low;
    const ChannelWord<C> low_word(p, at.group, at.octet * 8 + lane % 4);
    const ChannelWord<C> high_word(p, at.group, at.octet * 8 + lane % 4 + (paired ? 0 : 4));
    OperandWord<C> fragments[Piece::tiles][4];
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i) {
      const int first = min_of(at.first_tile + i, tiles - 1) * 16 + lane / 4;
      const auto upper = Tables::row(at.type, first), lower = Tables::row(at.type, first + 8);
      const Filter upper_low = filter_of<C>(p, upper, at.channel_block, low);
      const Filter lower_low = filter_of<C>(p, lower, at.channel_block, low);
      const Filter upper_high = paired ? filter_of<C>(p, upper, at.channel_block, high) : upper_low;
      const Filter lower_high = paired ? filter_of<C>(p, lower, at.channel_block, high) : lower_low;
      fragments[i][0] = low_word.load(p, upper_low), fragments[i][1] = low_word.load(p, lower_low);
      fragments[i][2] = high_word.load(p, upper_high), fragments[i][3] = high_word.load(p, lower_high);
    }
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i)
      if (at.first_tile + i < tiles)
        write_fragment(reinterpret_cast<OperandWord<C>*>(p.packed) + at.first_word + (at.first_tile + i) * tile_words,
                       lane, fragments[i]);
  }
  ptx::leave_for_next();
}

/// [type][group][channel block][octet / group][step][octet of the group][part][row / 8][word / 4][row % 8][4]: operands
/// of wgmma. In fp32 a part is the head or the remainder of the weights.
template <GemmConfig C, class Tables>
__device__ void pack_rows(const PackParams& p) {
  ptx::wait_for_previous();
  constexpr bool paired = C.chunk_words < 8;
  constexpr int parts = weight_parts(C), tiles = C.rows / 8, tile_words = 64;
  constexpr int part_words = tiles * tile_words, step_words = parts * part_words;
  const int lane = lane_index();
  const i64 count = Piece::count<step_words, tiles>(p);
  for (u32 index = first_piece(); index < count; index += pieces_apart()) {
    const Piece at = Piece::decode<C, Tables, step_words, tiles>(p, index);
    const Int3 low = Tables::step_shift(at.type, at.step, false);
    const Int3 high = paired ? Tables::step_shift(at.type, at.step, true) : low;
    const ChannelWord<C> low_word(p, at.group, at.octet * 8 + lane % 4);
    const ChannelWord<C> high_word(p, at.group, at.octet * 8 + lane % 4 + (paired ? 0 : 4));
    // Of what is scaled a word is two numbers, not split yet.
    constexpr bool scaled = scales(C.math);
    u32 words[Piece::tiles][2][scaled ? 2 : 1];
    float scale[Piece::tiles];
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i) {
      const auto row = Tables::row(at.type, min_of(at.first_tile + i, tiles - 1) * 8 + lane / 4);
      const Filter lower = filter_of<C>(p, row, at.channel_block, low);
      const Filter upper = paired ? filter_of<C>(p, row, at.channel_block, high) : lower;
      if constexpr (scaled) {
        const int channel = at.channel_block * C.channels_per_block + row.channel;
        const bool exists = row.channel >= 0 && channel < C.group_out;
        scale[i] = 1 / p.scales[exists ? layer_channel(C, at.group * C.group_out + channel) : 0];
#pragma unroll
        for (int k = 0; k < 2; ++k)
          words[i][0][k] = low_word.load_channel(p, lower, k), words[i][1][k] = high_word.load_channel(p, upper, k);
      } else {
        words[i][0][0] = low_word.load(p, lower), words[i][1][0] = high_word.load(p, upper);
      }
    }
#pragma unroll
    for (int i = 0; i < Piece::tiles; ++i) {
      if (at.first_tile + i >= tiles) break;
      u32* const tile = p.packed + at.first_word + (at.first_tile + i) * tile_words + lane;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto& word = words[i][half];
        u32 head = word[0], remainder;
        if constexpr (scaled) {
          split_halves(__uint_as_float(word[0]) * scale[i], __uint_as_float(word[1]) * scale[i], head, remainder);
          if constexpr (parts == 2) tile[part_words + half * 32] = remainder;
        } else if constexpr (parts == 2) {
          split_tf32(word[0], head, remainder);
          tile[part_words + half * 32] = ptx::round_tf32(remainder);
        }
        tile[half * 32] = head;
      }
    }
  }
  ptx::leave_for_next();
}

}  // namespace tconv::device
