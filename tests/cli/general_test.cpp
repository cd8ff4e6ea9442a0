// Help, versions, info, and what the exit code says.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.hpp"

namespace tconv::cli::test {
namespace {

TEST(General, HelpIsPrintedForTheToolAndForEveryCommand) {
  EXPECT_EQ(tool({"help"}).code, 0);
  EXPECT_EQ(tool({"--help"}).code, 0);
  EXPECT_EQ(tool({"help"}).out, tool({"--help"}).out);
  EXPECT_NE(tool({"help"}).out.find("Subcommands:"), std::string::npos);
  for (const char* command : {"run", "bench", "explain", "compile", "export", "info"}) {
    const Outcome by_flag = tool({command, "--help"}), by_topic = tool({"help", command});
    EXPECT_EQ(by_flag.code, 0) << command;
    EXPECT_EQ(by_topic.code, 0) << command;
    EXPECT_EQ(by_flag.out, by_topic.out) << command;
    EXPECT_NE(by_flag.out.find(std::string("tconv ") + command), std::string::npos) << by_flag.out;
  }
  for (const char* command : {"run", "bench", "explain", "compile", "export"})
    EXPECT_NE(tool({command, "--help"}).out.find("Examples:"), std::string::npos) << command;
}

TEST(General, AWrongCommandLineIsExitCode2AndSaysSoOnStderr) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"help", "nonsense"},
      {"run"},
      {"info", "--nonsense"},
      {"bench"},
      {"bench", "no-such-problem"},
      {"bench", "kb64", "--threads", "-1"},
      {"bench", "kb64", "--batch", "0"},
      {"bench", "kb64", "--pass", "sideways"},
      {"bench", "kb64", "--dtype", "int8"},
      {"bench", "kb64", "--layout", "diagonal"},
      {"bench", "kb64", "--mission"},
      {"bench", "--size", "10"},
      {"compile"},
      {"compile", "kb64", "--arch", "sm_75"},
      {"compile", "kb64", "--arch", "sm_80", "--dtype", "f8"},
      {"compile", "kb64", "--arch", "sm_80", "--precision", "fp16"},
      {"compile", "kb64", "--arch", "sm_80", "--jobs", "0"},
      {"explain"},
      {"explain", "kb64", "--stride", "2"},
      {"explain", "--size", "1,2,3,4", "--in", "1", "--out", "1", "--kernel", "1"},
      {"explain", "--size", "5", "--in", "1", "--out", "1", "--kernel", "three"}};
  for (const auto& arguments : wrong) {
    const Outcome outcome = tool(arguments);
    std::string line;
    for (const std::string& argument : arguments) line += argument + " ";
    EXPECT_EQ(outcome.code, 2) << line << outcome.err;
    EXPECT_TRUE(arguments.empty() || outcome.err.starts_with("tconv: ")) << line << outcome.err;
  }
}

/// What is said of a type in the wrong flag.
TEST(General, TypesAndPrecisionsNameTheFlagTheyAreFor) {
  const std::vector<std::string> explained{"tiles", "kb64", "--arch", "sm_90a"};
  const auto error = [&](const char* flag, const char* value) {
    std::vector<std::string> arguments = explained;
    arguments.insert(arguments.end(), {flag, value});
    return tool(arguments).err;
  };
  EXPECT_NE(error("--precision", "fp16").find("say --dtype f16"), std::string::npos);
  EXPECT_NE(error("--precision", "bf16").find("say --dtype bf16"), std::string::npos);
  EXPECT_NE(error("--dtype", "tf32").find("tf32 is a precision of f32"), std::string::npos);
}

TEST(General, AnUnknownProblemIsAnsweredWithTheKnownOnes) {
  EXPECT_NE(tool({"bench", "kb46"}).err.find("kb64"), std::string::npos);
}

TEST(General, ALayerThatCannotBeIsRefusedWithTheReason) {
  const Outcome outcome =
      tool({"explain", "--size", "5", "--in", "4", "--out", "4", "--kernel", "3", "--stride", "0"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("stride must be positive, got 0"), std::string::npos) << outcome.err;
}

TEST(General, VersionAndInfo) {
  EXPECT_TRUE(tool({"--version"}).out.starts_with("tconv "));
  const Outcome text = tool({"info"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("cpu"), std::string::npos);
  const auto json = nlohmann::json::parse(tool({"info", "--json"}).out);
  EXPECT_EQ(json["devices"][0]["device"], "cpu");
  EXPECT_TRUE(json["version"].is_string());
}

TEST(General, NothingButTextReachesAPipe) {
  EXPECT_EQ(tool({"explain", "kb81", "--no-measure"}).out.find('\x1b'), std::string::npos);
  const Outcome bench =
      tool({"bench", "--size", "5", "--in", "1", "--out", "1", "--kernel", "2", "--seconds", "0"});
  EXPECT_EQ(bench.err, "");
  EXPECT_EQ(bench.out.find('\x1b'), std::string::npos);
}

TEST(General, WhatCannotBePrintedIsAFailure) {
  for (const std::string command : {"info --json", "bench --list", "explain kb64 --no-measure", "help run"}) {
    const Outcome outcome = shell("\"$TOOL\" " + command + " > /dev/full");
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_NE(outcome.err.find("standard output"), std::string::npos) << outcome.err;
  }
}

TEST(General, ThreadsFromTheEnvironment) {
  const std::string bench = "\"$TOOL\" bench --size 9 --in 1 --out 1 --kernel 2 --seconds 0.01";
  EXPECT_EQ(shell("TCONV_NUM_THREADS=1 " + bench).code, 0);
  const Outcome nonsense = shell("TCONV_NUM_THREADS=many " + bench);
  EXPECT_EQ(nonsense.code, 1);
  EXPECT_NE(nonsense.err.find("TCONV_NUM_THREADS"), std::string::npos) << nonsense.err;
}

}  // namespace
}  // namespace tconv::cli::test
