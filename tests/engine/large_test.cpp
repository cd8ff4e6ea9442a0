// More than 2^31 elements in the output: offsets, products and loops that are 32 bits anywhere show here.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <string>

#include "support/dtype.hpp"
#include "support/random.hpp"
#include "support/scale.hpp"
#include "tconv/tconv.hpp"

namespace {

using namespace testing_support;
using std::int64_t;
using tconv::DType;
using tconv::Layer;
using tconv::Layout;
using tconv::Pass;

constexpr int64_t two_to_31 = int64_t(1) << 31;

double available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;)
    if (word == "MemAvailable:") {
      double kilobytes = 0;
      meminfo >> kilobytes;
      return 1024 * kilobytes;
    }
  return 0;
}

/// f16 values −3 … 3, exact in every sum of a few products; cheap to make and to foretell.
constexpr std::uint16_t half_integers[] = {0xc200, 0xc000, 0xbc00, 0x0000, 0x3c00, 0x4000, 0x4200};
int value_at(int64_t index) {
  return int((std::uint64_t(index) * 0x9e3779b97f4a7c15u >> 40) % 7) - 3;
}

/// Uninitialised memory, so that only pages that are used are paid for.
std::unique_ptr<std::uint16_t[]> halves(int64_t count) {
  return std::unique_ptr<std::uint16_t[]>(new std::uint16_t[std::size_t(count)]);
}

/// Where the elements of [batch 1, channels, length] lie.
struct Rows {
  int64_t channels, length;
  Layout layout;
  int64_t offset(int64_t channel, int64_t position) const {
    return layout == Layout::channels_first ? channel * length + position : position * channels + channel;
  }
  int64_t elements() const { return channels * length; }
};

void check_large(const Layer& layer, int64_t input) {
  const int64_t output = output_size(layer, {input})[0];
  const Rows in{layer.in_channels, input, layer.layout}, out{layer.out_channels, output, layer.layout};
  ASSERT_GT(out.elements(), two_to_31);
  const double needed = 2.0 * double(2 * in.elements() + out.elements()) + double(int64_t(1) << 30);
  if (sanitized || available_bytes() < needed) {
    std::printf("skipped: needs %.1f GB of memory, %.1f GB are available%s\n", needed * 1e-9,
                available_bytes() * 1e-9, sanitized ? " (and no sanitizer)" : "");
    GTEST_SKIP();
  }

  const auto x = halves(in.elements()), gx = halves(in.elements()), y = halves(out.elements());
  for (int64_t i = 0; i < in.elements(); ++i) x[std::size_t(i)] = half_integers[value_at(i) + 3];
  std::vector<std::uint16_t> w(std::size_t(layer.in_channels * layer.out_channels * layer.kernel[0]));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = half_integers[value_at(int64_t(i) + 1000) + 3];
  const auto weight_at = [&](int64_t ci, int64_t co, int64_t k) {
    return double(value_at((ci * layer.out_channels + co) * layer.kernel[0] + k + 1000));
  };

  const tconv::Binding binding = tconv::Plan(layer).bind(1, {input});
  const tconv::Tensor x_view =
      dense(static_cast<void*>(x.get()), DType::f16, {1, in.channels, input}, layer.layout);
  const tconv::Tensor gx_view =
      dense(static_cast<void*>(gx.get()), DType::f16, {1, in.channels, input}, layer.layout);
  const tconv::Tensor y_view =
      dense(static_cast<void*>(y.get()), DType::f16, {1, out.channels, output}, layer.layout);
  const tconv::Tensor w_view =
      dense(static_cast<void*>(w.data()), DType::f16, {layer.in_channels, layer.out_channels, layer.kernel[0]});
  std::vector<std::byte> workspace(
      std::max(binding.workspace_bytes(Pass::forward), binding.workspace_bytes(Pass::grad_input)));
  const tconv::RunOptions options{.workspace = workspace.data(), .workspace_bytes = workspace.size()};

  // Both ends of every row, both sides of 2^31 and 2^32 bytes and of 2^31 elements, and anywhere.
  Random random(1);
  const auto spots = [&](const Rows& rows, const auto& check) {
    for (int64_t channel = 0; channel < rows.channels; ++channel) {
      for (int64_t d = 0; d < 50; ++d) {
        check(channel, d);
        check(channel, rows.length - 1 - d);
      }
      for (int i = 0; i < 20'000; ++i) check(channel, random.integer(0, rows.length - 1));
    }
    for (const int64_t edge : {two_to_31 / 2, two_to_31, 2 * two_to_31})
      for (int64_t element = edge - 50; element < std::min(edge + 50, rows.elements()); ++element)
        if (rows.layout == Layout::channels_first)
          check(element / rows.length, element % rows.length);
        else
          check(element % rows.channels, element / rows.channels);
  };

  binding.forward(x_view, w_view, nullptr, y_view, options);
  spots(out, [&](int64_t co, int64_t o) {
    double want = 0;
    for (int64_t k = 0; k < layer.kernel[0]; ++k) {
      const int64_t numerator = o + layer.padding[0] - k * layer.dilation[0];
      if (numerator < 0 || numerator % layer.stride[0] != 0 || numerator / layer.stride[0] >= input) continue;
      for (int64_t ci = 0; ci < in.channels; ++ci)
        want += weight_at(ci, co, k) * value_at(in.offset(ci, numerator / layer.stride[0]));
    }
    ASSERT_EQ(load_element(DType::f16, y.get(), out.offset(co, o)), want) << "y[" << co << "][" << o << "]";
  });

  // The gradient reads what the forward wrote: small integers again, and their sums stay below 2048.
  binding.grad_input(y_view, w_view, gx_view, options);
  spots(in, [&](int64_t ci, int64_t i) {
    double want = 0;
    for (int64_t k = 0; k < layer.kernel[0]; ++k) {
      const int64_t o = i * layer.stride[0] + k * layer.dilation[0] - layer.padding[0];
      if (o < 0 || o >= output) continue;
      for (int64_t co = 0; co < out.channels; ++co)
        want += weight_at(ci, co, k) * load_element(DType::f16, y.get(), out.offset(co, o));
    }
    ASSERT_EQ(load_element(DType::f16, gx.get(), in.offset(ci, i)), want) << "gx[" << ci << "][" << i << "]";
  });
}

TEST(Large, OneRow) {
  check_large({.out_channels = 1, .kernel = {9}, .stride = {8}, .padding = {3}, .dtype = DType::f16},
              (int64_t(1) << 28) + 5);
}

TEST(Large, ChannelsLast) {
  check_large({.out_channels = 4,
               .kernel = {4},
               .stride = {4},
               .padding = {1},
               .dtype = DType::f16,
               .layout = Layout::channels_last},
              (int64_t(1) << 27) + 3);
}

}  // namespace
