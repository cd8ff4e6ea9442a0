// What goes wrong around the CUDA engine, as its users read it. No GPU is needed.
#include <gtest/gtest.h>

#include "cuda/engine.hpp"
#include "cuda/runtime/driver.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

/// The message of the error that `call` throws, on one line.
template <class Call>
std::string message_of(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Trouble, ADeviceThatIsNotThereIsNamed) {
  const std::string message = message_of(find_driver() ? ErrorCode::invalid_argument : ErrorCode::unsupported, [] {
    Plan(Layer{.kernel = {3}}, {.kind = DeviceKind::cuda, .index = 77});
  });
  EXPECT_TRUE(has(message, find_driver() ? "got 77" : "cuda:77")) << message;
}

TEST(Trouble, NoDriverIsSaidInTheSystemsInformation) {
  if (find_driver()) GTEST_SKIP() << "there is a GPU here";
  bool said = false;
  for (const std::string& line : system_info().missing) said = said || has(line, why_no_driver());
  EXPECT_TRUE(said);
  EXPECT_FALSE(why_no_driver().empty());
}

TEST(Trouble, AnOldGpuIsRefusedWithItsCapability) {
  DeviceProperties old = absent_device("sm_80");
  old.name = "Some Old Card", old.major = 7, old.minor = 5, old.index = 3;
  const std::string message = message_of(ErrorCode::unsupported, [&] { make_plan(Layer{.kernel = {3}}, old); });
  for (const char* part : {"cuda:3", "Some Old Card", "7.5", "8.0"}) EXPECT_TRUE(has(message, part)) << message;
}

TEST(Trouble, PackedWeightsAreAlignedAsTheDriverAllocates) {
  Layer layer{.in_channels = 64, .out_channels = 64, .kernel = {3}};
  KernelRecord record;
  DeviceProperties device = absent_device("sm_90a");
  device.record = &record;
  EXPECT_EQ(make_plan(layer, device)->packed_weight_alignment(), 256u);
}

/// A driver whose calls all fail.
Driver failing_driver() {
  Driver driver{};
  driver.cuGetErrorName = [](CUresult result, const char** name) {
    *name = result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
    return 0;
  };
  driver.cuGetErrorString = [](CUresult result, const char** text) {
    *text = result == 2 ? "out of memory" : nullptr;
    return 0;
  };
  return driver;
}

TEST(Trouble, ErrorsOfTheDriverCarryItsNameAndWhatWasBeingDone) {
  const Driver driver = failing_driver();
  EXPECT_NO_THROW(driver.check(0, "cuInit", "starting"));
  EXPECT_EQ(message_of(ErrorCode::out_of_memory, [&] { driver.check(2, "cuMemAlloc", "allocating 5 bytes"); }),
            "cuMemAlloc failed while allocating 5 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_EQ(message_of(ErrorCode::device_error, [&] { driver.check(9999, "cuLaunchKernel", "launching"); }),
            "cuLaunchKernel failed while launching: error 9999");
}

}  // namespace
}  // namespace tconv::cuda
