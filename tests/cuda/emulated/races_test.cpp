// What the emulation says of races, by small kernels: each with the barrier, wait or fence that it takes, and
// without.
#include "emulated/races.hpp"

#include <gtest/gtest.h>

#include "emulated/emulator.hpp"

namespace tconv::cuda::emulated {
namespace {

namespace races = emulation::races;

/// Kernels of two warps whose shared memory is `memory`. A statement that begins with MAYBE is there or not.
struct Snippet {
  const char* name;
  const char* body;
  const char* race;    // what is found where the statement is not there
  bool doubt = false;  // it is found as a doubt
  int blocks = 1;      // of a cluster
};

constexpr Snippet snippets[] = {
    {"Block", R"(
        words[threadIdx.x] = 1;
        MAYBE __syncthreads();
        if (threadIdx.x >= 32) sink = words[threadIdx.x - 32];)",
     "a store and a load"},
    {"Warp", R"(
        words[threadIdx.x] = 1;
        MAYBE __syncwarp();
        if (threadIdx.x % 2) sink = words[threadIdx.x - 1];)",
     "a store and a load"},
    {"NamedBarrierOfOthers", R"(
        words[threadIdx.x] = 1;
        if (threadIdx.x < 32) ptx::named_sync(1, 32);
        MAYBE ptx::named_sync(2, 64);
        if (threadIdx.x >= 32) sink = words[threadIdx.x - 32];)",
     "a store and a load"},
    {"TwoStores", R"(
        if (threadIdx.x < 32) words[threadIdx.x] = 1;
        MAYBE __syncthreads();
        if (threadIdx.x >= 32) words[threadIdx.x - 32] = 1;)",
     "two stores"},
    // One lane says for its warp that a slot is free.
    {"OneLaneHandsOver", R"(
        if (threadIdx.x == 0) ptx::barrier_init(256, 1);
        __syncthreads();
        if (threadIdx.x < 32) {
          sink = words[threadIdx.x];
          MAYBE __syncwarp();
          if (threadIdx.x == 0) ptx::barrier_arrive(256);
        } else {
          ptx::barrier_wait(256, 0);
          words[threadIdx.x - 32] = 1;
        })",
     "a load and a store"},
    {"BarrierInitialised", R"(
        if (threadIdx.x == 0) ptx::barrier_init(256, 64);
        MAYBE __syncthreads();
        ptx::barrier_arrive(256);)",
     "a barrier's initialisation and its use"},
    {"BulkCopy", R"(
        if (threadIdx.x == 0) {
          ptx::barrier_init(256, 1);
          ptx::barrier_arrive_expect(256, 128);
          ptx::bulk_load(0, p.x, 128, 256);
        }
        __syncthreads();
        MAYBE ptx::barrier_wait(256, 0);
        sink = words[threadIdx.x % 32];)",
     "a store and a load"},
    // The copy engine does not see that threads have stored before it.
    {"BulkCopyOverStores", R"(
        words[threadIdx.x] = 1;
        MAYBE ptx::async_proxy_fence();
        __syncthreads();
        if (threadIdx.x == 0) {
          ptx::barrier_init(256, 1);
          ptx::barrier_arrive_expect(256, 128);
          ptx::bulk_load(0, p.x, 128, 256);
        })",
     "a store without a fence and an asynchronous store"},
    {"AsynchronousCopies", R"(
        ptx::copy_async<16>(threadIdx.x * 16, p.x, true);
        ptx::commit_copies();
        MAYBE ptx::wait_copies<0>();
        __syncthreads();
        sink = words[threadIdx.x];)",
     "a store and a load"},
    {"NewestCopies", R"(
        ptx::copy_async<16>(threadIdx.x * 16, p.x, true);
        ptx::commit_copies();
        MAYBE ptx::commit_copies();
        ptx::wait_copies<1>();
        __syncthreads();
        sink = words[threadIdx.x];)",
     "a store and a load"},
    {"ProductOfStores", R"(
        words[threadIdx.x] = 1;
        MAYBE ptx::async_proxy_fence();
        __syncthreads();
        multiply();)",
     "a store without a fence and an asynchronous load", true},
    {"StoreAfterProduct", R"(
        multiply();
        MAYBE ptx::wgmma_wait<0>();
        __syncthreads();
        words[threadIdx.x] = 1;)",
     "a load and a store", true},
    {"StoreToTheOtherBlock", R"(
        words[threadIdx.x + 64] = 1;
        ptx::cluster_sync();
        const u32 other = ptx::address_in_block(threadIdx.x * 8, blockIdx.x ^ 1);
        ptx::cluster_store(other, 1, 1);
        MAYBE ptx::cluster_sync();
        sink = words[threadIdx.x];)",
     "a load and a store", false, 2},
};

std::string kernel(const Snippet& snippet, bool whole) {
  const std::string prologue = R"(
#include "base.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/wgmma.cuh"

namespace tconv::device {
constexpr struct { int depth_splits; } config{2};
struct SnippetParams { const void* x; };
volatile u32 sink;
inline void multiply() {
  float sum[4] = {};
  const u32 a[4] = {};
  EmulatedWgmma<8, Math::tf32, false>::multiply(sum, a, 0, false);
  ptx::wgmma_commit();
}
)";
  std::string body = snippet.body;
  const auto at = body.find("MAYBE");
  body.erase(at, whole ? 5 : body.find('\n', at) - at);
  return prologue + (snippet.blocks > 1 ? "__cluster_dims__(2) " : "") +
         "void snippet(const __grid_constant__ SnippetParams params) {\n  const SnippetParams& p = params;\n"
         "  u32* const words = reinterpret_cast<u32*>(memory);\n" +
         body + "\n}\n}\n";
}

class Races : public ::testing::TestWithParam<Snippet> {};

TEST_P(Races, AreFoundWhereNothingOrdersAccesses) {
  const Snippet& snippet = GetParam();
  Emulator emulator;
  alignas(16) const unsigned char x[128] = {};
  const void* const params = x;
  for (const bool whole : {true, false}) {
    races::begin_layer(races::Doubts::forgotten);
    emulator.launch({kernel(snippet, whole), "snippet", 1024}, unsigned(snippet.blocks), 64, &params);
    const races::Found found = races::found();
    const std::vector<std::string>& expected = snippet.doubt ? found.doubts : found.races;
    EXPECT_TRUE((snippet.doubt ? found.races : found.doubts).empty());
    if (whole) {
      EXPECT_TRUE(expected.empty()) << expected.front();
      continue;
    }
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(expected.front().substr(0, expected.front().find(" at byte")), snippet.race);
  }
}

INSTANTIATE_TEST_SUITE_P(Emulated, Races, ::testing::ValuesIn(snippets),
                         [](const auto& snippet) { return snippet.param.name; });

}  // namespace
}  // namespace tconv::cuda::emulated
