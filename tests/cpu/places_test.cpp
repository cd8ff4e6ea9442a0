// Transposes between tensors and listed places: every element goes where the list says, and nothing beside it is
// read or written, for every dtype, whichever neighbours the places have in the tensor.
#include "cpu/kernels/places.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/dtype.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

template <class Compute>
void moves_what_is_listed(DType dtype, testing_support::Random& random) {
  // Rows of `length` elements, `count` of them `stride` apart; some of their elements have a place.
  const bool contiguous = random.integer(0, 9) == 0;
  const std::int64_t length = random.integer(1, 90), count = random.integer(1, 40), repeats = random.integer(1, 3);
  const std::int64_t stride = contiguous ? 1 : length * repeats + random.integer(0, 5),
                     spacing = contiguous ? count : 1;
  const std::int64_t leave_out = random.pick({2, 5, 1000});
  std::vector<Place> places;
  for (std::int64_t at = 0; at < length; ++at)
    if (random.integer(1, leave_out) != 1) places.push_back({.tensor = at * spacing, .tile = 0});
  if (places.empty()) return;
  const std::int64_t pitch = count + random.integer(0, 3), rows = std::int64_t(places.size());
  for (std::int64_t j = 0; j < rows; ++j) places[std::size_t(j)].tile = (j * 7 % rows) * pitch;
  for (std::int64_t j = 0; j < rows && rows % 7 == 0; ++j) places[std::size_t(j)].tile = j * pitch;
  const Transposition t{.places = places.data(),
                        .place_count = rows,
                        .stride = stride,
                        .count = count,
                        .repeats = repeats,
                        .tensor_step = length * spacing,
                        .tile_step = rows * pitch};

  std::int64_t elements = 0;
  const auto at = [&](std::int64_t r, std::size_t j, std::int64_t i) {
    return r * t.tensor_step + places[j].tensor + i * stride;
  };
  for (std::int64_t r = 0; r < repeats; ++r)
    elements = std::max(elements, at(r, places.size() - 1, count - 1) + 1);
  std::vector<char> tensor(std::size_t(elements) * size_of(dtype));
  for (std::int64_t e = 0; e < elements; ++e)
    testing_support::store_element(dtype, tensor.data(), e, double(random.integer(1, 200)));

  // Zero stays where nothing is written.
  std::vector<Compute> tile(std::size_t(repeats * t.tile_step), Compute(0)), expected(tile);
  for (std::int64_t r = 0; r < repeats; ++r)
    for (std::size_t j = 0; j < places.size(); ++j)
      for (std::int64_t i = 0; i < count; ++i)
        expected[std::size_t(r * t.tile_step + places[j].tile + i)] =
            Compute(testing_support::load_element(dtype, tensor.data(), at(r, j, i)));
  place_kernels<Compute>().load(t, dtype, tensor.data(), tile.data());
  ASSERT_EQ(tile, expected) << to_string(dtype) << " " << count << " x " << rows;

  std::vector<char> stored(tensor.size()), wanted(tensor.size());
  for (std::int64_t r = 0; r < repeats; ++r)
    for (std::size_t j = 0; j < places.size(); ++j)
      for (std::int64_t i = 0; i < count; ++i)
        testing_support::store_element(dtype, wanted.data(), at(r, j, i),
                                       double(tile[std::size_t(r * t.tile_step + places[j].tile + i)]));
  place_kernels<Compute>().store(t, dtype, tile.data(), stored.data());
  ASSERT_EQ(stored, wanted) << to_string(dtype) << " " << count << " x " << rows;
}

TEST(Places, LoadAndStoreMoveWhatIsListed) {
  testing_support::Random random(61);
  for (int i = 0; i < 1000; ++i) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) moves_what_is_listed<float>(dtype, random);
    moves_what_is_listed<double>(DType::f64, random);
  }
}

}  // namespace
