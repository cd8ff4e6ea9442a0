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

  /// Stores a staged slice: some lanes for each run, as many runs side by side as a warp has lanes for.
  __device__ static void store(const ForwardParams& p, const unsigned char* buffer, const Place& place, int slice) {
    constexpr int runs = march_runs(C), lanes = run_lanes();
    constexpr int vectors = ceil_div(march_run_pitch(C) / vector, lanes);  // of a lane
    constexpr int batch = min_of(vectors, 4), together = batch <= 2 ? 2 : 1;
    constexpr int side = warp_size / lanes, apart = side * (warpgroup_size / warp_size);
    const Element* const staged = reinterpret_cast<const Element*>(buffer);
    Element* const first = place.run(p, slice, 0, 0);
    const int count = place.channels * runs, lane = lane_index() % lanes;
#pragma unroll 1
    for (int run = int(threadIdx.x) % warpgroup_size / lanes; run - run % side < count; run += together * apart) {
      Element* to[together];
      const Element* from[together];
      int begin[together], head[together], tail[together], end[together];
#pragma unroll
      for (int k = 0; k < together; ++k) {
        const int own = run + k * apart, channel = own / runs, index = own % runs;
        const int rows = own < count ? min(C.run_rows, place.height - index * C.run_rows) : 0;
        Element* const at = first + channel * p.ys.c + i64(index * C.run_rows) * p.ys.h;
        begin[k] = skew_of<vector>(at), end[k] = begin[k] + max(rows, 0) * place.width;
        to[k] = at - begin[k], from[k] = staged + channel * pitch + index * march_run_pitch(C);
        head[k] = min(round_up(begin[k], vector), end[k]), tail[k] = max(head[k], end[k] / vector * vector);
      }
#pragma unroll 1
      for (int v = 0; v < vectors; v += batch) {
        uint4 value[together][batch];
        const auto each = [&](const auto& visit) {
#pragma unroll
          for (int k = 0; k < together; ++k)
#pragma unroll
            for (int i = 0; i < batch; ++i)
              if (const int at = head[k] + ((v + i) * lanes + lane) * vector; at < tail[k]) visit(k, i, at);
        };
        each([&](int k, int i, int at) { value[k][i] = *reinterpret_cast<const uint4*>(from[k] + at); });
        each([&](int k, int i, int at) { ptx::store(to[k] + at, value[k][i]); });
      }
      // What is before whole vectors, and behind them.
#pragma unroll
      for (int k = 0; k < together; ++k) {
        if (const int at = begin[k] + lane; at < head[k]) ptx::store(to[k] + at, from[k][at]);
        if (const int at = tail[k] + lane; at < end[k]) ptx::store(to[k] + at, from[k][at]);
      }
    }
  }

 private:
  /// Lanes that store a run: a vector each if a warp has so many, but a line of memory at least.
  __device__ static constexpr int run_lanes() {
    int lanes = 8;
    while (lanes < warp_size && lanes * vector < march_run_pitch(C)) lanes *= 2;
    return lanes;
  }
};

}  // namespace tconv::device
