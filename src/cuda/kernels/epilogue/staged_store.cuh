// The epilogue: sums leave the registers through shared memory, so that memory sees whole lines.
//
// A row of the product is a phase along the width of a line; a line is one (channel, phase along depth,
// phase along height). Staging interleaves the phases of a line, after which each row of positions of
// the box is a contiguous run of output. Slots of phases without taps are zero from the start and never
// written. Rows come in stage groups, runs of row tiles that hold complete lines; each pass stages one
// group per warp row.
#pragma once

#include "epilogue/vector_store.cuh"
#include "sizes/general.cuh"
#include "tile.cuh"

namespace tconv::device {

template <GemmConfig C>
struct StagedStore {
  using Element = ElementOf<C>;
  using Sum = SumFor<C.math>;
  static constexpr int threads = threads_of(C);
  static constexpr int warps = C.warps_m * C.warps_n;
  static constexpr int box_rows = C.box.d * C.box.h;
  static constexpr int phases = C.width_phases;
  static constexpr int group_tiles = C.stage_group_tiles;
  static constexpr int group_lines = C.stage_group_lines;
  // Either each warp row stages groups of its own, or one group spans all warp rows.
  static constexpr bool spanning = spans_warps(C);
  static constexpr int passes = store_passes(C);
  static constexpr int pass_tiles = spanning ? C.tiles_m : group_tiles;
  static constexpr int pass_lines = device::pass_lines(C);
  static constexpr int lines = block_lines(C);
  static constexpr int line_stride = device::line_stride(C);
  static constexpr int run = C.box.w * C.stride.w;  // outputs of one row of positions

  static_assert(spanning || C.tiles_m % group_tiles == 0, "stage groups must not straddle warps");

  /// What the stores of a tile need to know of a line, worked out while its products are formed.
  struct Line {
    i64 offset;  // of its first output in the tensor, without the position
    Sum bias;
    int phase_d, phase_h;
    bool exists;
  };
  static_assert(sizeof(Line) == line_bytes(C));

  /// Shared memory of the epilogue. Lines are written for the next tile while others store this one.
  struct Memory {
    Sum* staging;
    Line* table[2];
  };
  __device__ static Memory memory(void* at) {
    Sum* staging = static_cast<Sum*>(at);
    Line* table = reinterpret_cast<Line*>(staging + staging_words(C));
    return {staging, {table, table + lines}};
  }

  __device__ static void clear(const Memory& m) {
    for (int i = int(threadIdx.x); i < staging_words(C); i += threads) m.staging[i] = 0;
  }

  template <class Tables>
  __device__ static void describe_lines(const ForwardParams& p, const Tile& tile, Line* table, const Tables& tables) {
    for (int i = int(threadIdx.x); i < lines; i += threads) {
      const u32 entry = tables.line(tile.type, i);
      const int local = int(entry & 0xffff) + tile.channel_block * C.channels_per_block;
      const int channel = tile.group * C.group_out + local;
      Line& line = table[i];
      line.exists = entry != 0xffffffff && local < C.group_out;
      line.phase_d = int(entry >> 16 & 0xff), line.phase_h = int(entry >> 24);
      line.offset = tile.n * p.ys.n + channel * p.ys.c;
      line.bias = p.bias && entry != 0xffffffff && local < C.group_out
                      ? load_as_accumulator(static_cast<const Element*>(p.bias)[channel])
                      : Sum(0);
    }
  }

  __device__ static void store(const ForwardParams& p, const Tile& tile, const Memory& m, const Line* table,
                               const Sum (&sum)[C.tiles_m][C.tiles_n][4]) {
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      __syncthreads();  // the last pass has been read
      // Registers are named at compile time: one copy of the staging for each pass, one of the stores.
#pragma unroll
      for (int i = 0; i < passes; ++i)
        if (pass == i) stage(m.staging, sum, i);
      __syncthreads();
      if constexpr (C.y_rows)
        store_rows(p, tile, m.staging, table, pass);
      else
        store_elements(p, tile, m.staging, table, pass);
    }
  }

