// tconv explain: its counts against the definition, its text, its picture.
#include <gtest/gtest.h>

#include "cli/explain_facts.hpp"
#include "cli/explain_render.hpp"
#include "layer/phases.hpp"
#include "tool.hpp"
#include "xml.hpp"

namespace tconv::cli::test {
namespace {

Problem one_dimension(std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t padding,
                      std::int64_t input) {
  Problem problem;
  problem.layer = {
      .dims = 1, .kernel = {kernel}, .stride = {stride}, .padding = {padding}, .dilation = {dilation}};
  problem.input = {input, 1, 1};
  return problem;
}

TEST(Explain, CountsTheProductsThatTheDefinitionHas) {
  for (std::int64_t kernel = 1; kernel <= 5; ++kernel)
    for (std::int64_t stride = 1; stride <= 4; ++stride)
      for (std::int64_t dilation = 1; dilation <= 3; ++dilation)
        for (std::int64_t padding = 0; padding <= 3; ++padding)
          for (std::int64_t input = 1; input <= 6; ++input) {
            const std::int64_t output = (input - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1;
            if (output < 1) continue;
            const LayerFacts facts(one_dimension(kernel, stride, dilation, padding, input));
            std::int64_t products = 0;
            for (std::int64_t i = 0; i < input; ++i)
              for (std::int64_t k = 0; k < kernel; ++k) {
                const std::int64_t o = i * stride + k * dilation - padding;
                if (o < 0 || o >= output) continue;
                ++products;
                ASSERT_EQ(facts.dimensions[0].input_of(o, k), i);
              }
            ASSERT_EQ(facts.real_products, double(products));
            ASSERT_EQ(facts.zero_insertion_products, double(output * kernel));
          }
}

TEST(Explain, PhasesAreThoseOfTheDefinition) {
  for (std::int64_t kernel = 1; kernel <= 9; ++kernel)
    for (std::int64_t stride = 1; stride <= 8; ++stride)
      for (std::int64_t dilation = 1; dilation <= 8; ++dilation) {
        const LayerFacts facts(one_dimension(kernel, stride, dilation, 0, 3));
        const DimensionFacts& f = facts.dimensions[0];
        const std::vector<Phase> phases = phases_of(kernel, stride, dilation);
        const std::vector<PhaseFacts> listed = f.first_phases(100);
        ASSERT_EQ(f.phases_with_taps, std::int64_t(phases.size()));
        ASSERT_EQ(listed.size(), phases.size());
        for (std::size_t i = 0; i < phases.size(); ++i) {
          ASSERT_EQ(listed[i].r, phases[i].r);
          ASSERT_EQ(listed[i].taps, std::int64_t(phases[i].taps.size()));
          ASSERT_EQ(f.taps_of(phases[i].r), listed[i].taps);
          for (std::int64_t j = 0; j < listed[i].taps; ++j) {
            const Tap tap{listed[i].first_tap + j * listed[i].tap_step,
                          listed[i].first_shift + j * listed[i].shift_step};
            ASSERT_EQ(tap, phases[i].taps[std::size_t(j)]);
          }
        }
        ASSERT_EQ(f.first_phases(2).size(), std::min<std::size_t>(2, phases.size()));
      }
}

TEST(Explain, TakesNoLongerForABillionTapsOrStrides) {
  // Unpadded, every pair of an input and a tap meets: 3·10⁹ of them.
  const LayerFacts taps(one_dimension(1'000'000'000, 7, 3, 0, 3));
  EXPECT_EQ(taps.real_products, 3e9);
  EXPECT_EQ(taps.phases_with_taps, 7);
  const LayerFacts cropped(one_dimension(1'000'000'000, 1, 1, 500'000'000, 2));
  EXPECT_EQ(cropped.real_products,
            2.0);  // the one output meets both inputs
  const LayerFacts strides(one_dimension(999'999'999, 1'000'000'000, 3, 0, 1'000'000));
  EXPECT_EQ(strides.phases_with_taps, 999'999'999);
  EXPECT_EQ(strides.dimensions[0].first_phases(16).size(), 16u);
  EXPECT_EQ(strides.real_products, 999'999'999e6);
  for (const LayerFacts* facts : {&taps, &cropped, &strides}) {
    EXPECT_LT(explain_as_text(*facts, std::nullopt, {}).size(), 20'000u);
    EXPECT_LT(explain_as_svg(*facts).size(), 2'000'000u);
  }
}

TEST(Explain, TheGridShowsWhichInputATapReads) {
  const Outcome outcome = tool({"explain", "--size", "3", "--in", "1", "--out", "1", "--kernel", "3", "--stride",
                                "2", "--no-measure", "--ascii"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("output     0   1   2   3   4   5   6\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("phase      0   1   0   1   0   1   0\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("tap 0     x0   .  x1   .  x2   .   .\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("tap 1      .  x0   .  x1   .  x2   .\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("tap 2      .   .  x0   .  x1   .  x2\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("tap 0 of input q, tap 2 of input q-1"), std::string::npos) << outcome.out;
  for (const unsigned char c : outcome.out) ASSERT_LT(c, 128) << outcome.out;
}

TEST(Explain, NamesWorkAndFloors) {
  const Outcome outcome = tool({"explain", "kb81"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* expected : {"25, 9 of them with taps", "arithmetic intensity", "this machine's CPU", "one H200",
                               "the same pattern as dimension 0"})
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << "\n" << outcome.out;
}

TEST(Explain, EveryTypeHasAFloor) {
  for (const auto& [dtype, precision] :
       {std::pair("f16", "fp16"), {"bf16", "bf16"}, {"f64", "fp64"}, {"f32", "tf32"}}) {
    const Outcome outcome = tool({"explain", "kb81", "--no-measure", "--dtype", dtype});
    EXPECT_NE(outcome.out.find(std::string("one H200, ") + precision), std::string::npos) << dtype << outcome.out;
  }
}

TEST(Explain, EveryProblemsPictureIsWellFormed) {
  for (const Problem& problem : load_problems("")) {
    const std::string svg = explain_as_svg(LayerFacts(problem));
    EXPECT_EQ(xml_complaint(svg), "") << problem.name;
    EXPECT_EQ(svg.find("\"nan"), std::string::npos) << problem.name;
    EXPECT_EQ(svg.find("\"inf"), std::string::npos) << problem.name;
  }
}

TEST(Explain, ExtremeLayersHaveAPictureToo) {
  Problem odd = one_dimension(400, 1000, 7, 250, 3);
  odd.name = "a <&\"> name";
  odd.about = "about <&\">";
  EXPECT_EQ(xml_complaint(explain_as_svg(LayerFacts(odd))), "");
  EXPECT_EQ(xml_complaint(explain_as_svg(LayerFacts(one_dimension(1, 1, 1, 0, 1)))), "");
  EXPECT_EQ(tool({"explain", "--size", "3", "--in", "1", "--out", "1", "--kernel", "400", "--stride", "1000",
                  "--padding", "250", "--no-measure"})
                .code,
            0);
}

TEST(Explain, WritesThePicture) {
  const Folder folder;
  const Outcome outcome = tool({"explain", "kb79", "--no-measure", "--svg", folder / "p.svg"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(xml_complaint(read_bytes(folder / "p.svg")), "");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"p.svg"});
  EXPECT_EQ(tool({"explain", "kb79", "--no-measure", "--svg", folder / "absent/p.svg"}).code, 1);
}

TEST(Explain, TheXmlCheckItselfSeesFaults) {
  EXPECT_EQ(xml_complaint("<a><b c=\"1\"/>text &amp; more</a>"), "");
  for (const char* bad :
       {"<a>", "<a></b>", "<a b=1/>", "<a>&</a>", "<a/><b/>", "<a b=\"1\" b=\"2\"/>", "", "<a b=\"<\"/>"})
    EXPECT_NE(xml_complaint(bad), "") << bad;
}

}  // namespace
}  // namespace tconv::cli::test
