// The direct kernel for channels last: lanes run over channels, which are contiguous in x and y.
//
// A thread owns a few neighbouring channels (of one group, or of several groups where the layer is
// depthwise), and all phases of a block of positions: a load or a store of a warp is whole lines, and an
// input is loaded once for all phases and for all rows of the block. The weights of a block's channels stay in
// shared memory, channels side by side.
#pragma once

#include "direct_config.cuh"
#include "launch_params.cuh"
#include "ptx/launch.cuh"
#include "taps.cuh"
#include "vector.cuh"

namespace tconv::device {

template <class Element, DirectConfig C>
class DirectChannels {
  using Accumulator = typename AccumulatorOf<Element>::Type;
  static constexpr Int3 K = C.kernel, S = C.stride, P = C.padding, D = C.dilation;
  using TapsD = PhaseTaps<K.d, S.d, D.d>;
  using TapsH = PhaseTaps<K.h, S.h, D.h>;
  static constexpr int ins = C.channels * C.group_in, outs = C.channels * C.group_out;  // of a thread
  static constexpr int run = C.positions * S.w;
  static constexpr int reach_h = reach_of(K.h, S.h, D.h), reach_w = reach_of(K.w, S.w, D.w);
  static constexpr int window = reach_w + C.positions;
  static constexpr int out_rows = out_rows_of(C);
  static constexpr int slabs = ceil_div(C.groups, C.slots* C.channels);  // of channels, one to a block
  static constexpr int places = direct_threads / C.slots;                // of a block, along the positions

  struct alignas(min_of(16, (outs & -outs) * int(sizeof(Accumulator)))) Weights {
    Accumulator of[outs];
  };

  struct Place {
    i64 image;
    int od, h, q;
  };
  using Sums = Accumulator[out_rows][run][outs];

 public:
  __device__ static void run_layer(const DirectParams& p) {
    ptx::begin_after_previous();
    extern __shared__ Words<4> shared[];
    Weights* weights = reinterpret_cast<Weights*>(shared);
    const int slab = int(blockIdx.x % slabs), slot = int(threadIdx.x % C.slots);
    load_weights(p, slab, weights);
    __syncthreads();
    const int group = (slab * C.slots + slot) * C.channels;
    if (group >= C.groups) return;
    const i64 stride = i64(gridDim.x / slabs) * places;
    for (i64 item = i64(blockIdx.x / slabs) * places + threadIdx.x / C.slots; item < p.items; item += stride) {
      const Place at = place(p, item);
      Sums sum;
      start(p, group, sum);
      accumulate(p, at, group, weights + slot, sum);
      store(p, at, group, sum);
    }
  }

 private:
  /// Weights [tap][channel of the group's input][slot].
  __device__ static void load_weights(const DirectParams& p, int slab, Weights* weights) {
    for (int i = threadIdx.x; i < volume(K) * C.group_in * C.slots * outs; i += direct_threads) {
      // Neighbouring threads read neighbouring taps.
      int rest = i;
      const int tap = rest % volume(K);
      rest /= volume(K);
      const int out = rest % outs;
      rest /= outs;
      const int ci = rest % C.group_in, slot = rest / C.group_in;
      const int group = (slab * C.slots + slot) * C.channels + out / C.group_out;
      const int kw = tap % K.w, kh = tap / K.w % K.h, kd = tap / K.w / K.h;
      if (group < C.groups)
        weights[(tap * C.group_in + ci) * C.slots + slot].of[out] = load_as_accumulator(
            static_cast<const Element*>(p.weight)[(i64(group) * C.group_in + ci) * p.ws.n + out % C.group_out * p.ws.c +
                                                  kd * p.ws.d + kh * p.ws.h + kw * p.ws.w]);
    }
  }

  __device__ static Place place(const DirectParams& p, i64 item) {
    Place at;
    u64 rest = u64(item);
    at.q = int(divide(rest, u32(p.tiles))) * C.positions + P.w / S.w;
    const int block = int(divide(rest, u32(p.row_blocks)));
    at.h = C.rows ? block * C.rows + P.h / S.h : block;
    at.od = int(divide(rest, u32(p.out.d)));
    at.image = i64(rest);
    return at;
  }

