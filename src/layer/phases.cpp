#include "layer/phases.hpp"

#include <algorithm>

namespace tconv {
using std::int64_t;

int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::vector<Phase> phases_of(int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t g = greatest_common_divisor(stride, dilation);
  const int64_t step = stride / g;
  // Taps k and k + step belong to one phase, so the first `step` taps name all phases that have any.
  std::vector<Phase> phases;
  for (int64_t k0 = 0; k0 < std::min(step, kernel); ++k0) {
    const int64_t r = k0 * dilation % stride;
    const int64_t c = (k0 * dilation - r) / stride;
    Phase phase{.r = r, .taps = {}};
    const int64_t count = (kernel - 1 - k0) / step + 1;  // k0 + count·step may not fit
    for (int64_t j = 0; j < count; ++j)
      phase.taps.push_back({.k = k0 + j * step, .shift = c + j * (dilation / g)});
    phases.push_back(std::move(phase));
  }
  std::sort(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) { return a.r < b.r; });
  return phases;
}

Range phase_range(int64_t r, int64_t stride, int64_t padding, int64_t output) {
  // Division rounding up: truncation does so for negative numerators only. a + b may not fit.
  const auto ceil_div = [](int64_t a, int64_t b) { return a / b + (a > 0 && a % b != 0); };
  return {.begin = ceil_div(padding - r, stride), .end = ceil_div(output + padding - r, stride)};
}

MirrorTap mirror_tap(int64_t k, int64_t stride, int64_t dilation) {
  const int64_t position = k * dilation;
  return {.r = position % stride, .shift = position / stride};
}

}  // namespace tconv
