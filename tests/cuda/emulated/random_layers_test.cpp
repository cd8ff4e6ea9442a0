// Random layers on emulated kernels. TCONV_EMULATED_LAYERS and TCONV_EMULATED_SEED ask for more, or others.
#include "emulated/check.hpp"

namespace tconv::cuda::emulated {
namespace {

TEST_F(Emulation, RandomLayers) {
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)));
  const int layers = asked("TCONV_EMULATED_LAYERS", 8);
  for (int i = 0; i < layers; ++i) {
    const Case c = random_case(rng);
    SCOPED_TRACE("layer " + std::to_string(i));
    // Panels are the choice for layers larger than these: five of seven layers ask for them, for one channel block
    // or for several, for x that is turned before, for products of several rows, for products in turns.
    const char* const wanted[] = {nullptr, "1", "turned", "joined", nullptr, "2", "turns"};
    if (const char* const panels = wanted[i % 7])
      set("TCONV_PREFER_PANELS", panels);
    else
      unset("TCONV_PREFER_PANELS");
    // And some for several inputs in a position, whether or not that is worth it.
    if (i % 8 == 3 || i % 8 == 6)
      set("TCONV_X_PHASES", i % 8 == 3 ? "2" : "4");
    else
      unset("TCONV_X_PHASES");
    check(c, rng);
    if (::testing::Test::HasFailure() && layers < 50) break;
  }
  print_families();
  EXPECT_GT(families["warpgroup"], 0);
}

}  // namespace
}  // namespace tconv::cuda::emulated
