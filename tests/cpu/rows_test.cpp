// Row movement: every dtype, every step up to 9, every length around the vector length; nothing outside the
// row is touched.
#include "cpu/kernels/rows.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/dtype.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

constexpr float untouched = -12345.0f;

/// `count` random elements of a dtype. The block ends where the last element ends, so that a sanitizer sees
/// every read past it.
std::vector<char> elements(DType dtype, std::int64_t count, std::uint64_t seed) {
  testing_support::Random random(seed);
  std::vector<char> bytes(std::size_t(count) * size_of(dtype));
  for (std::int64_t i = 0; i < count; ++i) testing_support::store_element(dtype, bytes.data(), i, random.real());
  return bytes;
}

template <class Compute>
std::vector<DType> dtypes() {
  if (sizeof(Compute) == 8) return {DType::f64};
  return {DType::f32, DType::f16, DType::bf16};
}

template <class Compute>
class Rows : public testing::Test {};
using ComputeTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Rows, ComputeTypes);

TYPED_TEST(Rows, LoadTakesEveryNthElement) {
  for (DType dtype : dtypes<TypeParam>())
    for (std::int64_t stride = 1; stride <= 9; ++stride)
      for (std::int64_t count = 1; count <= 70; ++count) {
        const std::vector<char> source = elements(dtype, (count - 1) * stride + 1, std::uint64_t(count));
        std::vector<TypeParam> row(std::size_t(count + 1), untouched);
        row_kernels<TypeParam>().load(dtype, source.data(), stride, count, row.data());
        for (std::int64_t j = 0; j < count; ++j)
          ASSERT_EQ(double(row[std::size_t(j)]), testing_support::load_element(dtype, source.data(), j * stride))
              << to_string(dtype) << " stride " << stride << " count " << count;
        EXPECT_EQ(row.back(), TypeParam(untouched));
      }
}

TYPED_TEST(Rows, LoadRowsPadsWithZeros) {
  const DType dtype = dtypes<TypeParam>()[0];
  const std::int64_t rows = 3, left = 2, count = 19, right = 4, pitch = 30, row_stride = 41;
  const std::vector<char> source = elements(dtype, (rows - 1) * row_stride + (count - 1) * 2 + 1, 3);
  std::vector<TypeParam> tile(std::size_t(rows * pitch), untouched);
  row_kernels<TypeParam>().load_rows(dtype, source.data(), row_stride, 2, rows, left, count, right, tile.data(),
                                     pitch);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < pitch; ++j) {
      double expected = 0;
      if (j >= left && j < left + count)
        expected = testing_support::load_element(dtype, source.data(), row * row_stride + (j - left) * 2);
      if (j >= left + count + right) expected = untouched;
      EXPECT_EQ(double(tile[std::size_t(row * pitch + j)]), expected) << row << ", " << j;
    }
}

TYPED_TEST(Rows, LoadPhasesSeparatesThem) {
  for (DType dtype : dtypes<TypeParam>())
    for (std::int64_t step = 1; step <= 13; ++step)
      for (std::int64_t extent : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 53, 2100})
        for (std::int64_t padding : {std::int64_t(0), std::int64_t(1), step / 2 + 1, 2 * step + 1})
          for (std::int64_t missing : {std::int64_t(-1), step / 2}) {
            const std::int64_t left = std::min(padding, extent * step);
            const std::int64_t right = std::min(padding / 2, extent * step - left);
            const std::int64_t count = extent * step - left - right;
            const std::int64_t rows = 2, row_stride = count + 3, pitch = extent + 1;
            const std::vector<char> source = elements(dtype, row_stride + count, std::uint64_t(count + step));
            std::vector<std::vector<TypeParam>> phases(
                std::size_t(step), std::vector<TypeParam>(std::size_t(rows * pitch), untouched));
            std::vector<TypeParam*> targets;
            for (std::int64_t r = 0; r < step; ++r)
              targets.push_back(r == missing ? nullptr : phases[std::size_t(r)].data());
            row_kernels<TypeParam>().load_phases(dtype, source.data(), row_stride, step, rows, left, count, right,
                                                 targets.data(), pitch);
            for (std::int64_t r = 0; r < step; ++r)
              for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t j = 0; j < pitch; ++j) {
                  const std::int64_t at = j * step + r - left;
                  double expected = 0;
                  if (at >= 0 && at < count)
                    expected = testing_support::load_element(dtype, source.data(), row * row_stride + at);
                  if (r == missing || j >= extent) expected = untouched;
                  ASSERT_EQ(double(phases[std::size_t(r)][std::size_t(row * pitch + j)]), expected)
                      << to_string(dtype) << " step " << step << " extent " << extent << " left " << left
                      << " right " << right << " phase " << r;
                }
          }
}

TYPED_TEST(Rows, AddsToNothingBesideTheRows) {
  for (std::int64_t count = 0; count <= 70; ++count) {
    const std::int64_t rows = 3, source_pitch = count + 2, target_pitch = count + 5;
    std::vector<TypeParam> source(std::size_t(rows * source_pitch)), target(std::size_t(rows * target_pitch), 7);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = TypeParam(i + 1);
    row_kernels<TypeParam>().add(source.data(), source_pitch, rows, count, target.data(), target_pitch);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t j = 0; j < target_pitch; ++j)
        ASSERT_EQ(double(target[std::size_t(row * target_pitch + j)]),
                  7 + (j < count ? double(row * source_pitch + j + 1) : 0))
            << count << ": " << row << ", " << j;
  }
}

