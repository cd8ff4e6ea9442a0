// The direct kernel for rows: outputs of a row are contiguous. Few channels per group, depthwise layers first
// of all: no tensor core can help there, the layer is a copy with a few multiply-adds.
//
// A thread owns a run of consecutive positions and all their phases along the width, so taps and phases are
// known when the kernel is compiled, an input is loaded once for all of them, and the outputs of a warp are
// one contiguous run per row. Where rows share inputs along the height, a thread owns several.
//
// Stores are whole vectors. Where rows are aligned and the stride divides a vector, a thread owns the outputs of
// one and stores it as it is. Else outputs pass through shared memory (`staged`): the runs of the
// threads lie there one after the other, and a lane picks the 16 bytes of an aligned vector. Tiles then
// overlap by a few positions, so that every tile ends on a vector of the row and only a row's own ends are
// ragged.
#pragma once

#include "direct_config.cuh"
#include "launch_params.cuh"
#include "ptx/launch.cuh"
#include "taps.cuh"
#include "vector.cuh"

namespace tconv::device {

template <class Element, DirectConfig C>
class DirectRows {
  using Accumulator = typename AccumulatorOf<Element>::Type;
  static constexpr Int3 K = C.kernel, S = C.stride, P = C.padding, D = C.dilation;
  using TapsD = PhaseTaps<K.d, S.d, D.d>;
  using TapsH = PhaseTaps<K.h, S.h, D.h>;
  static constexpr int vector = C.y_vector;      // sixteen bytes where outputs are staged
  static constexpr int run = C.positions * S.w;  // outputs of a thread along the width
  static constexpr int run_vectors = run / vector;
  static constexpr int reach_h = reach_of(K.h, S.h, D.h), reach_w = reach_of(K.w, S.w, D.w);
  // A staged run begins with phase 0 of position q, one that is stored as it is with output q·s, whose phase
  // and position the padding decides.
  static constexpr int first_phase = C.staged ? 0 : P.w % S.w, ahead = C.staged ? 0 : P.w / S.w;
  // The inputs a thread loads: from q − lead on.
  static constexpr int lead = round_up(max_of(reach_w - ahead, 0), C.x_vector);
  static constexpr int window = lead + round_up(ahead + (first_phase + run - 1) / S.w + 1, C.x_vector);
  static constexpr int out_rows = out_rows_of(C);
  static constexpr int channel_blocks = ceil_div(C.group_out, C.channels);
  static constexpr int warps = direct_threads / warp_size;
  static_assert(run % vector == 0 && C.positions % C.x_vector == 0 &&
                run == (C.staged ? run_vectors * vector_of<Element> : vector));

  /// What a thread works on.
  struct Place {
    i64 image;
    int group, channel;  // first channel inside the group
    int od, h;           // h: first position, or the row of outputs where its taps are found at run time
    int q;               // first position along the width
    bool valid;
  };
  /// Where a warp's lanes stand in its tile.
  struct Lanes {
    int count, index, tile;
    Words<4>* staged;  // the outputs of this lane's row
  };
  using Sums = Accumulator[C.channels][out_rows][run];

 public:
  __device__ static void run_layer(const DirectParams& p) {
    ptx::begin_after_previous();
    __shared__ Words<4> staging[warps][C.staged ? warp_size * run_vectors : 1];
    const int bits = p.lane_bits, row_of_lane = lane_index() >> bits;
    Lanes lanes{1 << bits, lane_index() & ((1 << bits) - 1), 0,
                &staging[warp_index()][C.staged ? (row_of_lane << bits) * run_vectors : 0]};
    for (i64 item = i64(blockIdx.x) * warps + warp_index(); item < p.items; item += i64(gridDim.x) * warps) {
      u64 rest = u64(item);
      lanes.tile = int(divide(rest, u32(p.tiles)));
      const Place at = place(p, (i64(rest) << (5 - bits)) + row_of_lane, lanes);
      Sums sum = {};
      if (at.valid) accumulate(p, at, sum);
      store(p, at, lanes, sum);
    }
  }

