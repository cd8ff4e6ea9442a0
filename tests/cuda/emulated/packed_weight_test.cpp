// What is in a packed weight.
#include <algorithm>
#include <cmath>

#include "cuda/engine.hpp"
#include "cuda/runtime/targets.hpp"
#include "emulated/check.hpp"
#include "emulated/guarded.hpp"

namespace tconv::cuda::emulated {
namespace {

using std::int64_t;
using testing_support::load_element;
using testing_support::store_element;

/// The packed weight as numbers, those that are not zero in order.
std::vector<double> numbers_in(DType dtype, const void* packed, int64_t words) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < words * 4 / int64_t(size_of(dtype)); ++i)
    if (const double value = load_element(dtype, packed, i); value != 0) numbers.push_back(value);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// Once for each input of a position.
TEST_F(Emulation, APackedWeightHoldsEveryWeightOnceAndEveryWordIsWritten) {
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)) + 100);
  for (int round = 0; round < asked("TCONV_EMULATED_LAYERS", 8); ++round) {
    const Case c = random_case(rng);
    SCOPED_TRACE(c.text);
    DeviceProperties device = absent_device(round % 2 ? "sm_90a" : "sm_86", 2);
    device.record = &emulator, device.exported = true;  // then weights are packed in one way
    // A position of several inputs has a row for each of them.
    const int inputs = round % 4 == 3 ? 2 : 1;
    set("TCONV_X_PHASES", std::to_string(inputs));
    set("TCONV_NO_HALVES", "1");  // where heads are not the weights themselves
    const auto plan = make_plan(c.layer, device);
    const Geometry g = geometry_of(c.layer);
    // Numbers every dtype holds, and no word of two parts has a second; elements lie `apart`, taps slowest at
    // times.
    const int64_t count = g.in_channels() * g.group_out * g.taps(), apart = 1 + round % 3;
    Guarded w(c.layer.dtype, count * apart, NAN);
    const auto binding = plan->bind(shape_of(c.layer, c.batch, c.input));
    const int times = inputs_of_position(binding->kernel_name(Pass::forward));
    EXPECT_TRUE(times == inputs || times == 1);
    std::vector<double> want;
    for (int64_t i = 0; i < count; ++i) {
      want.insert(want.end(), std::size_t(times), double(1 + i % 255));
      store_element(c.layer.dtype, w.data(), i * apart, want.back());
    }
    std::sort(want.begin(), want.end());
    ConstTensor wt;
    wt.data = w.data(), wt.dtype = c.layer.dtype, wt.rank = 5;
    wt.sizes = {g.in_channels(), g.group_out, g.kernel[0], g.kernel[1], g.kernel[2]};
    int64_t stride = apart;
    const int fastest_last[] = {4, 3, 2, 1, 0}, fastest_out[] = {1, 0, 4, 3, 2};
    for (const int d : round % 4 < 2 ? fastest_last : fastest_out)
      wt.strides[std::size_t(d)] = stride, stride *= wt.sizes[std::size_t(d)];

    const auto words = int64_t(plan->packed_weight_bytes(Pass::forward) / 4);
    Guarded packed(DType::f32, words, NAN);
    plan->pack_weight(Pass::forward, wt, packed.data(), {});
    EXPECT_TRUE(packed.intact()) << "written outside of the packed weight";
    EXPECT_EQ(numbers_in(c.layer.dtype, packed.data(), words), want);
  }
}

}  // namespace
}  // namespace tconv::cuda::emulated
