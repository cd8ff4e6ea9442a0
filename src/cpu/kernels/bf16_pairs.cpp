// Written for one instruction set: Highway 1.0 has no target that knows these instructions.
#include "cpu/kernels/bf16_pairs.hpp"

#include <utility>

#include "cpu/machine.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TCONV_HAS_BF16_PAIRS 1
#include <immintrin.h>
#else
#define TCONV_HAS_BF16_PAIRS 0
#endif

namespace tconv::cpu {

#if TCONV_HAS_BF16_PAIRS

namespace {

#define TCONV_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

constexpr int lanes = 16;

/// The outer product of outer_product.cpp, a pair of channels at a step.
template <int rows, int vectors>
TCONV_BF16_TARGET void add_outer_products(const OuterProduct<BFloat16Pair>& p) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sum[row][v] = p.start ? _mm512_set1_ps(p.start[row]) : _mm512_setzero_ps();
  // Sums to add to are needed at the end only: until then they can come from however far away.
  if (!p.start)
    for (int row = 0; row < rows; ++row)
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(p.sums + row * p.row_pitch + v * lanes);

  const std::int64_t weight_step = p.weight_step * rows;
  for (std::int64_t t = 0; t < p.tap_count; ++t) {
    const BFloat16Pair* __restrict source = p.source + p.taps[t].source;
    const BFloat16Pair* __restrict weight = p.weight + p.taps[t].weight * rows;
    for (std::int64_t c = p.channels; c != 0; --c) {
      __m512i x[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        x[v] = _mm512_loadu_si512(source + v * lanes);
        asm("" : "+v"(x[v]));  // stays in a register, see outer_product.cpp
      }
#pragma GCC unroll 8
      for (int row = 0; row < rows; ++row) {
        const __m512bh w = (__m512bh)_mm512_set1_epi32(int(weight[row].bits));
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) sum[row][v] = _mm512_dpbf16_ps(sum[row][v], w, (__m512bh)x[v]);
      }
      source += p.channel_stride;
      weight += weight_step;
    }
  }

#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* const sums = p.sums + row * p.row_pitch + v * lanes;
      if (!p.start) sum[row][v] = _mm512_add_ps(_mm512_loadu_ps(sums), sum[row][v]);
      _mm512_storeu_ps(sums, sum[row][v]);
    }
}

using Table = OuterProductKernels<BFloat16Pair>;
constexpr int widest_for_rows[] = {0, 8, 8, 6, 6, 4, 4, 3, 3};  // what 32 registers hold

template <int rows, int... widths>
void fill_widths(Table& table, std::integer_sequence<int, widths...>) {
  table.widest[rows] = sizeof...(widths);
  ((table.kernel[rows][widths + 1] = &add_outer_products<rows, widths + 1>), ...);
}

template <int... rows>
void fill_rows(Table& table, std::integer_sequence<int, rows...>) {
  (fill_widths<rows + 1>(table, std::make_integer_sequence<int, widest_for_rows[rows + 1]>()), ...);
}

}  // namespace

bool multiplies_bf16_pairs() {
  static const bool result =
      (obey_isa_limit(), allows_avx512_bf16() && __builtin_cpu_supports("avx512bf16") &&
                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
  return result;
}

template <>
const OuterProductKernels<BFloat16Pair>& outer_product_kernels<BFloat16Pair>() {
  static const Table table = [] {
    Table t{};
    t.lanes = lanes, t.rows = Table::max_rows;
    fill_rows(t, std::make_integer_sequence<int, Table::max_rows>());
    return t;
  }();
  return table;
}

TCONV_BF16_TARGET void join_pairs(const float* first, const float* second, std::int64_t count,
                                  BFloat16Pair* pairs) {
  constexpr __mmask16 all = 0xffff;
  constexpr __mmask32 upper_halves = 0xaaaaaaaa;
  for (std::int64_t j = 0; j < count; j += lanes) {
    const __mmask16 left = count - j >= lanes ? all : __mmask16((1u << (count - j)) - 1);
    const __m512i low = _mm512_maskz_srli_epi32(all, _mm512_maskz_loadu_epi32(left, first + j), 16);
    const __m512i high = second ? _mm512_maskz_loadu_epi32(left, second + j) : _mm512_setzero_si512();
    _mm512_mask_storeu_epi32(pairs + j, left, _mm512_mask_blend_epi16(upper_halves, low, high));
  }
}

#else

bool multiplies_bf16_pairs() {
  return false;
}

template <>
const OuterProductKernels<BFloat16Pair>& outer_product_kernels<BFloat16Pair>() {
  static const OuterProductKernels<BFloat16Pair> none{};
  return none;
}

void join_pairs(const float*, const float*, std::int64_t, BFloat16Pair*) {}

#endif

OperandKind operand_kind(DType dtype, std::int64_t channels) {
  if (dtype == DType::f64) return OperandKind::f64;
  // Of one channel half of each pair would be zero.
  return dtype == DType::bf16 && channels > 1 && multiplies_bf16_pairs() ? OperandKind::bf16_pair
                                                                         : OperandKind::f32;
}

}  // namespace tconv::cpu
