// tconv export: the file it writes, and that those in the repository are up to date.
#include <gtest/gtest.h>

#include "tool.hpp"

namespace tconv::cli::test {
namespace {

TEST(Export, TheFilesInTheRepositoryAreWhatItWrites) {
  for (const char* name : {"kb64", "kb74", "kb79", "kb81"}) {
    const Outcome outcome = tool({"export", name, "--precision", "tf32", "--output", "-"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.out == read_bytes(std::string(TCONV_EXPORTED) + "/" + name + ".py"))
        << "write it again: make exported";
  }
}

TEST(Export, WritesTheWholeFileOrNothing) {
  const Folder folder;
  EXPECT_EQ(tool({"export", "kb81", "--output", folder / "absent/kb81.py"}).code, 1);
  EXPECT_EQ(tool({"export", "kb81", "--output", folder / "kb81.py"}).code, 0);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"kb81.py"});
  EXPECT_NE(read_bytes(folder / "kb81.py").find("class ModelNew"), std::string::npos);
}

TEST(Export, TakesALayerByFlags) {
  const Outcome outcome =
      tool({"export", "--size", "100", "--in", "32", "--out", "16", "--kernel", "4", "--stride", "2", "--dtype",
            "f16", "--constructor", "in_channels,out_channels", "--output", "-"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("DTYPE = torch.float16"), std::string::npos);
}

TEST(Export, RefusesWhatCannotBe) {
  EXPECT_EQ(tool({"export", "--output", "-"}).code, 2);
  EXPECT_EQ(tool({"export", "kb64"}).code, 2);
  EXPECT_EQ(tool({"export", "kb64", "--output", "-", "--precision", "fp8"}).code, 2);
  const Outcome outcome = tool({"export", "kb64", "--output", "-", "--constructor", "colour"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("'colour'"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tconv::cli::test
