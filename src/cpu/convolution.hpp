// What forward and grad-input have in common: a convolution over a grid of positions q.
//
// Both read a source tensor through planes and write a target tensor in phases:
//
//   target[row channel, q·target_step + r − target_padding]
//       = Σ weight[row channel, sum channel, k] · source[sum channel, (q + offset)·source_step + r' −
//       source_padding]
//
// Forward: the target is y, stepping by the stride, one phase per r; the source is x, one plane.
// Grad-input: the target is gx, one phase; the source is gy, stepping by the stride, one plane per r'.
// Phases whose taps have the same planes and offsets form a class: they share their source reads and
// their rows lie together in the matrix product.
#pragma once

#include <algorithm>
#include <vector>

#include "layer/layer.hpp"

namespace tconv::cpu {

struct SharedTap {
  int plane;
  Extents offset;  // reads the plane at q + offset
};

struct TargetPhase {
  Extents r;
  std::vector<std::int64_t> k;  // flat kernel index of each tap of the class
};

struct PhaseClass {
  std::vector<SharedTap> taps;
  std::vector<TargetPhase> phases;
};

/// The grid along which a tensor is read or written: position = q·step + r − padding.
struct Stepping {
  Extents step{1, 1, 1};
  Extents padding{0, 0, 0};
};

/// How far taps read from their position, over those included; zero if none is.
struct Reach {
  Extents lowest{0, 0, 0};
  Extents highest{0, 0, 0};
  void include(const Extents& offset) {
    for (int d = 0; d < 3; ++d) {
      lowest[d] = any_ ? std::min(lowest[d], offset[d]) : offset[d];
      highest[d] = any_ ? std::max(highest[d], offset[d]) : offset[d];
    }
    any_ = true;
  }

 private:
  bool any_ = false;
};

struct Convolution {
  std::int64_t groups = 1;
  std::int64_t row_channels = 1;  // of the target, per group
  std::int64_t sum_channels = 1;  // of the source, per group
  bool rows_are_outputs = true;   // row channels are the layer's output channels (forward)
  Stepping source;
  Stepping target;
  std::vector<Extents> planes;  // r' of each plane
  std::vector<PhaseClass> classes;

  std::int64_t phase_count() const;
  /// Multiply-adds per position, row channel and sum channel, which is also the number of kernel elements used.
  std::int64_t tap_count() const;
};

Convolution forward_convolution(const Geometry& geometry);
Convolution grad_input_convolution(const Geometry& geometry);

}  // namespace tconv::cpu
