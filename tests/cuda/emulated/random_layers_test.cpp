// Random layers on emulated kernels. TCONV_EMULATED_LAYERS and TCONV_EMULATED_SEED ask for more, or others, and
// what the environment prefers for one kind of kernel.
#include "emulated/check.hpp"
#include "engine/environment.hpp"

namespace tconv::cuda::emulated {
namespace {

class RandomEmulation : public Emulation {
 public:
  /// Panels are the choice for layers larger than these: six of eight layers ask for them, for one channel
  /// block or for several, for x that is turned before, for products of several rows or of several images' rows,
  /// for products in turns.
  void prefer_in_turn(int layer) {
    const char* const wanted[] = {nullptr, "1", "turned", "joined", "beside", nullptr, "2", "turns"};
    set_or_unset("TCONV_PREFER_PANELS", wanted[layer % 8]);
    // And some for several inputs in a position, whether or not that is worth it.
    set_or_unset("TCONV_X_PHASES", layer % 9 == 3 ? "2" : layer % 9 == 6 ? "4" : nullptr);
  }

 private:
  void set_or_unset(const char* variable, const char* value) {
    if (value)
      set(variable, value);
    else
      unset(variable);
  }
};

TEST_F(RandomEmulation, RandomLayers) {
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)));
  const int layers = asked("TCONV_EMULATED_LAYERS", 8);
  const bool asked_for = is_on("TCONV_PREFER_PANELS") || is_on("TCONV_PREFER_MARCH");
  for (int i = 0; i < layers; ++i) {
    Case c = random_case(rng);
    if (i % 2) c.multiprocessors = 132;  // small layers share sums there
    SCOPED_TRACE("layer " + std::to_string(i));
    if (!asked_for) prefer_in_turn(i);
    check(c, rng);
    if (::testing::Test::HasFailure() && layers < 50) break;
  }
  print_families();
  EXPECT_TRUE(asked_for || families["warpgroup"] > 0);
}

}  // namespace
}  // namespace tconv::cuda::emulated
