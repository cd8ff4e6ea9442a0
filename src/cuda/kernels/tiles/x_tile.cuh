// The input tile: a box of positions with its halo, for one chunk of channels, in shared memory.
//
// It holds words: one fp32 channel, or two 16-bit channels of one position, or a double. A B fragment of
// mma.sync is one word per register wherever it starts, so a tap is a constant offset into the tile and
// one tile serves all taps.
//
//   channels first:  word (k, position) at k·word_stride + position, word_stride = 8 mod 32
//   channels last:   word (k, position) at position·(chunk + 4) + k
//
// Both make the 32 words of a fragment, 4 words deep and 8 positions wide, fall into 32 banks. Words of 64 bits, of
// which half a warp reads at a time, have other strides to the same end.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/mma.cuh"
#include "tile.cuh"

namespace tconv::device {

/// The threads that load a tile are the whole block.
struct BlockThreads {
  __device__ static int index() { return threadIdx.x; }
};

template <GemmConfig C, class Threads = BlockThreads>
struct XTile {
  using Element = ElementOf<C>;
  using Word = OperandWord<C>;
  static constexpr int channels_per_word = device::channels_per_word(C);
  static constexpr int chunk = C.chunk_words;
  static constexpr int threads = loading_threads(C);
  static constexpr bool last = C.x_channels_last;
  // Copies move `vector` words: along positions (channels first) or channels (channels last).
  // 0 stands for single 16-bit elements.
  static constexpr int vector = C.x_vector;
  static constexpr Int3 extent = x_extent(C);
  static constexpr int positions = x_inputs(C);
  static constexpr int word_stride = x_word_stride(C);
  static constexpr int position_stride = x_position_stride(C);
  static constexpr int words = round_up(x_tile_words(C), 4);

  /// Copies pass through registers: there is nothing asynchronous about them.
  static constexpr bool through_registers = last ? vector == 0 : channels_per_word == 2;

  /// Word offset of a column of the box, before a tap's own offset is added.
  __device__ static int column_offset(int column) {
    const int w = column % C.box.w, row = column / C.box.w;
    const int h = row % C.box.h, d = row / C.box.h;  // d also counts the slices of one image after another
    const int slice = d % C.box.d + d / C.box.d * extent.d;
    return ((slice * extent.h + h) * extent.w + w) * position_stride;
  }

  // Units of copying and who copies them. Channels first, a thread keeps its units of positions and
  // walks down the chunk; channels last, a unit is a run of words of one position.
  static constexpr int units = last ? positions * (vector ? chunk / vector : chunk * channels_per_word) : x_units(C);
  static constexpr int unit_lanes = last ? threads : x_unit_lanes(C);
  static constexpr int depth_lanes = threads / unit_lanes;
  static constexpr int slots = ceil_div(units, unit_lanes);

  static_assert(threads % unit_lanes == 0, "warps must come in powers of two");

  /// Reads chunk after chunk of one tile after another.
  struct Loader {
    const Element* image;  // channel 0 of the group
    i64 channel_stride;
    int offset[slots];  // of each unit inside the image, -1 where it is outside

    __device__ static int unit_position(int unit) {
      return last ? unit / (vector ? chunk / vector : chunk * channels_per_word) : unit * max_of(vector, 1);
    }

    __device__ void seek(const ForwardParams& p, const Tile& tile) {
      image = static_cast<const Element*>(p.x) + tile.n * p.xs.n + i64(tile.group) * C.group_in * p.xs.c;
      channel_stride = p.xs.c;
      const Int3 start{tile.origin.d - C.reach.d, tile.origin.h - C.reach.h, tile.origin.w - C.reach.w - x_lead(C)};
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const int unit = Threads::index() % unit_lanes + s * unit_lanes;
        const int position = unit_position(unit);
        const int w = start.w + position % extent.w, row = position / extent.w;
        const int slice = row / extent.h, image = slice / extent.d;
        const int h = start.h + row % extent.h, d = start.d + slice % extent.d;
        const bool inside = unsigned(w) < unsigned(p.in.w) && unsigned(h) < unsigned(p.in.h) &&
                            unsigned(d) < unsigned(p.in.d) && (C.images == 1 || tile.n + image < p.batch);
        offset[s] = inside ? d * p.xs.d + h * p.xs.h + w * p.xs.w + (C.images == 1 ? 0 : image * int(p.xs.n)) : -1;
      }
    }

    __device__ void load(Word* tile, int chunk_index) const {
      if constexpr (last)
        load_channels_last(tile, chunk_index);
      else if constexpr (channels_per_word == 1)
        load_channels_first(tile, chunk_index);
      else
        load_channel_pairs(tile, chunk_index);
    }

    /// Rounds to TF32 what this thread has copied and waited for: once per word, not once per tap.
    __device__ static void round(u32* tile) {
      static_assert(channels_per_word == 1);
      if constexpr (last) {
        constexpr int units_per_position = chunk / vector;
#pragma unroll
        for (int s = 0; s < slots; ++s) {
          const int unit = Threads::index() + s * threads;
          if (units % threads != 0 && s == slots - 1 && unit >= units) break;
          round_words(tile + unit / units_per_position * position_stride + unit % units_per_position * vector);
        }
      } else {
        const int depth = Threads::index() / unit_lanes, lane = Threads::index() % unit_lanes;
#pragma unroll
        for (int k = 0; k < ceil_div(chunk, depth_lanes); ++k) {
          const int word = k * depth_lanes + depth;
          if (chunk % depth_lanes != 0 && word >= chunk) break;
#pragma unroll
          for (int s = 0; s < slots; ++s) {
            if (units % unit_lanes != 0 && s == slots - 1 && lane + s * unit_lanes >= units) break;
            round_words(tile + word * word_stride + (lane + s * unit_lanes) * vector);
          }
        }
      }
    }

