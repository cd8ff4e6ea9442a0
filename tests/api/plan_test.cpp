// Plans and bindings: life cycle, devices, zero batch, packed weights, executors, workspaces.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "support/cases.hpp"
#include "support/expect_refusal.hpp"

namespace {

using namespace testing_support;
using tconv::Layer;
using tconv::Pass;
using tconv::RunOptions;

constexpr Pass all_passes[] = {Pass::forward, Pass::grad_input, Pass::grad_weight, Pass::grad_bias};

const Case small_case{.layer = {.dims = 2,
                                .in_channels = 4,
                                .out_channels = 6,
                                .kernel = {3, 4},
                                .stride = {2, 3},
                                .padding = {1, 1},
                                .output_padding = {1, 0},
                                .groups = 2,
                                .bias = true},
                      .batch = 2,
                      .input = {5, 7}};

TEST(Plan, RemembersWhatItWasMadeOf) {
  const tconv::Plan plan(small_case.layer);
  EXPECT_EQ(plan.layer().kernel, small_case.layer.kernel);
  EXPECT_EQ(plan.device().kind, tconv::DeviceKind::cpu);
  const tconv::Binding binding = plan.bind(2, {5, 7});
  EXPECT_EQ(binding.batch(), 2);
  EXPECT_EQ(binding.input_size()[0], 5);
  EXPECT_EQ(binding.input_size()[1], 7);
  EXPECT_EQ(binding.output_size(), output_size(small_case.layer, {5, 7}));
}

TEST(Plan, RefusesLayersAndShapes) {
  EXPECT_TRUE(refuses([] { tconv::Plan(Layer{.groups = 0}); }, {"groups"}));
  const tconv::Plan plan(Layer{.kernel = {3}, .padding = {2}});
  EXPECT_TRUE(refuses([&] { plan.bind(1, {1}); }, {"no elements"}));
  EXPECT_TRUE(refuses([&] { plan.bind(-1, {9}); }, {"batch", "-1"}));
  EXPECT_TRUE(refuses([&] { plan.bind(1, {-9}); }, {"input size", "-9"}));
}

TEST(Plan, Devices) {
  using tconv::Device;
  using tconv::DeviceKind;
  EXPECT_TRUE(refuses([] { tconv::Plan(Layer{}, Device{DeviceKind::cpu, 1}); }, {"index", "0", "got 1"}));
  EXPECT_TRUE(refuses(
      [] {
        tconv::Plan(Layer{}, Device{DeviceKind(7), 0});
      },
      {"device kind", "cpu or cuda", "7"}));
}

TEST(Plan, RefusesKernelsNoPlanCanHold) {
  EXPECT_TRUE(refuses<tconv::Unsupported>([] { tconv::Plan(Layer{.kernel = {std::int64_t(1) << 40}}); },
                                          {"kernel", "1099511627776", "taps"}));
}

TEST(Plan, OutlivedByItsBindings) {
  tconv::Binding binding = tconv::Plan(small_case.layer).bind(small_case.batch, small_case.input);
  Random random(1);
  Step step(small_case, native_orders(small_case.layer), random);
  step.run(binding);
  EXPECT_EQ(step.mistakes(), "");
}

TEST(Plan, EmptyOnesSaySo) {
  tconv::Binding empty;
  EXPECT_TRUE(refuses([&] { empty.workspace_bytes(Pass::forward); }, {"binding is empty"}));
  tconv::Plan plan(Layer{});
  const tconv::Plan moved = std::move(plan);
  EXPECT_TRUE(refuses([&] { plan.bind(1, {1}); }, {"plan is empty"}));  // NOLINT: that is the point
}

TEST(Plan, RefusesNonsensicalPasses) {
  const tconv::Plan plan(Layer{});
  EXPECT_TRUE(refuses([&] { plan.packed_weight_bytes(Pass(4)); }, {"pass", "got 4"}));
  EXPECT_TRUE(refuses([&] { plan.bind(1, {1}).workspace_bytes(Pass(9)); }, {"pass", "got 9"}));
  EXPECT_TRUE(refuses([&] { plan.bind(1, {1}).workspace_bytes(Pass::forward, -1); }, {"workers", "-1"}));
}

TEST(Binding, WorkspaceGrowsWithWorkers) {
  const tconv::Binding binding = tconv::Plan(small_case.layer).bind(2, {5, 7});
  for (const Pass pass : all_passes)
    for (int workers = 1; workers < 8; ++workers)
      EXPECT_LE(binding.workspace_bytes(pass, workers), binding.workspace_bytes(pass, workers + 1));
}

TEST(ZeroBatch, GivesEmptyResultsAndZeroGradients) {
  for (const tconv::DType dtype : {tconv::DType::f32, tconv::DType::f64, tconv::DType::f16, tconv::DType::bf16}) {
    Case c = small_case;
    c.layer.dtype = dtype;
    c.batch = 0;
    const tconv::Binding binding = tconv::Plan(c.layer).bind(0, c.input);
    for (const Pass pass : all_passes) EXPECT_EQ(binding.workspace_bytes(pass), 0u);
    EXPECT_EQ(binding.output_size(), output_size(c.layer, c.input));
    Random random(2);
    for (int round = 0; round < 10; ++round) {
      Step step(c, round == 0 ? native_orders(c.layer) : random_orders(random), random);
      step.run(binding);
      EXPECT_EQ(step.mistakes(), "");
      const StepValues results = step.results();
      EXPECT_TRUE(results.y.empty());
      EXPECT_TRUE(results.gx.empty());
      EXPECT_EQ(results.gw, Values(results.gw.size(), 0.0));
      EXPECT_EQ(results.gb, Values(6, 0.0));
    }
  }
}

TEST(ZeroBatch, NeedsNoDataButChecksTheRest) {
  const Layer layer{.in_channels = 2, .out_channels = 3};
  const tconv::Binding binding = tconv::Plan(layer).bind(0, {4});
  float weights[6] = {};
  const tconv::Tensor x = tconv::dense(static_cast<void*>(nullptr), tconv::DType::f32, {0, 2, 4});
  const tconv::Tensor y = tconv::dense(static_cast<void*>(nullptr), tconv::DType::f32, {0, 3, 4});
  const tconv::Tensor w = tconv::dense(weights, tconv::DType::f32, {2, 3, 1});
  EXPECT_NO_THROW(binding.forward(x, w, nullptr, y, {}));
  EXPECT_TRUE(refuses([&] { binding.forward(y, w, nullptr, y, {}); }, {"x", "[0, 2, 4]", "[0, 3, 4]"}));
}

TEST(PackedWeights, GiveTheSameBits) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    Case c = random_case(random, 3e5);
    const tconv::Plan plan(c.layer);
    Buffer x(c.layer.dtype, input_sizes(c), Order::channels_first, random);
    Buffer w(c.layer.dtype, weight_sizes(c), round % 2 ? Order::strided : Order::channels_first, random);
    Buffer gy(c.layer.dtype, output_sizes(c), Order::channels_first, random);
    for (Buffer* operand : {&x, &w, &gy}) operand->fill_random(random);
    std::vector<std::byte> packed(plan.packed_weight_bytes(Pass::forward));
    std::vector<std::byte> mirrored(plan.packed_weight_bytes(Pass::grad_input));
    SerialExecutor serial;
    plan.pack_weight(Pass::forward, w.tensor(), packed.data(), {.executor = round % 3 ? nullptr : &serial});
    plan.pack_weight(Pass::grad_input, w.tensor(), mirrored.data());

