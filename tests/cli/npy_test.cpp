// .npy files, good and bad, through the reader and the writer.
#include "cli/npy.hpp"

#include <gtest/gtest.h>

#include "cli/command.hpp"
#include "tool.hpp"

namespace tconv::cli::test {
namespace {

class Npy : public testing::Test {
 protected:
  NpyArray read(const std::string& bytes) {
    write_bytes(folder / "a.npy", bytes);
    return read_npy(folder / "a.npy");
  }

  /// What reading the bytes complains about.
  std::string complaint(const std::string& bytes) {
    try {
      read(bytes);
    } catch (const Failure& failure) {
      const std::string what = failure.what();
      EXPECT_TRUE(what.starts_with(folder / "a.npy")) << what;  // the file is named
      return what;
    }
    return "";
  }

  Folder folder;
};

TEST_F(Npy, ReadsFloatsOfEverySizeAndBothOrders) {
  const NpyArray f4 = read(npy_bytes("<f4", false, "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(f4.dtype, DType::f32);
  EXPECT_EQ(f4.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(reinterpret_cast<const float*>(f4.data.data())[5], 6);
  EXPECT_EQ(read(npy_bytes("<f8", false, "(1,)", raw<double>({1}))).dtype, DType::f64);
  EXPECT_EQ(read(npy_bytes("<f2", false, "(1,)", std::string(2, '\0'))).dtype, DType::f16);

  NpyArray fortran = read(npy_bytes("<f4", true, "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6})));
  const Tensor view = fortran.view(1);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.sizes[0], 1);
  EXPECT_EQ(view.strides[1], 1);
  EXPECT_EQ(view.strides[2], 2);
}

TEST_F(Npy, ReadsBigEndian) {
  const NpyArray array = read(npy_bytes(">f4", false, "(1,)", std::string("\x3f\x80\x00\x00", 4)));
  EXPECT_EQ(*reinterpret_cast<const float*>(array.data.data()), 1.0f);
}

TEST_F(Npy, ReadsVersions2And3AndEmptyArraysAndScalars) {
  std::string bytes = npy_bytes("<f4", false, "(0, 3)", "");
  EXPECT_EQ(read(bytes).data.size(), 0u);
  EXPECT_EQ(read(npy_bytes("<f4", false, "()", raw<float>({7}))).shape.size(), 0u);
  bytes[6] = 2;
  bytes.insert(10, std::string(2, '\0'));
  EXPECT_EQ(read(bytes).shape, (std::vector<std::int64_t>{0, 3}));
  bytes[6] = 3;
  EXPECT_EQ(read(bytes).shape, (std::vector<std::int64_t>{0, 3}));
}

TEST_F(Npy, SaysWhatIsWrongWithAFile) {
  const auto says = [&](const std::string& bytes, const std::string& expected) {
    const std::string what = complaint(bytes);
    EXPECT_NE(what.find(expected), std::string::npos) << "expected '" << expected << "' in '" << what << "'";
  };
  const std::string good = npy_bytes("<f4", false, "(2,)", raw<float>({1, 2}));
  says("", "not a .npy file");
  says("hello, this is text", "not a .npy file");
  says("PK\x03\x04 and so on", ".npz archive");
  says(good.substr(0, 9), "ends within its header");
  says(good.substr(0, 40), "ends within its header");
  says(good.substr(0, good.size() - 1), "truncated: shape (2,) of float32 needs 8 bytes of data, the file has 7");
  says(good + "x", "1 bytes follow");
  says(npy_bytes("<i8", false, "(1,)", std::string(8, '\0')), "holds int64 ('<i8')");
  says(npy_bytes("<c8", false, "(1,)", std::string(8, '\0')), "holds complex64");
  says(npy_bytes("|b1", false, "(1,)", std::string(1, '\0')), "holds bool");
  says(npy_bytes("|V2", false, "(1,)", std::string(2, '\0')), "bfloat16");
  says(npy_bytes("<f16", false, "(1,)", std::string(16, '\0')), "holds float128");
  says(npy_bytes("|O", false, "(1,)", std::string(8, '\0')), "Python objects");
  says(npy_bytes("<f4", false, "(-1,)", ""), "damaged .npy header");
  says(npy_bytes("<f4", false, "(99999999999999999999,)", ""), "damaged .npy header");
  says(npy_bytes("<f4", false, "(4000000000, 4000000000, 4000000000)", ""), "needs more than 2^64 bytes");
  says(npy_bytes("<f4", false, "(1000000000000,)", ""), "truncated");
  says(npy_bytes("<f4", false, "(2", raw<float>({1, 2})), "damaged .npy header");
  std::string version = good;
  version[6] = 9;
  says(version, "version 9.0");

  EXPECT_THROW(read_npy(folder / "absent.npy"), Failure);
  EXPECT_THROW(read_npy(folder / "."), Failure);
}

TEST_F(Npy, EveryDamagedByteOfAHeaderIsReadOrRefusedButNeverCrashes) {
  const std::string good = npy_bytes("<f4", false, "(2, 1)", raw<float>({1, 2}));
  for (std::size_t at = 0; at < 128; ++at)
    for (const char byte : {'\0', '\x7f', '\xff', '(', '\'', '9'}) {
      std::string bytes = good;
      bytes[at] = byte;
      write_bytes(folder / "a.npy", bytes);
      try {
        read_npy(folder / "a.npy");
      } catch (const Failure&) {
      }
    }
}

TEST_F(Npy, WritesWhatNumpyWrites) {
  NpyArray array;
  array.dtype = DType::f32;
  array.shape = {1, 2};
  array.data.resize(8);
  const std::string data = raw<float>({3, 4});
  std::copy_n(reinterpret_cast<const std::byte*>(data.data()), 8, array.data.data());
  write_npy(folder / "a.npy", array);
  EXPECT_EQ(read_bytes(folder / "a.npy"), npy_bytes("<f4", false, "(1, 2)", data));
  EXPECT_EQ(read_bytes(folder / "a.npy").find(data), 128u);  // NumPy aligns the data to 64 bytes
  EXPECT_EQ(folder.files(), std::vector<std::string>{"a.npy"});
}

}  // namespace
}  // namespace tconv::cli::test
