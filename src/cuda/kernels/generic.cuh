// The generic kernel: one thread per output element, straight from the definition.
//
// Serves every layer, dtype and stride, and is what the other kernels are measured against. It walks
// the taps of an output's phase only, so it wastes no products, but it reuses nothing.
//
// Config: Element, group_in, group_out, kernel, stride, padding, dilation (Int3 each).
#pragma once

#include "element.cuh"
#include "launch_params.cuh"
#include "ptx/launch.cuh"
#include "taps.cuh"

namespace tconv::device {

/// The input that tap k of a phase reads, or -1.
__device__ inline i64 input_of(i64 target, int k, int dilation, int stride, i64 size) {
  const i64 reached = target - i64(k) * dilation;
  return reached >= 0 && reached / stride < size ? reached / stride : -1;
}

template <class Config>
__device__ void generic_forward(const GenericParams& p) {
  ptx::begin_after_previous();
  using Element = typename Config::Element;
  using Accumulator = typename AccumulatorOf<Element>::Type;
  constexpr Int3 K = Config::kernel, S = Config::stride, P = Config::padding, D = Config::dilation;
  using TapsD = PhaseTaps<K.d, S.d, D.d>;
  using TapsH = PhaseTaps<K.h, S.h, D.h>;
  using TapsW = PhaseTaps<K.w, S.w, D.w>;
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

    const Element* image = static_cast<const Element*>(p.x) + n * p.xs.n + group * Config::group_in * p.xs.c;
    const Element* filter = static_cast<const Element*>(p.weight) + group * Config::group_in * p.ws.n +
                            (co - group * Config::group_out) * p.ws.c;
    Accumulator sum = 0;
    for (int kd = TapsD::first(int((od + P.d) % S.d)); kd < K.d; kd += TapsD::step) {
      const i64 id = input_of(od + P.d, kd, D.d, S.d, p.in_d);
      if (id < 0) continue;
      for (int kh = TapsH::first(int((oh + P.h) % S.h)); kh < K.h; kh += TapsH::step) {
        const i64 ih = input_of(oh + P.h, kh, D.h, S.h, p.in_h);
        if (ih < 0) continue;
        for (int kw = TapsW::first(int((ow + P.w) % S.w)); kw < K.w; kw += TapsW::step) {
          const i64 iw = input_of(ow + P.w, kw, D.w, S.w, p.in_w);
          if (iw < 0) continue;
          const Element* x = image + id * p.xs.d + ih * p.xs.h + iw * p.xs.w;
          const Element* w = filter + kd * p.ws.d + kh * p.ws.h + kw * p.ws.w;
          for (int ci = 0; ci < Config::group_in; ++ci, x += p.xs.c, w += p.ws.n)
            sum += load_as_accumulator(*x) * load_as_accumulator(*w);
        }
      }
    }
    if (p.bias) sum += load_as_accumulator(static_cast<const Element*>(p.bias)[co * p.bias_stride]);
    static_cast<Element*>(p.y)[n * p.ys.n + co * p.ys.c + od * p.ys.d + oh * p.ys.h + ow * p.ys.w] =
        to_element<Element>(sum);
  }
}

}  // namespace tconv::device
