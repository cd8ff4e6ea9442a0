// Numbers and layers as people read them, and the lists of numbers people type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tconv/tconv.hpp"

namespace tconv::cli {

/// "1.23 ms"
std::string format_seconds(double seconds);
/// "4.30 GB"; decimal units, as in rates.
std::string format_bytes(double bytes);
/// "412 G"; for FLOPs and counts.
std::string format_count(double count);

/// "64×128", or "64x128" in plain ASCII.
std::string format_size(int dims, const Extents& size, bool unicode = true);

/// "2D 32→64, kernel 3×3, stride 5, padding 1, dilation 2": parameters at their defaults are left out.
std::string format_layer(const Layer& layer, bool unicode = true);

/// "3", "3,5" or "3x5" as one value per dimension; one value serves all. `flag` names it in errors.
Extents parse_extents(const char* flag, std::string_view text, int dims);

/// The values of "3,5" or "3x5", however many there are (1 to 3).
std::vector<std::int64_t> parse_list(const char* flag, std::string_view text);

DType parse_dtype(std::string_view text);
Precision parse_precision(std::string_view text);
Layout parse_layout(std::string_view text);

}  // namespace tconv::cli
