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
  bool first, last;   // of the boxes along the width
  __device__ MarchPlace(const ForwardParams& p, const Tile& tile) {
    const int h = tile.origin.h - C.padding.h, w = tile.origin.w - C.padding.w;
    const int channel = tile.channel_block * C.channels_per_block;
    at = static_cast<Element*>(p.y) + tile.n * p.ys.n + i64(tile.group * C.group_out + channel) * p.ys.c +
         i64(h) * p.ys.h + w;
    channels = min(C.channels_per_block, C.group_out - channel);
    width = min(C.box.w, p.out.w - w), height = min(C.box.h, p.out.h - h);
    first = tile.box_w == 0, last = tile.box_w + 1 >= p.boxes.w.by;
  }
  /// Boxes that overlap store whole sectors of memory each: the part of a run that is this one's. Places are counted
  /// from `skew` elements before the run.
  __device__ void keep_whole_sectors(const Element* run, u32 skew, u32& begin, u32& end) const {
    const u32 address = u32(reinterpret_cast<u64>(run)) / u32(sizeof(Element));
    const auto aligned = [&](u32 output) { return skew + output + (0u - (address + output)) % C.window; };
    if (!last) end = min(end, aligned(box_advance(C)));
    if (!first) begin = min(aligned(0), end);
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
  u32 first;  // where the first output lies, in elements: its alignment is what matters

  __device__ MarchStaging(const ForwardParams& p, const Place& outputs)
      : first(u32(reinterpret_cast<u64>(outputs.run(p, 0, 0, 0)) / sizeof(Element))) {
    constexpr int width = x_extent(slice_of(C)).w;
    const int own = MarchRoles<C>::member() * tiles * panel_rows + warp_index() % 4 * 16 + lane_index() / 4;
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = own + t * panel_rows + half * 8, h = position / width, w = position % width;
        place[t][half] = w >= outputs.width || h >= outputs.height ? -1
                         : joins_rows(C)                           ? h * outputs.width + w
                                                                   : h * march_run_pitch(C) + w;
        row_skew[t][half] = joins_rows(C) ? 0 : u32(h) * u32(p.ys.h);
      }
  }

  /// Stages the sums of slot 0.
  __device__ void stage(const ForwardParams& p, unsigned char* buffer, const Sums& sum, const ChannelOutput* outputs,
                        int slice, u32 scale) const {
    const int pair = lane_index() % 4 * 2;
    const u32 base = first + u32(slice) * u32(p.ys.d);
    // One product after the other: there are not registers for the places of all.
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      Element* to[2][2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          to[half][e] = reinterpret_cast<Element*>(buffer) + (pair + e) * pitch + place[t][half] +
                        (base + u32(pair + e) * u32(p.ys.c) + row_skew[t][half]) % vector;
#pragma unroll
      for (int n = 0; n < slot_rows(C) / 8; ++n) {
        // Eight channels further the skew is the same.
        const float4 both = *reinterpret_cast<const float4*>(outputs + n * 8 + pair);
        const ChannelOutput of_channel[2]{{both.x, both.y}, {both.z, both.w}};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const UnscaleSum of_sum(scale, of_channel[e].scale);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float value = sum[t][n * 4 + half * 2 + e];
            const float output = C.math == Math::half     ? fmaf(value * of_sum.rest, of_sum.factor, of_channel[e].bias)
                                 : C.math == Math::halves ? fmaf(value, of_channel[e].scale, of_channel[e].bias)
                                                          : value + of_channel[e].bias;
            if (place[t][half] >= 0) to[half][e][n * 8 * pitch] = to_element<Element>(output);
          }
        }
      }
      asm volatile("" ::: "memory");
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

  /// Stores a staged slice: some lanes for each run, as many channels side by side as there are lanes for.
  __device__ static void store(const ForwardParams& p, const unsigned char* buffer, const Place& place, int slice) {
    constexpr int lanes = run_lanes(), apart = warpgroup_size / lanes;
    const int lane = lane_index() % lanes, first = int(threadIdx.x) % warpgroup_size / lanes;
#pragma unroll 1
    for (int index = 0; index < march_runs(C); ++index) {
      const int rows = min(C.run_rows, place.height - index * C.run_rows);
      if (rows <= 0) break;
      const u32 length = u32(rows * place.width);
      Element* to = place.run(p, slice, first, index);
      const Element* from = reinterpret_cast<const Element*>(buffer) + first * pitch + index * march_run_pitch(C);
#pragma unroll 2
      for (int channel = first; channel < place.channels; channel += apart, from += apart * pitch, to += apart * p.ys.c)
        store_run(place, to, from, length, lane);
    }
  }

 private:
  /// Lanes that store a run: a vector each if a warp has so many, but a line of memory at least.
  __device__ static constexpr int run_lanes() {
    int lanes = 8;
    while (lanes < warp_size && lanes * vector < march_run_pitch(C)) lanes *= 2;
    return lanes;
  }

  /// Stores a run of so many outputs, staged at `from`. Counted from the vector that it begins in.
  __device__ static void store_run(const Place& place, Element* run, const Element* from, u32 length, int lane) {
    constexpr int lanes = run_lanes(), all = ceil_div(march_run_pitch(C) / vector, lanes), together = min_of(all, 4);
    const u32 skew = u32(reinterpret_cast<u64>(run)) / u32(sizeof(Element)) % vector;
    Element* const to = reinterpret_cast<Element*>(reinterpret_cast<u64>(run) & ~u64(15));
    u32 begin = skew, end = skew + length;
    if constexpr (C.window > 1) place.keep_whole_sectors(run, skew, begin, end);
    // From `head` to `tail` are whole vectors.
    const u32 head = min((begin + vector - 1) & ~u32(vector - 1), end), tail = max(end & ~u32(vector - 1), head);
#pragma unroll 1
    for (int first = 0; first < all; first += together) {
      uint4 value[together];
      const auto each = [&](const auto& visit) {
#pragma unroll
        for (int i = 0; i < together; ++i)
          if (const u32 at = u32((first + i) * lanes + lane) * vector; at - head < tail - head) visit(i, at);
      };
      each([&](int i, u32 at) { value[i] = *reinterpret_cast<const uint4*>(from + at); });
      each([&](int i, u32 at) { ptx::store(to + at, value[i]); });
    }
    // What is before them, and behind.
    if (const u32 at = begin + u32(lane); at < head) ptx::store(to + at, from[at]);
    if (const u32 at = tail + u32(lane); at < end) ptx::store(to + at, from[at]);
  }
};

}  // namespace tconv::device