TYPED_TEST(Rows, StoreRounds) {
  for (DType dtype : dtypes<TypeParam>())
    for (std::int64_t count = 1; count <= 70; ++count) {
      testing_support::Random random(std::uint64_t(count) + 9);
      std::vector<TypeParam> row(static_cast<std::size_t>(count));
      for (TypeParam& v : row) v = TypeParam(random.real());
      std::vector<char> target(std::size_t(count) * size_of(dtype));
      row_kernels<TypeParam>().store(dtype, row.data(), count, target.data());
      for (std::int64_t j = 0; j < count; ++j)
        ASSERT_EQ(testing_support::load_element(dtype, target.data(), j),
                  testing_support::rounded(dtype, double(row[std::size_t(j)])));
    }
}

TYPED_TEST(Rows, StreamWritesTheRowsAndNothingElse) {
  for (std::int64_t offset = 0; offset < 18; ++offset)
    for (std::int64_t count = 0; count <= 70; ++count)
      for (std::int64_t gap : {0, 1, 16}) {  // between rows: none, so that they share a line, or some
        const std::int64_t rows = 3, pitch = count + gap;
        std::vector<TypeParam> row(static_cast<std::size_t>(count)),
            target(std::size_t(offset + rows * pitch + 1), untouched);
        PendingStream<TypeParam> pending{};
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t j = 0; j < count; ++j) row[std::size_t(j)] = TypeParam(100 * r + j + 1);
          row_kernels<TypeParam>().stream(pending, row.data(), count, target.data() + offset + r * pitch);
        }
        row_kernels<TypeParam>().end_stream(pending);
        for (std::int64_t at = 0; at < std::int64_t(target.size()); ++at) {
          const std::int64_t r = at < offset || pitch == 0 ? rows : (at - offset) / pitch;
          const std::int64_t j = r < rows ? (at - offset) % pitch : count;
          ASSERT_EQ(target[std::size_t(at)], j < count ? TypeParam(100 * r + j + 1) : TypeParam(untouched))
              << "offset " << offset << " count " << count << " gap " << gap;
        }
      }
}

TYPED_TEST(Rows, TransposesBothWays) {
  for (DType dtype : dtypes<TypeParam>())
    for (std::int64_t a : {1, 3, 4, 8, 13, 17, 29, 36})
      for (std::int64_t b : {1, 2, 4, 19, 35})
        for (std::int64_t dense : {1, 2}) {  // stride of b
          const std::int64_t stride_a = b * dense + 3, pitch = a + 5;
          const std::vector<char> source = elements(dtype, (a - 1) * stride_a + (b - 1) * dense + 1, 11);
          std::vector<TypeParam> tile(std::size_t(b * pitch), untouched);
          row_kernels<TypeParam>().load_transposed(dtype, source.data(), stride_a, dense, a, b, tile.data(),
                                                   pitch);
          std::vector<char> target(source.size(), 0);
          row_kernels<TypeParam>().store_transposed(dtype, tile.data(), pitch, a, b, target.data(), stride_a,
                                                    dense);
          for (std::int64_t j = 0; j < b; ++j)
            for (std::int64_t i = 0; i < pitch; ++i) {
              const double value = double(tile[std::size_t(j * pitch + i)]);
              if (i >= a) {
                ASSERT_EQ(value, untouched);
                continue;
              }
              const std::int64_t at = i * stride_a + j * dense;
              ASSERT_EQ(value, testing_support::load_element(dtype, source.data(), at));
              ASSERT_EQ(testing_support::load_element(dtype, target.data(), at), value);
            }
        }
}

TYPED_TEST(Rows, InterleaveMergesPhasesOfAStackOfRows) {
  constexpr std::int64_t source_gap = 3, target_gap = 2;
  for (std::int64_t step = 1; step <= 18; ++step)
    for (std::int64_t count = 0; count <= 40; ++count)
      for (const std::int64_t rows : {1, 3}) {
        const Stack stack{
            .rows = rows, .source_pitch = count + source_gap, .target_pitch = step * count + target_gap};
        const auto value = [](std::int64_t i, std::int64_t r, std::int64_t j) {
          return TypeParam(100000 * i + 1000 * r + j);
        };
        // The last row ends where the block does, so that a sanitizer sees every read past it.
        std::vector<std::vector<TypeParam>> phases(static_cast<std::size_t>(step));
        std::vector<const TypeParam*> pointers;
        for (std::int64_t r = 0; r < step; ++r) {
          auto& phase = phases[std::size_t(r)];
          phase.assign(std::size_t((rows - 1) * stack.source_pitch + count), untouched);
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < count; ++j)
              phase[std::size_t(i * stack.source_pitch + j)] = value(i, r, j);
          pointers.push_back(phase.data());
        }
        std::vector<TypeParam> target(std::size_t(rows * stack.target_pitch), untouched);
        row_kernels<TypeParam>().interleave(pointers.data(), step, count, target.data(), stack);
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t o = 0; o < stack.target_pitch; ++o)
            ASSERT_EQ(target[std::size_t(i * stack.target_pitch + o)],
                      o < step * count ? value(i, o % step, o / step) : TypeParam(untouched))
                << step << ", " << count << ", row " << i << ", " << o;
      }
}

TYPED_TEST(Rows, SumIsAccurate) {
  for (std::int64_t count : {0, 1, 15, 33, 4095, 100001}) {
    testing_support::Random random(5);
    std::vector<TypeParam> row(static_cast<std::size_t>(count));
    double expected = 0;
    for (TypeParam& v : row) expected += double(v = TypeParam(1 + random.real()));
    EXPECT_NEAR(row_kernels<TypeParam>().sum(row.data(), count), expected, 1e-6 * expected);
  }
}

}  // namespace
