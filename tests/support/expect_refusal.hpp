// Refusals: the type of the error, and words its message must hold (argument, value, what would be right).
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "tconv/tconv.hpp"

namespace testing_support {

template <class Exception = tconv::InvalidArgument, class Call>
::testing::AssertionResult refuses(const Call& call, std::initializer_list<const char*> words) {
  try {
    call();
  } catch (const Exception& error) {
    const std::string message = error.what();
    for (const char* word : words)
      if (message.find(word) == std::string::npos)
        return ::testing::AssertionFailure() << "the message does not say '" << word << "': " << message;
    return ::testing::AssertionSuccess();
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure() << "an error of another type: " << error.what();
  }
  return ::testing::AssertionFailure() << "nothing was refused";
}

}  // namespace testing_support
