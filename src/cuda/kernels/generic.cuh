// The generic kernel: one thread per output element, straight from the definition.
//
// Serves every layer, dtype and stride, and is what the other kernels are measured against. It walks
// the taps of an output's phase only, so it wastes no products, but it reuses nothing.
//
// Config: Element, group_in, group_out, kernel, stride, padding, dilation (Int3 each).
#pragma once

#include "element.cuh"
#include "launch_params.cuh"

namespace tconv::device {

/// The taps of one output coordinate: k = first, first + step, …; tap j reads input position − j·stride_in.
template <int Kernel, int Stride, int Padding, int Dilation>
struct TapWalk {
  i64 target;
  __device__ explicit TapWalk(i64 o) : target(o + Padding) {}
  /// The input that tap k reads, or -1.
  __device__ i64 input_of(int k, i64 size) const {
    const i64 numerator = target - i64(k) * Dilation;
    if (numerator < 0 || numerator % Stride != 0) return -1;
    const i64 i = numerator / Stride;
    return i < size ? i : -1;
  }
};

template <class Config>
__device__ void generic_forward(const GenericParams& p) {
  using Element = typename Config::Element;
  using Accumulator = typename AccumulatorOf<Element>::Type;
  constexpr Int3 K = Config::kernel, S = Config::stride, P = Config::padding, D = Config::dilation;
  constexpr i64 out_channels = i64(Config::groups) * Config::group_out;

  const i64 outputs = p.batch * out_channels * p.out_d * p.out_h * p.out_w;
  for (i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x; index < outputs; index += i64(gridDim.x) * blockDim.x) {
    i64 rest = index;
    const i64 ow = rest % p.out_w;
    rest /= p.out_w;
    const i64 oh = rest % p.out_h;
    rest /= p.out_h;
    const i64 od = rest % p.out_d;
    rest /= p.out_d;
    const i64 co = rest % out_channels;
    const i64 n = rest / out_channels;
    const i64 group = co / Config::group_out;

    const TapWalk<K.d, S.d, P.d, D.d> depth(od);
    const TapWalk<K.h, S.h, P.h, D.h> height(oh);
    const TapWalk<K.w, S.w, P.w, D.w> width(ow);
    Accumulator sum = 0;
    for (int kd = 0; kd < K.d; ++kd) {
      const i64 id = depth.input_of(kd, p.in_d);
      if (id < 0) continue;
      for (int kh = 0; kh < K.h; ++kh) {
        const i64 ih = height.input_of(kh, p.in_h);
        if (ih < 0) continue;
        for (int kw = 0; kw < K.w; ++kw) {
          const i64 iw = width.input_of(kw, p.in_w);
          if (iw < 0) continue;
          const Element* x = static_cast<const Element*>(p.x) + n * p.xs.n + group * Config::group_in * p.xs.c + id * p.xs.d + ih * p.xs.h + iw * p.xs.w;
          const Element* w = static_cast<const Element*>(p.weight) + group * Config::group_in * p.ws.n + (co - group * Config::group_out) * p.ws.c +
                             kd * p.ws.d + kh * p.ws.h + kw * p.ws.w;
          for (int ci = 0; ci < Config::group_in; ++ci, x += p.xs.c, w += p.ws.n)
            sum += load_as_accumulator(*x) * load_as_accumulator(*w);
        }
      }
    }
    if (p.bias) sum += load_as_accumulator(static_cast<const Element*>(p.bias)[co]);
    static_cast<Element*>(p.y)[n * p.ys.n + co * p.ys.c + od * p.ys.d + oh * p.ys.h + ow * p.ys.w] = to_element<Element>(sum);
  }
}

}  // namespace tconv::device
