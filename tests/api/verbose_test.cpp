// TCONV_VERBOSE: off by default, one line per run when on. The variable is read once per process, so the
// tests run this binary again with it set.
#include "api/verbose.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>

#include "support/cases.hpp"

namespace {

using namespace testing_support;

const Case known{.layer = {.dims = 2,
                           .in_channels = 4,
                           .out_channels = 2,
                           .kernel = {3, 4},
                           .stride = {2, 1},
                           .padding = {1, 0},
                           .dilation = {1, 2},
                           .groups = 2,
                           .dtype = tconv::DType::f16,
                           .layout = tconv::Layout::channels_last},
                 .batch = 3,
                 .input = {5, 6}};

TEST(VerboseChild, Run) {
  Random random(1);
  Step step(known, native_orders(known.layer), random);
  step.run(tconv::Plan(known.layer).bind(known.batch, known.input));
}

/// stderr of this binary running the test above.
std::string lines_of_child(const std::string& environment) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return "cannot find this binary";
  path[length] = '\0';
  const std::string command = environment + " '" + path + "' --gtest_filter=VerboseChild.Run 2>&1 >/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (char chunk[512]; std::fgets(chunk, sizeof chunk, pipe) != nullptr;) text += chunk;
  pclose(pipe);
  return text;
}

TEST(Verbose, SilentByDefault) {
  EXPECT_EQ(lines_of_child("env -u TCONV_VERBOSE"), "");
  EXPECT_EQ(lines_of_child("TCONV_VERBOSE=0"), "");
}

TEST(Verbose, OneLinePerRun) {
  std::istringstream text(lines_of_child("TCONV_VERBOSE=1"));
  std::string line;
  for (const char* pass : {"forward", "grad_input", "grad_weight", "grad_bias"}) {
    ASSERT_TRUE(std::getline(text, line)) << "no line for " << pass;
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == ',')
        fields.emplace_back();
      else
        fields.back() += c;
    }
    ASSERT_EQ(fields.size(), 9u) << line;
    EXPECT_EQ(fields[0], "tconv");
    EXPECT_EQ(fields[1], "cpu");
    EXPECT_EQ(fields[2], pass);
    EXPECT_NE(fields[3], "") << "the kernel";
    EXPECT_EQ(fields[4], "f16");
    EXPECT_EQ(fields[5], "channels_last");
    EXPECT_EQ(fields[6], "n3 g2 ci4 co2 k3x4 s2x1 p1x0 d1x2");
    EXPECT_EQ(fields[7], "5x6->9x12");
    char unit[3] = "";
    double time = 0;
    EXPECT_EQ(std::sscanf(fields[8].c_str(), "%lf %2s", &time, unit), 2) << fields[8];
    EXPECT_GT(time, 0);
    EXPECT_STREQ(unit, "ms");
  }
  EXPECT_FALSE(std::getline(text, line)) << line;
}

TEST(Verbose, LineOfOneDimension) {
  const tconv::Layer layer{
      .in_channels = 32, .out_channels = 64, .kernel = {3}, .stride = {2}, .padding = {1}, .dilation = {2}};
  const std::string line = tconv::verbose_line({.engine = "cpu",
                                                .kernel = "name",
                                                .pass = tconv::Pass::forward,
                                                .layer = layer,
                                                .batch = 16,
                                                .input = {131072},
                                                .output = {262145}});
  EXPECT_EQ(line, "tconv,cpu,forward,name,f32,channels_first,n16 g1 ci32 co64 k3 s2 p1 d2,131072->262145");
}

}  // namespace
