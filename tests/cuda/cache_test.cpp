// The disk cache: whole entries or none, whatever happens to the files.
#include "cuda/runtime/cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace tconv::cuda {
namespace {

namespace fs = std::filesystem;

class Cache : public testing::Test {
 protected:
  Cache() : directory_(fs::temp_directory_path() / ("tconv-cache-test-" + std::to_string(getpid()))) {
    setenv("TCONV_CACHE_DIR", directory_.c_str(), 1);
  }
  ~Cache() override {
    unsetenv("TCONV_CACHE_DIR");
    fs::remove_all(directory_);
  }
  fs::path only_file() const { return fs::directory_iterator(directory_)->path(); }

  fs::path directory_;
};

TEST_F(Cache, ReturnsWhatWasWritten) {
  const std::string content("code\0with\0zeros", 15);
  EXPECT_FALSE(read_cache("key"));
  write_cache("key", content);
  EXPECT_EQ(read_cache("key"), content);
  EXPECT_FALSE(read_cache("other"));
}

TEST_F(Cache, ADamagedEntryIsAbsent) {
  write_cache("key", std::string(1000, 'x'));
  const auto size = fs::file_size(only_file());
  for (const std::uintmax_t at : {std::uintmax_t(0), std::uintmax_t(20), size / 2, size - 1}) {
    write_cache("key", std::string(1000, 'x'));
    std::fstream file(only_file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(at));
    file.put('\x7f');
    file.close();
    EXPECT_FALSE(read_cache("key")) << "byte " << at;
  }
  write_cache("key", std::string(1000, 'x'));
  fs::resize_file(only_file(), size / 2);
  EXPECT_FALSE(read_cache("key"));
  write_cache("key", "again");
  EXPECT_EQ(read_cache("key"), "again");
}

TEST_F(Cache, ManyWritersLeaveOneWholeEntry) {
  const std::string content(100'000, 'c');
  std::vector<std::thread> writers;
  for (int t = 0; t < 8; ++t)
    writers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        write_cache("key", content);
        const auto read = read_cache("key");
        EXPECT_TRUE(!read || *read == content);
      }
    });
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(read_cache("key"), content);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(Cache, AnUnusableDirectoryIsNoError) {
  setenv("TCONV_CACHE_DIR", "/proc/no/such/place", 1);
  write_cache("key", "content");
  EXPECT_FALSE(read_cache("key"));
}

}  // namespace
}  // namespace tconv::cuda
