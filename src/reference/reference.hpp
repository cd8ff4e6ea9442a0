// The oracle: the transposed convolution and its gradients in float64, straight from the definition
// o + p = i·s + k·d. Slow and obviously right; everything else is tested against it.
//
// Arrays are dense, channels first: x [batch][in][input…], w [in][out / groups][kernel…],
// y [batch][out][output…].
#pragma once

#include <vector>

#include "layer/layer.hpp"

namespace tconv::reference {

using Array = std::vector<double>;

/// `bias` may be empty.
Array forward(const Geometry& geometry, const Shape& shape, const Array& x, const Array& w, const Array& bias);
Array grad_input(const Geometry& geometry, const Shape& shape, const Array& gy, const Array& w);
Array grad_weight(const Geometry& geometry, const Shape& shape, const Array& x, const Array& gy);
Array grad_bias(const Geometry& geometry, const Shape& shape, const Array& gy);

}  // namespace tconv::reference
