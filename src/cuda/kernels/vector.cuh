// Runs of elements that move as one: up to 16 bytes from and to memory, as the values they are summed in.
#pragma once

#include "element.cuh"
#include "words.cuh"

namespace tconv::device {

template <class Element>
constexpr int vector_of = 16 / int(sizeof(Element));

/// `Count` elements from an address aligned to all of them.
template <class Element, int Count>
__device__ inline auto load_words(const Element* from) {
  constexpr int bytes = Count * int(sizeof(Element));
  Words<max_of(bytes / 4, 1)> w;
  if constexpr (bytes == 16)
    asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
        : "l"(from));
  else if constexpr (bytes == 8)
    asm("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w.word[0]), "=r"(w.word[1]) : "l"(from));
  else if constexpr (bytes == 4)
    asm("ld.global.u32 %0, [%1];" : "=r"(w.word[0]) : "l"(from));
  else
    asm("{ .reg .u16 h; ld.global.u16 h, [%1]; cvt.u32.u16 %0, h; }" : "=r"(w.word[0]) : "l"(from));
  return w;
}

/// Element `index` of words.
template <class Element, int Count>
__device__ inline Element element_of(const Words<Count>& w, int index) {
  Element e;
  if constexpr (sizeof(Element) == 8)
    e = __hiloint2double(int(w.word[index * 2 + 1]), int(w.word[index * 2]));
  else if constexpr (sizeof(Element) == 4)
    e = __uint_as_float(w.word[index]);
  else
    e.bits = u16(w.word[index / 2] >> (index % 2 * 16));
  return e;
}

/// `Count` values from memory; zeros where they are not `there`.
template <class Element, int Count, class Accumulator>
__device__ inline void load_values(const Element* from, bool there, Accumulator* values) {
  Words<max_of(Count * int(sizeof(Element)) / 4, 1)> w{};
  if (there) w = load_words<Element, Count>(from);
#pragma unroll
  for (int i = 0; i < Count; ++i) values[i] = load_as_accumulator(element_of<Element>(w, i));
}

__device__ inline u32 two_elements(F16, float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ inline u32 two_elements(BF16, float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

/// Values rounded to elements.
template <class Element, int Count, class Accumulator>
__device__ inline auto to_words(const Accumulator* values) {
  Words<max_of(Count * int(sizeof(Element)) / 4, 1)> w;
  if constexpr (sizeof(Element) == 8) {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      w.word[i * 2] = u32(__double2loint(values[i])), w.word[i * 2 + 1] = u32(__double2hiint(values[i]));
  } else if constexpr (sizeof(Element) == 4) {
#pragma unroll
    for (int i = 0; i < Count; ++i) w.word[i] = __float_as_uint(values[i]);
  } else if constexpr (Count == 1) {
    w.word[0] = to_element<Element>(values[0]).bits;
  } else {
#pragma unroll
    for (int i = 0; i < Count / 2; ++i) w.word[i] = two_elements(Element{}, values[i * 2], values[i * 2 + 1]);
  }
  return w;
}

template <class Element, int Count, int WordCount>
__device__ inline void store_words(Element* to, const Words<WordCount>& w) {
  if constexpr (Count * sizeof(Element) == 2)
    to->bits = u16(w.word[0]);
  else
    *reinterpret_cast<Words<WordCount>*>(to) = w;
}

}  // namespace tconv::device
