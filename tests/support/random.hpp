// Seeded randomness that gives the same numbers with every standard library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace testing_support {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  /// Between `low` and `high`, both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + std::int64_t(bits() % (std::uint64_t(high - low) + 1));
  }
  /// In [−1, 1).
  double real() { return double(std::int64_t(bits()) >> 11) * 0x1p-52; }
  bool chance(double probability) { return real() < 2 * probability - 1; }
  template <class T, std::size_t n>
  T pick(const T (&values)[n]) {
    return values[bits() % n];
  }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[bits() % values.size()];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace testing_support
