// The epilogue: sums leave the registers through shared memory, so that memory sees whole lines.
//
// A row of the product is a phase along the width of a line; a line is one (channel, phase along depth,
// phase along height). Staging interleaves the phases of a line, after which each row of positions of
// the box is a contiguous run of output. Rows come in stage groups, runs of row tiles that hold complete
// lines; each pass stages one group per warp row.
#pragma once

#include "tile.cuh"

namespace tconv::device {

template <GemmConfig C>
struct StagedStore {
  using Element = ElementOf<C>;
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
  // Fragments are written in pairs of columns, rows 4 apart in a half warp: a stride of 8 mod 32 keeps
  // them apart. Channels-last stores read down the lines instead: an odd stride does for them.
  static constexpr int line_stride = device::line_stride(C);
  static constexpr int run = C.box.w * C.stride.w;  // outputs of one row of positions

  static_assert(spanning || C.tiles_m % group_tiles == 0, "stage groups must not straddle warps");

  template <class Tables>
  __device__ static void store(const ForwardParams& p, const Tile& tile, float* staging,
                               const float (&sum)[C.tiles_m][C.tiles_n][4], const Tables& tables) {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      __syncthreads();  // the last pass has been read
      stage(staging, sum, pass);
      __syncthreads();
      if constexpr (C.y_rows)
        store_rows(p, tile, staging, pass, tables);
      else
        store_elements(p, tile, staging, pass, tables);
    }
  }

 private:
  __device__ static void stage(float* staging, const float (&sum)[C.tiles_m][C.tiles_n][4], int pass) {
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
        int line, phase;
        if (C.phase_major) {
          line = row, phase = place;
        } else {
          line = (place * 16 + row) / phases, phase = (place * 16 + row) % phases;
        }
        if (line >= group_lines || phase >= phases) continue;
        float* target = staging + (first_line + line) * line_stride + phase;
#pragma unroll
        for (int n = 0; n < C.tiles_n; ++n) {
          const int column = (warp_n * C.tiles_n + n) * 8 + lane % 4 * 2;
          const float* value = sum[m][n] + half * 2;
          if constexpr (phases == 1 && C.y_rows) {
            *reinterpret_cast<float2*>(target + column) = make_float2(value[0], value[1]);
          } else {
            target[column * phases] = value[0];
            target[(column + 1) * phases] = value[1];
          }
        }
      }
    }
  }

  /// Where a line of the pass goes.
  struct Line {
    int channel;  // of the tensor; -1: padding
    int phase_d, phase_h;
  };
  template <class Tables>
  __device__ static Line line_of(const Tile& tile, int pass, int line, const Tables& tables) {
    const int group = spanning ? 0 : line / group_lines * passes + pass;
    const u32 entry = tables.line(tile.type, group * group_lines + line % group_lines);
    const int local = int(entry & 0xffff) + tile.channel_block * C.channels_per_block;
    const bool exists = entry != 0xffffffff && local < C.group_out;
    return {exists ? tile.group * C.group_out + local : -1, int(entry >> 16 & 0xff), int(entry >> 24)};
  }

  __device__ static float bias_of(const ForwardParams& p, int channel) {
    return p.bias ? load_as_accumulator(static_cast<const Element*>(p.bias)[channel]) : 0.f;
  }

  /// The staged value of output `c` of a run, or the bias alone where its phase has no taps.
  template <class Tables>
  __device__ static float value_at(const float* staged, int c, float bias, const Tables& tables) {
    if constexpr (phases == C.stride.w) {
      return staged[c] + bias;
    } else {
      const int phase = tables.width_phase(c % C.stride.w);
      return phase < 0 ? bias : staged[c / C.stride.w * phases + phase] + bias;
    }
  }

  /// Each warp writes whole runs, its lanes aligned with the lines of memory.
  template <class Tables>
  __device__ static void store_rows(const ForwardParams& p, const Tile& tile, const float* staging, int pass,
                                    const Tables& tables) {
    constexpr int per_lane = 4 / sizeof(Element);
    constexpr int per_warp = per_lane * warp_size;
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    const int first = max(0, -ow0), end = min(run, p.out.w - ow0);
    for (int item = warp_index(); item < pass_lines * box_rows; item += warps) {
      const int line_index = item / box_rows, row = item % box_rows;
      const Line line = line_of(tile, pass, line_index, tables);
      if (line.channel < 0) continue;
      const int od = (tile.origin.d + row / C.box.h) * C.stride.d + line.phase_d - C.padding.d;
      const int oh = (tile.origin.h + row % C.box.h) * C.stride.h + line.phase_h - C.padding.h;
      if (unsigned(od) >= unsigned(p.out.d) || unsigned(oh) >= unsigned(p.out.h)) continue;
      const float bias = bias_of(p, line.channel);
      const float* staged = staging + line_index * line_stride + row * C.box.w * phases;
      Element* target = static_cast<Element*>(p.y) + tile.n * p.ys.n + line.channel * p.ys.c + i64(od) * p.ys.d + i64(oh) * p.ys.h + ow0;
      const int skew = int(reinterpret_cast<u64>(target + first) / sizeof(Element) % per_warp);
#pragma unroll 4
      for (int c = first - skew + lane_index() * per_lane; c < end; c += per_warp) {
        if constexpr (per_lane == 1) {
          if (c >= first) target[c] = value_at(staged, c, bias, tables);
        } else {
          Element pair[2];
          if (c >= first) pair[0] = to_element<Element>(value_at(staged, c, bias, tables));
          if (c + 1 >= first && c + 1 < end) pair[1] = to_element<Element>(value_at(staged, c + 1, bias, tables));
          if (c >= first && c + 1 < end)
            *reinterpret_cast<u32*>(target + c) = pair[0].bits | u32(pair[1].bits) << 16;
          else if (c >= first)
            target[c] = pair[0];
          else if (c + 1 >= first && c + 1 < end)
            target[c + 1] = pair[1];
        }
      }
    }
  }

  /// Any strides; lines fastest, which is contiguous where channels are.
  template <class Tables>
  __device__ static void store_elements(const ForwardParams& p, const Tile& tile, const float* staging,
                                        int pass, const Tables& tables) {
    const int ow0 = tile.origin.w * C.stride.w - C.padding.w;
    for (int item = threadIdx.x; item < pass_lines * box_rows * run; item += warps * warp_size) {
      const int line_index = item % pass_lines, c = item / pass_lines % run, row = item / (pass_lines * run);
      const Line line = line_of(tile, pass, line_index, tables);
      const int od = (tile.origin.d + row / C.box.h) * C.stride.d + line.phase_d - C.padding.d;
      const int oh = (tile.origin.h + row % C.box.h) * C.stride.h + line.phase_h - C.padding.h;
      const int ow = ow0 + c;
      if (line.channel < 0 || unsigned(od) >= unsigned(p.out.d) || unsigned(oh) >= unsigned(p.out.h) ||
          unsigned(ow) >= unsigned(p.out.w))
        continue;
      const float bias = bias_of(p, line.channel);
      const float* staged = staging + line_index * line_stride + row * C.box.w * phases;
      static_cast<Element*>(p.y)[tile.n * p.ys.n + line.channel * p.ys.c + i64(od) * p.ys.d + i64(oh) * p.ys.h + i64(ow) * p.ys.w] =
          to_element<Element>(value_at(staged, c, bias, tables));
    }
  }
};

}  // namespace tconv::device
