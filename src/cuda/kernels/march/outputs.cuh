// How a slice of outputs leaves the march kernel. Members stage it in shared memory, [channel][run], rows of the box
// one after the other and without the halo between them; a warpgroup of its own stores it while they go on. Runs lie as
// they do in memory, so that all but their ragged ends leave 16 bytes at a time.
#pragma once

#include "epilogue/vector_store.cuh"
#include "march/products.cuh"
#include "march/slices.cuh"
#include "ptx/store.cuh"

namespace tconv::device {

/// Where the outputs of a tile lie, from the first position of its box on.
template <GemmConfig C>
struct MarchPlace {
  using Element = ElementOf<C>;
  Element* at;        // in the first channel, and slice 0 of outputs
  int channels;       // of the block
  int width, height;  // of the box, as far as there are outputs
  __device__ MarchPlace(const ForwardParams& p, const Tile& tile) {
    const int h = tile.origin.h - C.padding.h, w = tile.origin.w - C.padding.w;
    const int first = tile.channel_block * C.channels_per_block;
    at = static_cast<Element*>(p.y) + tile.n * p.ys.n + i64(tile.group * C.group_out + first) * p.ys.c +
         i64(h) * p.ys.h + w;
    channels = min(C.channels_per_block, C.group_out - first);
    width = min(C.box.w, p.out.w - w), height = min(C.box.h, p.out.h - h);
  }
  /// The first output of a run.
  __device__ Element* run(const ForwardParams& p, int slice, int channel, int index) const {
    return at + i64(slice - C.padding.d) * p.ys.d + i64(channel) * p.ys.c + i64(index * C.run_rows) * p.ys.h;
  }
};

template <GemmConfig C, class Tables>
struct MarchStaging {
  using Element = ElementOf<C>;
  using Sums = PanelSums<C>;
  using Place = MarchPlace<C>;
  static constexpr int tiles = C.position_tiles, pitch = march_channel_pitch(C), vector = store_vector(C);

  /// Where a thread's positions go in the run of a channel, and how much further that run begins for its row; -1: the
  /// position has no output.
  int place[tiles][2];
  u32 row_skew[tiles][2];

  __device__ MarchStaging(const ForwardParams& p, const Place& outputs) {
    constexpr int width = x_extent(slice_of(C)).w;
    const int first = MarchRoles<C>::member() * tiles * panel_rows + warp_index() % 4 * 16 + lane_index() / 4;
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = first + t * panel_rows + half * 8, h = position / width, w = position % width;
        place[t][half] = w >= outputs.width || h >= outputs.height ? -1
                         : joins_rows(C)                           ? h * outputs.width + w
                                                                   : h * march_run_pitch(C) + w;
        row_skew[t][half] = joins_rows(C) ? 0 : u32(h) * u32(p.ys.h);
      }
  }

  /// Stages the sums of slot 0.
  __device__ void stage(const ForwardParams& p, unsigned char* buffer, const Sums& sum, const ChannelOutput* outputs,
                        const Place& place_of, int slice, u32 scale) const {
    const int pair = lane_index() % 4 * 2;
    const u32 base = u32(reinterpret_cast<u64>(place_of.run(p, slice, 0, 0)) / sizeof(Element));
    Element* to[tiles][2][2];
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          to[t][half][e] = reinterpret_cast<Element*>(buffer) + (pair + e) * pitch + place[t][half] +
                           (base + u32(pair + e) * u32(p.ys.c) + row_skew[t][half]) % vector;
#pragma unroll
    for (int n = 0; n < slot_rows(C) / 8; ++n) {
      // Eight channels further the skew is the same.
      const float4 both = *reinterpret_cast<const float4*>(outputs + n * 8 + pair);
      const ChannelOutput of_channel[2]{{both.x, both.y}, {both.z, both.w}};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const UnscaleSum half_scale(scale, of_channel[e].scale);
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float value = sum[t][n * 4 + half * 2 + e];
            const float output = C.math == Math::half
                                     ? fmaf(value * half_scale.rest, half_scale.factor, of_channel[e].bias)
                                 : C.math == Math::halves ? fmaf(value, of_channel[e].scale, of_channel[e].bias)
                                                          : value + of_channel[e].bias;
            if (place[t][half] >= 0) to[t][half][e][n * 8 * pitch] = to_element<Element>(output);
          }
      }
    }
  }

  /// Sums of the next slices move up.
  __device__ static void advance(Sums& sum) {
    constexpr int slot = slot_rows(C) / 2, all = C.rows / 2;
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int i = 0; i < all; ++i) sum[t][i] = i + slot < all ? sum[t][i + slot] : 0;
  }

  /// Stores a staged slice: a warp for each run.
  __device__ static void store(const ForwardParams& p, const unsigned char* buffer, const Place& place, int slice) {
    constexpr int runs = march_runs(C), warps = warpgroup_size / warp_size;
    for (int run = warp_index() % warps; run < place.channels * runs; run += warps) {
      const int channel = run / runs, index = run % runs;
      const int rows = min(C.run_rows, place.height - index * C.run_rows);
      if (rows <= 0) continue;
      Element* const at = place.run(p, slice, channel, index);
      const int skew = skew_of<vector>(at), end = skew + rows * place.width;
      const Element* const from =
          reinterpret_cast<const Element*>(buffer) + channel * pitch + index * march_run_pitch(C);
      Element* const to = at - skew;
      const int head = min(round_up(skew, vector), end), tail = max(head, end / vector * vector);
      constexpr int together = 4, apart = warp_size * vector;
      for (int i = head + lane_index() * vector; i < tail; i += together * apart) {
        uint4 value[together];
#pragma unroll
        for (int k = 0; k < together; ++k)
          if (i + k * apart < tail) value[k] = *reinterpret_cast<const uint4*>(from + i + k * apart);
#pragma unroll
        for (int k = 0; k < together; ++k)
          if (i + k * apart < tail) ptx::store(to + i + k * apart, value[k]);
      }
      // What is before whole vectors, and behind them.
      const bool behind = lane_index() >= warp_size / 2;
      const int own = behind ? tail + lane_index() - warp_size / 2 : skew + lane_index();
      if (own < (behind ? end : head)) ptx::store(to + own, from[own]);
    }
  }
};

}  // namespace tconv::device
