// Variables of the environment, as api/ and the engines read them alike.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tconv {

/// What a variable says, or null where it is not set or empty.
inline const char* setting(const char* name) noexcept {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

/// Whether a variable switches something on: empty or 0 is off.
inline bool is_on(const char* name) noexcept {
  const char* const value = setting(name);
  return value != nullptr && std::string_view(value) != "0";
}

}  // namespace tconv
