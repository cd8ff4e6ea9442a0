// The direct kernel: few channels per group, depthwise layers first of all. No tensor core can help
// there; the layer is a copy with a few multiply-adds, and should run at copy speed.
//
// A warp computes a segment of one row of outputs, its lanes on consecutive outputs and aligned with the
// lines of memory. Inputs and weights come through the L1: neighbouring outputs share them.
//
// Config: Element, groups, group_in, group_out, kernel, stride, padding, dilation (Int3 each).
#pragma once

#include "element.cuh"
#include "launch_params.cuh"

namespace tconv::device {

/// The taps of one dimension by phase: k0 + j·step at input q − c − j·shift (DESIGN: phases).
template <int Kernel, int Stride, int Dilation>
struct PhaseTaps {
  static constexpr int g = gcd(Stride, Dilation);
  static constexpr int step = Stride / g;
  static constexpr int shift = Dilation / g;
  static constexpr int most = ceil_div(Kernel, step);  // taps of the phase that has most

  /// First tap of a phase, or Kernel where it has none.
  __device__ static int first(int phase) {
    if constexpr (Dilation == 1) {
      return phase;
    } else {
      int k0 = Kernel;
#pragma unroll
      for (int k = min_of(step, Kernel) - 1; k >= 0; --k)
        if (k * Dilation % Stride == phase) k0 = k;
      return k0;
    }
  }
};

template <class Config>
struct Direct {
  using Element = typename Config::Element;
  using Accumulator = typename AccumulatorOf<Element>::Type;
  static constexpr int outputs_per_lane = 8;
  static constexpr int segment = warp_size * outputs_per_lane;
  static constexpr Int3 K = Config::kernel, S = Config::stride, P = Config::padding, D = Config::dilation;

  /// One output along the width: the input of its first tap, and which taps it has.
  struct Column {
    i64 input;
    int k0;
  };

  __device__ static void run(const DirectParams& params) {
    const GenericParams& p = params.tensors;
    constexpr i64 out_channels = i64(Config::groups) * Config::group_out;
    const i64 warps = i64(gridDim.x) * blockDim.x / warp_size;
    for (i64 item = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size; item < params.items; item += warps) {
      i64 rest = item;
      const i64 part = rest % params.segments;
      rest /= params.segments;
      const i64 oh = rest % p.out_h;
      rest /= p.out_h;
      const i64 od = rest % p.out_d;
      rest /= p.out_d;
      const i64 co = rest % out_channels;
      const i64 n = rest / out_channels;

      Element* row = static_cast<Element*>(p.y) + n * p.ys.n + co * p.ys.c + od * p.ys.d + oh * p.ys.h;
      const int skew = int(reinterpret_cast<u64>(row) / sizeof(Element) % warp_size);
      const i64 first = part * segment - skew + lane_index();
      compute(p, n, co, od, oh, row, first);
    }
  }

 private:
  __device__ static void compute(const GenericParams& p, i64 n, i64 co, i64 od, i64 oh, Element* row, i64 first) {
    const i64 group = co / Config::group_out;
    Column column[outputs_per_lane];
#pragma unroll
    for (int v = 0; v < outputs_per_lane; ++v) {
      const i64 target = max(first + v * warp_size, i64(0)) + P.w;
      const int phase = int(target % S.w);
      column[v].k0 = PhaseTaps<K.w, S.w, D.w>::first(phase);
      column[v].input = target / S.w - (column[v].k0 * D.w - phase) / S.w;
    }
    Accumulator sum[outputs_per_lane] = {};
    const Element* x_image = static_cast<const Element*>(p.x) + n * p.xs.n + group * Config::group_in * p.xs.c;
    const Element* w_filter = static_cast<const Element*>(p.weight) + group * Config::group_in * p.ws.n +
                              (co - group * Config::group_out) * p.ws.c;
    const int phase_d = int((od + P.d) % S.d), phase_h = int((oh + P.h) % S.h);
    using TapsD = PhaseTaps<K.d, S.d, D.d>;
    using TapsH = PhaseTaps<K.h, S.h, D.h>;
    const int d0 = TapsD::first(phase_d), h0 = TapsH::first(phase_h);
    for (int kd = d0; kd < K.d; kd += TapsD::step) {
      const i64 id = (od + P.d - i64(kd) * D.d) / S.d;
      if (od + P.d < i64(kd) * D.d || id >= p.in_d) continue;
      for (int kh = h0; kh < K.h; kh += TapsH::step) {
        const i64 ih = (oh + P.h - i64(kh) * D.h) / S.h;
        if (oh + P.h < i64(kh) * D.h || ih >= p.in_h) continue;
        for (int ci = 0; ci < Config::group_in; ++ci)
          accumulate(sum, column, x_image + ci * p.xs.c + id * p.xs.d + ih * p.xs.h, p.xs.w, p.in_w,
                     w_filter + ci * p.ws.n + kd * p.ws.d + kh * p.ws.h, p.ws.w);
      }
    }
    const Accumulator bias = p.bias ? load_as_accumulator(static_cast<const Element*>(p.bias)[co]) : Accumulator(0);
#pragma unroll
    for (int v = 0; v < outputs_per_lane; ++v) {
      const i64 o = first + v * warp_size;
      if (o >= 0 && o < p.out_w) row[o * p.ys.w] = to_element<Element>(sum[v] + bias);
    }
  }

  __device__ static void accumulate(Accumulator (&sum)[outputs_per_lane], const Column (&column)[outputs_per_lane],
                                    const Element* x, i64 x_stride, i64 size, const Element* w, i64 w_stride) {
    using Taps = PhaseTaps<K.w, S.w, D.w>;
#pragma unroll
    for (int v = 0; v < outputs_per_lane; ++v) {
#pragma unroll(Taps::most <= 8 ? Taps::most : 4)
      for (int j = 0; j < Taps::most; ++j) {
        const int k = column[v].k0 + j * Taps::step;
        const i64 i = column[v].input - j * Taps::shift;
        if (k < K.w && u64(i) < u64(size))
          sum[v] += load_as_accumulator(x[i * x_stride]) * load_as_accumulator(w[k * w_stride]);
      }
    }
  }
};

}  // namespace tconv::device
