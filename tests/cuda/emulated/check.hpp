// Layers through the engine as on a GPU, with every launch emulated, against the float64 oracle.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "emulated/emulator.hpp"
#include "emulated/layers.hpp"

namespace tconv::cuda::emulated {

/// Inputs that are one position of the kernel, by its name.
int inputs_of_position(const std::string& kernel);

/// A test of layers on one emulated device, under the preferences that it sets (cuda/preferences.hpp).
class Emulation : public ::testing::Test {
 public:
  ~Emulation() override;

  /// A variable of the environment, until the test ends.
  void set(const char* variable, const std::string& value);
  void unset(const char* variable);

  /// Runs a layer, counts what its kernel is one of in `families`, and returns the kernel's name.
  std::string check(const Case& layer, std::mt19937& rng);
  void print_families() const;

  double error = 0;  // of the layer that was run last, relative in norm

  Emulator emulator;
  std::map<std::string, int> families;

 private:
  std::set<std::string> variables_;
};

}  // namespace tconv::cuda::emulated
