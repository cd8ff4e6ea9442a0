#include <fmt/format.h>

#include <bit>
#include <string_view>

#include "cli/files.hpp"
#include "cli/npy.hpp"

namespace tconv::cli {
namespace {

std::string header_of(const NpyArray& array) {
  const char order = std::endian::native == std::endian::big ? '>' : '<';
  std::string text =
      fmt::format("{{'descr': '{}f{}', 'fortran_order': {}, 'shape': {}, }}", order, size_of(array.dtype),
                  array.fortran_order ? "True" : "False", format_shape(array.shape));
  // Version 1.0: magic, version and length take 10 bytes; the data begins at a multiple of 64.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += char(text.size() & 255);
  header += char(text.size() >> 8);
  return header + text;
}

}  // namespace

void write_npy(const std::string& path, const NpyArray& array) {
  write_whole_file(path,
                   {header_of(array), {reinterpret_cast<const char*>(array.data.data()), array.data.size()}});
}

}  // namespace tconv::cli
