// Elements of every dtype as doubles: what a dtype can hold, written from the formats' definitions.
#pragma once

#include "tconv/tconv.hpp"

namespace testing_support {

/// The value of element `index` behind `data`.
double load_element(tconv::DType dtype, const void* data, std::int64_t index);

/// Stores `value` rounded to nearest even.
void store_element(tconv::DType dtype, void* data, std::int64_t index, double value);

/// `value` as the dtype can hold it.
double rounded(tconv::DType dtype, double value);

/// Half the distance between neighbouring values, relative: what one rounding on storing may cost.
double storage_rounding(tconv::DType dtype);

/// Half the smallest positive value: what one rounding may cost where the format underflows.
double storage_underflow(tconv::DType dtype);

/// Rounding errors of one sum of products, relative to the sum of the absolute values of its terms: far
/// above what fp32 (fp64 for f64) accumulation costs, far below what accumulating in f16 or bf16 would.
double accumulation_error(tconv::DType dtype);

inline constexpr tconv::DType all_dtypes[] = {tconv::DType::f32, tconv::DType::f64, tconv::DType::f16,
                                              tconv::DType::bf16};

}  // namespace testing_support
