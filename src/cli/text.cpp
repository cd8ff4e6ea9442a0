#include "cli/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/command.hpp"

namespace tconv::cli {
namespace {

/// Three significant digits, no exponent.
std::string three_digits(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string scaled(double value, const char* const (&units)[6]) {
  int unit = 0;
  while (std::abs(value) >= 999.5 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  const bool whole = unit == 0 && value == std::floor(value);
  return fmt::format("{} {}", whole ? fmt::format("{:.0f}", value) : three_digits(value), units[unit]);
}

bool all_equal(int dims, const Extents& extents, std::int64_t value) {
  return std::all_of(extents.begin(), extents.begin() + dims, [=](std::int64_t e) { return e == value; });
}

/// One number where all dimensions agree.
std::string format_parameter(int dims, const Extents& extents, bool unicode) {
  if (all_equal(dims, extents, extents[0])) return fmt::format("{}", extents[0]);
  return format_size(dims, extents, unicode);
}

}  // namespace

std::string format_seconds(double seconds) {
  if (seconds >= 0.9995) return three_digits(seconds) + " s";
  if (seconds >= 0.9995e-3) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds * 1e6) + " us";
}

std::string format_bytes(double bytes) {
  return scaled(bytes, {"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string format_count(double count) {
  std::string text = scaled(count, {"", "k", "M", "G", "T", "P"});
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string format_size(int dims, const Extents& size, bool unicode) {
  std::string text;
  for (int d = 0; d < dims; ++d) text += fmt::format("{}{}", d ? (unicode ? "×" : "x") : "", size[d]);
  return text;
}

std::string format_layer(const Layer& layer, bool unicode) {
  std::string text = fmt::format("{}D {}{}{}, kernel {}", layer.dims, layer.in_channels, unicode ? "→" : "->",
                                 layer.out_channels, format_size(layer.dims, layer.kernel, unicode));
  const auto add = [&](const char* name, const Extents& value, std::int64_t usual) {
    if (!all_equal(layer.dims, value, usual))
      text += fmt::format(", {} {}", name, format_parameter(layer.dims, value, unicode));
  };
  add("stride", layer.stride, 1);
  add("padding", layer.padding, 0);
  add("output padding", layer.output_padding, 0);
  add("dilation", layer.dilation, 1);
  if (layer.groups != 1) text += fmt::format(", groups {}", layer.groups);
  if (layer.bias) text += ", bias";
  return text;
}

std::vector<std::int64_t> parse_list(const char* flag, std::string_view text) {
  std::vector<std::int64_t> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error == std::errc::result_out_of_range)
      throw UsageError(fmt::format("{} '{}' has a number that does not fit in 64 bits", flag, text));
    if (error != std::errc())
      throw UsageError(fmt::format("{} must be a number, or one per dimension as in 3,5; got '{}'", flag, text));
    values.push_back(value);
    if (next == end) break;
    if (*next != ',' && *next != 'x')
      throw UsageError(fmt::format("{} must be a number, or one per dimension as in 3,5; got '{}'", flag, text));
    at = next + 1;
  }
  if (values.size() > 3)
    throw UsageError(fmt::format("{} must have at most 3 values, one per dimension; got '{}'", flag, text));
  return values;
}

Extents parse_extents(const char* flag, std::string_view text, int dims) {
  const std::vector<std::int64_t> values = parse_list(flag, text);
  if (values.size() != 1 && values.size() != std::size_t(dims))
    throw UsageError(fmt::format("{} must have {} for a {}D layer, got '{}'", flag,
                                 dims == 1 ? "1 value" : fmt::format("1 or {} values", dims), dims, text));
  Extents extents{1, 1, 1};
  for (int d = 0; d < dims; ++d) extents[d] = values[values.size() == 1 ? 0 : std::size_t(d)];
  return extents;
}

DType parse_dtype(std::string_view text) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    if (text == to_string(dtype)) return dtype;
  if (text == "tf32" || text == "fp32")
    throw UsageError(
        fmt::format("--dtype must be f32, f64, f16 or bf16, got '{0}': {0} is a precision of f32", text));
  throw UsageError(fmt::format("--dtype must be f32, f64, f16 or bf16, got '{}'", text));
}

Precision parse_precision(std::string_view text) {
  for (const Precision precision : {Precision::fp32, Precision::tf32})
    if (text == to_string(precision)) return precision;
  for (const auto& [name, dtype] :
       {std::pair("fp16", "f16"), {"f16", "f16"}, {"bf16", "bf16"}, {"fp64", "f64"}, {"f64", "f64"}})
    if (text == name)
      throw UsageError(fmt::format("--precision must be fp32 or tf32, got '{}': say --dtype {}", text, dtype));
  throw UsageError(fmt::format("--precision must be fp32 or tf32, got '{}'", text));
}

Layout parse_layout(std::string_view text) {
  for (const Layout layout : {Layout::channels_first, Layout::channels_last})
    if (text == to_string(layout)) return layout;
  throw UsageError(fmt::format("--layout must be channels_first or channels_last, got '{}'", text));
}

}  // namespace tconv::cli
