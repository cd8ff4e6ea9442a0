// What a layer is: the rules for its parameters and sizes, and its canonical three-dimensional form.
//
// Engines never see 1D or 2D layers. A layer of fewer dimensions is a 3D layer whose leading
// dimensions have kernel 1, stride 1, dilation 1, no padding and size 1.
#pragma once

#include <string>

#include "tconv/tconv.hpp"

namespace tconv {

/// A layer in canonical form: all three entries of every Extents are meaningful, [depth, height, width].
struct Geometry {
  std::int64_t groups = 1;
  std::int64_t group_in = 1;   // input channels of one group
  std::int64_t group_out = 1;  // output channels of one group
  Extents kernel{1, 1, 1};
  Extents stride{1, 1, 1};
  Extents padding{0, 0, 0};
  Extents dilation{1, 1, 1};

  std::int64_t in_channels() const { return groups * group_in; }
  std::int64_t out_channels() const { return groups * group_out; }
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

/// Sizes of one run in canonical form.
struct Shape {
  std::int64_t batch = 0;
  Extents input{1, 1, 1};
  Extents output{1, 1, 1};

  bool operator==(const Shape&) const = default;
};

/// The canonical form of a valid layer.
Geometry geometry_of(const Layer& layer);

/// The canonical form of a size: `dims` entries moved to the end, ones in front.
Extents canonical(int dims, const Extents& extents, std::int64_t fill = 1);

/// Validates batch and input against the layer and returns the canonical shape. Element counts of input,
/// weight and output are known to fit 63 bits, also when multiplied by 8 bytes.
Shape shape_of(const Layer& layer, std::int64_t batch, const Extents& input);

/// "4 x 3 x 2" for messages.
std::string format_extents(int dims, const Extents& extents);

}  // namespace tconv
