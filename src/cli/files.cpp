#include "cli/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "cli/command.hpp"

namespace tconv::cli {
namespace {

namespace fs = std::filesystem;

/// Where the bytes end up: a link is followed, so that what it points to is replaced and not the link.
fs::path resolve(const std::string& path) {
  std::error_code error;
  fs::path target = fs::weakly_canonical(path, error);
  return error ? fs::path(path) : target;
}

fs::path folder_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Failure(fmt::format("cannot write {}: {}", path, what));
}

// A signal that ends the program must not leave the temporary file behind either.
char doomed_path[4096];

void remove_temporary(int signal) {
  ::unlink(doomed_path);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// A file beside its target until it takes the target's place; removed if it never does.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& path, const fs::path& target)
      : path_(path), name_((folder_of(target) / fmt::format(".{}.XXXXXX", target.filename().string())).string()) {
    handle_ = ::mkstemp(name_.data());
    if (handle_ < 0) refuse(path_, std::strerror(errno));
    std::signal(SIGXFSZ, SIG_IGN);  // a full quota is an error of write(), not the end of the program
    if (name_.size() < sizeof doomed_path) {
      std::memcpy(doomed_path, name_.c_str(), name_.size() + 1);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, remove_temporary);
    }
  }

  ~TemporaryFile() {
    if (handle_ >= 0) ::close(handle_);
    if (!in_place_) ::unlink(name_.c_str());
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  }

  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(handle_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refuse(path_, std::strerror(errno));
      at += written;
      bytes -= std::size_t(written);
    }
  }

  void take_place_of(const fs::path& target) {
    // mkstemp makes files only their owner can read; this one gets the mode of the file it replaces, or that of
    // any new file.
    struct stat replaced {};
    if (::stat(target.c_str(), &replaced) == 0) {
      ::fchmod(handle_, replaced.st_mode & 07777);
    } else {
      const mode_t mask = ::umask(0);
      ::umask(mask);
      ::fchmod(handle_, 0666 & ~mask);
    }
    if (::fsync(handle_) != 0 && errno != EINVAL) refuse(path_, std::strerror(errno));
    const int closed = ::close(handle_);
    handle_ = -1;
    if (closed != 0 || ::rename(name_.c_str(), target.c_str()) != 0) refuse(path_, std::strerror(errno));
    in_place_ = true;
  }

 private:
  const std::string& path_;
  std::string name_;
  int handle_ = -1;
  bool in_place_ = false;
};

}  // namespace

void check_writable(const std::string& path) {
  const fs::path target = resolve(path);
  const fs::path folder = folder_of(target);
  std::error_code error;
  const auto status = fs::status(target, error);
  if (fs::is_directory(status)) refuse(path, "it is a directory");
  if (fs::exists(status) && !fs::is_regular_file(status)) refuse(path, "it exists and is not a regular file");
  if (fs::exists(status) && ::access(target.c_str(), W_OK) != 0) refuse(path, std::strerror(errno));
  if (!fs::exists(folder, error)) refuse(path, fmt::format("there is no folder {}", folder.string()));
  if (!fs::is_directory(folder, error)) refuse(path, fmt::format("{} is not a folder", folder.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(path, fmt::format("folder {}: {}", folder.string(), std::strerror(errno)));
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts) {
  check_writable(path);
  const fs::path target = resolve(path);
  TemporaryFile file(path, target);
  for (const std::string_view part : parts) file.write(part.data(), part.size());
  file.take_place_of(target);
}

}  // namespace tconv::cli
