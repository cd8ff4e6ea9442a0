// Exported layers: one text that stands alone. Whether it is right takes a GPU (tests/python/test_export.py).
#include "cuda/export.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>

#include "cuda/engine.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "tconv/tconv.h"

namespace tconv {
namespace {

Layer dense_1d() {
  Layer layer;
  layer.in_channels = 128, layer.out_channels = 128, layer.kernel = {3}, layer.precision = Precision::tf32;
  return layer;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++times;
  return times;
}

TEST(Export, IncludesNothingOfTconv) {
  const std::string text = export_layer(dense_1d(), 8, {65536});
  EXPECT_EQ(count(text, "#include \""), 0u);
  EXPECT_EQ(count(text, "import tconv"), 0u);
  EXPECT_EQ(count(text, "#pragma once"), 0u);
  EXPECT_EQ(count(text, "extern \"C\""), 0u);
  EXPECT_GT(count(text, "#include <c10/cuda/"), 0u);
}

TEST(Export, EveryPlaceOfTheFrameIsFilled) {
  const std::string text = export_layer(dense_1d(), 8, {65536});
  std::smatch place;
  EXPECT_FALSE(std::regex_search(text, place, std::regex("@[A-Z_]+@"))) << place.str();
}

TEST(Export, EverySourceIsThereOnceAndAfterWhatItNeeds) {
  const std::string text = export_layer(dense_1d(), 8, {65536});
  const std::regex heading("// ---- ([a-z0-9_/]+\\.cuh)\n");
  std::vector<std::string> order;
  for (std::sregex_iterator at(text.begin(), text.end(), heading), end; at != end; ++at) order.push_back((*at)[1]);
  EXPECT_EQ(std::set<std::string>(order.begin(), order.end()).size(), order.size());
  const auto place = [&](const char* name) { return std::find(order.begin(), order.end(), name) - order.begin(); };
  EXPECT_LT(place("integers.cuh"), place("base.cuh"));
  EXPECT_LT(place("gemm_config.cuh"), place("sizes/tile.cuh"));
  EXPECT_LT(place("base.cuh"), place("implicit_gemm.cuh"));
  EXPECT_LT(place("launch_params.cuh"), place("launch_rules.cuh"));
  EXPECT_LT(place("launch_rules.cuh"), std::ptrdiff_t(order.size()));
}

TEST(Export, HopperHasItsOwnKernelsWhereTheyDiffer) {
  EXPECT_EQ(count(export_layer(dense_1d(), 8, {65536}), "\n#if TCONV_SM90\n"), 1u);
  Layer far = dense_1d();  // strides beyond every block of rows: the generic kernel, everywhere
  far.in_channels = 4, far.kernel = {300}, far.stride = {300};
  EXPECT_EQ(count(export_layer(far, 8, {10}), "TCONV_SM90\n"), 0u);
}

TEST(Export, EveryAlignmentOfARowIsServed) {
  const auto vectors = [](const std::string& text) {
    std::vector<int> found;
    const std::regex pattern("\\.x_vector = ([0-9]+)");
    const std::string kernels = text.substr(text.find("namespace kernel_0"));
    for (std::sregex_iterator at(kernels.begin(), kernels.end(), pattern), end; at != end; ++at)
      found.push_back(std::stoi((*at)[1]));
    return found;
  };
  // The same kernels, in the same order, whatever the alignment of the size exported.
  for (const std::int64_t length : {65536, 65537, 65538}) {
    const std::vector<int> found = vectors(export_layer(dense_1d(), 8, {length}));
    ASSERT_GE(found.size(), 2u);
    EXPECT_GE(found.front(), 2) << length;  // positions that the panel kernel loads together
    EXPECT_EQ(found.back(), 1) << length;
  }
}

TEST(Export, NumbersAreMultipliedAsTheEngineDoes) {
  cuda::DeviceProperties hopper = cuda::absent_device("sm_90a");
  cuda::KernelRecord record;
  hopper.record = &record;
  for (const Precision precision : {Precision::fp32, Precision::tf32}) {
    Layer layer = dense_1d();
    layer.precision = precision;
    ASSERT_TRUE(cuda::dense_kernel(layer, shape_of(layer, 8, {65536}), hopper).scaled);
    const std::string text = export_layer(layer, 8, {65536});
    EXPECT_GT(count(text, precision == Precision::fp32 ? ".math = Math::halves" : ".math = Math::half,"), 0u);
  }
}

TEST(Export, EveryFamilyHasAHost) {
  Layer depthwise = dense_1d();
  depthwise.groups = 128;
  EXPECT_GT(count(export_layer(depthwise, 8, {4096}), "direct_params("), 1u);
  Layer f64 = dense_1d();
  f64.dtype = DType::f64;
  EXPECT_GT(export_layer(f64, 8, {4096}).size(), 10'000u);
}

TEST(Export, TheConstructorIsWhatWasAskedFor) {
  const std::string text =
      export_layer(dense_1d(), 8, {65536}, {.name = "mine", .constructor = {"kernel_size", "in_channels"}});
  const auto begin = text.find("class ModelNew"), end = text.find(") -> None", begin);
  const std::string signature = text.substr(begin, end - begin);
  EXPECT_LT(signature.find("kernel_size: "), signature.find("in_channels: "));
  EXPECT_EQ(signature.find("stride"), std::string::npos);
  EXPECT_NE(text.find("name=f\"mine_"), std::string::npos);
}

/// What the host's part of an exported file uses of PyTorch and CUDA: dense tensors without elements, and a launch
/// that notes its kernel. Messages are whole strings: of several parts PyTorch would make one with a stream (see
/// host.cu.in).
const char torch_stub[] = R"(
#include <climits>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>
#include "cuda/kernels/launch_rules.cuh"
namespace at {
enum ScalarType { kByte, kInt, kFloat, kDouble, kHalf, kBFloat16 };
constexpr int kStrided = 0;
using IntArrayRef = std::vector<int64_t>;
struct Options { Options dtype(ScalarType) const { return {}; } };
struct Device { std::string str() const { return ""; } bool operator==(const Device&) const { return true; } };
struct Tensor {
  std::vector<int64_t> shape;
  bool defined() const { return true; }
  bool is_cuda() const { return true; }
  bool is_contiguous() const { return true; }
  at::Device device() const { return {}; }
  int dim() const { return int(shape.size()); }
  int layout() const { return kStrided; }
  int64_t size(int d) const { return shape[d < 0 ? d + dim() : d]; }
  int64_t stride(int d) const { int64_t n = 1; while (++d < dim()) n *= shape[d]; return n; }
  int64_t numel() const { return stride(-1); }
  int64_t element_size() const { return 4; }
  std::vector<int64_t> sizes() const { return shape; }
  ScalarType scalar_type() const { return kFloat; }
  Options options() const { return {}; }
  Tensor clone() const { return *this; }
  const void* const_data_ptr() const { return nullptr; }
  void* mutable_data_ptr() const { return nullptr; }
};
inline Tensor empty(const std::vector<int64_t>& shape, Options) { return {shape}; }
}
namespace c10 { inline const char* toString(at::ScalarType) { return ""; } }
namespace c10::cuda {
struct CUDAGuard { explicit CUDAGuard(at::Device) {} };
inline int current_device() { return 0; }
inline void* getCurrentCUDAStream() { return nullptr; }
}
struct dim3 { dim3(unsigned) {} };
enum { cudaDevAttrMultiProcessorCount, cudaFuncAttributeMaxDynamicSharedMemorySize };
inline int cudaDeviceGetAttribute(int* value, int, int) { return *value = 132, 0; }
inline int cudaFuncSetAttribute(const void*, int, int) { return 0; }
const void* launched = nullptr;
inline int cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, void*) { return launched = kernel, 0; }
inline void check_that(bool holds, const std::string& message) { if (!holds) throw std::runtime_error(message); }
#define TORCH_CHECK(...) check_that(__VA_ARGS__)
#define C10_CUDA_CHECK(call) check_that((call) == 0, "")
namespace tconv::device::selected {
constexpr long long packed_words = 1000;
constexpr bool scaled = true;
inline void find(ScaleParams) {}
template <class Begin> void find_scales(const Begin& begin) { begin(find, 0); }
namespace packing { inline void pack(PackParams) {} constexpr int shared_bytes = 0; constexpr GemmConfig config{}; }
inline void turn(TurnParams) {}
struct Turning { void (*one)(TurnParams); void (*several)(TurnParams); int shared_bytes; };
@KERNELS@
template <class Attempt> bool any(const Attempt& attempt) { return @ATTEMPT@; }
}
)";

/// The host's part of an exported text, with kernels in place of the layer's own: {what is in their namespaces}.
/// The host's part is C++ that any compiler reads.
std::string host_with(const std::string& text, const std::vector<std::string>& kernels, bool attempts = true) {
  std::string namespaces, attempt;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::string name = "kernel_" + std::to_string(i);
    namespaces += "namespace " + name + " { " + kernels[i] + " constexpr int shared_bytes = 0; }\n";
    attempt += (i ? " || attempt(" : "attempt(") + name + "::config, " + name + "::forward, 0" +
               (kernels[i].find("Direct") == std::string::npos ? ", Turning{turn, turn, 0})" : ")");
  }
  std::string stub = torch_stub;
  stub.replace(stub.find("@KERNELS@"), 9, namespaces);
  stub.replace(stub.find("@ATTEMPT@"), 9, attempts ? attempt : "false");
  const auto begin = text.find("// ---- Calls from PyTorch"), end = text.find("\"\"\"", begin);
  return stub + std::regex_replace(text.substr(begin, end - begin), std::regex("#include <[^>]*>\n"), "");
}

