#include "support/dtype.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace testing_support {
namespace {

using tconv::DType;

/// A binary floating-point format of 16 bits: sign, exponent, `mantissa` bits.
struct Format16 {
  int mantissa;
  int bias;
  int exponent_mask;
};
constexpr Format16 half{.mantissa = 10, .bias = 15, .exponent_mask = 0x1f};
constexpr Format16 brain{.mantissa = 7, .bias = 127, .exponent_mask = 0xff};

double decode(const Format16& f, std::uint16_t bits) {
  const int exponent = (bits >> f.mantissa) & f.exponent_mask;
  const int fraction = bits & ((1 << f.mantissa) - 1);
  double value;
  if (exponent == f.exponent_mask)
    value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(fraction, 1 - f.bias - f.mantissa);
  else
    value = std::ldexp(fraction + (1 << f.mantissa), exponent - f.bias - f.mantissa);
  return bits >> 15 ? -value : value;
}

std::uint16_t encode(const Format16& f, double value) {
  const auto sign = std::uint16_t(std::signbit(value) ? 0x8000 : 0);
  const auto infinity = std::uint16_t(f.exponent_mask << f.mantissa);
  if (std::isnan(value)) return infinity | 1;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
  // Steps between neighbours are 2^(exponent - 1 - mantissa), but never below those of the subnormals.
  const int step = std::max(exponent - 1, 1 - f.bias) - f.mantissa;
  const auto steps = std::int64_t(std::nearbyint(std::ldexp(magnitude, -step)));
  // Counting steps from the bottom of the binade carries over into the exponent by itself.
  const std::int64_t bits = steps + (std::int64_t(step + f.mantissa + f.bias - 1) << f.mantissa);
  return bits >= infinity ? sign | infinity : std::uint16_t(sign | bits);
}

template <class T>
T load(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * std::int64_t(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * std::int64_t(sizeof(T)), &value, sizeof(T));
}

}  // namespace

double load_element(DType dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return load<float>(data, index);
    case DType::f64:
      return load<double>(data, index);
    case DType::f16:
      return decode(half, load<std::uint16_t>(data, index));
    case DType::bf16:
      return decode(brain, load<std::uint16_t>(data, index));
  }
  return 0;
}

void store_element(DType dtype, void* data, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f32:
      return store(data, index, float(value));
    case DType::f64:
      return store(data, index, value);
    case DType::f16:
      return store(data, index, encode(half, value));
    case DType::bf16:
      return store(data, index, encode(brain, value));
  }
}

double rounded(DType dtype, double value) {
  double element;
  store_element(dtype, &element, 0, value);
  return load_element(dtype, &element, 0);
}

double storage_rounding(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::ldexp(1, -24);
    case DType::f64:
      return std::ldexp(1, -53);
    case DType::f16:
      return std::ldexp(1, -11);
    case DType::bf16:
      return std::ldexp(1, -8);
  }
  return 0;
}

double storage_underflow(DType dtype) {
  return dtype == DType::f16 ? std::ldexp(1, -25) : 0;  // the others reach far below any value in a test
}

double accumulation_error(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : 1e-6;
}

}  // namespace testing_support
