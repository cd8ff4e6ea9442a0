#include "support/buffer.hpp"

#include <algorithm>
#include <numeric>

#include "support/dtype.hpp"

namespace testing_support {

using std::int64_t;

Buffer::Buffer(tconv::DType dtype, const Sizes& sizes, Order order, Random& random) {
  const int rank = int(sizes.size());
  std::vector<int> inner_to_outer(static_cast<std::size_t>(rank));
  std::iota(inner_to_outer.rbegin(), inner_to_outer.rend(), 0);
  if (order == Order::channels_last && rank >= 2)
    std::rotate(inner_to_outer.begin(), inner_to_outer.end() - 2, inner_to_outer.end() - 1);
  const bool free_form = order == Order::strided || order == Order::expanded;
  if (free_form)
    for (int i = rank - 1; i > 0; --i) std::swap(inner_to_outer[i], inner_to_outer[random.integer(0, i)]);

  tensor_.dtype = dtype;
  tensor_.rank = rank;
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  int64_t reach = 1, backwards = 0;  // elements spanned so far, and of those, below the base
  for (const int dim : inner_to_outer) {
    tensor_.sizes[dim] = sizes[dim];
    tensor_.strides[dim] = 1;
    elements_ = empty ? 0 : elements_ * sizes[dim];
    if (empty) continue;  // strides mean nothing, and the other sizes may be anything
    const bool expand = order == Order::expanded && random.chance(0.3);
    const int64_t step = reach + (free_form && random.chance(0.4) ? random.integer(1, 3) : 0);
    const bool reverse = free_form && random.chance(0.15);
    tensor_.strides[dim] = expand ? 0 : reverse ? -step : step;
    if (expand) continue;
    if (reverse) backwards += step * (sizes[dim] - 1);
    reach += step * (sizes[dim] - 1);
  }
  if (free_form)
    for (int dim = 0; dim < rank; ++dim)  // strides of such dimensions mean nothing
      if (sizes[dim] == 1 && random.chance(0.5)) tensor_.strides[dim] = random.integer(-9, 9) * 1'000'000'007;

  const int64_t margin = random.integer(0, 9);  // so that bases are not aligned to vectors
  base_ = margin + backwards;
  memory_.assign(std::size_t(margin + reach + random.integer(0, 3)) * size_of(dtype), std::byte{0xff});
}

tconv::Tensor Buffer::tensor() const {
  tconv::Tensor view = tensor_;
  view.data = const_cast<std::byte*>(memory_.data()) + std::size_t(base_) * size_of(tensor_.dtype);
  return view;
}

void Buffer::poison() {
  std::fill(memory_.begin(), memory_.end(), std::byte{0xff});  // the gaps hold the same bits
}

template <class Visit>
void Buffer::for_each_offset(const Visit& visit) const {
  if (elements_ == 0) return;
  std::array<int64_t, tconv::max_rank> at{};
  for (int64_t n = 0, offset = base_; n < elements_; ++n) {
    visit(offset);
    for (int dim = tensor_.rank - 1; dim >= 0; --dim) {
      offset += tensor_.strides[dim];
      if (++at[dim] < tensor_.sizes[dim]) break;
      offset -= at[dim] * tensor_.strides[dim];
      at[dim] = 0;
    }
  }
}

void Buffer::fill(const Values& values) {
  std::size_t n = 0;
  for_each_offset([&](int64_t offset) { store_element(tensor_.dtype, memory_.data(), offset, values.at(n++)); });
}

void Buffer::fill_random(Random& random) {
  for_each_offset([&](int64_t offset) { store_element(tensor_.dtype, memory_.data(), offset, random.real()); });
}

Values Buffer::values() const {
  Values values;
  values.reserve(std::size_t(elements_));
  for_each_offset([&](int64_t offset) { values.push_back(load_element(tensor_.dtype, memory_.data(), offset)); });
  return values;
}

bool Buffer::gaps_changed() const {
  const std::size_t bytes = size_of(tensor_.dtype);
  std::vector<std::byte> rest = memory_;
  for_each_offset(
      [&](int64_t offset) { std::fill_n(rest.begin() + offset * int64_t(bytes), bytes, std::byte{0xff}); });
  return std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0xff}; });
}

}  // namespace testing_support
