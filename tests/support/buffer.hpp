// Tensors with memory of their own, laid out in every way a view can be, and watched: bytes that belong to
// no element must never change, and elements of an output hold NaN until somebody writes them.
#pragma once

#include <vector>

#include "support/random.hpp"
#include "tconv/tconv.hpp"

namespace testing_support {

/// Values in logical order, last dimension fastest.
using Values = std::vector<double>;
using Sizes = std::vector<std::int64_t>;

/// Memory orders. The last three are views no plan is made for: the dimensions in any order, gaps between
/// elements and rows, backwards dimensions; and, for inputs only, dimensions expanded with stride zero.
enum class Order { channels_first, channels_last, strided, expanded };

class Buffer {
 public:
  Buffer(tconv::DType dtype, const Sizes& sizes, Order order, Random& random);

  /// The view of this buffer's own memory; a copy of the buffer has a view of its own.
  tconv::Tensor tensor() const;
  tconv::ConstTensor const_tensor() const { return tensor(); }
  std::int64_t elements() const { return elements_; }

  void fill(const Values& values);
  /// NaN in every element.
  void poison();
  /// Random values in [−1, 1), as the dtype holds them.
  void fill_random(Random& random);
  Values values() const;

  /// Remembers every byte; changed() then says whether one is different.
  void watch() { watched_ = memory_; }
  bool changed() const { return memory_ != watched_; }
  /// Whether a byte that belongs to no element has been written.
  bool gaps_changed() const;

  const std::vector<std::byte>& memory() const { return memory_; }

 private:
  template <class Visit>
  void for_each_offset(const Visit& visit) const;

  std::vector<std::byte> memory_;
  std::vector<std::byte> watched_;
  std::int64_t base_ = 0;  // of element (0, 0, …), in elements
  std::int64_t elements_ = 1;
  tconv::Tensor tensor_;  // but for its data
};

/// Exactly `bytes` bytes at an odd address, holding NaNs.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes) : bytes_(bytes), memory_(bytes + 1, std::byte{0xff}) {}
  void* data() { return memory_.data() + 1; }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<std::byte> memory_;
};

}  // namespace testing_support