/// Calls the compiler; `target` is what it is to make of the source.
void compile(const std::string& source, const std::string& target) {
  const std::string file = testing::TempDir() + "/tconv_export_host.cpp";
  std::ofstream(file) << source;
  const std::string folder = TCONV_SOURCE_FOLDER;
  const std::string command = std::string("'") + TCONV_COMPILER + "' -std=c++20 -w -I'" + folder + "' -I'" +
                              folder + "/cuda/kernels' " + target + " '" + file + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

/// It must agree with the parameters and rules of the kernels.
TEST(Export, TheHostsPartCompilesForEveryFamily) {
  const auto expect_host_compiles = [](const Layer& layer, const std::string& kernel, bool attempts) {
    compile(host_with(export_layer(layer, 8, {4096}), {kernel}, attempts), "-fsyntax-only");
  };
  expect_host_compiles(dense_1d(), "constexpr GemmConfig config{}; void forward(ForwardParams);", true);
  Layer depthwise = dense_1d();
  depthwise.groups = 128;
  expect_host_compiles(depthwise, "constexpr DirectConfig config{}; void forward(DirectParams);", true);
  Layer far = dense_1d();
  far.in_channels = 4, far.kernel = {300}, far.stride = {300};
  expect_host_compiles(far, "void forward(GenericParams);", false);
}

/// A kernel is exported for one width and called at others. Its boxes may be whole rows there, of a width that is
/// no number of vectors; where the second box of a longer row would begin inside a vector, another kernel must
/// run.
TEST(Export, WidthsWhoseBoxesWouldBeginBetweenVectorsAreRefused) {
  const auto kernel = [](int x_vector, int box_width) {
    return "constexpr GemmConfig config{.groups = 1, .kernel = {1, 1, 3}, .stride = {1, 1, 1}, .x_vector = " +
           std::to_string(x_vector) + ", .types = 1, .channel_blocks = 1, .x_phases = 1, .box = {1, 1, " +
           std::to_string(box_width) +
           "}, .warps_m = 1, .warps_n = 1, .octet_group = 1, .blocks_per_sm = 1, .images = 1, " +
           ".window = 1, .team_blocks = 1, .box_parts = 1, .depth_splits = 1}; void forward(ForwardParams) {}";
  };
  // The first kernel that will do, by its place; or that none does.
  const std::string main_function = R"(
#include <cstdio>
#include <cstdlib>
int main(int count, char** widths) {
  using namespace tconv::device::selected;
  const void* const kernels[] = {(const void*)kernel_0::forward, (const void*)kernel_1::forward,
                                 (const void*)kernel_2::forward};
  for (int i = 1; i < count; ++i) {
    const at::Tensor x{{8, 128, std::atoi(widths[i])}}, weight{{128, 128, 3}};
    try {
      forward(x, weight, std::nullopt);
      for (int k = 0; k < 3; ++k)
        if (launched == kernels[k]) std::printf("%d ", k);
    } catch (const std::exception&) {
      std::printf("none ");
    }
  }
}
)";
  const std::string program = testing::TempDir() + "/tconv_export_host";
  const auto kernels_at = [&](const std::vector<std::string>& kernels, const std::string& widths) {
    compile(host_with(export_layer(dense_1d(), 8, {4096}), kernels) + main_function, "-o '" + program + "'");
    std::string output(64, '\0');
    FILE* const pipe = popen(("'" + program + "' " + widths).c_str(), "r");
    output.resize(std::fread(output.data(), 1, output.size(), pipe));
    EXPECT_EQ(pclose(pipe), 0);
    return output;
  };
  // Outputs are two longer than inputs. Boxes of 10: one, where a row of outputs has no more; two would begin 10
  // apart, which suits vectors of 2, and not of 4. Rows of odd widths are no vectors at all.
  EXPECT_EQ(kernels_at({kernel(4, 10), kernel(2, 10), kernel(1, 10)}, "8 12 24 10 7"), "0 1 1 1 2 ");
  EXPECT_EQ(kernels_at({kernel(4, 10), kernel(4, 12), kernel(4, 11)}, "8 12 24 10"), "0 1 1 none ");
}

