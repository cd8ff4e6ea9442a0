// For tests of the run-time compiler: skipped without NVRTC, or failed where TCONV_REQUIRE_NVRTC=1 says that
// there must be one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/runtime/nvrtc.hpp"

namespace tconv::test {

class NeedsNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::nvrtc_version().empty()) return;
    const char* required = std::getenv("TCONV_REQUIRE_NVRTC");
    if (required && std::string(required) == "1") FAIL() << cuda::why_no_nvrtc();
    GTEST_SKIP() << cuda::why_no_nvrtc();
  }
};

}  // namespace tconv::test
