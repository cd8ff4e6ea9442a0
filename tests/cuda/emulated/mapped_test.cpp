// Panels of x that is copied as it lies, by a tensor map.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

using std::int64_t;

TEST_F(Emulation, MappedPanels) {
  struct Mapped {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    int64_t batch, groups;
    int64_t padding;
    const char* part;  // of the kernel's name
    Precision precision = Precision::fp32;
    Layout layout = Layout::channels_first;
  };
  const Mapped layers[] = {
      {2, 64, 32, {8, 24}, {2, 2}, {2, 2}, DType::f16, 2, 1, 0, "_rows"},
      {2, 48, 72, {3, 264}, {2, 2}, {2, 2}, DType::bf16, 2, 1, 0, ""},
      {2, 40, 64, {8, 8}, {2, 2}, {2, 2}, DType::f16, 5, 1, 0, "_flat"},  // of several images
      {2, 64, 40, {16, 13}, {2, 2}, {2, 2}, DType::f16, 2, 1, 0, "_rows"},
      {2, 32, 64, {16, 6}, {4, 2}, {4, 2}, DType::f16, 3, 1, 0, ""},
      {3, 96, 16, {4, 4, 8}, {2, 2, 2}, {2, 2, 2}, DType::f16, 3, 1, 0, ""},
      {3, 32, 24, {5, 6, 12}, {1, 2, 2}, {1, 2, 2}, DType::bf16, 2, 1, 0, ""},
      {1, 40, 24, {200}, {4}, {4}, DType::bf16, 3, 2, 0, ""},  // channels of groups that are no chunks
      {1, 72, 24, {1000}, {2}, {2}, DType::f16, 2, 1, 0, ""},  // a class of lengths
      {2, 64, 192, {8, 16}, {1, 1}, {1, 1}, DType::f16, 2, 1, 0, "_b"},
      {2, 32, 64, {7, 40}, {2, 2}, {3, 3}, DType::f16, 2, 1, 0, "_fills"},
      {2, 32, 64, {4, 32}, {2, 2}, {2, 2}, DType::f16, 1, 1, 0, ""},
      {2, 48, 64, {6, 20}, {2, 2}, {2, 2}, DType::bf16, 3, 1, 1, ""},
  };
  std::mt19937 rng(1);
  set("TCONV_PREFER_PANELS", "mapped");
  for (const Mapped& mapped : layers) {
    Case c = case_of(mapped, &mapped - layers);
    c.layer.groups = mapped.groups, c.layer.in_channels *= mapped.groups, c.layer.out_channels *= mapped.groups;
    c.batch = mapped.batch;
    for (std::size_t d = 0; d < std::size_t(mapped.dims); ++d) c.layer.padding[d] = mapped.padding;
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("_mapped"), std::string::npos) << c.text << " " << kernel;
    EXPECT_NE(kernel.find(mapped.part), std::string::npos) << c.text << " " << kernel;
  }
  print_families();
}

/// Two tiles share the chunks of a sum as blocks of a cluster: each copies its own.
TEST_F(Emulation, MappedPanelsOfClusters) {
  struct Mapped {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision = Precision::fp32;
    Layout layout = Layout::channels_first;
  };
  const Mapped layers[] = {{2, 42, 9, {4, 16}, {6, 4}, {6, 5}, DType::bf16},
                           {2, 128, 64, {4, 8}, {2, 2}, {2, 2}, DType::f16},
                           {1, 200, 40, {48}, {4}, {4}, DType::f16},
                           {3, 80, 32, {2, 4, 8}, {2, 2, 2}, {2, 2, 2}, DType::f16}};
  std::mt19937 rng(3);
  set("TCONV_PREFER_PANELS", "mapped_clusters");
  for (const Mapped& mapped : layers) {
    Case c = case_of(mapped, &mapped - layers);
    c.multiprocessors = 40;
    const std::string kernel = check(c, rng);
    EXPECT_NE(kernel.find("_cluster_mapped"), std::string::npos) << kernel;
  }
}

/// A map that the driver refuses leaves the layer to the generic kernel.
TEST_F(Emulation, RefusedMaps) {
  std::mt19937 rng(2);
  set("TCONV_PREFER_PANELS", "mapped");
  Case c;
  Layer& l = c.layer;
  l.dims = 2, l.in_channels = 32, l.out_channels = 24, l.dtype = DType::f16, l.bias = true;
  l.kernel = l.stride = {2, 2, 1}, c.input = {8, 8, 1}, c.batch = 3, c.text = "refused map";
  EXPECT_NE(check(c, rng).find("_mapped"), std::string::npos);
  emulator.refuses_maps = true;
  EXPECT_EQ(check(c, rng), "generic");
}

/// Where a map does not serve: odd images, taps that read neighbours, kernels for every size, few channels.
TEST_F(Emulation, UnmappedPanels) {
  std::mt19937 rng(1);
  set("TCONV_PREFER_PANELS", "mapped");
  Case c;
  Layer& l = c.layer;
  l.dims = 2, l.in_channels = l.out_channels = 32, l.dtype = DType::f16, l.kernel = {2, 2, 1},
  l.stride = {2, 2, 1};
  c.input = {7, 9, 1}, c.batch = 2, c.text = "odd image";
  EXPECT_EQ(check(c, rng).find("_mapped"), std::string::npos);
  c.input = {8, 8, 1}, c.exported = true, c.text = "exported";
  EXPECT_EQ(check(c, rng).find("_mapped"), std::string::npos);
  c.exported = false, l.kernel[1] = 3, c.text = "neighbours";
  EXPECT_EQ(check(c, rng).find("_mapped"), std::string::npos);
  l.kernel[1] = 2, l.in_channels = 8, l.out_channels = 64, c.input = {8, 24, 1}, c.text = "half of an octet";
  EXPECT_EQ(check(c, rng).find("_mapped"), std::string::npos);
}

}  // namespace
}  // namespace tconv::cuda::emulated
