// Same inputs, same bits: run after run, for every number of threads, for every size of workspace.
#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/scale.hpp"

namespace {

using namespace testing_support;
using tconv::Pass;

void bits_agree(const Case& c, Random& random) {
  const tconv::Binding binding = tconv::Plan(c.layer).bind(c.batch, c.input);
  Step step(c, native_orders(c.layer), random);
  SerialExecutor serial;
  step.run(binding, &serial, 1);
  std::vector<std::vector<std::byte>> first;
  for (const Pass pass : {Pass::forward, Pass::grad_input, Pass::grad_weight, Pass::grad_bias})
    first.push_back(step.memory(pass));
  for (const int threads : {1, 2, 3, 5}) {
    const auto pool = tconv::make_thread_pool(threads);
    for (const int workers : {1, threads, 2 * threads}) {
      step.run(binding, pool.get(), workers);
      for (const Pass pass : {Pass::forward, Pass::grad_input, Pass::grad_weight, Pass::grad_bias})
        ASSERT_EQ(step.memory(pass), first[std::size_t(pass)])
            << to_string(pass) << " with " << threads << " threads and workspace for " << workers << ": "
            << describe(c);
    }
  }
}

TEST(Determinism, RandomLayers) {
  Random random(201);
  for (int i = 0; i < scaled(120); ++i) {
    Case c = random_case(random, 5e6);
    while (multiply_adds(c) < 3e5) c = random_case(random, 5e6);  // small ones are not shared between threads
    bits_agree(c, random);
  }
}

TEST(Determinism, LayersCutForThreads) {
  Random random(202);
  // Long reductions over batch and positions, which a gradient of the weight would like to split.
  bits_agree({.layer = {.in_channels = 3, .out_channels = 2, .kernel = {5}, .stride = {2}, .bias = true},
              .batch = 7,
              .input = {5000}},
             random);
  bits_agree({.layer = {.dims = 2, .in_channels = 16, .out_channels = 48, .kernel = {3, 3}, .stride = {2, 2}},
              .batch = 3,
              .input = {31, 33}},
             random);
  bits_agree({.layer = {.dims = 2,
                        .in_channels = 64,
                        .out_channels = 64,
                        .kernel = {3, 3},
                        .stride = {2, 2},
                        .groups = 64,
                        .layout = tconv::Layout::channels_last},
              .batch = 2,
              .input = {40, 40}},
             random);
  // Many samples of a few positions each.
  for (const std::int64_t channels : {8, 64})
    bits_agree({.layer = {.dims = 2,
                          .in_channels = channels,
                          .out_channels = 32,
                          .kernel = {4, 4},
                          .stride = {2, 2},
                          .padding = {1, 1}},
                .batch = 1100,
                .input = {2, 2}},
               random);
  bits_agree(
      {.layer = {.in_channels = 512, .out_channels = 128, .kernel = {8}, .stride = {4}}, .batch = 1, .input = {9}},
      random);
}

}  // namespace
