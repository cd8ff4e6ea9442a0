// How grad-weight is divided: blocks cover the channels exactly once, keep vectors and panels whole, and stay
// within the memory a worker should need.
#include "cpu/grad_weight_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/kernels/outer_product.hpp"
#include "cpu/machine.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

Geometry geometry(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  Geometry g;
  g.group_in = in;
  g.group_out = out;
  g.kernel[2] = kernel;
  g.stride[2] = stride;
  return g;
}

TEST(GradWeightBlocks, CoverTheChannelsExactlyOnce) {
  for (const std::int64_t in : {1, 7, 16, 33, 100, 512, 1000, 4096})
    for (const std::int64_t out : {1, 3, 16, 40, 129, 1024})
      for (const bool wide : {false, true}) {
        const GradWeightBlocks blocks = choose_blocks(grad_input_convolution(geometry(in, out, 16, 8)), wide, 1e4);
        EXPECT_GE(blocks.positions, 1);
        std::int64_t next = 0;
        for (std::int64_t b = 0; b < blocks.in_blocks; ++b) {
          const Span span = blocks.in_block(in, b);
          EXPECT_EQ(span.begin, next);
          EXPECT_EQ(span.begin % blocks.in_unit, 0);
          EXPECT_GT(span.size(), 0) << in << " -> " << out;
          EXPECT_LE(span.size(), blocks.most_in(in));
          next = span.end;
        }
        EXPECT_EQ(next, in);
        next = 0;
        for (std::int64_t b = 0; b < blocks.out_blocks; ++b) {
          const Span span = blocks.out_block(out, b);
          EXPECT_EQ(span.begin, next);
          EXPECT_EQ(span.begin % blocks.out_unit, 0);
          EXPECT_GT(span.size(), 0) << in << " -> " << out;
          EXPECT_LE(span.size(), blocks.most_out(out));
          next = span.end;
        }
        EXPECT_EQ(next, out);
      }
}

TEST(GradWeightBlocks, GiveThreadsSomethingToShareWherePositionsAreFew) {
  const GradWeightBlocks blocks = choose_blocks(grad_input_convolution(geometry(512, 256, 16, 8)), false, 512);
  EXPECT_TRUE(blocks.outer);
  EXPECT_GE(blocks.in_blocks * blocks.out_blocks, std::min(8, processors()));
  const std::int64_t sums = blocks.most_in(512) * blocks.most_out(256) * 16 * 4;
  EXPECT_LE(sums, 4 << 20);
}

TEST(GradWeightBlocks, FillVectorsWithTheSideThatWastesLess) {
  const int lanes = outer_product_kernels<float>().lanes;
  if (lanes < 16) GTEST_SKIP() << "written for vectors of 16";
  EXPECT_TRUE(choose_blocks(grad_input_convolution(geometry(48, 24, 3, 1)), false, 1e6).inputs_in_vectors);
  EXPECT_FALSE(choose_blocks(grad_input_convolution(geometry(24, 48, 3, 1)), false, 1e6).inputs_in_vectors);
  EXPECT_FALSE(choose_blocks(grad_input_convolution(geometry(2, 2, 3, 1)), false, 1e6).outer);
}

}  // namespace
