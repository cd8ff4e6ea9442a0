#include "cuda/runtime/cache.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "cuda/runtime/notice.hpp"
#include "engine/environment.hpp"

namespace tconv::cuda {
namespace {

namespace fs = std::filesystem;

constexpr char magic[] = "tconv-cubin-1\n";

std::uint64_t mix(std::uint64_t h) {
  h ^= h >> 33, h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33, h *= 0xc4ceb9fe1a85ec53ull;
  return h ^ h >> 33;
}

/// FNV-1a over bytes with a final mix; two seeds give 128 bits. Keys are not adversarial.
std::uint64_t hash(const std::string& text, std::uint64_t seed) {
  std::uint64_t h = 0xcbf29ce484222325ull ^ seed;
  for (const char c : text) h = (h ^ std::uint8_t(c)) * 0x100000001b3ull, h ^= h >> 29;
  return mix(h ^ text.size());
}

fs::path path_of(const std::string& key) {
  return fs::path(cache_directory()) / (key + ".cubin");
}

std::error_code last_error() {
  return {errno, std::generic_category()};
}

/// Writes a file that nobody else has, beside `target`. Process numbers would not tell writers apart: the
/// folder may be shared between containers. Leaves no file behind where it fails.
std::error_code write_new_file(const std::string& target, const std::string& text, std::string& name) {
  int file = -1;
  std::random_device random;
  do {
    name = target + "." + std::to_string(random());
    file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EEXIST);
  if (file < 0) return last_error();
  std::error_code error;
  for (std::size_t done = 0; done < text.size() && !error;) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written >= 0)
      done += std::size_t(written);
    else if (errno != EINTR)
      error = last_error();
  }
  if (close(file) != 0 && !error) error = last_error();
  if (error) unlink(name.c_str());
  return error;
}

}  // namespace

std::string cache_directory() {
  if (const char* directory = std::getenv("TCONV_CACHE_DIR")) return directory;
  if (const char* base = setting("XDG_CACHE_HOME")) return std::string(base) + "/tconv";
  if (const char* home = setting("HOME")) return std::string(home) + "/.cache/tconv";
  return "";
}

bool cache_wanted() {
  const char* directory = std::getenv("TCONV_CACHE_DIR");
  return !directory || *directory;
}

std::string digest(const std::string& text) {
  std::ostringstream out;
  out << std::hex;
  for (const std::uint64_t seed : {0x9e3779b97f4a7c15ull, 0xd1b54a32d192ed03ull}) {
    const std::uint64_t h = hash(text, seed);
    for (int shift = 60; shift >= 0; shift -= 4) out << (h >> shift & 15);
  }
  return out.str();
}

std::optional<std::string> read_cache(const std::string& key) {
  if (cache_directory().empty()) return std::nullopt;
  const fs::path path = path_of(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  const std::size_t checksum = sizeof magic - 1, header = checksum + 32;
  if (all.starts_with(magic) && all.size() >= header) {
    std::string content = all.substr(header);
    if (all.compare(checksum, 32, digest(content)) == 0) return content;
  }
  notice("the cached kernel " + path.string() + " is damaged and not used");
  return std::nullopt;
}

std::error_code write_cache(const std::string& key, const std::string& content) {
  if (cache_directory().empty()) return std::make_error_code(std::errc::no_such_file_or_directory);
  std::error_code error;
  fs::create_directories(cache_directory(), error);
  if (error) return error;
  const fs::path target = path_of(key);
  const std::string text = magic + digest(content) + content;
  std::string temporary;
  if ((error = write_new_file(target.string(), text, temporary))) return error;
  fs::rename(temporary, target, error);
  if (error) unlink(temporary.c_str());
  return error;
}

}  // namespace tconv::cuda
