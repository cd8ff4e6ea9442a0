#include "cli/host_array.hpp"

#include <algorithm>
#include <new>

#include "cpu/convert.hpp"

namespace tconv::cli {
namespace {

/// splitmix64: a good mix of 64 bits, so that neighbours share nothing.
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

HostArray::HostArray(DType dtype, const std::vector<std::int64_t>& sizes, Layout layout)
    : dtype_(dtype), elements_(1) {
  for (const std::int64_t size : sizes) elements_ *= size;
  const std::size_t rounded = (bytes() + 63) / 64 * 64;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, std::max<std::size_t>(rounded, 64))));
  if (!data_) throw std::bad_alloc();
  view_ = dense(static_cast<void*>(data_.get()), dtype, sizes, layout);

  // (a, b) in front, spatial axes at the end, axes of size 1 between; a bias has one axis only.
  const int rank = view_.rank;
  for (int axis = 0; axis < rank; ++axis) {
    const std::size_t place = std::size_t(axis < 2 ? axis : axis + 5 - rank);
    sizes_[place] = view_.sizes[std::size_t(axis)];
    strides_[place] = view_.strides[std::size_t(axis)];
  }
}

void HostArray::fill_random(std::uint64_t seed, Executor& executor) {
  const std::uint64_t base = mix(seed);
  const auto fill = [&]<class Element, class Convert>(Element* data, Convert convert) {
    for_each_slice(executor, elements_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        data[i] = convert(double(mix(base + std::uint64_t(i)) >> 40) * 0x1p-23 - 1.0);
    });
  };
  void* data = data_.get();
  switch (dtype_) {
    case DType::f32:
      return fill(static_cast<float*>(data), [](double v) { return float(v); });
    case DType::f64:
      return fill(static_cast<double*>(data), [](double v) { return v; });
    case DType::f16:
      return fill(static_cast<cpu::Half*>(data), [](double v) { return cpu::to_half(float(v)); });
    case DType::bf16:
      return fill(static_cast<cpu::BFloat16*>(data), [](double v) { return cpu::to_bfloat16(float(v)); });
  }
}

double HostArray::at_offset(std::int64_t offset) const {
  const void* data = data_.get();
  switch (dtype_) {
    case DType::f32:
      return static_cast<const float*>(data)[offset];
    case DType::f64:
      return static_cast<const double*>(data)[offset];
    case DType::f16:
      return cpu::to_float(static_cast<const cpu::Half*>(data)[offset]);
    case DType::bf16:
      return cpu::to_float(static_cast<const cpu::BFloat16*>(data)[offset]);
  }
  return 0;
}

double HostArray::at(std::int64_t a, std::int64_t b, const Extents& spatial) const {
  return at_offset(a * strides_[0] + b * strides_[1] + spatial[0] * strides_[2] + spatial[1] * strides_[3] +
                   spatial[2] * strides_[4]);
}

std::vector<double> HostArray::to_doubles() const {
  std::vector<double> values;
  values.reserve(std::size_t(elements_));
  Extents s;
  for (std::int64_t a = 0; a < sizes_[0]; ++a)
    for (std::int64_t b = 0; b < sizes_[1]; ++b)
      for (s[0] = 0; s[0] < sizes_[2]; ++s[0])
        for (s[1] = 0; s[1] < sizes_[3]; ++s[1])
          for (s[2] = 0; s[2] < sizes_[4]; ++s[2]) values.push_back(at(a, b, s));
  return values;
}

}  // namespace tconv::cli
