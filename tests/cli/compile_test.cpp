// tconv compile: what it puts into the cache is what an engine without NVRTC finds there.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/needs_nvrtc.hpp"
#include "tool.hpp"

namespace tconv::cli::test {
namespace {

const std::string layer = " --size 100 --in 16 --out 16 --kernel 4 --stride 2 --arch sm_90a --precision tf32 ";

/// "$TOOL" on a machine whose NVRTC is out of reach.
const std::string without_nvrtc = "TCONV_NVRTC_PATH=/nowhere \"$TOOL\" compile";

TEST(CompileWithoutNvrtc, SaysWhatIsMissing) {
  const Folder folder;
  const Outcome outcome = shell(without_nvrtc + layer + "--cache " + (folder / "cache"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "tconv: NVRTC was not found in /nowhere, where TCONV_NVRTC_PATH points\n");
}

TEST(CompileWithoutNvrtc, CheckNamesTheProblemsThatAreIncomplete) {
  const Folder folder;
  const Outcome outcome = shell(without_nvrtc + " kb64 kb81 --arch sm_90a --check --cache " + (folder / "cache"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("those of kb64, kb81"), std::string::npos) << outcome.err;
}

/// Each batch may want kernels of its own, and shares what others want.
TEST(CompileWithoutNvrtc, TakesSeveralBatches) {
  const Folder folder;
  const auto kernels = [&](const std::string& batches) {
    const Outcome outcome =
        shell(without_nvrtc + " --size 64x64 --in 128 --out 64 --kernel 2 --stride 2 --arch sm_90a " +
              "--dtype f16 --check --batch " + batches + " --cache " + (folder / "cache"));
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    const std::size_t of = outcome.err.find(" of ");  // "tconv: 7 of 7 kernels are not in …"
    return of == std::string::npos ? 0 : std::stoi(outcome.err.substr(of + 4));
  };
  const int one = kernels("1"), eight = kernels("8"), both = kernels("1,8");
  EXPECT_GT(both, std::max(one, eight));
  EXPECT_LT(both, one + eight);
  EXPECT_EQ(shell(without_nvrtc + layer + "--batch 0").code, 2);
}

TEST(CompileWithoutNvrtc, WithoutAnArchitectureAGpuIsNeeded) {
  const Outcome outcome = shell("CUDA_VISIBLE_DEVICES= " + without_nvrtc + " kb64 --cache /tmp");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--arch"), std::string::npos) << outcome.err;
}

class Compile : public tconv::test::NeedsNvrtc {
 protected:
  Outcome compile(const std::string& more) {
    return shell("\"$TOOL\" compile" + layer + "--cache " + cache_ + more);
  }

  Folder folder_;
  std::string cache_ = folder_ / "cache";
};

TEST_F(Compile, FillsAnEmptyCacheForAMachineWithoutNvrtc) {
  const Outcome first = compile("");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find(" 0 were there"), std::string::npos) << first.out;
  const Outcome check = shell(without_nvrtc + layer + "--check --cache " + cache_);
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_NE(compile("").out.find(": 0 compiled"), std::string::npos);
  // Another type, another architecture: other kernels.
  EXPECT_EQ(shell(without_nvrtc + layer + "--dtype f16 --check --cache " + cache_).code, 1);
}

TEST_F(Compile, ReplacesWhatIsDamaged) {
  ASSERT_EQ(compile("").code, 0);
  ASSERT_EQ(shell("cd " + cache_ + " && f=$(ls | head -n 1) && printf x >> $f").code, 0);
  EXPECT_EQ(compile(" --check").code, 1);
  EXPECT_NE(compile("").out.find(": 1 compiled"), std::string::npos);
  EXPECT_EQ(compile(" --check").code, 0);
}

TEST_F(Compile, ACacheThatCannotBeWrittenIsAnError) {
  const Outcome outcome = shell("\"$TOOL\" compile" + layer + "--cache /dev/null/cache");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("/dev/null/cache: Not a directory"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tconv::cli::test
