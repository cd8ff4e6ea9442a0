// tconv run: right results from every kind of file, clear refusals, and no half-written output.
#include <gtest/gtest.h>

#include "cli/host_array.hpp"
#include "cli/npy.hpp"
#include "reference/reference.hpp"
#include "tool.hpp"

namespace tconv::cli::test {
namespace {

const std::string x_two = npy_bytes("<f4", false, "(1, 1, 2)", raw<float>({1, 2}));
const std::string w_three = npy_bytes("<f4", false, "(1, 1, 3)", raw<float>({1, 10, 100}));

class Run : public testing::Test {
 protected:
  void SetUp() override {
    write_bytes(folder / "x.npy", x_two);
    write_bytes(folder / "w.npy", w_three);
  }

  Outcome run(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "run", "--input", folder / "x.npy", "--weight", folder / "w.npy", "--output", folder / "y.npy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool(arguments);
  }

  /// A run that must fail with the given words, and leave nothing but what was there.
  void refuses(const std::string& expected, const std::vector<std::string>& more = {}, int code = 1) {
    const std::vector<std::string> before = folder.files();
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
    EXPECT_EQ(folder.files(), before);
  }

  std::string result() { return read_bytes(folder / "y.npy"); }

  Folder folder;
};

TEST_F(Run, TheExampleOfTheReadme) {
  const Outcome outcome = run({"--stride", "2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(result(), npy_bytes("<f4", false, "(1, 1, 5)", raw<float>({1, 10, 102, 20, 200})));
  EXPECT_NE(outcome.err.find("float32 (1, 1, 5)"), std::string::npos) << outcome.err;
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"w.npy", "x.npy", "y.npy"}));
  EXPECT_EQ(run({"--stride", "2", "--quiet"}).err, "");
}

TEST_F(Run, BiasPaddingAndOutputSize) {
  write_bytes(folder / "b.npy", npy_bytes("<f4", false, "(1,)", raw<float>({1000})));
  ASSERT_EQ(run({"--stride", "2", "--padding", "1", "--output-padding", "1", "--bias", folder / "b.npy"}).code, 0);
  EXPECT_EQ(result(), npy_bytes("<f4", false, "(1, 1, 4)", raw<float>({1010, 1102, 1020, 1200})));
  ASSERT_EQ(run({"--stride", "2", "--padding", "1", "--output-size", "4", "--bias", folder / "b.npy"}).code, 0);
  EXPECT_EQ(result(), npy_bytes("<f4", false, "(1, 1, 4)", raw<float>({1010, 1102, 1020, 1200})));
}

TEST_F(Run, UnbatchedInputGivesUnbatchedOutput) {
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(1, 2)", raw<float>({1, 2})));
  ASSERT_EQ(run({"--stride", "2"}).code, 0);
  EXPECT_EQ(result(), npy_bytes("<f4", false, "(1, 5)", raw<float>({1, 10, 102, 20, 200})));
}

TEST_F(Run, ABatchOfZeroGivesAnEmptyResult) {
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(0, 1, 2)", ""));
  const Outcome outcome = run();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(result(), npy_bytes("<f4", false, "(0, 1, 4)", ""));
}

/// All dimensions, types, groups and memory orders against the oracle.
TEST_F(Run, AgreesWithTheOracle) {
  const auto pool = make_thread_pool(2);
  std::uint64_t seed = 1;
  for (int dims = 1; dims <= 3; ++dims)
    for (const DType dtype : {DType::f32, DType::f64, DType::f16})
      for (const std::int64_t groups : {1, 2}) {
        Layer layer{.dims = dims,
                    .in_channels = 4,
                    .out_channels = 6,
                    .kernel = {3, 2, 4},
                    .stride = {2, 3, 1},
                    .padding = {1, 0, 2},
                    .dilation = {1, 2, 1},
                    .groups = groups,
                    .dtype = dtype};
        const Extents input{5, 4, 7};
        std::vector<std::int64_t> x_shape{2, 4}, w_shape{4, 6 / groups};
        for (std::size_t d = 0; d < std::size_t(dims); ++d) {
          x_shape.push_back(input[d]);
          w_shape.push_back(layer.kernel[d]);
        }
        HostArray x(dtype, x_shape), w(dtype, w_shape);
        x.fill_random(seed++, *pool);
        w.fill_random(seed++, *pool);
        const char* descr = dtype == DType::f32 ? "<f4" : dtype == DType::f64 ? "<f8" : "<f2";
        const auto save = [&](const std::string& name, const HostArray& array,
                              const std::vector<std::int64_t>& shape) {
          write_bytes(folder / name, npy_bytes(descr, false, format_shape(shape),
                                               {static_cast<const char*>(array.view().data), array.bytes()}));
        };
        save("x.npy", x, x_shape);
        save("w.npy", w, w_shape);
        const auto list = [&](const Extents& e) {
          std::string text = std::to_string(e[0]);
          for (int d = 1; d < dims; ++d) text += "," + std::to_string(e[std::size_t(d)]);
          return text;
        };
        const Outcome outcome = run({"--stride", list(layer.stride), "--padding", list(layer.padding),
                                     "--dilation", list(layer.dilation), "--groups", std::to_string(groups)});
        ASSERT_EQ(outcome.code, 0) << outcome.err;

        const Shape shape = shape_of(layer, 2, input);
        const auto expected =
            reference::forward(geometry_of(layer), shape, x.to_doubles(), w.to_doubles(), reference::Array());
        const NpyArray y = read_npy(folder / "y.npy");
        std::vector<std::int64_t> y_shape{2, 6};
        for (int d = 0; d < dims; ++d) y_shape.push_back(output_size(layer, input)[std::size_t(d)]);
        ASSERT_EQ(y.shape, y_shape);
        ASSERT_EQ(y.dtype, dtype);
        HostArray got(dtype, y_shape);
        std::copy(y.data.begin(), y.data.end(), static_cast<std::byte*>(got.view().data));
        const double tolerance = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-5 : 2e-2;
        const std::vector<double> values = got.to_doubles();
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(values[i], expected[i], tolerance) << dims << "D";
      }
}

TEST_F(Run, FortranOrderAndBigEndianFilesMeanTheSame) {
  // x[0, 0, :, :] = [[1, 2, 3], [4, 5, 6]], once in each order.
  write_bytes(folder / "w.npy", npy_bytes("<f4", false, "(1, 1, 1, 1)", raw<float>({1})));
  write_bytes(folder / "x.npy", npy_bytes("<f4", true, "(1, 1, 2, 3)", raw<float>({1, 4, 2, 5, 3, 6})));
  ASSERT_EQ(run().code, 0);
  const std::string expected = npy_bytes("<f4", false, "(1, 1, 2, 3)", raw<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(result(), expected);
  std::string swapped = raw<float>({1, 2, 3, 4, 5, 6});
  for (std::size_t i = 0; i < swapped.size(); i += 4)
    std::reverse(swapped.begin() + long(i), swapped.begin() + long(i) + 4);
  write_bytes(folder / "x.npy", npy_bytes(">f4", false, "(1, 1, 2, 3)", swapped));
  ASSERT_EQ(run().code, 0);
  EXPECT_EQ(result(), expected);
}

TEST_F(Run, RefusesBadFilesAndSaysWhy) {
  write_bytes(folder / "x.npy", x_two.substr(0, x_two.size() - 3));
  refuses("x.npy is truncated");
  write_bytes(folder / "x.npy", "not numpy at all");
  refuses("x.npy is not a .npy file");
  write_bytes(folder / "x.npy", npy_bytes("<i4", false, "(1, 1, 2)", raw<int>({1, 2})));
  refuses("x.npy holds int32");
  write_bytes(folder / "x.npy", npy_bytes("<f8", false, "(1, 1, 2)", raw<double>({1, 2})));
  refuses("x.npy holds float64, but");
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(2,)", raw<float>({1, 2})));
  refuses("needs 3 axes");
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(1, 1, 1, 2)", raw<float>({1, 2})));
  refuses("needs 3 axes");
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(1, 2, 1)", raw<float>({1, 2})));
  refuses("2 channels");
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(1, 1, 0)", ""));
  refuses("input size must be positive");
  std::filesystem::remove(folder / "x.npy");
  refuses("x.npy does not exist");
  write_bytes(folder / "x.npy", x_two);
  write_bytes(folder / "w.npy", npy_bytes("<f4", false, "(3,)", raw<float>({1, 10, 100})));
  refuses("a weight has 3 to 5 axes");
  write_bytes(folder / "w.npy", npy_bytes("<f4", false, "(1, 1, 0)", ""));
  refuses("kernel must be positive");
  write_bytes(folder / "w.npy", w_three);
  write_bytes(folder / "b.npy", npy_bytes("<f4", false, "(2,)", raw<float>({1, 2})));
  refuses("needs a bias of shape (1,)", {"--bias", folder / "b.npy"});
}

TEST_F(Run, RefusesBadParameters) {
  refuses("stride must be positive, got 0", {"--stride", "0"});
  refuses("--stride must be a number", {"--stride", "two"}, 2);
  refuses("--stride must have 1 value", {"--stride", "2,2"}, 2);
  refuses("cannot be given together", {"--output-size", "4", "--output-padding", "0"}, 2);
  refuses("is not reachable", {"--output-size", "400"});
  refuses("--groups: must be at least 1, got 0", {"--groups", "0"}, 2);
  refuses("in_channels must be divisible by groups", {"--groups", "3"});
  refuses("the output would have no elements", {"--padding", "9"});
}

TEST_F(Run, NeverWritesOverItsInputs) {
  const Outcome direct =
      tool({"run", "--input", folder / "x.npy", "--weight", folder / "w.npy", "--output", folder / "x.npy"});
  EXPECT_EQ(direct.code, 1);
  std::filesystem::create_symlink(folder / "w.npy", folder / "link.npy");
  const Outcome linked =
      tool({"run", "--input", folder / "x.npy", "--weight", folder / "w.npy", "--output", folder / "link.npy"});
  EXPECT_EQ(linked.code, 1);
  EXPECT_NE(linked.err.find("is read by this run"), std::string::npos) << linked.err;
  EXPECT_EQ(read_bytes(folder / "x.npy"), x_two);
  EXPECT_EQ(read_bytes(folder / "w.npy"), w_three);
}

TEST_F(Run, AFailedRunKeepsWhatWasThere) {
  write_bytes(folder / "y.npy", "precious");
  refuses("stride must be positive", {"--stride", "0"});
  EXPECT_EQ(result(), "precious");
  // The disk is full half way through: 4 kB may be written, the result has 8 MB.
  write_bytes(folder / "x.npy", npy_bytes("<f4", false, "(1, 1, 1000)", std::string(4000, '\0')));
  const Outcome full = shell("ulimit -f 4; \"$TOOL\" run --input '" + folder / "x.npy" + "' --weight '" +
                             folder / "w.npy" + "' --stride 2000 --output '" + folder / "y.npy" + "'");
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.err.find("cannot write"), std::string::npos) << full.err;
  EXPECT_EQ(result(), "precious");
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"w.npy", "x.npy", "y.npy"}));
}

TEST_F(Run, RefusesOutputsItCannotWrite) {
  const auto to = [&](const std::string& output) {
    return tool({"run", "--input", folder / "x.npy", "--weight", folder / "w.npy", "--output", output});
  };
  for (const std::string& output :
       {folder / "absent/y.npy", folder / ".", folder / "x.npy/y.npy", std::string("/dev/null")}) {
    const Outcome outcome = to(output);
    EXPECT_EQ(outcome.code, 1) << output;
    EXPECT_NE(outcome.err.find("cannot write"), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(Run, AnExistingOutputIsReplacedThroughItsLink) {
  write_bytes(folder / "target.npy", "old");
  std::filesystem::create_symlink(folder / "target.npy", folder / "y.npy");
  ASSERT_EQ(run({"--stride", "2"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "y.npy"));
  EXPECT_EQ(read_bytes(folder / "target.npy"),
            npy_bytes("<f4", false, "(1, 1, 5)", raw<float>({1, 10, 102, 20, 200})));
}

}  // namespace
}  // namespace tconv::cli::test
