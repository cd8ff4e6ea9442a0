// The kernel that serves a call: as the engine names it, for dense tensors and for any views. No NVRTC, no GPU.
#include "cuda/engine.hpp"

#include <gtest/gtest.h>

#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "cuda/tensor_views.hpp"

namespace tconv::cuda {
namespace {

using std::int64_t;

/// A binding on a device that is not here, and its runs on views that differ in where and how they lie.
class Bound {
 public:
  Bound(const Layer& layer, int64_t batch, const Extents& input)
      : layer_(layer), geometry_(geometry_of(layer)), shape_(shape_of(layer, batch, input)) {
    device_.record = &record_;
    plan_ = make_plan(layer, device_);
    binding_ = plan_->bind(shape_);
  }

  std::string name() const { return binding_->kernel_name(Pass::forward); }

  /// `offset`: of both tensors, in elements. `apart`: between elements, of a dense tensor's strides.
  std::string run(int64_t offset, int64_t apart = 1) const {
    const Tensor y = view(offset, apart, geometry_.out_channels(), shape_.output);
    const ConstTensor x = view(offset, apart, geometry_.in_channels(), shape_.input);
    const ConstTensor weight =
        dense_view(at(0), layer_.dtype, geometry_.in_channels(), geometry_.group_out, geometry_.kernel, {});
    Operands operands;
    operands.input = &x, operands.weight = &weight, operands.output = &y;
    RunOptions options;
    options.workspace = at(0);
    return binding_->run_named(Pass::forward, operands, options);
  }

 private:
  static void* at(int64_t offset) { return reinterpret_cast<void*>((int64_t(1) << 20) + offset); }
  Tensor view(int64_t offset, int64_t apart, int64_t channels, const Extents& size) const {
    Tensor t = dense_view(at(offset * int64_t(size_of(layer_.dtype))), layer_.dtype, shape_.batch, channels, size,
                          layer_.layout);
    for (int64_t& stride : t.strides) stride *= apart;
    return t;
  }

  Layer layer_;
  Geometry geometry_;
  Shape shape_;
  KernelRecord record_;
  DeviceProperties device_ = absent_device("sm_90a");
  std::unique_ptr<EnginePlan> plan_;
  std::unique_ptr<EngineBinding> binding_;
};

TEST(KernelNames, AreOfTheKernelThatServesTheViews) {
  const Bound bound({.in_channels = 64, .out_channels = 64, .kernel = {3}, .padding = {1}}, 2, {320});
  const std::string dense = bound.name();
  EXPECT_NE(dense.find("_gemm_"), std::string::npos) << dense;
  EXPECT_EQ(bound.run(0), dense);
  const std::string unaligned = bound.run(1);
  EXPECT_NE(unaligned.find("_gemm_"), std::string::npos) << unaligned;
  EXPECT_NE(unaligned, dense);
  EXPECT_EQ(bound.run(0, int64_t(1) << 33), "generic");
  // Whatever came before.
  EXPECT_EQ(bound.run(0), dense);
  EXPECT_EQ(bound.run(1), unaligned);
  EXPECT_EQ(bound.name(), dense);
}

TEST(KernelNames, OfLayersThatHaveNoTiles) {
  const Bound depthwise({.in_channels = 32, .out_channels = 32, .kernel = {3}, .groups = 32}, 2, {320});
  EXPECT_EQ(depthwise.name(), "direct");
  EXPECT_EQ(depthwise.run(0), "direct");
  EXPECT_EQ(depthwise.run(0, int64_t(1) << 33), "generic");
  EXPECT_EQ(depthwise.name(), "direct");
  const Bound large_stride({.in_channels = 20, .out_channels = 20, .kernel = {300}, .stride = {300}}, 1, {3});
  EXPECT_EQ(large_stride.name(), large_stride.run(0));
}

TEST(KernelNames, WhereTapsReachTooFarForATileItIsTheGenericKernels) {
  const Bound bound({.in_channels = 64, .out_channels = 64, .kernel = {5}, .dilation = {5000}}, 1, {400});
  EXPECT_EQ(bound.name(), "generic");
  EXPECT_EQ(bound.run(0), "generic");
}

TEST(DenseKernels, AreTiledAndScaledAsTheirNamesSay) {
  KernelRecord record;
  DeviceProperties device = absent_device("sm_90a");
  device.record = &record;
  const auto kernel = [&](Layer layer, DType dtype) {
    layer.dtype = dtype, layer.precision = Precision::tf32;
    return dense_kernel(layer, shape_of(layer, 4, {4096}), device);
  };
  const Layer dense{.in_channels = 512, .out_channels = 256, .kernel = {16}, .stride = {8}, .padding = {4}};
  const DenseKernel half = kernel(dense, DType::f32), words = kernel(dense, DType::f16);
  EXPECT_NE(half.name.find("_tf32_half_"), std::string::npos) << half.name;
  EXPECT_TRUE(half.tiled && half.scaled);
  EXPECT_NE(words.name.find("_f16_"), std::string::npos) << words.name;
  EXPECT_TRUE(words.tiled && !words.scaled);
  const DenseKernel depthwise = kernel({.in_channels = 8, .out_channels = 8, .groups = 8}, DType::f32);
  EXPECT_EQ(depthwise.name, "direct");
  EXPECT_FALSE(depthwise.tiled || depthwise.scaled);
}

}  // namespace
}  // namespace tconv::cuda
