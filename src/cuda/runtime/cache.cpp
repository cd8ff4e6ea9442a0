#include "cuda/runtime/cache.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

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

}  // namespace

std::string cache_directory() {
  if (const char* directory = std::getenv("TCONV_CACHE_DIR")) return directory;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base) return std::string(base) + "/tconv";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/tconv";
  return "";
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
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  const std::size_t header = sizeof magic - 1 + 32;
  if (all.size() < header || !all.starts_with(magic)) return std::nullopt;
  std::string content = all.substr(header);
  if (all.compare(sizeof magic - 1, 32, digest(content)) != 0) return std::nullopt;
  return content;
}

void write_cache(const std::string& key, const std::string& content) {
  if (cache_directory().empty()) return;
  static std::atomic<unsigned> counter{0};
  std::error_code error;
  fs::create_directories(cache_directory(), error);
  const fs::path target = path_of(key);
  const fs::path temporary = target.string() + "." + std::to_string(getpid()) + "." + std::to_string(counter++);
  {
    std::ofstream file(temporary, std::ios::binary);
    file << magic << digest(content) << content;
    if (!file.flush()) {
      file.close();
      fs::remove(temporary, error);
      return;
    }
  }
  fs::rename(temporary, target, error);
  if (error) fs::remove(temporary, error);
}

}  // namespace tconv::cuda
