// The direct kernel: few channels per group, depthwise layers first of all. No tensor core can help
// there; the layer is a copy with a few multiply-adds, and should run at copy speed.
//
// A warp computes part of one row of outputs, its lanes on consecutive outputs and aligned with the
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
  using TapsD = PhaseTaps<K.d, S.d, D.d>;
  using TapsH = PhaseTaps<K.h, S.h, D.h>;
  using TapsW = PhaseTaps<K.w, S.w, D.w>;

  /// One output along the width: its first tap, and the input that tap reads.
  struct Column {
    int k0, input;
  };

  __device__ static void run(const DirectParams& params) {
    const GenericParams& p = params.tensors;
    constexpr int out_channels = Config::groups * Config::group_out;
    const i64 warps = i64(gridDim.x) * blockDim.x / warp_size;
    const int out_w = int(p.out_w);
    for (i64 item = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size; item < params.items; item += warps) {
      const u32 rows_d = u32(p.out_d), rows_h = u32(p.out_h), parts = u32(params.parts);
      u64 rest = item;
      const u32 part = divide(rest, parts), oh = divide(rest, rows_h), od = divide(rest, rows_d);
      const u32 co = divide(rest, out_channels);
      const i64 n = rest;
      Element* row = static_cast<Element*>(p.y) + n * p.ys.n + co * p.ys.c + od * p.ys.d + oh * p.ys.h;
      const int skew = int(reinterpret_cast<u64>(row) / sizeof(Element) % warp_size);
      // Every part ends on a line of memory, so that only a row's own ends are ragged.
      const int begin = int(part) * params.part - skew, end = min(begin + params.part, out_w);
      for (int first = begin; first < end; first += segment)
        compute(p, n, co, od, oh, row, first + lane_index(), end);
    }
  }

 private:
  /// rest % size, and rest becomes rest / size; in 32 bits where they do.
  __device__ static u32 divide(u64& rest, u32 size) {
    u32 index;
    if (rest >> 32) {
      index = u32(rest % size), rest /= size;
    } else {
      index = u32(rest) % size, rest = u32(rest) / size;
    }
    return index;
  }

  __device__ static void compute(const GenericParams& p, i64 n, int co, int od, int oh, Element* row, int first,
                                 int end) {
    const int group = co / Config::group_out, in_w = int(p.in_w);
    Column column[outputs_per_lane];
#pragma unroll
    for (int v = 0; v < outputs_per_lane; ++v) {
      const int target = max(first + v * warp_size, 0) + P.w;
      const int phase = target % S.w;
      column[v].k0 = TapsW::first(phase);
      column[v].input = target / S.w - (column[v].k0 * D.w - phase) / S.w;
    }
    Accumulator sum[outputs_per_lane] = {};
    const Element* x_image = static_cast<const Element*>(p.x) + n * p.xs.n + i64(group) * Config::group_in * p.xs.c;
    const Element* w_filter = static_cast<const Element*>(p.weight) + i64(group) * Config::group_in * p.ws.n +
                              (co - group * Config::group_out) * p.ws.c;
    for (int kd = TapsD::first((od + P.d) % S.d); kd < K.d; kd += TapsD::step) {
      const int id = (od + P.d - kd * D.d) / S.d;
      if (od + P.d < kd * D.d || id >= p.in_d) continue;
      for (int kh = TapsH::first((oh + P.h) % S.h); kh < K.h; kh += TapsH::step) {
        const int ih = (oh + P.h - kh * D.h) / S.h;
        if (oh + P.h < kh * D.h || ih >= p.in_h) continue;
        for (int ci = 0; ci < Config::group_in; ++ci)
          accumulate(sum, column, x_image + ci * p.xs.c + id * p.xs.d + ih * p.xs.h, p.xs.w, in_w,
                     w_filter + ci * p.ws.n + kd * p.ws.d + kh * p.ws.h, int(p.ws.w));
      }
    }
    const Accumulator bias = p.bias ? load_as_accumulator(static_cast<const Element*>(p.bias)[co]) : Accumulator(0);
#pragma unroll
    for (int v = 0; v < outputs_per_lane; ++v) {
      const int o = first + v * warp_size;
      if (o >= 0 && o < end) row[o * p.ys.w] = to_element<Element>(sum[v] + bias);
    }
  }

  __device__ static void accumulate(Accumulator (&sum)[outputs_per_lane], const Column (&column)[outputs_per_lane],
                                    const Element* x, i64 x_stride, int size, const Element* w, int w_stride) {
#pragma unroll(TapsW::most <= 4 ? TapsW::most : 1)
    for (int j = 0; j < TapsW::most; ++j) {
#pragma unroll
      for (int v = 0; v < outputs_per_lane; ++v) {
        const int k = column[v].k0 + j * TapsW::step;
        const int i = column[v].input - j * TapsW::shift;
        if (k < K.w && unsigned(i) < unsigned(size))
          sum[v] += load_as_accumulator(x[i * x_stride]) * load_as_accumulator(w[k * w_stride]);
      }
    }
  }
};

}  // namespace tconv::device
