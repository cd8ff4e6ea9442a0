// The disk cache: whole entries or none, whatever happens to the files.
#include "cuda/runtime/cache.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
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

TEST_F(Cache, ManyProcessesLeaveOneWholeEntry) {
  const std::string content(100'000, 'c');
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < 50; ++i) {
        good = good && !write_cache("key", content);
        const auto read = read_cache("key");
        good = good && read && *read == content;  // its own entry is there: another can only replace it
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_cache("key"), content);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(Cache, ADamagedEntryIsNamedOnce) {
  EXPECT_FALSE(write_cache("named", "content"));
  fs::resize_file(only_file(), 20);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(read_cache("named"));
  EXPECT_FALSE(read_cache("named"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find(only_file().string()), std::string::npos) << said;
}

TEST_F(Cache, AnUnusableDirectoryIsReportedNotThrown) {
  setenv("TCONV_CACHE_DIR", "/dev/null/cache", 1);
  EXPECT_EQ(write_cache("key", "content"), std::errc::not_a_directory);
  EXPECT_FALSE(read_cache("key"));
}

TEST_F(Cache, AFullDiskLeavesNothingBehind) {
  fs::create_directories(directory_);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &small);
    _exit(write_cache("key", std::string(100'000, 'x')) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(Cache, AnEmptyNameMeansNoCache) {
  EXPECT_TRUE(cache_wanted());
  setenv("TCONV_CACHE_DIR", "", 1);
  EXPECT_FALSE(cache_wanted());
  EXPECT_EQ(cache_directory(), "");
  EXPECT_TRUE(write_cache("key", "content"));
  EXPECT_FALSE(read_cache("key"));
}

}  // namespace
}  // namespace tconv::cuda
