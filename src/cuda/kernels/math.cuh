// The numbers that tensor cores multiply in place of a layer's elements. Host and device compile this file.
#pragma once

namespace tconv::device {

/// `fp32` splits numbers into two TF32 numbers, `halves` scales them and splits them into two fp16 numbers: three
/// products of either kind are as good as one of fp32, and those of fp16 take half the time (mma/split.cuh). `half`
/// scales numbers and rounds them to one fp16 number, which has as many bits as one of TF32. `f64` are doubles.
enum class Math { fp32, tf32, f16, bf16, halves, half, f64 };
constexpr bool splits(Math math) { return math == Math::fp32 || math == Math::halves; }
constexpr bool scales(Math math) { return math == Math::halves || math == Math::half; }
/// Of operands: two 16-bit numbers are a word, and a double is one.
constexpr int word_bytes(Math math) { return math == Math::f64 ? 8 : 4; }
constexpr int channels_per_word(Math math) {
  return math == Math::fp32 || math == Math::tf32 || math == Math::f64 ? 1 : 2;
}
/// Of an element in memory.
constexpr int element_bytes(Math math) {
  return math == Math::f16 || math == Math::bf16 ? 2 : math == Math::f64 ? 8 : 4;
}
/// Heads, and in fp32 remainders, of weights.
constexpr int weight_parts(Math math) { return splits(math) ? 2 : 1; }

}  // namespace tconv::device
