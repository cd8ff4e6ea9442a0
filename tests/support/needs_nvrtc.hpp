// For tests of the run-time compiler: skipped without NVRTC, or failed where TCONV_REQUIRE_NVRTC=1 says that
// there must be one.
#pragma once

#include <gtest/gtest.h>

#include "cuda/runtime/nvrtc.hpp"
#include "engine/environment.hpp"

namespace tconv::test {

class NeedsNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::nvrtc_version().empty()) return;
    if (is_on("TCONV_REQUIRE_NVRTC")) FAIL() << cuda::why_no_nvrtc();
    GTEST_SKIP() << cuda::why_no_nvrtc();
  }
};

}  // namespace tconv::test
