#include "cuda/tensor_views.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace tconv::cuda {
namespace {

using std::int64_t;

bool aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

Tensor dense_view(void* data, DType dtype, int64_t batch, int64_t channels, const Extents& size, Layout layout) {
  const auto [d, h, w] = size;
  Tensor t;
  t.data = data, t.dtype = dtype, t.rank = 5, t.sizes = {batch, channels, d, h, w};
  t.strides = layout == Layout::channels_last
                  ? std::array{d * h * w * channels, int64_t(1), h * w * channels, w * channels, channels}
                  : std::array{d * h * w * channels, d * h * w, h * w, w, int64_t(1)};
  return t;
}

device::Strides5 strides_of(const ConstTensor& t) {
  return {t.strides[0], t.strides[1], t.strides[2], t.strides[3], t.strides[4]};
}

bool fits_image(const ConstTensor& t) {
  if (t.sizes[1] > 1 && (t.strides[1] < 0 || t.strides[1] > UINT32_MAX)) return false;
  int64_t reach = 0;
  for (int d = 2; d < 5; ++d) {
    if (t.strides[std::size_t(d)] < 0) return false;
    reach += (t.sizes[std::size_t(d)] - 1) * t.strides[std::size_t(d)];
  }
  return reach < (int64_t(1) << 31) - 1;
}

device::ImageStrides image_strides(const ConstTensor& t) {
  // A run of whole rows may begin before a single row, which lies as if others were there, whatever stride it has.
  const int64_t row = t.sizes[3] == 1 ? t.sizes[4] * t.strides[4] : t.strides[3];
  return {t.strides[0], t.strides[1], int(t.strides[2]), int(row), int(t.strides[4])};
}

Access access_of(const Geometry& g, const ConstTensor& x, const ConstTensor& y) {
  const int element = int(size_of(x.dtype));
  Access a;
  a.y_rows = y.strides[4] == 1;
  a.y_planes = y.sizes[3] == 1 || y.strides[3] == y.sizes[4];
  const auto apart = [&](int count) {
    bool fits = aligned(y.data, std::size_t(count * element));
    for (const std::size_t d : {0, 2, 3, 4}) fits = fits && (y.sizes[d] == 1 || y.strides[d] % count == 0);
    return fits;
  };
  if (y.strides[1] == 1)
    while (a.y_channels * 2 * element <= 16 && apart(a.y_channels * 2)) a.y_channels *= 2;
  const auto rows_apart = [&](int count) {
    bool fits = aligned(y.data, std::size_t(count * element));
    for (const std::size_t d : {0, 1, 2, 3}) fits = fits && (y.sizes[d] == 1 || y.strides[d] % count == 0);
    return fits;
  };
  if (a.y_rows)
    while (a.y_row_vector * 2 * element <= 16 && rows_apart(a.y_row_vector * 2)) a.y_row_vector *= 2;
  a.x_channels_last =
      x.strides[1] == 1 && g.in_channels() > 1 && (x.strides[4] != 1 || g.in_channels() * 2 > x.sizes[4]);
  // The widest copy every row allows: `run` is the contiguous dimension, `others` step from row to row.
  const auto widest = [&](int64_t run, std::initializer_list<int64_t> others,
                          std::initializer_list<int> elements) {
    for (const int count : elements) {
      bool fits = aligned(x.data, std::size_t(count * element)) && run % count == 0;
      for (const int64_t stride : others) fits = fits && stride % count == 0;
      if (fits) return count;
    }
    return 1;
  };
  const int per_word = std::max(4 / element, 1), vector = 16 / element;
  if (a.x_channels_last) {
    const int count = widest(g.group_in, {step(x, 0), step(x, 2), step(x, 3), step(x, 4)}, {vector, per_word});
    a.x_vector = count % per_word == 0 ? count / per_word : 0;
  } else if (x.strides[4] == 1) {
    const auto others = {step(x, 0), step(x, 1), step(x, 2), step(x, 3)};
    a.x_vector = per_word == 1 ? widest(x.sizes[4], others, {vector}) : widest(x.sizes[4], others, {8, 2});
  } else {
    a.x_vector = 1;
  }
  const auto [width, height] = std::pair(x.sizes[4], x.sizes[3]);
  const auto apart_by = [&](std::size_t dimension, int64_t stride) {
    return x.sizes[dimension] == 1 || x.strides[dimension] == stride;
  };
  const auto of_vectors = [&](int64_t stride) { return stride > 0 && stride % 8 == 0; };
  a.x_maps = element == 2 && !a.x_channels_last && aligned(x.data, 16) && apart_by(4, 1) && apart_by(3, width) &&
             apart_by(2, height * width) && of_vectors(x.strides[1]) &&
             (x.sizes[0] == 1 || of_vectors(x.strides[0]));
  return a;
}

Access dense_access(const Geometry& g, const Shape& shape, DType dtype, Layout layout) {
  return access_of(g, dense_view(nullptr, dtype, shape.batch, g.in_channels(), shape.input, layout),
                   dense_view(nullptr, dtype, shape.batch, g.out_channels(), shape.output, layout));
}

}  // namespace tconv::cuda
