// Runs the tool on files in a folder of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

namespace tconv::cli::test {

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
};

/// Runs `tconv arguments…`, with stdout and stderr caught.
Outcome tool(const std::vector<std::string>& arguments);

/// Runs a shell command in which "$TOOL" is the tool.
Outcome shell(const std::string& command);

/// A folder that lives as long as the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// Names of the files in it, sorted.
  std::vector<std::string> files() const;

 private:
  std::filesystem::path path_;
};

void write_bytes(const std::string& path, const std::string& bytes);
std::string read_bytes(const std::string& path);

/// A .npy file of version 1.0, put together by hand.
std::string npy_bytes(const std::string& descr, bool fortran_order, const std::string& shape,
                      const std::string& data);

/// The bytes of values in native order.
template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

}  // namespace tconv::cli::test
