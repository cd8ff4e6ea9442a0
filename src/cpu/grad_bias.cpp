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
  constexpr int64_t wanted_items = 32, fewest_positions = 1024;
  spans_ = std::clamp<int64_t>(shape.batch, 1, wanted_items);
  parts_ = std::clamp<int64_t>(positions() / fewest_positions, 1, wanted_items / spans_);
}

int64_t GradBiasBinding::positions() const {
  return shape_.output[0] * shape_.output[1] * shape_.output[2];
}

int64_t GradBiasBinding::buffer_size() const {
  return round_up(std::max(buffer_elements, channels_), 8);
}

std::size_t GradBiasBinding::workspace_bytes(int workers) const {
  Arena arena;
  arena.take<double>(spans_ * parts_ * channels_);
  arena.take<double>(workers * buffer_size());
  return arena.bytes();
}

namespace {

/// Positions of a sample that are as far apart as those of a row: of one row, or of all that follow one another.
struct Run {
  int64_t begin;  // element of the tensor
  int64_t count;
};

Run run_from(const ConstTensor& gy, int64_t position, int64_t end) {
  const int64_t height = gy.sizes[3], width = gy.sizes[4];
  const int64_t row = position / width, slice = row / height;
  const bool rows_follow = height == 1 || gy.strides[3] == width * gy.strides[4];
  const bool slices_follow = rows_follow && (gy.sizes[2] == 1 || gy.strides[2] == height * width * gy.strides[4]);
  const int64_t last = slices_follow ? end : rows_follow ? (slice + 1) * height * width : (row + 1) * width;
  return {.begin = slice * gy.strides[2] + row % height * gy.strides[3] + position % width * gy.strides[4],
          .count = std::min(last, end) - position};
}

/// Adds positions whose channels lie together, as many as the buffer holds at a time.
template <class Compute>
void add_positions(DType dtype, const char* from, int64_t stride, int64_t count, int64_t channels, Compute* buffer,
                   int64_t buffer_size, double* sums) {
  const int64_t together = stride == channels ? std::max<int64_t>(1, buffer_size / channels) : 1;
  for (int64_t at = 0; at < count; at += together) {
    const int64_t positions = std::min(together, count - at);
    row_kernels<Compute>().load(dtype, from + at * stride * int64_t(size_of(dtype)), 1, positions * channels,
                                buffer);
    for (int64_t i = 0; i < positions; ++i)
      for (int64_t c = 0; c < channels; ++c) sums[c] += double(buffer[i * channels + c]);
  }
}

}  // namespace

void GradBiasBinding::run(const ConstTensor& gy, const Tensor& gb, const RunOptions& options, int workers) const {
  const int64_t items = spans_ * parts_;
  Arena arena(options.workspace);
  double* partials = arena.take<double>(items * channels_);
  double* buffers = arena.take<double>(workers * buffer_size());
  const int64_t element = int64_t(size_of(gy.dtype));
  if (double(shape_.batch * channels_) * double(positions()) < serial_multiply_adds) workers = 1;
  // Of a few channels that lie together each is read by itself, in strides.
  constexpr int64_t few_channels = 8;
  const bool together = gy.strides[1] == 1 && channels_ >= few_channels;

  // An item is a part of the positions of some samples; it has a sum for every channel.
  share(options.executor, workers, items, [&](int worker, int64_t item) {
    with_compute(wide_, [&](auto compute) {
      using Compute = decltype(compute);
      Compute* buffer = reinterpret_cast<Compute*>(buffers + worker * buffer_size());
      double* sums = partials + item * channels_;
      std::fill_n(sums, channels_, 0.0);
      const Span samples = piece(shape_.batch, spans_, item / parts_);
      const Span part = piece(positions(), parts_, item % parts_);
      for (int64_t sample = samples.begin; sample < samples.end; ++sample)
        for (int64_t position = part.begin; position < part.end;) {
          const Run run = run_from(gy, position, part.end);
          const char* from = static_cast<const char*>(gy.data) + (sample * gy.strides[0] + run.begin) * element;
          if (together)
            add_positions(gy.dtype, from, gy.strides[4], run.count, channels_, buffer, buffer_size(), sums);
          else
            for (int64_t c = 0; c < channels_; ++c)
              sums[c] += sum_row(gy.dtype, from + c * gy.strides[1] * element, gy.strides[4], run.count, buffer);
          position += run.count;
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
