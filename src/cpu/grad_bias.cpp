#include <algorithm>

#include "cpu/compute_type.hpp"
#include "cpu/convert.hpp"
#include "cpu/gradients.hpp"
#include "cpu/packed_weight.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

constexpr int64_t buffer_elements = 4096;

/// The sum of `count` elements `stride` apart.
template <class Compute>
double sum_row(DType dtype, const char* row, int64_t stride, int64_t count, Compute* buffer) {
  const RowKernels<Compute>& kernels = row_kernels<Compute>();
  const int64_t element = int64_t(size_of(dtype));
  double total = 0;
  for (int64_t at = 0; at < count; at += buffer_elements) {
    const int64_t length = std::min(buffer_elements, count - at);
    kernels.load(dtype, row + at * stride * element, stride, length, buffer);
    total += kernels.sum(buffer, length);
  }
  return total;
}

}  // namespace

GradBiasBinding::GradBiasBinding(int64_t channels, DType dtype, const Shape& shape)
    : channels_(channels), wide_(computes_in_double(dtype)), shape_(shape) {
  constexpr int64_t wanted_items = 32;
  parts_ =
      std::clamp<int64_t>(wanted_items / std::max<int64_t>(1, shape.batch), 1, shape.output[0] * shape.output[1]);
}

int64_t GradBiasBinding::buffer_size() const {
  return round_up(std::max(buffer_elements, channels_), 8);
}

std::size_t GradBiasBinding::workspace_bytes(int workers) const {
  Arena arena;
  arena.take<double>(shape_.batch * parts_ * channels_);
  arena.take<double>(workers * buffer_size());
  return arena.bytes();
}

void GradBiasBinding::run(const ConstTensor& gy, const Tensor& gb, const RunOptions& options, int workers) const {
  Arena arena(options.workspace);
  double* partials = arena.take<double>(shape_.batch * parts_ * channels_);
  double* buffers = arena.take<double>(workers * buffer_size());
  const int64_t element = int64_t(size_of(gy.dtype)), height = shape_.output[1], width = shape_.output[2];
  const int64_t items = shape_.batch * parts_;
  if (double(shape_.batch * channels_) * double(shape_.output[0] * height * width) < serial_multiply_adds)
    workers = 1;

  // An item is a part of a sample's rows; it has a sum for every channel.
  share(options.executor, workers, items, [&](int worker, int64_t item) {
    with_compute(wide_, [&](auto compute) {
      using Compute = decltype(compute);
      Compute* buffer = reinterpret_cast<Compute*>(buffers + worker * buffer_size());
      double* sums = partials + item * channels_;
      std::fill_n(sums, channels_, 0.0);
      const char* sample = static_cast<const char*>(gy.data) + item / parts_ * gy.strides[0] * element;
      const Span rows = piece(shape_.output[0] * height, parts_, item % parts_);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const char* from = sample + (row / height * gy.strides[2] + row % height * gy.strides[3]) * element;
        if (gy.strides[1] == 1) {  // channels lie together: add whole positions
          for (int64_t w = 0; w < width; ++w) {
            row_kernels<Compute>().load(gy.dtype, from + w * gy.strides[4] * element, 1, channels_, buffer);
            for (int64_t c = 0; c < channels_; ++c) sums[c] += double(buffer[c]);
          }
        } else {
          for (int64_t c = 0; c < channels_; ++c)
            sums[c] += sum_row(gy.dtype, from + c * gy.strides[1] * element, gy.strides[4], width, buffer);
        }
      }
    });
  });

  with_compute(wide_, [&](auto compute) {
    using Compute = decltype(compute);
    with_storage<Compute>(gb.dtype, [&](auto storage) {
      using Storage = decltype(storage);
      for (int64_t c = 0; c < channels_; ++c) {
        double total = 0;
        for (int64_t item = 0; item < items; ++item) total += partials[item * channels_ + c];
        static_cast<Storage*>(gb.data)[c * gb.strides[0]] = demote<Storage>(Compute(total));
      }
    });
  });
}

}  // namespace tconv::cpu
