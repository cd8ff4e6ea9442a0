// How much of the long tests a sanitized build does. Its runs are many times slower; what the library
// promises (the counts in the tests) is checked in full by the plain build.
#pragma once

namespace testing_support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

constexpr int scaled(int count) {
  return sanitized ? count / 4 : count;
}

}  // namespace testing_support
