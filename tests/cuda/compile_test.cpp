// Every kernel family compiles for every supported architecture, and the hot ones keep their sums in
// registers. Needs NVRTC, no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "cuda/ahead_of_time.hpp"
#include "cuda/codegen.hpp"
#include "cuda/direct_launch.hpp"
#include "cuda/heuristics/march_tiles.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"
#include "cuda/layer_view.hpp"
#include "cuda/runtime/nvrtc.hpp"
#include "cuda/runtime/targets.hpp"
#include "support/needs_nvrtc.hpp"

namespace tconv::cuda {
namespace {

using device::Math;

const char* const architectures[] = {"sm_80", "sm_90a", "sm_100a", "sm_120a"};

struct Case {
  const char* name;
  Layer layer;
  std::int64_t batch;
  Extents input;
};

/// One layer for each thing that makes a kernel different.
std::vector<Case> cases() {
  const auto layer = [](int dims, std::int64_t in, std::int64_t out, Extents kernel, Extents stride,
                        Extents padding, Extents dilation, std::int64_t groups) {
    Layer l;
    l.dims = dims, l.in_channels = in, l.out_channels = out;
    l.kernel = kernel, l.stride = stride, l.padding = padding, l.dilation = dilation, l.groups = groups;
    return l;
  };
  return {{"1D", layer(1, 128, 128, {3}, {1}, {0}, {1}, 1), 8, {65536}},
          {"1D strided", layer(1, 512, 256, {16}, {8}, {4}, {1}, 1), 16, {32}},
          {"1D with empty phases", layer(1, 32, 64, {3}, {2}, {1}, {2}, 1), 16, {131072}},
          {"2D", layer(2, 64, 64, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1), 8, {256, 256}},
          {"2D few rows", layer(2, 56, 1, {9, 9}, {4, 4}, {4, 4}, {1, 1}, 1), 8, {270, 480}},
          {"2D few channels", layer(2, 32, 16, {3, 7}, {1, 1}, {1, 3}, {1, 1}, 1), 8, {512, 1024}},
          {"2D groups", layer(2, 32, 64, {3, 5}, {2, 3}, {1, 2}, {2, 1}, 4), 16, {128, 256}},
          {"3D masked", layer(3, 32, 32, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, 1), 4, {32, 64, 128}},
          {"paired steps", layer(2, 3, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1), 8, {128, 128}}};
}

/// A layer as the march kernel wants them.
Layer march_layer(int dims, std::int64_t in, std::int64_t out, std::int64_t kernel) {
  Layer l;
  l.dims = dims, l.in_channels = in, l.out_channels = out, l.kernel = {3, kernel, kernel};
  return l;
}

/// Register spills as the assembler reports them.
int spilled_bytes(const std::string& log) {
  int bytes = 0;
  static const std::regex pattern("([0-9]+) bytes spill (stores|loads)");
  for (std::sregex_iterator at(log.begin(), log.end(), pattern), end; at != end; ++at)
    bytes += std::stoi((*at)[1]);
  return bytes;
}

class Compile : public test::NeedsNvrtc, public testing::WithParamInterface<const char*> {};
using CompileHopper = test::NeedsNvrtc;
using CompileErrors = test::NeedsNvrtc;

TEST_P(Compile, ImplicitGemm) {
  // The architectures differ in what they assemble to, not in the source: one takes every case.
  const bool every_case = std::string(GetParam()) == "sm_90a";
  int index = 0;
  for (const Case& c : cases())
    for (const Math math : {Math::tf32, Math::fp32, Math::f16, Math::bf16, Math::f64}) {
      if (!every_case && index++ % 5 != 0) continue;
      const int per_word = device::channels_per_word(math), vector = 16 / device::word_bytes(math);
      const Geometry g = geometry_of(c.layer);
      const Shape shape = shape_of(c.layer, c.batch, c.input);
      RowPlan rows;
      ASSERT_TRUE(make_row_plan(g, per_word, 4, rows));
      for (const bool last : {false, true}) {
        if (last && (math == Math::bf16 || !every_case)) continue;  // bf16 differs from f16 in one instruction
        Access access;
        access.x_channels_last = last, access.y_rows = !last;
        if (last)
          access.x_vector = g.group_in % (vector * per_word) == 0 ? vector : g.group_in % per_word == 0 ? 1 : 0;
        else
          access.x_vector = shape.input[2] % (vector * per_word) == 0 ? vector * per_word : 1;
        // sm_120 has less shared memory than the others.
        DeviceLimits limits;
        if (std::string(GetParam()) == "sm_120a")
          limits.shared_per_block = 99 * 1024, limits.shared_per_multiprocessor = 100 * 1024;
        const auto choices = price_tiles(g, math, rows, shape, access, limits);
        ASSERT_FALSE(choices.empty()) << c.name;
        const CompiledCode code = nvrtc_compile(gemm_source(choices.front().config, rows), GetParam());
        EXPECT_FALSE(code.binary.empty());
        EXPECT_EQ(spilled_bytes(code.log), 0)
            << c.name << ", math " << int(math) << (last ? ", channels last" : "");
      }
    }
}

/// Few channels in a group: one layer for each thing that makes a direct kernel different.
std::vector<Case> few_channel_cases() {
  const auto layer = [](int dims, std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                        std::int64_t padding, std::int64_t dilation, std::int64_t groups) {
    Layer l;
    l.dims = dims, l.in_channels = in, l.out_channels = out, l.groups = groups;
    for (std::size_t d = 0; d < std::size_t(dims); ++d)
      l.kernel[d] = kernel, l.stride[d] = stride, l.padding[d] = padding, l.dilation[d] = dilation;
    return l;
  };
  return {{"1D depthwise", layer(1, 512, 512, 6, 3, 2, 1, 512), 16, {8192}},
          {"1D depthwise, stride 8", layer(1, 64, 64, 16, 8, 4, 1, 64), 16, {8191}},
          {"1D depthwise, dilated", layer(1, 64, 64, 11, 1, 4, 4, 64), 16, {8192}},
          {"1D groups of 2 and 4", layer(1, 64, 128, 4, 2, 1, 1, 32), 16, {8192}},
          {"2D depthwise", layer(2, 64, 64, 3, 1, 1, 1, 64), 8, {256, 256}},
          {"2D depthwise, strided", layer(2, 64, 64, 4, 2, 1, 1, 64), 8, {256, 256}},
          {"2D depthwise, 7 x 7", layer(2, 64, 64, 7, 1, 3, 1, 64), 8, {255, 255}},
          {"2D depthwise, stride 4", layer(2, 64, 64, 8, 4, 2, 1, 64), 8, {64, 64}},
          {"2D groups of 4 and 4", layer(2, 64, 64, 3, 1, 1, 1, 16), 8, {256, 256}},
          {"3D depthwise", layer(3, 32, 32, 3, 1, 1, 1, 32), 2, {32, 64, 64}},
          {"3D depthwise, strided", layer(3, 32, 32, 4, 2, 1, 1, 32), 2, {32, 64, 64}}};
}

TEST_P(Compile, Direct) {
  const bool every_case = std::string(GetParam()) == "sm_90a";
  int index = 0;
  for (const Case& c : few_channel_cases())
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      // The architectures differ in what they assemble to, bf16 from f16 in one instruction.
      if (every_case ? dtype == DType::bf16 : index++ % 7 != 0) continue;
      const Geometry g = geometry_of(c.layer);
      for (const bool last : {false, true})
        for (const int vector : {1, 16 / int(size_of(dtype))}) {
          if (last && (vector == 1 || c.layer.dims == 1)) continue;
          DirectAccess access;
          access.channels_last = last, access.x_vector = access.y_vector = vector;
          const auto config = direct_config(g, dtype, access);
          ASSERT_TRUE(config) << c.name;
          const CompiledCode code = nvrtc_compile(direct_source(*config, dtype), GetParam());
          EXPECT_EQ(spilled_bytes(code.log), 0)
              << c.name << ", dtype " << int(dtype) << ", vector " << vector << (last ? ", channels last" : "");
        }
    }
}

TEST_P(Compile, DenseDoubleGenericAndPack) {
  const bool every_case = std::string(GetParam()) == "sm_90a";
  int index = 0;
  for (const Case& c : cases()) {
    if (!every_case && index++ % 4 != 0) continue;
    const Geometry g = geometry_of(c.layer);
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      EXPECT_NO_THROW(nvrtc_compile(generic_source(g, dtype), GetParam())) << c.name;
    const auto config = direct_config(g, DType::f64, {});
    ASSERT_TRUE(config) << c.name;
    EXPECT_EQ(spilled_bytes(nvrtc_compile(direct_source(*config, DType::f64), GetParam()).log), 0) << c.name;
    RowPlan rows;
    ASSERT_TRUE(make_row_plan(g, 1, 4, rows));
    for (const Math math : {Math::tf32, Math::f64})
      EXPECT_NO_THROW(nvrtc_compile(pack_source(pack_config(g, math, rows), rows, g), GetParam())) << c.name;
  }
}

TEST_F(CompileHopper, Wgmma) {
  int compiled = 0;
  for (const Case& c : cases())
    for (const Math math : {Math::tf32, Math::fp32, Math::halves, Math::half, Math::f16, Math::bf16})
      for (const bool last : {false, true}) {
        const Geometry g = geometry_of(c.layer);
        const Shape shape = shape_of(c.layer, c.batch, c.input);
        RowPlan rows;
        if (!make_wide_row_plan(g, device::channels_per_word(math), device::weight_parts(math), last, rows) ||
            !suits_warpgroups(g, math, rows))
          continue;
        if ((last || math == Math::bf16) && compiled % 3 != 0 && ++compiled) continue;  // they differ in little
        Access access;
        access.x_channels_last = last, access.y_rows = !last, access.y_channels = last ? 4 : 1;
        access.x_vector = last ? 4 : compiled % 2 ? 1 : 16 / device::element_bytes(math);
        const auto choices = price_warpgroup_tiles(g, math, rows, shape, access, {});
        ASSERT_FALSE(choices.empty()) << c.name;
        const CompiledCode code = nvrtc_compile(warpgroup_source(choices.front().config, rows), "sm_90a");
        // Addresses may wait in memory while a tile is stored, which rows of three phases have many of; sums may
        // not.
        EXPECT_LE(spilled_bytes(code.log), 1024) << c.name << ", math " << int(math);
        EXPECT_EQ(code.log.find("C75"), std::string::npos)
            << c.name << ", math " << int(math) << ": wgmma is serialised: " << code.log;
        EXPECT_NO_THROW(nvrtc_compile(pack_source(pack_config(g, math, rows), rows, g), "sm_90a"));
        ++compiled;
      }
  EXPECT_GE(compiled, 20);
}

/// x turned into panels, and the tile that copies them: of each layer with many row blocks the best one.
TEST_F(CompileHopper, TurnedX) {
  for (const Math math : {Math::tf32, Math::fp32, Math::halves, Math::half, Math::f16, Math::bf16})
    for (const auto load : {device::TurnLoad::element, device::TurnLoad::pair, device::TurnLoad::vector})
      EXPECT_EQ(spilled_bytes(nvrtc_compile(turn_source(math, load), "sm_90a").log), 0);
  Layer layer;
  layer.dims = 2, layer.in_channels = 512, layer.out_channels = 256, layer.kernel = {4, 4}, layer.stride = {2, 2};
  layer.padding = {1, 1};
  const Geometry g = geometry_of(layer);
  const Shape shape = shape_of(layer, 16, {8, 8});
  EXPECT_NO_THROW(nvrtc_compile(weight_scales_source(), "sm_90a"));
  const Shape few = shape_of(layer, 1, {4, 4});
  for (const Math math : {Math::tf32, Math::fp32, Math::halves, Math::half, Math::f16})
    for (const bool split : {false, true}) {  // tiles that share sums
      RowPlan rows;
      ASSERT_TRUE(
          make_wide_row_plan(g, device::channels_per_word(math), device::weight_parts(math), false, 1, rows));
      const auto choices = price_warpgroup_tiles(g, math, rows, split ? few : shape, {}, {});
      const auto turned = std::find_if(choices.begin(), choices.end(), [&](const TileChoice& choice) {
        return choice.config.turned && !choice.config.clustered && (choice.config.depth_splits > 1) == split;
      });
      ASSERT_NE(turned, choices.end());
      const CompiledCode code = nvrtc_compile(warpgroup_source(turned->config, rows), "sm_90a");
      EXPECT_EQ(spilled_bytes(code.log), 0) << "math " << int(math);
      EXPECT_EQ(code.log.find("C75"), std::string::npos) << "wgmma is serialised";
    }
}

TEST_F(CompileHopper, March) {
  int compiled = 0;
  for (const Case& c : {Case{"3D", march_layer(3, 48, 24, 3), 8, {96, 96, 96}},
                        {"3D, few channels", march_layer(3, 32, 16, 5), 16, {16, 32, 64}},
                        {"2D", march_layer(2, 32, 32, 3), 8, {512, 1024}},
                        {"2D, odd rows", march_layer(2, 64, 64, 3), 8, {300, 301}}})
    for (const Math math : {Math::halves, Math::half, Math::f16, Math::bf16}) {
      if (math == Math::bf16 && compiled > 3) continue;  // differs from f16 in one instruction
      const View view = c.layer.dims == 2 ? View::upright : View::plain;
      const Geometry g = seen(view, geometry_of(c.layer), {});
      const Shape shape = seen(view, shape_of(c.layer, c.batch, c.input), {});
      RowPlan rows;
      if (!make_march_row_plan(g, 2, device::weight_parts(math), rows)) continue;
      ASSERT_TRUE(suits_march(g, math, rows));
      Access access;
      access.x_vector = c.input[2] % 2 ? 1 : 2;
      const auto choices = price_march_tiles(g, math, rows, shape, access, {});
      ASSERT_FALSE(choices.empty()) << c.name;
      const CompiledCode code = nvrtc_compile(warpgroup_source(choices.front().config, rows), "sm_90a");
      // Places of outputs may wait in memory; sums may not.
      EXPECT_LE(spilled_bytes(code.log), 256) << c.name << ", math " << int(math);
      EXPECT_EQ(code.log.find("C75"), std::string::npos)
          << c.name << ", math " << int(math) << ": wgmma is serialised: " << code.log;
      EXPECT_NO_THROW(nvrtc_compile(pack_source(pack_config(g, math, rows), rows, g), "sm_90a"));
      ++compiled;
    }
  EXPECT_GE(compiled, 10);
}

/// Strides of which a layer has more types than constant memory has room for: all that the engine asks for
/// compiles.
TEST_F(CompileHopper, MoreTypesThanTablesHold) {
  struct Strided {
    int dims;
    Extents stride, input;
  };
  for (const Strided& strided :
       {Strided{2, {255, 1}, {3, 40}}, {3, {16, 15, 1}, {2, 2, 32}}, {3, {12, 16, 1}, {2, 2, 32}}})
    for (const DType dtype : {DType::f32, DType::f16})
      for (const char* const architecture : {"sm_80", "sm_90a"}) {
        Layer layer;
        layer.dims = strided.dims, layer.in_channels = layer.out_channels = 64, layer.dtype = dtype;
        layer.kernel = layer.stride = strided.stride;
        if (strided.dims == 2) layer.kernel[2] = layer.stride[2] = 1;
        const auto kernels = kernels_of(layer, 1, strided.input, absent_device(architecture));
        // What serves dense tensors comes first.
        const auto forward = std::ranges::find(kernels, "forward", &KernelRequest::entry);
        ASSERT_NE(forward, kernels.end());
        EXPECT_NO_THROW(nvrtc_compile(forward->source, architecture))
            << format_extents(strided.dims, strided.stride) << " on " << architecture;
      }
}

/// Tiles whose x is copied as it lies: of each kind of boxes the best one.
TEST_F(CompileHopper, MappedX) {
  Layer layer;
  layer.dims = 2, layer.in_channels = 256, layer.out_channels = 128, layer.kernel = layer.stride = {2, 2};
  const Geometry g = geometry_of(layer);
  for (const Math math : {Math::f16, Math::bf16})
    for (const Extents& input : {Extents{512, 512}, Extents{32, 32}, Extents{8, 8}}) {
      RowPlan rows;
      ASSERT_TRUE(make_wide_row_plan(g, 2, 1, false, 1, rows));
      const auto choices = price_warpgroup_tiles(g, math, rows, shape_of(layer, 16, input), {.x_maps = true}, {});
      const auto mapped = std::ranges::find_if(choices, [](const TileChoice& c) { return c.config.mapped; });
      ASSERT_NE(mapped, choices.end());
      const CompiledCode code = nvrtc_compile(warpgroup_source(mapped->config, rows), "sm_90a");
      EXPECT_EQ(spilled_bytes(code.log), 0) << input[0];
      EXPECT_EQ(code.log.find("C75"), std::string::npos) << "wgmma is serialised";
    }
}

/// Paired rows: lines of two and of eight phases, products of one row, of several, and flat ones.
TEST_F(CompileHopper, PairedRows) {
  struct Upsampling {
    int dims;
    std::int64_t in, out, kernel, stride, padding;
    Extents input;
  };
  for (const Upsampling& u : {Upsampling{1, 128, 64, 4, 2, 1, {2048}},
                              {1, 512, 256, 16, 8, 4, {861}},
                              {2, 256, 128, 4, 2, 1, {96, 96}},
                              {2, 64, 32, 2, 2, 0, {128, 128}},
                              {2, 512, 256, 4, 2, 1, {8, 8}}}) {
    Layer layer;
    layer.dims = u.dims, layer.in_channels = u.in, layer.out_channels = u.out;
    for (std::size_t d = 0; d < std::size_t(u.dims); ++d)
      layer.kernel[d] = u.kernel, layer.stride[d] = u.stride, layer.padding[d] = u.padding;
    const Geometry g = geometry_of(layer);
    RowPlan rows;
    ASSERT_TRUE(make_wide_row_plan(g, 2, 1, false, 1, rows));
    pair_rows(g, rows);
    ASSERT_TRUE(rows.row_pairs);
    const auto choices = price_warpgroup_tiles(g, Math::f16, rows, shape_of(layer, 16, u.input), {}, {});
    ASSERT_FALSE(choices.empty());
    const CompiledCode code = nvrtc_compile(warpgroup_source(choices.front().config, rows), "sm_90a");
    EXPECT_EQ(spilled_bytes(code.log), 0) << u.input[0];
    EXPECT_EQ(code.log.find("C75"), std::string::npos) << "wgmma is serialised";
  }
}

/// Outputs along the width as channels, of large strides and of few channels, and how their weights are packed.
TEST_F(CompileHopper, ChannelPhases) {
  struct Strided {
    std::int64_t in, out, kernel, stride, length;
  };
  for (const Strided& s : {Strided{80, 80, 1024, 256, 400}, {256, 1, 40, 20, 3000}, {64, 1, 25, 4, 4096}})
    for (const Math math : {Math::tf32, Math::fp32, Math::halves, Math::half, Math::f16}) {
      Layer layer;
      layer.dims = 1, layer.in_channels = s.in, layer.out_channels = s.out, layer.kernel = {s.kernel};
      layer.stride = {s.stride};
      const Geometry geometry = geometry_of(layer);
      const device::ChannelPhases phases = channel_phases_of(geometry, device::element_bytes(math));
      ASSERT_EQ(phases.count, s.stride);
      const Geometry g = seen(View::channel_phases, geometry, phases);
      const Shape shape = shape_of(layer, 4, {s.length});
      RowPlan rows;
      ASSERT_TRUE(
          make_wide_row_plan(g, device::channels_per_word(math), device::weight_parts(math), phases, rows));
      const Access access =
          seen(View::channel_phases, {.y_row_vector = 16 / device::element_bytes(math)}, shape, phases);
      const auto choices =
          price_warpgroup_tiles(g, math, rows, seen(View::channel_phases, shape, phases), access, {});
      ASSERT_FALSE(choices.empty()) << s.stride << ", math " << int(math);
      const CompiledCode code = nvrtc_compile(warpgroup_source(choices.front().config, rows), "sm_90a");
      EXPECT_EQ(spilled_bytes(code.log), 0) << s.stride << ", math " << int(math);
      EXPECT_EQ(code.log.find("C75"), std::string::npos) << "wgmma is serialised";
      EXPECT_NO_THROW(nvrtc_compile(pack_source(pack_config(g, math, rows), rows, g), "sm_90a"));
    }
}

/// Tiles that share sums as blocks of a cluster: of x that is turned before, and that threads load.
TEST_F(CompileHopper, Clusters) {
  Layer layer;
  layer.dims = 2, layer.in_channels = 512, layer.out_channels = 256, layer.kernel = {4, 4}, layer.stride = {2, 2};
  layer.padding = {1, 1};
  const Geometry g = geometry_of(layer);
  for (const Math math : {Math::tf32, Math::fp32, Math::halves, Math::half, Math::f16})
    for (const bool turned : {false, true}) {
      RowPlan rows;
      ASSERT_TRUE(
          make_wide_row_plan(g, device::channels_per_word(math), device::weight_parts(math), false, 1, rows));
      const auto choices = price_warpgroup_tiles(g, math, rows, shape_of(layer, 4, {8, 8}), {}, {});
      const auto clustered = std::find_if(choices.begin(), choices.end(), [&](const TileChoice& choice) {
        return choice.config.clustered && choice.config.turned == turned;
      });
      ASSERT_NE(clustered, choices.end());
      const CompiledCode code = nvrtc_compile(warpgroup_source(clustered->config, rows), "sm_90a");
      EXPECT_EQ(spilled_bytes(code.log), 0) << "math " << int(math) << ", turned " << turned;
      EXPECT_EQ(code.log.find("C75"), std::string::npos) << "wgmma is serialised";
    }
}

/// Tiles that store whole rows of all phases along the height, some of which have no taps; x turned once for all
/// boxes, or a panel for each shift; and pairs of steps.
TEST_F(CompileHopper, WholeRowsAndPairs) {
  const auto layer_of = [](std::int64_t in, std::int64_t out, Extents kernel, Extents dilation) {
    Layer layer;
    layer.dims = 3, layer.in_channels = in, layer.out_channels = out, layer.kernel = kernel;
    layer.stride = {2, 2, 2}, layer.padding = {1, 1, 1}, layer.dilation = dilation;
    return layer;
  };
  struct Wanted {
    Layer layer;
    bool whole, once, paired, by_shift = false;
  };
  const Wanted layers[] = {{layer_of(32, 32, {3, 3, 3}, {1, 1, 1}), true, false, false},
                           {layer_of(32, 32, {3, 3, 3}, {1, 1, 1}), true, true, false},
                           {layer_of(32, 64, {3, 3, 3}, {2, 2, 2}), true, false, false},
                           {layer_of(8, 32, {3, 5, 5}, {1, 1, 1}), false, false, true},
                           {layer_of(32, 32, {5, 5, 5}, {3, 3, 3}), false, true, false, true}};
  for (const Wanted& wanted : layers)
    for (const Math math : {Math::tf32, Math::f16}) {
      const int per_word = device::channels_per_word(math);
      if (wanted.paired && per_word == 1) continue;
      const Geometry g = geometry_of(wanted.layer);
      RowPlan rows;
      ASSERT_TRUE(make_wide_row_plan(g, per_word, 1, false, 1, rows));
      if (wanted.whole) rows = with_whole_rows(g, per_word, 1, rows).value();
      EXPECT_EQ(rows.paired, wanted.paired);
      const Shape shape = shape_of(wanted.layer, 4, {32, 64, 64});
      Access access;
      access.x_vector = 2;
      const auto choices = price_warpgroup_tiles(g, math, rows, shape, access, {});
      const auto found = std::find_if(choices.begin(), choices.end(), [&](const TileChoice& choice) {
        return choice.config.whole_rows >= wanted.whole && choice.config.turned_once == wanted.once &&
               device::panels_by_shift(choice.config) == wanted.by_shift;
      });
      ASSERT_NE(found, choices.end());
      const CompiledCode code = nvrtc_compile(warpgroup_source(found->config, rows), "sm_90a");
      // Addresses may wait in memory while a tile is stored.
      EXPECT_LE(spilled_bytes(code.log), 1024) << "math " << int(math);
      EXPECT_EQ(code.log.find("C75"), std::string::npos) << "wgmma is serialised";
      EXPECT_NO_THROW(nvrtc_compile(pack_source(pack_config(g, math, rows), rows, g), "sm_90a"));
    }
}

TEST_F(CompileErrors, CarryTheLog) {
  try {
    nvrtc_compile("__global__ void f() { undeclared(); }", "sm_90a");
    FAIL() << "compiled nonsense";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("undeclared"), std::string::npos);
    EXPECT_EQ(e.code(), ErrorCode::device_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Compile, testing::ValuesIn(architectures),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace tconv::cuda