    // One packing serves every shape: the case's own, and one more.
    for (const std::int64_t batch : {c.batch, c.batch + 1}) {
      Case shape = c;
      shape.batch = batch;
      Buffer px(c.layer.dtype, input_sizes(shape), Order::channels_first, random);
      Buffer pgy(c.layer.dtype, output_sizes(shape), Order::channels_first, random);
      px.fill_random(random);
      pgy.fill_random(random);
      const auto results = [&](const void* forward_packed, const void* mirror_packed) {
        const tconv::Binding binding = plan.bind(batch, c.input);
        Random fresh(4);
        Buffer y(c.layer.dtype, output_sizes(shape), Order::channels_first, fresh);
        Buffer gx(c.layer.dtype, input_sizes(shape), Order::channels_first, fresh);
        // A run that is given its weight packed asks for less.
        Workspace ws(binding.workspace_bytes(Pass::forward, 0, forward_packed != nullptr));
        Workspace mirror_ws(binding.workspace_bytes(Pass::grad_input, 0, mirror_packed != nullptr));
        EXPECT_LE(ws.size(), binding.workspace_bytes(Pass::forward));
        binding.forward(px.tensor(), w.tensor(), nullptr, y.tensor(),
                        {.workspace = ws.data(), .workspace_bytes = ws.size(), .packed_weight = forward_packed});
        binding.grad_input(
            pgy.tensor(), w.tensor(), gx.tensor(),
            {.workspace = mirror_ws.data(), .workspace_bytes = mirror_ws.size(), .packed_weight = mirror_packed});
        return std::pair(y.memory(), gx.memory());
      };
      ASSERT_EQ(results(nullptr, nullptr), results(packed.data(), mirrored.data())) << describe(shape);
    }
  }
}

