// The small vocabulary of the API: names, element sizes, dense views, what is on this machine.
#include <gtest/gtest.h>

#include "support/expect_refusal.hpp"
#include "tconv/tconv.hpp"

namespace {

using testing_support::refuses;

TEST(Dense, ChannelsFirst) {
  float data[1];
  const tconv::Tensor t = tconv::dense(data, tconv::DType::f32, {2, 3, 4, 5});
  EXPECT_EQ(t.data, data);
  EXPECT_EQ(t.rank, 4);
  EXPECT_EQ(t.sizes, (std::array<std::int64_t, 5>{2, 3, 4, 5, 0}));
  EXPECT_EQ(t.strides, (std::array<std::int64_t, 5>{60, 20, 5, 1, 0}));
}

TEST(Dense, ChannelsLast) {
  const double data[1] = {};
  const tconv::ConstTensor t =
      tconv::dense(data, tconv::DType::f64, {2, 3, 4, 5, 6}, tconv::Layout::channels_last);
  EXPECT_EQ(t.dtype, tconv::DType::f64);
  EXPECT_EQ(t.strides, (std::array<std::int64_t, 5>{360, 1, 90, 18, 3}));
  EXPECT_EQ(tconv::dense(data, tconv::DType::f64, {7}, tconv::Layout::channels_last).strides[0], 1);
}

TEST(Dense, Refusals) {
  float data[1];
  EXPECT_TRUE(refuses([&] { tconv::dense(data, tconv::DType::f32, {1, 1, 1, 1, 1, 1}); }, {"at most 5", "got 6"}));
  EXPECT_TRUE(refuses([&] { tconv::dense(data, tconv::DType::f32, {1, -2}); }, {"negative", "-2", "dimension 1"}));
  const std::int64_t large = std::int64_t(1) << 40;
  EXPECT_TRUE(refuses([&] { tconv::dense(data, tconv::DType::f32, {large, large}); }, {"64 bits"}));
}

TEST(Names, OfEverything) {
  EXPECT_STREQ(to_string(tconv::DType::bf16), "bf16");
  EXPECT_STREQ(to_string(tconv::Precision::tf32), "tf32");
  EXPECT_STREQ(to_string(tconv::Layout::channels_last), "channels_last");
  EXPECT_STREQ(to_string(tconv::Pass::grad_weight), "grad_weight");
  EXPECT_STREQ(to_string(tconv::DType(99)), "unknown");
  EXPECT_EQ(size_of(tconv::DType::f32), 4u);
  EXPECT_EQ(size_of(tconv::DType::f64), 8u);
  EXPECT_EQ(size_of(tconv::DType::f16), 2u);
  EXPECT_EQ(size_of(tconv::DType::bf16), 2u);
}

TEST(SystemInfo, HasTheProcessor) {
  const tconv::SystemInfo info = tconv::system_info();
  EXPECT_FALSE(info.version.empty());
  ASSERT_FALSE(info.devices.empty());
  EXPECT_EQ(info.devices[0].engine, "cpu");
  EXPECT_FALSE(info.devices[0].name.empty());
  EXPECT_NE(info.devices[0].details.find("thread"), std::string::npos);
  // Every engine is either there or said to be missing.
  bool cuda = false;
  for (const auto& device : info.devices) cuda = cuda || device.engine == "cuda";
  for (const auto& line : info.missing) cuda = cuda || line.starts_with("cuda: ");
  EXPECT_TRUE(cuda);
}

}  // namespace