  __device__ static void start(const DirectParams& p, int group, Sums& sum) {
    const Element* bias = static_cast<const Element*>(p.bias) + group * C.group_out;
#pragma unroll
    for (int out = 0; out < outs; ++out) {
      const Accumulator value = p.bias ? load_as_accumulator(bias[out]) : Accumulator(0);
#pragma unroll
      for (int row = 0; row < out_rows; ++row)
#pragma unroll
        for (int o = 0; o < run; ++o) sum[row][o][out] = value;
    }
  }

  __device__ static void accumulate(const DirectParams& p, const Place& at, int group, const Weights* weights,
                                    Sums& sum) {
    const Element* image = static_cast<const Element*>(p.x) + at.image * p.xs.n + i64(group) * C.group_in;
    for (int kd = TapsD::first((at.od + P.d) % S.d); kd < K.d; kd += TapsD::step) {
      const int reached = at.od + P.d - kd * D.d, id = reached / S.d;
      if (reached < 0 || id >= p.in.d) continue;
      const Element* plane = image + id * p.xs.d;
      const Weights* w = weights + kd * K.h * K.w * C.group_in * C.slots;
      if constexpr (C.rows > 0) {
#pragma unroll
        for (int i = -reach_h; i < C.rows; ++i) {
          Accumulator x[window][ins];
          load_window(p, plane, at.h + i, at.q, x);
#pragma unroll
          for (int kh = 0; kh < K.h; ++kh) {
            const int row = i * S.h + kh * D.h;
            if (row >= 0 && row < out_rows) add_row(x, w + kh * K.w * C.group_in * C.slots, sum[row]);
          }
        }
      } else {
#pragma unroll 1
        for (int kh = TapsH::first((at.h + P.h) % S.h); kh < K.h; kh += TapsH::step) {
          const int reached_h = at.h + P.h - kh * D.h;
          if (reached_h < 0) break;
          Accumulator x[window][ins];
          load_window(p, plane, reached_h / S.h, at.q, x);
          add_row(x, w + kh * K.w * C.group_in * C.slots, sum[0]);
        }
      }
    }
  }

  __device__ static void load_window(const DirectParams& p, const Element* plane, int ih, int q,
                                     Accumulator (&x)[window][ins]) {
    const bool there = unsigned(ih) < unsigned(p.in.h);
    const int position = q - reach_w;
    const Element* from = plane + (ih * p.xs.h + position * p.xs.w);
#pragma unroll
    for (int i = 0; i < window; ++i) {
      const bool inside = there && unsigned(position + i) < unsigned(p.in.w);
#pragma unroll
      for (int c = 0; c < ins; c += C.x_vector)
        load_values<Element, C.x_vector>(from + i * p.xs.w + c, inside, x[i] + c);
    }
  }

  /// Tap k of the width meets phase k·d mod s, ⌊k·d / s⌋ inputs back.
  __device__ static void add_row(const Accumulator (&x)[window][ins], const Weights* weights,
                                 Accumulator (&sum)[run][outs]) {
#pragma unroll
    for (int k = 0; k < K.w; ++k) {
      const int phase = k * D.w % S.w, shift = k * D.w / S.w;
#pragma unroll
      for (int ci = 0; ci < C.group_in; ++ci) {
        const Weights w = weights[(k * C.group_in + ci) * C.slots];
#pragma unroll
        for (int j = 0; j < C.positions; ++j)
#pragma unroll
          for (int out = 0; out < outs; ++out)
            sum[j * S.w + phase][out] += x[reach_w + j - shift][out / C.group_out * C.group_in + ci] * w.of[out];
      }
    }
  }

  __device__ static void store(const DirectParams& p, const Place& at, int group, const Sums& sum) {
    Element* image = static_cast<Element*>(p.y) + at.image * p.ys.n + at.od * p.ys.d + i64(group) * C.group_out;
#pragma unroll
    for (int row = 0; row < out_rows; ++row) {
      const int oh = C.rows ? at.h * S.h + row - P.h : at.h;
      if (unsigned(oh) >= unsigned(p.out.h)) continue;
#pragma unroll
      for (int i = 0; i < run; ++i) {
        const int ow = at.q * S.w - P.w + i;
        if (unsigned(ow) >= unsigned(p.out.w)) continue;
        Element* to = image + (oh * p.ys.h + ow * p.ys.w);
#pragma unroll
        for (int c = 0; c < outs; c += C.y_vector)
          store_words<Element, C.y_vector>(to + c, to_words<Element, C.y_vector>(sum[row][i] + c));
      }
    }
  }
};

}  // namespace tconv::device