   private:
    __device__ static void round_words(u32* words) {
      if constexpr (vector == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(words);
        *reinterpret_cast<uint4*>(words) =
            make_uint4(ptx::round_tf32(v.x), ptx::round_tf32(v.y), ptx::round_tf32(v.z), ptx::round_tf32(v.w));
      } else {
        *words = ptx::round_tf32(*words);
      }
    }

    __device__ static bool in_group(int channel) {
      return C.group_in % (chunk * channels_per_word) == 0 || channel < C.group_in;
    }

    __device__ void load_channels_first(Word* tile, int chunk_index) const {
      const int depth = Threads::index() / unit_lanes, lane = Threads::index() % unit_lanes;
      const u32 base = ptx::shared_address(tile) + (depth * word_stride + lane * vector) * int(sizeof(Word));
      const Element* const channel = image + (i64(chunk_index) * chunk + depth) * channel_stride;
      const i64 step = depth_lanes * channel_stride;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        if (units % unit_lanes != 0 && s == slots - 1 && lane + s * unit_lanes >= units) break;
        // Where nothing is copied the address is not read.
        const Element* source = channel + offset[s];
#pragma unroll
        for (int k = 0; k < ceil_div(chunk, depth_lanes); ++k, source += step) {
          const int word = k * depth_lanes + depth;
          if (chunk % depth_lanes != 0 && word >= chunk) break;
          const int place = (k * depth_lanes * word_stride + s * unit_lanes * vector) * int(sizeof(Word));
          ptx::copy_async<vector * sizeof(Word)>(base + place, source,
                                                 offset[s] >= 0 && in_group(chunk_index * chunk + word));
        }
      }
    }

    __device__ void load_channels_last(Word* tile, int chunk_index) const {
      constexpr int units_per_position = vector ? chunk / vector : chunk * channels_per_word;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const int unit = Threads::index() + s * threads;
        if (units % threads != 0 && s == slots - 1 && unit >= units) break;
        const int position = unit / units_per_position, part = unit % units_per_position;
        if constexpr (vector > 0) {
          const int channel = (chunk_index * chunk + part * vector) * channels_per_word;
          const bool valid = offset[s] >= 0 && in_group(channel);
          ptx::copy_async<vector * sizeof(Word)>(ptx::shared_address(tile + position * position_stride + part * vector),
                                                 image + offset[s] + channel * channel_stride, valid);
        } else {
          const int channel = chunk_index * chunk * channels_per_word + part;
          const bool valid = offset[s] >= 0 && in_group(channel);
          Element value{};
          if (valid) value = image[offset[s] + channel * channel_stride];
          reinterpret_cast<Element*>(tile + position * position_stride)[part] = value;
        }
      }
    }

    // 16-bit channels first: two channels meet in one word, so the copy passes through registers.
    __device__ void load_channel_pairs(u32* tile, int chunk_index) const {
      const int depth = Threads::index() / unit_lanes;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const int unit = Threads::index() % unit_lanes + s * unit_lanes;
        if (units % unit_lanes != 0 && s == slots - 1 && unit >= units) break;
#pragma unroll 2
        for (int word = depth; word < chunk; word += depth_lanes) {
          const int even = (chunk_index * chunk + word) * 2;
          const Element* source = image + i64(even) * channel_stride + offset[s];
          u32* target = tile + word * word_stride + unit * vector;
          const bool inside = offset[s] >= 0;
          interleave(target, source, source + channel_stride, inside && in_group(even), inside && in_group(even + 1));
        }
      }
    }

    /// target[i] = {low[i], high[i]} for `vector` positions.
    __device__ static void interleave(u32* target, const Element* low, const Element* high, bool has_low,
                                      bool has_high) {
      if constexpr (vector == 1) {
        const u32 a = has_low ? reinterpret_cast<const u16&>(*low) : 0;
        const u32 b = has_high ? reinterpret_cast<const u16&>(*high) : 0;
        *target = a | b << 16;
      } else {
        constexpr int pairs = vector / 2;
        u32 a[pairs] = {}, b[pairs] = {};
        if (has_low) read(a, low);
        if (has_high) read(b, high);
        u32 words[vector];
#pragma unroll
        for (int i = 0; i < pairs; ++i) {
          words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
          words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
        }
        if constexpr (vector == 2) {
          *reinterpret_cast<uint2*>(target) = make_uint2(words[0], words[1]);
        } else {
#pragma unroll
          for (int i = 0; i < vector; i += 4)
            *reinterpret_cast<uint4*>(target + i) = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
        }
      }
    }
    template <int Pairs>
    __device__ static void read(u32 (&to)[Pairs], const Element* from) {
      if constexpr (Pairs == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      } else {
        to[0] = *reinterpret_cast<const u32*>(from);
      }
    }
  };
};

}  // namespace tconv::device
