// tconv bench: what it verifies, what it prints, and that a wrong result cannot pass.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/ceilings.hpp"
#include "cli/command.hpp"
#include "cli/verify.hpp"
#include "tool.hpp"

namespace tconv::cli::test {
namespace {

using nlohmann::json;

const std::vector<std::string> small_layer = {"bench", "--size",   "9x11", "--in",      "4", "--out",
                                              "6",     "--kernel", "3,2",  "--stride",  "2", "--padding",
                                              "1",     "--groups", "2",    "--seconds", "0"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Bench, EveryTypeLayoutAndPassIsVerifiedAndTimed) {
  for (const char* dtype : {"f32", "f64", "f16", "bf16"})
    for (const char* layout : {"channels_first", "channels_last"}) {
      const Outcome outcome = tool(with(small_layer, {"--dtype", dtype, "--layout", layout, "--pass",
                                                      "all,backward", "--bias", "--batch", "2", "--json", "-"}));
      ASSERT_EQ(outcome.code, 0) << dtype << " " << layout << "\n" << outcome.out << outcome.err;
      const json report = json::parse(outcome.out);
      EXPECT_EQ(report["all_right"], true);
      EXPECT_EQ(report["dtype"], dtype);
      EXPECT_EQ(report["results"].size(), 5u);
      for (const json& result : report["results"]) {
        EXPECT_EQ(result["right"], true);
        EXPECT_EQ(result["batch"], 2);
        EXPECT_GT(result["median_ms"], 0.0);
        EXPECT_GT(result["floor_ms"], 0.0);
        EXPECT_GT(result["elements_checked"], 0);
      }
    }
}

TEST(Bench, TheTableNamesEveryProblemAndSaysAllIsRight) {
  const Outcome outcome = tool({"bench", "--pass", "forward", "hifigan_up3", "nnunet3d_up", "--batch", "1",
                                "--seconds", "0", "--threads", "1", "--prepack"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* expected :
       {"hifigan_up3", "nnunet3d_up", "GFLOP/s", "x floor", "geometric mean", "All results are right"})
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << "\n" << outcome.out;
}

TEST(Bench, ListsTheBuiltInProblems) {
  const Outcome outcome = tool({"bench", "--list"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* name : {"kb57", "kb64", "kb74", "kb79", "kb81", "depthwise1d"})
    EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
}

TEST(Bench, FourProblemsAreTheMission) {
  std::vector<std::string> names;
  for (const Problem& problem : load_problems(""))
    if (problem.mission) names.push_back(problem.name);
  EXPECT_EQ(names, (std::vector<std::string>{"kb64", "kb74", "kb79", "kb81"}));
}

TEST(Bench, TakesProblemsFromAFileAndWritesJson) {
  const Folder folder;
  write_bytes(folder / "p.json",
              R"([{"name": "mine", "in_channels": 2, "out_channels": 3, "spatial": [5], "kernel": [3]}])");
  const Outcome outcome =
      tool({"bench", "--file", folder / "p.json", "--seconds", "0", "--json", folder / "r.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(read_bytes(folder / "r.json"))["results"][0]["problem"], "mine");
}

TEST(Bench, SaysWhatIsWrongWithAFileOfProblems) {
  const Folder folder;
  const auto says = [&](const std::string& text, const std::string& expected) {
    write_bytes(folder / "p.json", text);
    const Outcome outcome = tool({"bench", "--file", folder / "p.json"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  };
  says("{", "not valid JSON");
  says("{}", "no list of problems");
  says("[]", "no problems");
  says("[3]", "must be an object");
  says(R"([{"name": "a"}])", "problem a of");
  says(R"([{"name": "a", "in_channels": 2, "out_channels": 3, "spatial": [5], "kernel": [3, 3]}])",
       "'kernel' must be a list of 1");
  says(R"([{"name": "a", "in_channels": 2.5, "out_channels": 3, "spatial": [5], "kernel": [3]}])",
       "'in_channels' must be a whole");
  says(R"([{"name": "a", "in_channels": 2, "out_channels": 3, "spatial": [5], "kernel": [3], "stride": [0]}])",
       "stride must be positive");
  const auto with = [](const std::string& more) {
    return R"([{"name": "a", "in_channels": 2, "out_channels": 3, "spatial": [5], "kernel": [3], )" + more + "}]";
  };
  says(with(R"("strides": [2])"),
       "problem a of " + (folder / "p.json") + ": there is no 'strides'; is 'stride' meant?");
  says(with(R"("out_padding": [1])"), "there is no 'out_padding'; is 'output_padding' meant?");
  says(with(R"("Bias": true)"), "is 'bias' meant?");
  says(with(R"("colour": 3)"), "there is no 'colour'; known are name, about");
  says(with(R"("dims": 2)"), "'dims' must be the number of entries of 'spatial', 1");
  EXPECT_EQ(tool({"bench", "--file", folder / "absent.json"}).code, 1);
  EXPECT_EQ(tool({"bench", "kb64", "--seconds", "0", "--json", folder / "absent/r.json"}).code, 1);
}

TEST(Bench, AWrongResultIsSeen) {
  const Layer layer{
      .dims = 2, .in_channels = 3, .out_channels = 4, .kernel = {3, 3}, .stride = {2, 2}, .bias = true};
  const std::vector<Pass> passes = {Pass::forward, Pass::grad_input, Pass::grad_weight, Pass::grad_bias};
  LayerRun run(layer, 2, {8, 9}, passes, make_thread_pool(1), 7);
  for (const Pass pass : passes) {
    const Verdict before = spot_check(run, pass, 1);  // the result still holds the random numbers it was made with
    EXPECT_FALSE(before.right()) << to_string(pass);
    EXPECT_NE(before.complaint.find("but should be"), std::string::npos);
    run.run(pass);
    EXPECT_TRUE(spot_check(run, pass, 1).right()) << spot_check(run, pass, 1).complaint;
    // One element that is off by a thousandth of its size.
    auto* corner = static_cast<float*>(run.result(pass).view().data);
    *corner = *corner * 1.001f + 1e-3f;
    EXPECT_FALSE(spot_check(run, pass, 1).right()) << to_string(pass);
  }
}

TEST(Bench, ReducedProblemsKeepTheirLayerAndStaySmall) {
  for (const Problem& problem : load_problems("")) {
    const Problem small = reduced(problem);
    EXPECT_EQ(small.layer.in_channels, problem.layer.in_channels);
    EXPECT_EQ(small.layer.kernel, problem.layer.kernel);
    EXPECT_LE(work(small.layer, small.batch, small.input).flops, 6e7) << problem.name;
    for (std::size_t d = 0; d < 3; ++d) EXPECT_LE(small.input[d], problem.input[d]);
  }
}

TEST(Bench, CeilingsArePlausible) {
  const auto pool = make_thread_pool(1);
  const Ceilings f32 = measure_ceilings(*pool, DType::f32, 0.05);
  EXPECT_GT(f32.copy_bytes_per_second, 1e8);
  EXPECT_GT(f32.flops_per_second, 1e8);
  EXPECT_TRUE(floor_of(f32, 1, 1e12).memory_bound);
  EXPECT_FALSE(floor_of(f32, 1e15, 1).memory_bound);
}

}  // namespace
}  // namespace tconv::cli::test
