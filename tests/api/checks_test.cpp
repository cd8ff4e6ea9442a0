// Every tensor an engine sees has been checked; every refusal names the argument, and nothing is written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "support/cases.hpp"
#include "support/expect_refusal.hpp"

namespace {

using namespace testing_support;
using tconv::ConstTensor;
using tconv::Pass;
using tconv::RunOptions;
using tconv::Tensor;

/// One small layer with all its tensors; tests spoil one thing and expect a refusal and untouched outputs.
class Checks : public ::testing::Test {
 protected:
  Checks()
      : x_(data_.data()),
        w_(x_ + 2 * 3 * 5 * 4),
        b_(w_ + 3 * 2 * 3 * 2),
        y_(b_ + 2),
        binding_(tconv::Plan(layer_).bind(2, {5, 4})),
        workspace_(workspace_bytes()) {
    x = tconv::dense(x_, tconv::DType::f32, {2, 3, 5, 4});
    w = tconv::dense(w_, tconv::DType::f32, {3, 2, 3, 2});
    b = tconv::dense(b_, tconv::DType::f32, {2});
    y = tconv::dense(y_, tconv::DType::f32, {2, 2, 11, 8});
    options = {.workspace = workspace_.data(), .workspace_bytes = workspace_.size()};
  }

  std::size_t workspace_bytes() const {
    std::size_t bytes = 1;
    for (const Pass pass : {Pass::forward, Pass::grad_input, Pass::grad_weight, Pass::grad_bias})
      bytes = std::max(bytes, binding_.workspace_bytes(pass));
    return bytes;
  }

  void forward() {
    const ConstTensor bias = b;
    binding_.forward(x, w, &bias, y, options);
  }

  ::testing::AssertionResult forward_refuses(std::initializer_list<const char*> words) {
    const std::vector<float> before = data_;
    const auto result = refuses([&] { forward(); }, words);
    if (data_ != before) return ::testing::AssertionFailure() << "memory was written";
    return result;
  }

  tconv::Layer layer_{
      .dims = 2, .in_channels = 3, .out_channels = 2, .kernel = {3, 2}, .stride = {2, 2}, .bias = true};
  std::vector<float> data_ = std::vector<float>(4000, 7.0f);
  float *x_, *w_, *b_, *y_;
  tconv::Binding binding_;
  Workspace workspace_;
  Tensor x, w, b, y;
  RunOptions options;
};

TEST_F(Checks, TakesWhatIsRight) {
  EXPECT_NO_THROW(forward());
  EXPECT_FLOAT_EQ(y_[0], 7 + 3 * 49);
}

TEST_F(Checks, Rank) {
  x.rank = 3;
  EXPECT_TRUE(forward_refuses({"x", "4 dimensions", "[2, 3, 5, 4]", "got 3"}));
  x.rank = 1'000'000;
  EXPECT_TRUE(forward_refuses({"x", "4 dimensions", "got 1000000"}));
  x.rank = -4;
  EXPECT_TRUE(forward_refuses({"x", "4 dimensions", "got -4"}));
  x.rank = 4;
  b.rank = 2;
  EXPECT_TRUE(forward_refuses({"bias", "1 dimensions", "[2]", "got 2"}));
}

TEST_F(Checks, SizesOfEveryArgument) {
  x.sizes[3] = 5;
  EXPECT_TRUE(forward_refuses({"x", "[2, 3, 5, 4]", "got [2, 3, 5, 5]", "dimension 3"}));
  x.sizes[3] = 4;
  w.sizes[0] = 2;
  EXPECT_TRUE(forward_refuses({"weight", "[3, 2, 3, 2]", "got [2, 2, 3, 2]", "dimension 0"}));
  w.sizes[0] = 3;
  b.sizes[0] = 3;
  EXPECT_TRUE(forward_refuses({"bias", "[2]", "got [3]", "dimension 0"}));
  b.sizes[0] = 2;
  y.sizes[0] = -2;
  EXPECT_TRUE(forward_refuses({"y", "[2, 2, 11, 8]", "got [-2, 2, 11, 8]", "dimension 0"}));
}

TEST_F(Checks, DTypes) {
  w.dtype = tconv::DType::f16;
  EXPECT_TRUE(forward_refuses({"weight", "dtype f32", "got f16"}));
  w.dtype = tconv::DType::f32;
  y.dtype = tconv::DType(17);
  EXPECT_TRUE(forward_refuses({"y", "dtype f32", "got dtype 17"}));
}

TEST_F(Checks, NullData) {
  y.data = nullptr;
  EXPECT_TRUE(forward_refuses({"y", "null pointer", "[2, 2, 11, 8]"}));
  y.data = y_;
  b.data = nullptr;
  EXPECT_TRUE(forward_refuses({"bias", "null pointer"}));
}

TEST_F(Checks, Alignment) {
  x.data = reinterpret_cast<std::byte*>(x_) + 2;
  EXPECT_TRUE(forward_refuses({"x", "aligned", "4 bytes", "2 bytes past"}));
}

TEST_F(Checks, OutputsThatOverlapThemselves) {
  y.strides[0] = 0;
  EXPECT_TRUE(forward_refuses({"y", "share memory", "[0, 88, 8, 1]"}));
  y.strides[0] = 87;
  EXPECT_TRUE(forward_refuses({"y", "share memory", "[87, 88, 8, 1]"}));
  y.strides = {176, 88, 7, 1};
  EXPECT_TRUE(forward_refuses({"y", "share memory", "strides [176, 88, 7, 1]"}));
  y.strides = {176, 88, -7, 1};
  EXPECT_TRUE(forward_refuses({"y", "share memory"}));
}

TEST_F(Checks, InputsMayOverlapThemselves) {
  x.strides = {0, 0, 1, 1};
  EXPECT_NO_THROW(forward());
}

TEST_F(Checks, OutputsApartInAnyOrder) {
  y.strides = {1, 2, 4, 4 * 11};
  EXPECT_NO_THROW(forward());
  y.strides = {3000, 1000, 17, 2};
  y.sizes[0] = 2;
  std::vector<float> wide(5000);
  y.data = wide.data();
  EXPECT_NO_THROW(forward());
}

TEST_F(Checks, StridesBeyondTheAddressSpace) {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t stride : {huge, -huge - 1, huge / 4, huge / 16, -huge / 8}) {
    x.strides[2] = stride;
    EXPECT_TRUE(forward_refuses({"x", "address space"})) << stride;
    x.strides[2] = 4;
    y.strides[1] = stride;
    EXPECT_TRUE(forward_refuses({"y"})) << stride;
    y.strides[1] = 88;
  }
}

