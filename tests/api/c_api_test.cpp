// The C ABI: same results as the C++ API, statuses and messages instead of exceptions.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "support/c_structs.hpp"
#include "support/cases.hpp"
#include "tconv/tconv.h"

namespace {

using namespace testing_support;

::testing::AssertionResult fails(tconv_status got, tconv_status want, std::initializer_list<const char*> words) {
  if (got != want) return ::testing::AssertionFailure() << "status " << got << ", not " << want;
  for (const char* word : words)
    if (std::strstr(tconv_last_error(), word) == nullptr)
      return ::testing::AssertionFailure() << "the message does not say '" << word << "': " << tconv_last_error();
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult refuses_argument(tconv_status got, std::initializer_list<const char*> words) {
  return fails(got, TCONV_INVALID_ARGUMENT, words);
}

tconv_layer two_dimensional() {
  tconv_layer layer;
  tconv_layer_init(&layer);
  layer.dims = 2;
  layer.in_channels = 4;
  layer.out_channels = 6;
  layer.groups = 2;
  layer.bias = 1;
  for (int d = 0; d < 2; ++d) {
    layer.kernel[d] = 3;
    layer.stride[d] = 2;
    layer.padding[d] = 1;
  }
  return layer;
}

TEST(CApi, InitGivesTheDefaults) {
  tconv_layer layer;
  std::memset(&layer, 0x55, sizeof layer);
  tconv_layer_init(&layer);
  EXPECT_EQ(tconv_layer_validate(&layer), TCONV_OK);
  const tconv::Layer defaults;
  EXPECT_EQ(layer.dims, defaults.dims);
  EXPECT_EQ(layer.bias, 0);
  EXPECT_EQ(layer.dtype, TCONV_F32);
  EXPECT_EQ(layer.kernel[2], 1);
  tconv_layer_init(nullptr);
}

TEST(CApi, Sizes) {
  tconv_layer layer = two_dimensional();
  const int64_t input[2] = {5, 7};
  int64_t output[3] = {-1, -1, -1};
  ASSERT_EQ(tconv_output_size(&layer, input, output), TCONV_OK);
  EXPECT_EQ(output[0], 9);
  EXPECT_EQ(output[1], 13);
  EXPECT_EQ(output[2], -1) << "only dims entries are written";
  const int64_t wanted[2] = {9, 14};
  int64_t padding[2] = {};
  ASSERT_EQ(tconv_output_padding_for(&layer, input, wanted, padding), TCONV_OK);
  EXPECT_EQ(padding[0], 0);
  EXPECT_EQ(padding[1], 1);
  EXPECT_TRUE(refuses_argument(tconv_output_size(&layer, nullptr, output), {"input", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_output_size(&layer, input, nullptr), {"output", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_output_size(nullptr, input, output), {"layer", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_output_padding_for(&layer, input, input, padding), {"output size 5"}));
  layer.dims = 1 << 30;
  EXPECT_TRUE(refuses_argument(tconv_output_size(&layer, input, output), {"dims"}));
  EXPECT_TRUE(refuses_argument(tconv_output_padding_for(&layer, input, wanted, padding), {"dims"}));
}

TEST(CApi, EnumerationsAreCheckedBeforeTheyAreNarrowed) {
  tconv_layer layer = two_dimensional();
  for (const int value : {-1, 4, 256, 1 << 20}) {  // 256 would be 0 in eight bits
    layer.dtype = value;
    EXPECT_TRUE(refuses_argument(tconv_layer_validate(&layer), {"dtype", std::to_string(value).c_str()}));
  }
  layer.dtype = TCONV_F32;
  layer.layout = 256;
  EXPECT_TRUE(refuses_argument(tconv_layer_validate(&layer), {"layout", "256"}));
  layer.layout = 0;
  layer.precision = -7;
  EXPECT_TRUE(refuses_argument(tconv_layer_validate(&layer), {"precision", "-7"}));
  layer.precision = 0;
  tconv_plan* plan = nullptr;
  EXPECT_TRUE(refuses_argument(tconv_plan_create(&layer, 2, 0, &plan), {"device_kind", "2"}));
  ASSERT_EQ(tconv_plan_create(&layer, TCONV_CPU, 0, &plan), TCONV_OK);
  size_t bytes = 0;
  EXPECT_TRUE(refuses_argument(tconv_packed_weight_bytes(plan, 256, &bytes), {"pass", "256"}));
  tconv_plan_destroy(plan);
}

TEST(CApi, PlansOfFailuresAreNull) {
  tconv_layer layer = two_dimensional();
  tconv_plan* plan = reinterpret_cast<tconv_plan*>(&layer);
  layer.groups = 3;
  EXPECT_TRUE(refuses_argument(tconv_plan_create(&layer, TCONV_CPU, 0, &plan), {"in_channels", "3 groups"}));
  EXPECT_EQ(plan, nullptr);
  EXPECT_TRUE(refuses_argument(tconv_plan_create(&layer, TCONV_CPU, 0, nullptr), {"plan", "null"}));
  tconv_plan_destroy(nullptr);
  tconv_binding_destroy(nullptr);
}

TEST(CApi, NullHandles) {
  const int64_t input[2] = {5, 7};
  tconv_binding* binding = nullptr;
  size_t bytes = 0;
  EXPECT_TRUE(refuses_argument(tconv_bind(nullptr, 1, input, &binding), {"plan", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_workspace_bytes(nullptr, 0, 1, &bytes), {"binding", "null"}));
  EXPECT_TRUE(
      refuses_argument(tconv_forward(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), {"binding", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_packed_weight_bytes(nullptr, 0, &bytes), {"plan", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_pack_weight(nullptr, 0, nullptr, nullptr, nullptr), {"plan", "null"}));
}

TEST(CApi, WorkspaceOfRunsThatAreGivenAPackedWeight) {
  const tconv_layer layer = two_dimensional();
  const int64_t input[2] = {5, 7};
  const tconv::Binding same = tconv::Plan(cpp_layer(layer)).bind(2, {5, 7});
  tconv_plan* plan = nullptr;
  tconv_binding* binding = nullptr;
  ASSERT_EQ(tconv_plan_create(&layer, TCONV_CPU, 0, &plan), TCONV_OK);
  ASSERT_EQ(tconv_bind(plan, 2, input, &binding), TCONV_OK);
  for (const int pass : {TCONV_FORWARD, TCONV_GRAD_INPUT, TCONV_GRAD_WEIGHT, TCONV_GRAD_BIAS})
    for (const int workers : {0, 1, 3}) {
      size_t packs = 0, packed = 0;
      ASSERT_EQ(tconv_workspace_bytes(binding, pass, workers, &packs), TCONV_OK);
      ASSERT_EQ(tconv_workspace_bytes_packed(binding, pass, workers, &packed), TCONV_OK);
      EXPECT_EQ(packs, same.workspace_bytes(tconv::Pass(pass), workers, false));
      EXPECT_EQ(packed, same.workspace_bytes(tconv::Pass(pass), workers, true));
      EXPECT_EQ(packed < packs, pass == TCONV_FORWARD || pass == TCONV_GRAD_INPUT) << pass << " " << workers;
    }
  size_t bytes = 0;
  EXPECT_TRUE(refuses_argument(tconv_workspace_bytes_packed(nullptr, 0, 1, &bytes), {"binding", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_workspace_bytes_packed(binding, 0, -1, &bytes), {"workers", "-1"}));
  tconv_binding_destroy(binding);
  tconv_plan_destroy(plan);
}

TEST(CApi, ErrorsBelongToTheirThread) {
  tconv_layer layer = two_dimensional();
  layer.groups = 0;
  EXPECT_TRUE(refuses_argument(tconv_layer_validate(&layer), {"groups"}));
  std::thread([] { EXPECT_STREQ(tconv_last_error(), ""); }).join();
  EXPECT_NE(std::string(tconv_last_error()), "");
  layer.groups = 1;
  EXPECT_EQ(tconv_layer_validate(&layer), TCONV_OK);
  EXPECT_NE(std::string(tconv_last_error()).find("groups"), std::string::npos) << "lives until the next failure";
}

TEST(CApi, BytesOfStructs) {
  EXPECT_EQ(tconv_layer_bytes(), sizeof(tconv_layer));
  EXPECT_EQ(tconv_tensor_bytes(), sizeof(tconv_tensor));
  EXPECT_EQ(tconv_run_options_bytes(), sizeof(tconv_run_options));
}

TEST(CApi, Version) {
  EXPECT_EQ(tconv_version(), tconv::system_info().version);
}

/// An executor whose calls are counted.
struct Threads {
  int calls = 0;
  tconv_executor executor{this, [](void*) { return 3; },
                          [](void* object, int64_t count, void (*task)(void*, int64_t), void* task_object) {
                            ++static_cast<Threads*>(object)->calls;
                            for (int64_t i = 0; i < count; ++i) task(task_object, i);
                          }};
};

class CApiRun : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tconv_plan_create(&layer_, TCONV_CPU, 0, &plan_), TCONV_OK);
    const int64_t input[2] = {5, 7};
    ASSERT_EQ(tconv_bind(plan_, case_.batch, input, &binding_), TCONV_OK);
    tconv_plan_destroy(plan_);  // the binding keeps what it needs
  }
  void TearDown() override { tconv_binding_destroy(binding_); }

  tconv_run_options options(int pass) {
    size_t bytes = 0;
    EXPECT_EQ(tconv_workspace_bytes(binding_, pass, 3, &bytes), TCONV_OK);
    workspace_.resize(bytes);
    return {workspace_.data(), bytes, &threads_.executor, nullptr, nullptr};
  }

  tconv_layer layer_ = two_dimensional();
  Case case_{.layer = cpp_layer(layer_), .batch = 2, .input = {5, 7}};
  tconv_plan* plan_ = nullptr;
  tconv_binding* binding_ = nullptr;
  std::vector<std::byte> workspace_;
  Threads threads_;
  Random random_{1};
  Buffer x_{tconv::DType::f32, input_sizes(case_), Order::channels_first, random_};
  Buffer w_{tconv::DType::f32, weight_sizes(case_), Order::channels_first, random_};
  Buffer b_{tconv::DType::f32, {6}, Order::channels_first, random_};
  Buffer gy_{tconv::DType::f32, output_sizes(case_), Order::channels_first, random_};
};

TEST_F(CApiRun, AllPassesAgreeWithTheOracle) {
  for (Buffer* operand : {&x_, &w_, &b_, &gy_}) operand->fill_random(random_);
  const Operands operands{.x = x_.values(), .weight = w_.values(), .bias = b_.values(), .gy = gy_.values()};
  const tconv_tensor x = c_tensor(x_), w = c_tensor(w_), b = c_tensor(b_), gy = c_tensor(gy_);

  Buffer y(tconv::DType::f32, output_sizes(case_), Order::strided, random_);
  const tconv_tensor cy = c_tensor(y);
  tconv_run_options o = options(TCONV_FORWARD);
  ASSERT_EQ(tconv_forward(binding_, &x, &w, &b, &cy, &o), TCONV_OK) << tconv_last_error();
  EXPECT_EQ(compare("y", tconv::DType::f32, y.values(), truth(case_, tconv::Pass::forward, operands)), "");

  Buffer gx(tconv::DType::f32, input_sizes(case_), Order::strided, random_);
  const tconv_tensor cgx = c_tensor(gx);
  o = options(TCONV_GRAD_INPUT);
  ASSERT_EQ(tconv_grad_input(binding_, &gy, &w, &cgx, &o), TCONV_OK) << tconv_last_error();
  EXPECT_EQ(compare("gx", tconv::DType::f32, gx.values(), truth(case_, tconv::Pass::grad_input, operands)), "");

  Buffer gw(tconv::DType::f32, weight_sizes(case_), Order::strided, random_);
  const tconv_tensor cgw = c_tensor(gw);
  o = options(TCONV_GRAD_WEIGHT);
  ASSERT_EQ(tconv_grad_weight(binding_, &x, &gy, &cgw, &o), TCONV_OK) << tconv_last_error();
  EXPECT_EQ(compare("gw", tconv::DType::f32, gw.values(), truth(case_, tconv::Pass::grad_weight, operands)), "");

  Buffer gb(tconv::DType::f32, {6}, Order::strided, random_);
  const tconv_tensor cgb = c_tensor(gb);
  o = options(TCONV_GRAD_BIAS);
  ASSERT_EQ(tconv_grad_bias(binding_, &gy, &cgb, &o), TCONV_OK) << tconv_last_error();
  EXPECT_EQ(compare("gb", tconv::DType::f32, gb.values(), truth(case_, tconv::Pass::grad_bias, operands)), "");
}

TEST_F(CApiRun, ExecutorsOfTheCallerDoTheWork) {
  Case c{
      .layer = {.in_channels = 64, .out_channels = 64, .kernel = {4}, .stride = {2}}, .batch = 2, .input = {2000}};
  const tconv_layer layer = c_layer(c.layer);
  tconv_plan* plan = nullptr;
  tconv_binding* binding = nullptr;
  ASSERT_EQ(tconv_plan_create(&layer, TCONV_CPU, 0, &plan), TCONV_OK);
  ASSERT_EQ(tconv_bind(plan, c.batch, c.input.data(), &binding), TCONV_OK);
  tconv_plan_destroy(plan);
  size_t bytes = 0;
  ASSERT_EQ(tconv_workspace_bytes(binding, TCONV_FORWARD, 3, &bytes), TCONV_OK);
  Workspace workspace(bytes);
  const tconv_run_options o{workspace.data(), bytes, &threads_.executor, nullptr, nullptr};
  Buffer x(tconv::DType::f32, input_sizes(c), Order::channels_first, random_);
  Buffer w(tconv::DType::f32, weight_sizes(c), Order::channels_first, random_);
  Buffer y(tconv::DType::f32, output_sizes(c), Order::channels_first, random_);
  x.fill_random(random_);
  w.fill_random(random_);
  const tconv_tensor cx = c_tensor(x), cw = c_tensor(w), cy = c_tensor(y);
  ASSERT_EQ(tconv_forward(binding, &cx, &cw, nullptr, &cy, &o), TCONV_OK) << tconv_last_error();
  EXPECT_GT(threads_.calls, 0);
  tconv_binding_destroy(binding);
}

TEST_F(CApiRun, Refusals) {
  const tconv_tensor x = c_tensor(x_), w = c_tensor(w_), gy = c_tensor(gy_);
  tconv_run_options o = options(TCONV_FORWARD);
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, nullptr, &w, nullptr, &gy, &o), {"x", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &x, nullptr, nullptr, &gy, &o), {"weight", "null"}));
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &x, &w, nullptr, nullptr, &o), {"y", "null"}));
  tconv_tensor wrong = x;
  wrong.dtype = 256;
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &wrong, &w, nullptr, &gy, &o), {"x.dtype", "256"}));
  wrong = x;
  wrong.rank = 6;
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &wrong, &w, nullptr, &gy, &o), {"x", "got 6 dimensions"}));
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &x, &w, &w, &gy, &o), {"bias", "got 4 dimensions"}));
  tconv_executor broken = threads_.executor;
  broken.parallel_for = nullptr;
  o.executor = &broken;
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &x, &w, nullptr, &gy, &o), {"parallel_for", "null"}));
  broken = threads_.executor;
  broken.concurrency = nullptr;
  EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &x, &w, nullptr, &gy, &o), {"concurrency", "null"}));
  size_t needed = 0;
  ASSERT_EQ(tconv_workspace_bytes(binding_, TCONV_FORWARD, 1, &needed), TCONV_OK);
  if (needed > 0) {
    EXPECT_TRUE(refuses_argument(tconv_forward(binding_, &x, &w, nullptr, &gy, nullptr), {"workspace", "got 0"}));
  }
  EXPECT_FALSE(gy_.gaps_changed());
}

TEST(CApi, DevicesThatAreNotThere) {
  const tconv_layer layer = two_dimensional();
  tconv_plan* plan = nullptr;
  EXPECT_TRUE(fails(tconv_plan_create(&layer, TCONV_CUDA, 1000, &plan), TCONV_UNSUPPORTED, {"cuda"}));
  EXPECT_TRUE(refuses_argument(tconv_plan_create(&layer, TCONV_CPU, 1000, &plan), {"index", "1000"}));
}

}  // namespace
