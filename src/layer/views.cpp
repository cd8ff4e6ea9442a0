#include "layer/views.hpp"

namespace tconv {

bool is_dense(const ConstTensor& view) {
  std::int64_t stride = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    if (view.sizes[std::size_t(d)] > 1 && view.strides[std::size_t(d)] != stride) return false;
    stride *= view.sizes[std::size_t(d)];
  }
  return true;
}

}  // namespace tconv
