// Output files: written beside their place and renamed into it, so that nobody ever sees half of one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace tconv::cli {

/// Throws Failure unless a file can be created at (or put in place of) `path`; changes nothing.
void check_writable(const std::string& path);

/// Writes the parts one after the other. `path` then holds all of them, or what it held before.
void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts);

/// True if both name the same existing file, through whatever links.
bool same_file(const std::string& a, const std::string& b);

}  // namespace tconv::cli