 private:
  __device__ static void stage(Sum* staging, const Sum (&sum)[C.tiles_m][C.tiles_n][4], int pass) {
    const int lane = lane_index(), warp_m = warp_index() / C.warps_n, warp_n = warp_index() % C.warps_n;
#pragma unroll
    for (int i = 0; i < pass_tiles; ++i) {
      const int m = pass * pass_tiles + i;
      // The tile's place in its stage group, and the group's first line in the staging buffer.
      const int place = spanning ? warp_m * C.tiles_m + i : i;
      const int first_line = spanning ? 0 : warp_m * group_lines;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + half * 8;
        const int line = C.phase_major ? row : (place * 16 + row) / phases;
        const int phase = C.phase_major ? place : (place * 16 + row) % phases;
        if (line >= group_lines || phase >= phases) continue;
        Sum* target = staging + (first_line + line) * line_stride + width_phase(phase);
#pragma unroll
        for (int n = 0; n < C.tiles_n; ++n) {
          const int column = (warp_n * C.tiles_n + n) * 8 + lane % 4 * 2;
          const Sum* value = sum[m][n] + half * 2;
          if constexpr (C.stride.w == 1 && C.y_rows) {
            store_pair(target + column, value[0], value[1]);
          } else {
            target[column * C.stride.w] = value[0];
            target[(column + 1) * C.stride.w] = value[1];
          }
        }
      }
    }
  }

  /// The width phase that is the `index`th with taps.
  __device__ static int width_phase(int index) {
    if constexpr (phases == C.stride.w) return index;
    int phase = 0;
#pragma unroll
    for (int i = 0; i < phases; ++i)
      if (index == i) phase = phase_with_taps(C, i);
    return phase;
  }

  __device__ static int staged_row(int row) { return row * run; }

  /// The row of the block's line table that a line of the pass has.
  __device__ static int table_row(int pass, int line) {
    if (spanning) return line;
    return (line / group_lines * passes + pass) * group_lines + line % group_lines;
  }

  /// Eight lanes write a run, 16 bytes each and aligned with memory: a line of 128 bytes at a time, four runs
  /// side by side. The ends of a run go element by element.
  __device__ static void store_rows(const ForwardParams& p, const Tile& tile, const Sum* staging, const Line* table,
                                    int pass) {
    constexpr int vector = 16 / sizeof(Element);
    constexpr int lanes = 8, runs = pass_lines * box_rows;
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    const int first = max(0, -ow0), end = min(run, p.out.w - ow0);
#pragma unroll 1
    for (int item = int(threadIdx.x) / lanes; item < runs; item += threads / lanes) {
      const int line_index = item / box_rows, row = item % box_rows;
      const Line& line = table[table_row(pass, line_index)];
      const int od = (tile.origin.d + row / C.box.h) * C.stride.d + line.phase_d - C.padding.d;
      const int oh = (tile.origin.h + row % C.box.h) * C.stride.h + line.phase_h - C.padding.h;
      if (!line.exists || unsigned(od) >= unsigned(p.out.d) || unsigned(oh) >= unsigned(p.out.h)) continue;
      const Sum bias = line.bias;
      Element* const target = static_cast<Element*>(p.y) + line.offset + (od * p.ys.d + oh * p.ys.h + ow0);
      // Vectors start `skew` elements before the run. In the staging they start `shift` floats after a
      // multiple of four: two aligned reads hold them. What is read in front of a line is not stored; in
      // front of the staging lie the x tiles.
      const int skew = int(reinterpret_cast<u64>(target + first) / sizeof(Element) % (vector * lanes));
      const int begin = first - skew, staged = staged_row(row);
      const int shift = (staged + begin) & 3;
      const Sum* const from = staging + line_index * line_stride;
#pragma unroll 2
      for (int c = begin + lane_index() % lanes * vector; c < end; c += lanes * vector) {
        if (c + vector <= first) continue;
        Element out[vector];
        if constexpr (sizeof(Sum) == 8) {
#pragma unroll
          for (int i = 0; i < vector; ++i) out[i] = from[staged + max(c + i, first)] + bias;
        } else {
          const float4* words = reinterpret_cast<const float4*>(from + (staged + c - shift));
          float4 low = words[0];
#pragma unroll
          for (int i = 0; i < vector / 4; ++i) {
            const float4 high = words[i + 1];
            const float4 v = shifted(low, high, shift);
            out[4 * i] = to_element<Element>(v.x + bias), out[4 * i + 1] = to_element<Element>(v.y + bias);
            out[4 * i + 2] = to_element<Element>(v.z + bias), out[4 * i + 3] = to_element<Element>(v.w + bias);
            low = high;
          }
        }
        if (c >= first && c + vector <= end) {
          store_whole(target + c, out);
        } else {
#pragma unroll
          for (int i = 0; i < vector; ++i)
            if (c + i >= first && c + i < end) target[c + i] = out[i];
        }
      }
    }
  }

  /// Four of the eight floats of `low` and `high`, from `shift` on.
  __device__ static float4 shifted(const float4& low, const float4& high, int shift) {
    const bool one = shift & 1, two = shift & 2;
    const float a = one ? low.y : low.x, b = one ? low.z : low.y, c = one ? low.w : low.z, d = one ? high.x : low.w,
                e = one ? high.y : high.x, f = one ? high.z : high.y;
    return make_float4(two ? c : a, two ? d : b, two ? e : c, two ? f : d);
  }

  __device__ static void store_whole(double* at, const double (&v)[2]) { store_pair(at, v[0], v[1]); }
  __device__ static void store_whole(float* at, const float (&v)[4]) {
    *reinterpret_cast<float4*>(at) = make_float4(v[0], v[1], v[2], v[3]);
  }
  template <class Half>
  __device__ static void store_whole(Half* at, const Half (&v)[8]) {
    *reinterpret_cast<uint4*>(at) = make_uint4(v[0].bits | u32(v[1].bits) << 16, v[2].bits | u32(v[3].bits) << 16,
                                               v[4].bits | u32(v[5].bits) << 16, v[6].bits | u32(v[7].bits) << 16);
  }

  /// Any strides; lines fastest, which is contiguous where channels are.
  __device__ static void store_elements(const ForwardParams& p, const Tile& tile, const Sum* staging, const Line* table,
                                        int pass) {
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    for (int item = int(threadIdx.x); item < pass_lines * box_rows * run; item += threads) {
      const int line_index = item % pass_lines, c = item / pass_lines % run, row = item / (pass_lines * run);
      const Line& line = table[table_row(pass, line_index)];
      const int od = (tile.origin.d + row / C.box.h) * C.stride.d + line.phase_d - C.padding.d;
      const int oh = (tile.origin.h + row % C.box.h) * C.stride.h + line.phase_h - C.padding.h;
      const int ow = ow0 + c;
      if (!line.exists || unsigned(od) >= unsigned(p.out.d) || unsigned(oh) >= unsigned(p.out.h) ||
          unsigned(ow) >= unsigned(p.out.w))
        continue;
      static_cast<Element*>(p.y)[line.offset + (od * p.ys.d + oh * p.ys.h + ow * p.ys.w)] =
          to_element<Element>(staging[line_index * line_stride + staged_row(row) + c] + line.bias);
    }
  }
};

}  // namespace tconv::device
