// Views as engines ask about them.
#include "layer/views.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Views, ADenseOneIsKnownByItsStrides) {
  tconv::Tensor w;
  w.rank = 5, w.sizes = {8, 1, 1, 3, 3}, w.strides = {9, 9, 9, 3, 1};
  EXPECT_TRUE(is_dense(w));
  w.strides = {9, 1, 9, 3, 1};  // channels last: the strides of dimensions of size 1 say nothing
  EXPECT_TRUE(is_dense(w));
  w.strides = {18, 18, 18, 6, 2};
  EXPECT_FALSE(is_dense(w));
  w.rank = 1, w.sizes = {7}, w.strides = {1};
  EXPECT_TRUE(is_dense(w));
  w.strides = {-1};
  EXPECT_FALSE(is_dense(w));
}

}  // namespace
