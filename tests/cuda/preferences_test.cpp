// What tests ask for through the environment: values that are off, on, and refused. No NVRTC, no GPU.
#include "cuda/preferences.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "support/expect_refusal.hpp"

namespace tconv::cuda {
namespace {

using testing_support::refuses;

/// A variable for as long as this lives; null: not set.
class Set {
 public:
  Set(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    put(value);
  }
  ~Set() { put(before_ ? before_->c_str() : nullptr); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  void put(const char* value) const { value ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(Preferences, SwitchesAreOffWhereTheyAreEmptyOrZero) {
  const std::pair<const char*, bool Preferences::*> switches[] = {
      {"TCONV_NO_WGMMA", &Preferences::no_warpgroups}, {"TCONV_NO_HALVES", &Preferences::no_halves},
      {"TCONV_PREFER_HALVES", &Preferences::halves},   {"TCONV_NO_MARCH", &Preferences::no_march},
      {"TCONV_PREFER_MARCH", &Preferences::march},     {"TCONV_PREFER_DOUBLES", &Preferences::doubles},
      {"TCONV_PREFER_PAIRS", &Preferences::row_pairs},
  };
  for (const auto& [name, wanted] : switches) {
    for (const char* const off : {static_cast<const char*>(nullptr), "", "0"}) {
      const Set set(name, off);
      EXPECT_FALSE(preferences().*wanted) << name << "=" << (off ? off : "(not set)");
    }
    const Set set(name, "1");
    EXPECT_TRUE(preferences().*wanted) << name;
  }
  for (const char* const off : {"", "0"}) {
    const Set panels("TCONV_PREFER_PANELS", off), inputs("TCONV_X_PHASES", off);
    EXPECT_FALSE(preferences().panels);
    EXPECT_EQ(preferences().inputs, 0);
  }
}

TEST(Preferences, ValuesThatMeanNothingAreRefused) {
  for (const char* const wrong : {"3", "turn", "Turned", "turned,once", "-1"}) {
    const Set set("TCONV_PREFER_PANELS", wrong);
    EXPECT_TRUE(refuses([] { preferences(); }, {"TCONV_PREFER_PANELS", "1, 2, turned", "loaders", wrong}));
  }
  for (const char* const wrong : {"3", "two", "16"}) {
    const Set set("TCONV_X_PHASES", wrong);
    EXPECT_TRUE(refuses([] { preferences(); }, {"TCONV_X_PHASES", "1, 2, 4 or 8", wrong}));
  }
}

TEST(Preferences, EveryKindOfPanelsHasAName) {
  for (const std::string& name : panel_preferences()) {
    const Set set("TCONV_PREFER_PANELS", name.c_str());
    EXPECT_TRUE(preferences().panels) << name;
  }
  const Set set("TCONV_PREFER_PANELS", "2");
  EXPECT_EQ(preferences().panels->members, 2);
}

TEST(Preferences, ThePageNamesEveryKindOfPanels) {
  std::ifstream page(TCONV_SOURCE_FOLDER "/../docs/cuda.md");
  std::set<std::string> named;
  for (std::string line; std::getline(page, line);) {
    const std::string begin = "| `TCONV_PREFER_PANELS=";
    if (line.starts_with(begin))
      named.insert(line.substr(begin.size(), line.find('`', begin.size()) - begin.size()));
  }
  const std::vector<std::string> names = panel_preferences();
  EXPECT_EQ(named, std::set<std::string>(names.begin(), names.end()));
}

}  // namespace
}  // namespace tconv::cuda