 private:
  __device__ static Place place(const DirectParams& p, i64 row, const Lanes& lanes) {
    Place at;
    at.valid = row < p.rows;
    u64 rest = at.valid ? u64(row) : 0;
    at.channel = int(divide(rest, channel_blocks)) * C.channels;
    const int block = int(divide(rest, u32(p.row_blocks)));
    at.h = C.rows ? block * C.rows + P.h / S.h : block;
    at.od = int(divide(rest, u32(p.out.d)));
    at.group = int(divide(rest, C.groups));
    at.image = i64(rest);
    at.q = p.first_position + lanes.tile * p.tile_positions + lanes.index * C.positions;
    return at;
  }

  __device__ static void accumulate(const DirectParams& p, const Place& at, Sums& sum) {
    const Element* image = static_cast<const Element*>(p.x) + at.image * p.xs.n + i64(at.group) * C.group_in * p.xs.c;
    const Element* filter =
        static_cast<const Element*>(p.weight) + i64(at.group) * C.group_in * stride_in(p) + at.channel * stride_out(p);
    for (int kd = TapsD::first((at.od + P.d) % S.d); kd < K.d; kd += TapsD::step) {
      const int reached = at.od + P.d - kd * D.d, id = reached / S.d;
      if (reached < 0 || id >= p.in.d) continue;
#pragma unroll 1
      for (int ci = 0; ci < C.group_in; ++ci)
        add_plane(p, at, image + ci * p.xs.c + id * p.xs.d, filter + ci * stride_in(p) + kd * stride_d(p), sum);
    }
  }

  /// The products with one plane of one input channel.
  __device__ static void add_plane(const DirectParams& p, const Place& at, const Element* plane, const Element* w,
                                   Sums& sum) {
    if constexpr (C.rows > 0) {
#pragma unroll
      for (int i = -reach_h; i < C.rows; ++i) {
        Accumulator x[window];
        load_window(p, plane, at.h + i, at.q, x);
#pragma unroll
        for (int kh = 0; kh < K.h; ++kh) {
          const int row = i * S.h + kh * D.h;
          if (row >= 0 && row < out_rows) add_row(p, at, x, w + kh * stride_h(p), sum, row);
        }
      }
    } else {
#pragma unroll 1
      for (int kh = TapsH::first((at.h + P.h) % S.h); kh < K.h; kh += TapsH::step) {
        const int reached = at.h + P.h - kh * D.h;
        if (reached < 0) break;
        Accumulator x[window];
        load_window(p, plane, reached / S.h, at.q, x);
        add_row(p, at, x, w + kh * stride_h(p), sum, 0);
      }
    }
  }

  __device__ static void load_window(const DirectParams& p, const Element* plane, int ih, int q,
                                     Accumulator (&x)[window]) {
    const bool there = unsigned(ih) < unsigned(p.in.h);
    const int stride = C.x_vector > 1 ? 1 : p.xs.w, position = q - lead;
    const Element* from = plane + (ih * p.xs.h + position * stride);
#pragma unroll
    for (int i = 0; i < window; i += C.x_vector)
      load_values<Element, C.x_vector>(from + i * stride, there && unsigned(position + i) < unsigned(p.in.w), x + i);
  }

  /// Tap k reaches the outputs whose target o + padding is k·dilation modulo the stride.
  __device__ static void add_row(const DirectParams& p, const Place& at, const Accumulator (&x)[window],
                                 const Element* w, Sums& sum, int row) {
#pragma unroll
    for (int k = 0; k < K.w; ++k)
#pragma unroll
      for (int c = 0; c < C.channels; ++c) {
        Accumulator weight;
        load_values<Element, 1>(w + k * stride_w(p) + channel_offset(at, c) * stride_out(p), true, &weight);
#pragma unroll
        for (int i = 0; i < run; ++i) {
          const int reached = first_phase + i - k * D.w;
          if (reached % S.w == 0) sum[c][row][i] += x[lead + ahead + reached / S.w] * weight;
        }
      }
  }

  /// Channels past the last of a group repeat it; they are not stored.
  __device__ static int channel_offset(const Place& at, int c) {
    return C.group_out % C.channels == 0 ? c : min(c, C.group_out - 1 - at.channel);
  }

