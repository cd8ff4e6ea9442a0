// Configurations as generated sources have them: every member that the device knows, which a forgotten one would
// leave zero there. No NVRTC, no GPU.
#include "cuda/codegen.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "cuda/engine.hpp"
#include "cuda/runtime/device_sources.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"

namespace tconv::cuda {
namespace {

using Names = std::vector<std::string>;

std::string device_source(const std::string& name) {
  for (const DeviceSource& source : device_sources())
    if (source.name == name) return source.text;
  ADD_FAILURE() << "no " << name;
  return "";
}

/// What stands between `begin` and the next `end`.
std::string body_of(const std::string& text, const std::string& begin, const std::string& end) {
  const auto first = text.find(begin);
  if (first == std::string::npos) return "";
  return text.substr(first + begin.size(), text.find(end, first) - first - begin.size());
}

/// The members of a struct in their order, from its text: statements "type name, name = value".
Names members_of(const std::string& file, const std::string& type) {
  const std::string text = body_of(device_source(file), "\nstruct " + type + " {\n", "\n};");
  const std::string code = std::regex_replace(text, std::regex("//[^\n]*"), "");
  Names members;
  const std::regex statement("([^;]*);"), declaration("^\\s*\\w+\\s+([\\w\\s,=]+)$"),
      name("(\\w+)\\s*(=[^,]*)?(,|$)");
  for (std::sregex_iterator at(code.begin(), code.end(), statement), end; at != end; ++at) {
    std::smatch declared;
    const std::string one = (*at)[1];
    if (!std::regex_match(one, declared, declaration)) continue;  // operator==
    const std::string names = declared[1];
    for (std::sregex_iterator n(names.begin(), names.end(), name); n != end; ++n) members.push_back((*n)[1]);
  }
  return members;
}

/// The members that a source gives values, in their order.
Names members_in(const std::string& source, const std::string& type) {
  const std::string text = body_of(source, "constexpr " + type + " config{\n", "};\n");
  Names members;
  const std::regex designator("\\.(\\w+) = ");
  for (std::sregex_iterator at(text.begin(), text.end(), designator), end; at != end; ++at)
    members.push_back((*at)[1]);
  return members;
}

/// The sources of a layer's kernels.
std::vector<KernelRequest> requests(const Layer& layer, const char* architecture) {
  KernelRecord record;
  DeviceProperties device = absent_device(architecture);
  device.record = &record;
  make_plan(layer, device)->bind(shape_of(layer, 2, {1000}));
  return record.requests();
}

TEST(Codegen, EveryMemberOfATilesConfigurationIsWritten) {
  const Names members = members_of("gemm_config.cuh", "GemmConfig");
  ASSERT_GT(members.size(), 60u);
  EXPECT_EQ(members.front(), "math");
  EXPECT_EQ(members.back(), "march");
  const Layer layer{.in_channels = 64, .out_channels = 64, .kernel = {3}};
  for (const char* const architecture : {"sm_80", "sm_90a"})
    for (const KernelRequest& request : requests(layer, architecture)) {
      if (request.entry != "forward" && request.entry != "pack") continue;
      EXPECT_EQ(members_in(request.source, "GemmConfig"), members) << architecture << ", " << request.entry;
    }
}

TEST(Codegen, ChannelPhasesAreWrittenWhole) {
  EXPECT_EQ(members_of("gemm_config.cuh", "ChannelPhases"), (Names{"count", "lead", "first_tap", "taps"}));
  const Layer layer{.in_channels = 64, .out_channels = 64, .kernel = {3}};
  const std::string source = requests(layer, "sm_90a").front().source;
  EXPECT_TRUE(std::regex_search(source, std::regex("\\.channel_phases = \\{-?\\d+, -?\\d+, -?\\d+, -?\\d+\\},")))
      << source;
}

TEST(Codegen, EveryMemberOfADirectKernelsConfigurationIsWritten) {
  const Names members = members_of("direct_config.cuh", "DirectConfig");
  ASSERT_GT(members.size(), 15u);
  const Layer layer{.in_channels = 8, .out_channels = 8, .kernel = {3}, .groups = 8};
  for (const KernelRequest& request : requests(layer, "sm_80"))
    EXPECT_EQ(members_in(request.source, "DirectConfig"), members) << request.source;
}

}  // namespace
}  // namespace tconv::cuda
