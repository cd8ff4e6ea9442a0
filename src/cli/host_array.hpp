// Arrays the tool makes itself: random contents, any dtype and layout, elements readable as doubles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tconv/tconv.hpp"

namespace tconv::cli {

/// Calls task(begin, end) on slices of [0, count) with all threads of the executor.
template <class Slice>
void for_each_slice(Executor& executor, std::int64_t count, Slice&& slice) {
  struct Context {
    Slice& slice;
    std::int64_t count, tasks;
  } context{slice, count, executor.concurrency()};
  executor.parallel_for(context.tasks, {[](void* object, std::int64_t index) {
                                          auto& c = *static_cast<Context*>(object);
                                          c.slice(c.count * index / c.tasks, c.count * (index + 1) / c.tasks);
                                        },
                                        &context});
}

/// A dense array with axes (batch, channels, spatial…) or (in, out / groups, kernel…), always in that order.
class HostArray {
 public:
  HostArray() = default;
  HostArray(DType dtype, const std::vector<std::int64_t>& sizes, Layout layout = Layout::channels_first);

  std::int64_t elements() const { return elements_; }
  std::size_t bytes() const { return std::size_t(elements_) * size_of(dtype_); }
  Tensor view() const { return view_; }

  /// Uniform in [-1, 1), a function of the seed and the place alone, whatever the number of threads.
  void fill_random(std::uint64_t seed, Executor& executor);

  /// The element at its offset in memory.
  double at_offset(std::int64_t offset) const;
  /// The element at (a, b, spatial), the spatial index given in canonical form [depth, height, width].
  double at(std::int64_t a, std::int64_t b, const Extents& spatial) const;

  /// All elements in channels-first order, as the oracle takes them.
  std::vector<double> to_doubles() const;

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  DType dtype_ = DType::f32;
  std::int64_t elements_ = 0;
  Tensor view_;
  std::array<std::int64_t, 5> strides_{};  // canonical: a, b, depth, height, width
  std::array<std::int64_t, 5> sizes_{1, 1, 1, 1, 1};
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace tconv::cli
