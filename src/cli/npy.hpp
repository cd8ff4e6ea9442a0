// NumPy's .npy files. Reading one either gives its array or says what is wrong with the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tconv/tconv.hpp"

namespace tconv::cli {

/// An array in memory as it lay in its file: dense, rows first or (Fortran order) columns first.
struct NpyArray {
  DType dtype = DType::f32;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  /// The array with its own axes; `leading_ones` axes of size 1 are put in front.
  Tensor view(int leading_ones = 0);
};

/// NumPy's name of what an array holds: "float32".
const char* numpy_name(DType dtype);

/// "(1, 512, 861)", as NumPy writes it.
std::string format_shape(const std::vector<std::int64_t>& shape);

/// Reads float16, float32 and float64 of either byte order. Throws Failure with the path and what is wrong.
NpyArray read_npy(const std::string& path);

/// Writes the whole array, or leaves `path` as it was.
void write_npy(const std::string& path, const NpyArray& array);

}  // namespace tconv::cli
