// Tiles that are transposed: what a sample has at some channels and positions is a list of places, whatever
// strides the tensor has. Loading and storing put the places of a few channels on such a list; the kernels take
// the channels after them by a step.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/kernels/places.hpp"

namespace tconv::cpu {

/// A list of places, handed to move(transposition) whenever it is full.
template <class Move>
class PlaceList {
 public:
  PlaceList(const Transposition& transposition, const Move& move) : t_(transposition), move_(move) {
    t_.places = places_.data();
    t_.place_count = 0;
  }

  void add(std::int64_t tensor, std::int64_t tile) {
    add_all([&, more = true](Place& place) mutable {
      place = {tensor, tile};
      return std::exchange(more, false);
    });
  }

  /// Adds places as long as next(place) gives one. What counts them stays in registers.
  template <class Next>
  void add_all(Next next) {
    std::int64_t count = t_.place_count;
    std::int64_t last = count > 0 ? places_[std::size_t(count - 1)].tensor : INT64_MIN;
    bool sorted = sorted_;
    for (Place place; next(place); last = place.tensor) {
      sorted = sorted && place.tensor > last;
      places_[std::size_t(count++)] = place;
      if (count < most) continue;
      t_.place_count = count, sorted_ = sorted;
      flush();
      count = 0, sorted = true;
    }
    t_.place_count = count, sorted_ = sorted;
  }

  void flush() {
    if (t_.place_count == 0) return;
    if (!sorted_)
      std::sort(places_.begin(), places_.begin() + t_.place_count,
                [](const Place& a, const Place& b) { return a.tensor < b.tensor; });
    move_(t_);
    t_.place_count = 0, sorted_ = true;
  }

 private:
  static constexpr std::int64_t most = 256;
  std::array<Place, most> places_;
  bool sorted_ = true;
  Transposition t_;
  const Move& move_;
};

/// What repeats: channels or samples, each with as many places.
struct Repeats {
  std::int64_t count;
  std::int64_t tensor_step;
  std::int64_t tile_step;
  std::int64_t places;
};

/// Moves all repeats of `count` elements `stride` apart in the tensor. list_places(list, tensor, tile) adds every
/// place of one repeat to the list, counted from `tensor` and `tile`; move(transposition, tensor, tile) takes
/// places counted from there.
template <class ListPlaces, class Move>
void move_places(const Repeats& all, std::int64_t stride, std::int64_t count, const ListPlaces& list_places,
                 const Move& move) {
  // So many repeats share a list that neighbours in the tensor fill a vector, be they positions or repeats.
  constexpr std::int64_t neighbours = 16;
  const std::int64_t wanted =
      all.tensor_step == 1 ? neighbours : (neighbours + all.places - 1) / std::max<std::int64_t>(all.places, 1);
  const std::int64_t together = std::clamp<std::int64_t>(wanted, 1, all.count);
  const auto go = [&](std::int64_t first, std::int64_t listed, std::int64_t repeats) {
    const auto move_from = [&](const Transposition& t) {
      move(t, first * all.tensor_step, first * all.tile_step);
    };
    PlaceList<decltype(move_from)> list(Transposition{.places = nullptr,
                                                      .place_count = 0,
                                                      .stride = stride,
                                                      .count = count,
                                                      .repeats = repeats,
                                                      .tensor_step = listed * all.tensor_step,
                                                      .tile_step = listed * all.tile_step},
                                        move_from);
    for (std::int64_t i = 0; i < listed; ++i) list_places(list, i * all.tensor_step, i * all.tile_step);
    list.flush();
  };
  const std::int64_t rest = all.count % together;
  go(0, together, all.count / together);
  if (rest > 0) go(all.count - rest, rest, 1);
}

}  // namespace tconv::cpu
