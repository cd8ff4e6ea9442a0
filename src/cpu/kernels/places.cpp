#include "cpu/kernels/places.hpp"

#include "cpu/convert.hpp"
#include "cpu/kernels/simd.hpp"
#include "cpu/machine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/places.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

#include "cpu/kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tconv::cpu {
namespace HWY_NAMESPACE {

// What is moved together: so many i that they fill a line of the tile, and so many neighbours in the tensor that
// their lines, one for each i, stay in the first-level cache.
constexpr std::int64_t block = 16;
constexpr std::int64_t longest_run = 64;

/// How many places from the first on are a run of the tensor, neighbours or at most so far apart.
template <int apart>
HWY_INLINE std::int64_t RunOf(const Place* places, std::int64_t count) {
  std::int64_t run = 1;
  for (; run < count && places[run].tensor - places[0].tensor < longest_run; ++run)
    if (const std::int64_t step = places[run].tensor - places[run - 1].tensor; step < 1 || step > apart) break;
  return run;
}

/// Calls move(i, n, r, j, run): n of the i from i on, a run of places from j on. What is farthest apart in the
/// tensor is the outermost loop.
template <int apart, class Move>
HWY_INLINE void ForEachRun(const Transposition& t, const Move& move) {
  const auto runs = [&](std::int64_t i, std::int64_t r) HWY_ATTR {
    const std::int64_t n = HWY_MIN(block, t.count - i);
    for (std::int64_t j = 0, run; j < t.place_count; j += run) {
      run = RunOf<apart>(t.places + j, t.place_count - j);
      move(i, n, r, j, run);
    }
  };
  const auto magnitude = [](std::int64_t step) { return step < 0 ? -step : step; };
  if (magnitude(t.tensor_step) > magnitude(t.stride)) {
    for (std::int64_t r = 0; r < t.repeats; ++r)
      for (std::int64_t i = 0; i < t.count; i += block) runs(i, r);
  } else {
    for (std::int64_t i = 0; i < t.count; i += block)
      for (std::int64_t r = 0; r < t.repeats; ++r) runs(i, r);
  }
}

// Loads read what lies between two places that are one element apart, and leave it: of a stride of 5 and taps of
// dilation 2 that is two elements of five.
constexpr int load_apart = 2;

/// The elements of the tensor from the first place of a run to its last one.
HWY_INLINE std::int64_t SpanOf(const Place* places, std::int64_t run) {
  return places[run - 1].tensor - places[0].tensor + 1;
}

/// to[places[j].tile · pitch + i] = from[i · stride + places[j].tensor − places[0].tensor], j < run, i < n.
template <class T>
HWY_INLINE void LoadRun(const T* from, std::int64_t stride, std::int64_t n, const Place* places, std::int64_t run,
                        T* to, std::int64_t pitch) {
  const auto element = [=](std::int64_t j) { return places[j].tensor - places[0].tensor; };
  if constexpr (std::is_same_v<T, float>) {
    const std::int64_t span = SpanOf(places, run);
    if (span >= 4 && n >= 4) {
      T unwanted[block];
      std::int64_t j = 0;
      for (std::int64_t next = 0; next < span; next += 4) {
        const std::int64_t first = HWY_MIN(next, span - 4);  // the last four, some of them again
        for (; first < next && j > 0 && element(j - 1) >= first;) --j;
        T* targets[4];
        for (int k = 0; k < 4; ++k)
          targets[k] = j < run && element(j) == first + k ? to + places[j++].tile * pitch : unwanted;
        const auto in = [=](std::int64_t i) { return from + i * stride + first; };
        const auto out = [=](int k) { return targets[k]; };
        for (std::int64_t i = TransposeColumns(in, n, out); i < n; ++i)
          for (int k = 0; k < 4; ++k) out(k)[i] = in(i)[k];
      }
      return;
    }
  }
  for (std::int64_t j = 0; j < run; ++j)
    for (std::int64_t i = 0; i < n; ++i) to[places[j].tile * pitch + i] = from[i * stride + element(j)];
}

/// The way back: to[i · stride + j] = from[places[j].tile · pitch + i].
template <class T>
HWY_INLINE void StoreRun(const T* from, std::int64_t pitch, const Place* places, std::int64_t run, std::int64_t n,
                         T* to, std::int64_t stride) {
  if constexpr (std::is_same_v<T, float>) {
    if (run >= 4 && n >= 4) {
      for (std::int64_t next = 0; next < n; next += 4) {
        const std::int64_t i = HWY_MIN(next, n - 4);
        const auto in = [=](std::int64_t j) { return from + places[j].tile * pitch + i; };
        const auto out = [=](int k) { return to + (i + k) * stride; };
        const std::int64_t done = TransposeColumns(in, run, out);
        for (std::int64_t j = done; j < run; ++j)
          for (int k = 0; k < 4; ++k) out(k)[j] = in(j)[k];
      }
      return;
    }
  }
  for (std::int64_t j = 0; j < run; ++j)
    for (std::int64_t i = 0; i < n; ++i) to[i * stride + j] = from[places[j].tile * pitch + i];
}

template <class Compute>
void Load(const Transposition& t, DType dtype, const void* tensor, Compute* tile) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    const Storage* const source = static_cast<const Storage*>(tensor);
    if (t.stride == 1) {
      for (std::int64_t r = 0; r < t.repeats; ++r)
        for (std::int64_t j = 0; j < t.place_count; ++j)
          LoadContiguous(source + r * t.tensor_step + t.places[j].tensor, t.count,
                         tile + (r * t.tile_step + t.places[j].tile) * t.tile_pitch);
      return;
    }
    ForEachRun<load_apart>(
        t, [&](std::int64_t i, std::int64_t n, std::int64_t r, std::int64_t j, std::int64_t run) {
          const Storage* const from = source + r * t.tensor_step + t.places[j].tensor + i * t.stride;
          Compute* const to = tile + r * t.tile_step * t.tile_pitch + i;
          // The next list is likely to go on where this one ends, too many rows at once for the hardware to see
          // it.
          constexpr std::int64_t line = 64 / sizeof(Storage);
          const std::int64_t span = SpanOf(t.places + j, run);
          for (std::int64_t row = 0; row < n; ++row)
            for (std::int64_t k = 0; k < span; k += line)
              __builtin_prefetch(from + row * t.stride + t.place_count + k, 0, 2);
          if constexpr (std::is_same_v<Storage, Compute>) {
            LoadRun(from, t.stride, n, t.places + j, run, to, t.tile_pitch);
          } else {
            Compute rows[block * longest_run];
            for (std::int64_t row = 0; row < n; ++row)
              LoadContiguous(from + row * t.stride, span, rows + row * longest_run);
            LoadRun(rows, longest_run, n, t.places + j, run, to, t.tile_pitch);
          }
        });
  });
}

