// tconv tiles: what it says the engine chose is the cheapest of what it lists.
#include <gtest/gtest.h>

#include <sstream>

#include "tool.hpp"

namespace tconv::cli::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
std::string last_word(const std::string& line) {
  return line.substr(line.rfind(' ') + 1);
}

TEST(Tiles, TheCheapestIsTheOneTheEngineTakes) {
  const Outcome outcome = shell("\"$TOOL\" tiles --all --arch sm_80,sm_90a --dtype f32,f16 --most 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  int layers = 0, priced = 0;
  for (std::size_t i = 0; i + 2 < lines.size(); ++i) {
    if (lines[i].find(" multiprocessors: ") == std::string::npos) continue;
    const std::string chosen = last_word(lines[i]);
    ++layers;
    if (lines[i + 1].find("priced for ") != std::string::npos) ++i;
    if (lines[i + 1].find("1,000 cycles") == std::string::npos) continue;
    ++priced;
    EXPECT_EQ(chosen, last_word(lines[i + 2])) << chosen;
    EXPECT_NE(lines[i + 2].find(" 1.00x "), std::string::npos) << lines[i + 2];
  }
  EXPECT_EQ(layers, 27 * 2 * 3);
  EXPECT_GT(priced, 26 * 2 * 2);
}

TEST(Tiles, ListsAsManyAsAskedForByPrice) {
  const std::string layer =
      "\"$TOOL\" tiles --size 100 --in 16 --out 16 --kernel 4 --stride 2 --arch sm_90a --precision tf32 ";
  const auto few = lines_of(shell(layer + "--most 3").out), all = lines_of(shell(layer + "--most 0").out);
  ASSERT_EQ(few.size(), 8u);  // the layer, the length priced, a heading, three tiles, how many more, nothing
  EXPECT_EQ(few[1], "  priced for 128 samples, which stand for all lengths from 65 on");
  EXPECT_EQ(few[6], "                and " + std::to_string(all.size() - 4 - 3) + " more");
  double before = 0;
  for (std::size_t i = 3; i + 1 < all.size(); ++i) {
    const double cycles = std::stod(all[i]);
    EXPECT_LE(before, cycles) << all[i];
    before = cycles;
  }
}

TEST(Tiles, OfAnArchitectureThatIsNotKnownSaysWhichAre) {
  const Outcome outcome = shell("\"$TOOL\" tiles kb64 --arch sm_9");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("sm_90a"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tconv::cli::test