TEST(PackedWeights, AreChecked) {
  const tconv::Plan plan(small_case.layer);
  std::vector<float> weight(4 * 3 * 3 * 4);
  const tconv::Tensor w = tconv::dense(weight.data(), tconv::DType::f32, {4, 3, 3, 4});
  EXPECT_EQ(plan.packed_weight_bytes(Pass::grad_weight), 0u);
  EXPECT_EQ(plan.packed_weight_bytes(Pass::grad_bias), 0u);
  EXPECT_TRUE(refuses([&] { plan.pack_weight(Pass::grad_weight, w, weight.data()); }, {"pass", "grad_weight"}));
  tconv::Tensor wrong = w;
  wrong.sizes[0] = 5;
  EXPECT_TRUE(refuses([&] { plan.pack_weight(Pass::forward, wrong, nullptr); }, {"weight", "[4, 3, 3, 4]"}));
  if (plan.packed_weight_bytes(Pass::forward) > 0) {
    EXPECT_TRUE(refuses([&] { plan.pack_weight(Pass::forward, w, nullptr); }, {"packed", "null"}));
    EXPECT_TRUE(refuses([&] { plan.pack_weight(Pass::forward, w, weight.data() + 1); }, {"packed", "share"}));
  }
}

TEST(PackedWeights, AreAligned) {
  const tconv::Plan plan(small_case.layer);
  Random random(1);
  Buffer x(small_case.layer.dtype, input_sizes(small_case), Order::channels_first, random);
  Buffer w(small_case.layer.dtype, weight_sizes(small_case), Order::channels_first, random);
  Buffer y(small_case.layer.dtype, output_sizes(small_case), Order::channels_first, random);
  const tconv::Binding run = plan.bind(small_case.batch, small_case.input);
  std::vector<double> memory(plan.packed_weight_bytes(Pass::forward) / sizeof(double) + 2);
  std::byte* const packed = reinterpret_cast<std::byte*>(memory.data());
  Workspace workspace(run.workspace_bytes(Pass::forward));
  const auto forward = [&](const void* packed_weight) {
    run.forward(
        x.tensor(), w.tensor(), nullptr, y.tensor(),
        {.workspace = workspace.data(), .workspace_bytes = workspace.size(), .packed_weight = packed_weight});
  };
  for (const int past : {1, 4}) {
    const std::string said = "an address " + std::to_string(past) + " bytes past one";
    EXPECT_TRUE(refuses([&] { plan.pack_weight(Pass::forward, w.tensor(), packed + past); },
                        {"packed must", "a multiple of 8 bytes", said.c_str(), "allocator"}));
    EXPECT_TRUE(refuses([&] { forward(packed + past); }, {"packed_weight must", "a multiple of 8 bytes"}));
  }
  plan.pack_weight(Pass::forward, w.tensor(), packed);
  EXPECT_NO_THROW(forward(packed));
}

/// Counts what it is asked to do.
class CountingExecutor final : public tconv::Executor {
 public:
  explicit CountingExecutor(int concurrency) : concurrency_(concurrency) {}
  int concurrency() const noexcept override { return concurrency_; }
  void parallel_for(std::int64_t count, tconv::Task task) override {
    ++calls;
    for (std::int64_t i = 0; i < count; ++i) task(i);
  }
  std::atomic<int> calls{0};

 private:
  int concurrency_;
};

TEST(Executors, OfTheCallerDoTheWork) {
  Random random(5);
  const tconv::Binding binding = tconv::Plan(small_case.layer).bind(small_case.batch, small_case.input);
  for (const int concurrency : {1, 2, 7, 1000}) {
    Step step(small_case, native_orders(small_case.layer), random);
    CountingExecutor executor(concurrency);
    step.run(binding, &executor, std::min(concurrency, 9));
    EXPECT_EQ(step.mistakes(), "");
  }
  Step step(small_case, native_orders(small_case.layer), random);
  SerialExecutor serial;
  step.run(binding, &serial);
  EXPECT_EQ(step.mistakes(), "");
}

TEST(Workspaces, LargerThanNeededAreFine) {
  Random random(6);
  const tconv::Binding binding = tconv::Plan(small_case.layer).bind(small_case.batch, small_case.input);
  Step step(small_case, native_orders(small_case.layer), random);
  step.run(binding, nullptr, 64);
  EXPECT_EQ(step.mistakes(), "");
}

}  // namespace