TEST_F(Checks, OutputsThatShareMemoryWithInputs) {
  y.data = x_;
  EXPECT_TRUE(forward_refuses({"y", "share memory", "x"}));
  y.data = x_ + 60;
  EXPECT_TRUE(forward_refuses({"y", "share memory", "x"}));
  y.data = w_;
  EXPECT_TRUE(forward_refuses({"y", "share memory", "weight"}));
  y.data = b_;
  EXPECT_TRUE(forward_refuses({"y", "share memory", "bias"}));
}

TEST_F(Checks, GradientsToo) {
  const Tensor gx = tconv::dense(y_ + 400, tconv::DType::f32, {2, 3, 5, 4});
  EXPECT_NO_THROW(binding_.grad_input(y, w, gx, options));
  EXPECT_NO_THROW(binding_.grad_weight(x, y, tconv::dense(y_ + 400, tconv::DType::f32, {3, 2, 3, 2}), options));
  EXPECT_NO_THROW(binding_.grad_bias(y, b, options));
  const std::vector<float> before = data_;
  EXPECT_TRUE(refuses([&] { binding_.grad_input(x, w, gx, options); }, {"gy", "[2, 2, 11, 8]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_input(y, w, y, options); }, {"gx", "[2, 3, 5, 4]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_input(y, x, gx, options); }, {"weight", "[3, 2, 3, 2]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_weight(y, y, w, options); }, {"x", "[2, 3, 5, 4]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_weight(x, x, w, options); }, {"gy", "[2, 2, 11, 8]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_weight(x, y, x, options); }, {"gw", "[3, 2, 3, 2]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_bias(x, b, options); }, {"gy", "[2, 2, 11, 8]"}));
  EXPECT_TRUE(refuses([&] { binding_.grad_bias(y, y, options); }, {"gb", "1 dimensions", "got 4"}));
  Tensor inside_y = b;
  inside_y.data = y_ + 10;
  EXPECT_TRUE(refuses([&] { binding_.grad_bias(y, inside_y, options); }, {"gb", "share memory", "gy"}));
  Tensor expanded = b;
  expanded.strides[0] = 0;
  EXPECT_TRUE(refuses([&] { binding_.grad_bias(y, expanded, options); }, {"gb", "share memory", "strides [0]"}));
  EXPECT_EQ(before, data_);
}

TEST_F(Checks, InterleavedViewsAreFine) {
  // x and y are the even and the odd channels of one buffer: their ranges meet, their elements do not.
  std::vector<float> both(4000, 1.0f);
  layer_ = {.in_channels = 1, .out_channels = 1, .kernel = {1}};
  const tconv::Binding run = tconv::Plan(layer_).bind(4, {10});
  Tensor even = tconv::dense(both.data(), tconv::DType::f32, {4, 1, 10});
  even.strides = {20, 1, 1};
  Tensor odd = even;
  odd.data = both.data() + 10;
  const Tensor weight = tconv::dense(w_, tconv::DType::f32, {1, 1, 1});
  Workspace workspace(run.workspace_bytes(Pass::forward));
  const RunOptions run_options{.workspace = workspace.data(), .workspace_bytes = workspace.size()};
  EXPECT_NO_THROW(run.forward(even, weight, nullptr, odd, run_options));
  EXPECT_EQ(both[9], 1);
  EXPECT_EQ(both[10], 7);
  EXPECT_EQ(both[19], 7);
  EXPECT_EQ(both[20], 1);
}

TEST_F(Checks, BiasOfALayerWithout) {
  layer_.bias = false;
  binding_ = tconv::Plan(layer_).bind(2, {5, 4});
  EXPECT_TRUE(forward_refuses({"bias", "null", "layer without bias"}));
  EXPECT_NO_THROW(binding_.forward(x, w, nullptr, y, options));
}

TEST_F(Checks, Workspace) {
  const std::size_t needed = binding_.workspace_bytes(Pass::forward, 1);
  if (needed == 0) GTEST_SKIP() << "this layer needs no workspace";
  const std::string bytes = std::to_string(needed), less = std::to_string(needed - 1);
  options.workspace_bytes = needed - 1;
  EXPECT_TRUE(forward_refuses({"workspace", bytes.c_str(), "forward", less.c_str()}));
  options = {};
  EXPECT_TRUE(forward_refuses({"workspace", bytes.c_str(), "got 0"}));
  options.workspace_bytes = needed;
  EXPECT_TRUE(forward_refuses({"workspace", bytes.c_str(), "null pointer"}));
}

}  // namespace