template <class Compute>
void Store(const Transposition& t, DType dtype, const Compute* tile, void* tensor) {
  with_storage<Compute>(dtype, [&](auto storage) {
    using Storage = decltype(storage);
    Storage* const target = static_cast<Storage*>(tensor);
    if (t.stride == 1) {
      for (std::int64_t r = 0; r < t.repeats; ++r)
        for (std::int64_t j = 0; j < t.place_count; ++j) {
          const Compute* const from = tile + (r * t.tile_step + t.places[j].tile) * t.tile_pitch;
          Storage* const to = target + r * t.tensor_step + t.places[j].tensor;
          for (std::int64_t i = 0; i < t.count; ++i) to[i] = demote<Storage>(from[i]);
        }
      return;
    }
    ForEachRun<1>(t, [&](std::int64_t i, std::int64_t n, std::int64_t r, std::int64_t j, std::int64_t run) {
      const Compute* const from = tile + r * t.tile_step * t.tile_pitch + i;
      Storage* const to = target + r * t.tensor_step + t.places[j].tensor + i * t.stride;
      if constexpr (std::is_same_v<Storage, Compute>) {
        StoreRun(from, t.tile_pitch, t.places + j, run, n, to, t.stride);
      } else {
        Compute rows[block * longest_run];
        StoreRun(from, t.tile_pitch, t.places + j, run, n, rows, longest_run);
        for (std::int64_t row = 0; row < n; ++row)
          for (std::int64_t k = 0; k < run; ++k)
            to[row * t.stride + k] = demote<Storage>(rows[row * longest_run + k]);
      }
    });
  });
}

PlaceKernels<float> PlaceTableF32() {
  return {.load = &Load<float>, .store = &Store<float>};
}
PlaceKernels<double> PlaceTableF64() {
  return {.load = &Load<double>, .store = &Store<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace tconv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tconv::cpu {

HWY_EXPORT(PlaceTableF32);
HWY_EXPORT(PlaceTableF64);

template <>
const PlaceKernels<float>& place_kernels<float>() {
  static const PlaceKernels<float> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(PlaceTableF32)());
  return table;
}

template <>
const PlaceKernels<double>& place_kernels<double>() {
  static const PlaceKernels<double> table = (obey_isa_limit(), HWY_DYNAMIC_DISPATCH(PlaceTableF64)());
  return table;
}

}  // namespace tconv::cpu
#endif  // HWY_ONCE