  // Strides of the weight, known to the compiler where it is dense.
  __device__ static i64 stride_in(const DirectParams& p) {
    return C.dense_weight ? i64(C.group_out) * volume(K) : p.ws.n;
  }
  __device__ static i64 stride_out(const DirectParams& p) { return C.dense_weight ? volume(K) : p.ws.c; }
  __device__ static i64 stride_d(const DirectParams& p) { return C.dense_weight ? K.h * K.w : p.ws.d; }
  __device__ static i64 stride_h(const DirectParams& p) { return C.dense_weight ? K.w : p.ws.h; }
  __device__ static i64 stride_w(const DirectParams& p) { return C.dense_weight ? 1 : p.ws.w; }

  __device__ static void store(const DirectParams& p, const Place& at, const Lanes& lanes, const Sums& sum) {
    const int channel = at.group * C.group_out + at.channel;
    Element* image = static_cast<Element*>(p.y) + at.image * p.ys.n + at.od * p.ys.d;
#pragma unroll
    for (int c = 0; c < C.channels; ++c) {
      const bool has_channel = at.valid && at.channel + c < C.group_out;
      Accumulator bias = 0;
      if (p.bias && has_channel) bias = load_as_accumulator(static_cast<const Element*>(p.bias)[channel + c]);
#pragma unroll
      for (int row = 0; row < out_rows; ++row) {
        const int oh = C.rows ? at.h * S.h + row - P.h : at.h;
        const bool has_row = has_channel && unsigned(oh) < unsigned(p.out.h);
        Element* y = image + (channel + c) * p.ys.c + oh * p.ys.h;
        if constexpr (C.staged) {
          stage(lanes, sum[c][row], bias);
          __syncwarp();
          if (has_row) store_row(p, lanes, y);
          __syncwarp();
        } else {
          const int o = at.q * S.w;
          if (has_row && o < p.out.w) store_words<Element, vector>(y + o, biased(sum[c][row], bias));
        }
      }
    }
  }

  /// Threads write runs of `run_vectors`; an even number of them would meet in the same banks.
  __device__ static int swizzled(int unit) { return run_vectors % 2 ? unit : unit ^ (unit >> 3 & 7); }

  __device__ static void stage(const Lanes& lanes, const Accumulator (&sum)[run], Accumulator bias) {
#pragma unroll
    for (int i = 0; i < run_vectors; ++i)
      lanes.staged[swizzled(lanes.index * run_vectors + i)] = biased(sum + i * vector, bias);
  }

  __device__ static auto biased(const Accumulator* sum, Accumulator bias) {
    Accumulator values[vector];
#pragma unroll
    for (int v = 0; v < vector; ++v) values[v] = sum[v] + bias;
    return to_words<Element, vector>(values);
  }

  /// A row of the tile, by the lanes that staged it.
  __device__ static void store_row(const DirectParams& p, const Lanes& lanes, Element* row) {
    const bool contiguous = p.ys.w == 1;
    const int skew = contiguous ? int(reinterpret_cast<u64>(row) / sizeof(Element) % vector) : 0;
    const int tile_outputs = p.tile_positions * S.w;
    const int begin = lanes.tile * tile_outputs - skew, end = begin + min(tile_outputs, p.out.w - begin);
    // Where `begin` lies in the staged run, in whole vectors and a rest.
    const int offset = P.w - p.first_position * S.w - skew + vector;
    const int shift = offset % vector, first_unit = offset / vector - 1, units = lanes.count * run_vectors;
#pragma unroll
    for (int i = 0; i < run_vectors; ++i) {
      const int index = lanes.index + i * lanes.count, o = begin + index * vector;
      if (o >= end) break;
      const int unit = first_unit + index;
      const Words<4> low = lanes.staged[swizzled(max(unit, 0))],
                     high = lanes.staged[swizzled(min(unit + 1, units - 1))];
      const Words<4> words = shifted<Element>(low, high, shift);
      if (contiguous && o >= 0 && end - o >= vector) {
        store_words<Element, vector>(row + o, words);
      } else {
#pragma unroll
        for (int v = 0; v < vector; ++v)
          if (o + v >= 0 && v < end - o) row[(o + v) * p.ys.w] = element_of<Element>(words, v);
      }
    }
  }
};

}  // namespace tconv::device
