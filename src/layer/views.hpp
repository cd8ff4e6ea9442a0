// What strides say of a tensor's view.
#pragma once

#include "tconv/tconv.hpp"

namespace tconv {

/// Whether the elements lie one after the other in the order of the dimensions.
bool is_dense(const ConstTensor& view);

}  // namespace tconv
