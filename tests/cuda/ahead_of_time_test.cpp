// Kernels before they are needed: what is found by planning on a device that is not here. No NVRTC, no GPU.
#include "cuda/ahead_of_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/engine.hpp"
#include "cuda/runtime/targets.hpp"

namespace tconv::cuda {
namespace {

Layer layer_1d(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  Layer layer;
  layer.in_channels = in, layer.out_channels = out, layer.kernel = {kernel}, layer.stride = {stride};
  return layer;
}

bool any_has(const std::vector<KernelRequest>& requests, const std::string& text) {
  return std::any_of(requests.begin(), requests.end(),
                     [&](const KernelRequest& r) { return r.source.find(text) != std::string::npos; });
}

/// What the engine asks for when it is bound to dense tensors of a size.
std::vector<KernelRequest> asked_when_bound(const Layer& layer, std::int64_t batch, const Extents& input,
                                            DeviceProperties device) {
  KernelRecord record;
  device.record = &record;
  make_plan(layer, device)->bind(shape_of(layer, batch, input));
  return record.requests();
}

TEST(AheadOfTime, CoversEveryAlignmentOfALengthAndItsNeighbours) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const std::string& architecture : {std::string("sm_80"), std::string("sm_90a")}) {
      Layer layer = layer_1d(64, 64, 4, 2);
      layer.dtype = dtype, layer.precision = Precision::tf32;
      const DeviceProperties device = absent_device(architecture);
      const auto ahead = kernels_of(layer, 4, {20000}, device);
      for (std::int64_t length = 20000; length < 20016; ++length)
        for (const KernelRequest& asked : asked_when_bound(layer, 4, {length}, device))
          EXPECT_NE(std::find(ahead.begin(), ahead.end(), asked), ahead.end()) << length << " on " << architecture;
    }
}

TEST(AheadOfTime, FiftyLengthsOfALayerAreCompiledOnceForEachAlignment) {
  for (const std::string& architecture : {std::string("sm_80"), std::string("sm_90a")})
    for (const auto& [dtype, alignments] : {std::pair(DType::f32, 2), std::pair(DType::f16, 3)})
      for (const auto& [first, step] : {std::pair(33, 0), std::pair(800, 1), std::pair(20000, 200)}) {
        Layer layer = layer_1d(512, 256, 16, 8);
        layer.padding = {4}, layer.dtype = dtype, layer.precision = Precision::tf32;
        DeviceProperties device = absent_device(architecture);
        KernelRecord record;
        device.record = &record;
        const auto plan = make_plan(layer, device);
        for (int i = 0; i < 50; ++i) plan->bind(shape_of(layer, 1, {first + (step ? i * step : i % 31)}));
        const auto requests = record.requests();
        EXPECT_LE(std::count_if(requests.begin(), requests.end(),
                                [](const KernelRequest& r) { return r.entry == "forward"; }),
                  alignments)
            << "from " << first << " on " << architecture;
      }
}

TEST(AheadOfTime, HoldsThePackingAndTheKernelForAnyStrides) {
  const auto requests = kernels_of(layer_1d(64, 64, 4, 2), 4, {20000}, absent_device("sm_80"));
  EXPECT_TRUE(any_has(requests, "#include \"pack.cuh\""));
  EXPECT_TRUE(any_has(requests, "#include \"generic.cuh\""));
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (std::size_t j = i + 1; j < requests.size(); ++j) EXPECT_NE(requests[i].source, requests[j].source);
}

TEST(AheadOfTime, DepthwiseLayersHaveTheirOwnKernel) {
  Layer layer = layer_1d(32, 32, 4, 2);
  layer.groups = 32;
  EXPECT_TRUE(any_has(kernels_of(layer, 4, {20000}, absent_device("sm_90a")), "#include \"direct_"));
}

TEST(AheadOfTime, HopperInstructionsStayOnHopper) {
  Layer layer = layer_1d(128, 128, 3, 1);
  layer.precision = Precision::tf32;
  EXPECT_TRUE(any_has(kernels_of(layer, 8, {65536}, absent_device("sm_90a")), "panel_gemm.cuh"));
  for (const std::string& architecture : known_architectures())
    if (architecture != "sm_90a") {
      for (const char* const header : {"warpgroup_gemm.cuh", "panel_gemm.cuh"})
        EXPECT_FALSE(any_has(kernels_of(layer, 8, {65536}, absent_device(architecture)), header)) << architecture;
    }
}

TEST(AheadOfTime, SharedMemoryFitsTheArchitecture) {
  Layer layer = layer_1d(128, 128, 3, 1);
  for (const std::string& architecture : known_architectures()) {
    const DeviceProperties device = absent_device(architecture);
    EXPECT_EQ(architecture_of(device), architecture);
    for (const KernelRequest& request : kernels_of(layer, 8, {65536}, device))
      EXPECT_LE(request.shared_bytes, device.shared_per_block) << architecture;
  }
}

TEST(AheadOfTime, UnknownArchitecturesAreRefusedWithTheKnownOnes) {
  try {
    absent_device("sm_75");
    FAIL() << "accepted sm_75";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("sm_80, "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'sm_75'"), std::string::npos) << error.what();
  }
}

TEST(AheadOfTime, NothingTouchesAGpu) {
  const DeviceProperties device = absent_device("sm_90a", 78);
  EXPECT_EQ(device.multiprocessors, 78);
  KernelRecord record;
  DeviceProperties recording = device;
  recording.record = &record;
  get_kernel({"source", "entry", 0}, recording)->launch(1, 1, 0, nullptr);
  get_kernel({"source", "entry", 0}, recording);
  EXPECT_EQ(record.requests().size(), 1u);
}

}  // namespace
}  // namespace tconv::cuda