TEST(Export, RefusesWhatItCannotWrite) {
  EXPECT_THROW(export_layer(dense_1d(), 8, {65536}, {.name = "a-b"}), InvalidArgument);
  EXPECT_THROW(export_layer(dense_1d(), 8, {65536}, {.constructor = {"weight"}}), InvalidArgument);
  for (const char* title : {"a\"\"\"\nimport os", "two\nlines", "a \\ b", "\"quoted\""})
    EXPECT_THROW(export_layer(dense_1d(), 8, {65536}, {.title = title}), InvalidArgument) << title;
  Layer last = dense_1d();
  last.layout = Layout::channels_last;
  EXPECT_THROW(export_layer(last, 8, {65536}), Unsupported);
  Layer wrong = dense_1d();
  wrong.stride = {0};
  EXPECT_THROW(export_layer(wrong, 8, {65536}), InvalidArgument);
}

TEST(Export, ARefusalNamesTheKernelFamilyAndWhatToDo) {
  const auto refusal = [](const Layer& layer, std::int64_t batch, const Extents& input) -> std::string {
    try {
      export_layer(layer, batch, input);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  Layer far = dense_1d();  // taps too far apart for any tile
  far.kernel = {5}, far.dilation = {20'000};
  const std::string only_generic = refusal(far, 8, {100'000});
  EXPECT_NE(only_generic.find("the kernel family 'generic'"), std::string::npos) << only_generic;
  EXPECT_NE(only_generic.find("use tconv.nn.ConvTranspose1d or tconv.convert"), std::string::npos) << only_generic;
  Layer mixed;
  mixed.dims = 2, mixed.in_channels = mixed.out_channels = 32, mixed.kernel = {3, 70}, mixed.stride = {1, 70};
  const std::string different = refusal(mixed, 1, {10, 10});
  EXPECT_NE(different.find("'generic' on one GPU"), std::string::npos) << different;
  EXPECT_NE(different.find("by 'warpgroup_gemm' on another"), std::string::npos) << different;
}

TEST(Export, TheCFunctionSaysHowLongTheTextIsAndCutsItToTheRoomThereIs) {
  tconv_layer layer;
  tconv_layer_init(&layer);
  layer.in_channels = layer.out_channels = 128, layer.kernel[0] = 3, layer.precision = 1;
  const int64_t input[] = {65536};
  size_t bytes = 0;
  ASSERT_EQ(tconv_export(&layer, 8, input, nullptr, nullptr, nullptr, &bytes), TCONV_OK) << tconv_last_error();
  std::string text(bytes, 'x');
  ASSERT_EQ(tconv_export(&layer, 8, input, nullptr, nullptr, text.data(), &bytes), TCONV_OK);
  EXPECT_EQ(text.c_str(), export_layer(dense_1d(), 8, {65536}));
  EXPECT_EQ(std::string(text.c_str()).size() + 1, bytes);
  std::string little(10, 'x');
  size_t room = 5;
  ASSERT_EQ(tconv_export(&layer, 8, input, nullptr, nullptr, little.data(), &room), TCONV_OK);
  EXPECT_EQ(room, bytes);
  EXPECT_EQ(little, text.substr(0, 4) + std::string(1, '\0') + "xxxxx");
  EXPECT_NE(tconv_export(&layer, 8, input, nullptr, nullptr, nullptr, nullptr), TCONV_OK);
  EXPECT_NE(tconv_export(nullptr, 8, input, nullptr, nullptr, nullptr, &room), TCONV_OK);
}

}  // namespace
}  // namespace tconv
