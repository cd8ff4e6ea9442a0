// bf16 numbers two channels (in gradients of weights two positions) at a time, by the dot-product instructions of
// AVX-512: twice the multiply-adds of fp32 in the same time. Products are exact and sums are fp32, as they are
// where bf16 numbers are converted first; subnormal numbers count as zero.
#pragma once

#include "cpu/kernels/outer_product.hpp"
#include "cpu/operand.hpp"

namespace tconv::cpu {

/// Whether the machine has them, and TCONV_MAX_CPU_ISA allows them. The kernels below are for such machines.
bool multiplies_bf16_pairs();

template <>
const OuterProductKernels<BFloat16Pair>& outer_product_kernels<BFloat16Pair>();

/// pairs[j] = (first[j], second[j]), numbers that bf16 has; the second is null where there is none, and zero then.
/// The pairs may take the place of the first ones, also where the second ones lie behind them.
void join_pairs(const float* first, const float* second, std::int64_t count, BFloat16Pair* pairs);

}  // namespace tconv::cpu
