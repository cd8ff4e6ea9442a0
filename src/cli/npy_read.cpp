#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "cli/command.hpp"
#include "cli/npy.hpp"

namespace tconv::cli {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

/// The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }. This reads
/// the few forms NumPy writes and refuses everything else.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  struct Header {
    std::string descr;
    bool fortran_order = false;
    std::vector<std::int64_t> shape;
  };

  /// Nothing where the text is not such a header.
  std::optional<Header> parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!take('{')) return {};
    while (!take('}')) {
      const auto key = string();
      if (!key || !take(':')) return {};
      if (*key == "descr" && !has_descr) {
        // A structured dtype is a list here; what it is called does not matter, it is refused anyway.
        const auto descr = peek() == '[' ? bracketed() : string();
        if (!descr) return {};
        header.descr = *descr;
        has_descr = true;
      } else if (*key == "fortran_order" && !has_order) {
        header.fortran_order = word("True");
        if (!header.fortran_order && !word("False")) return {};
        has_order = true;
      } else if (*key == "shape" && !has_shape) {
        if (!shape(header.shape)) return {};
        has_shape = true;
      } else {
        return {};
      }
      take(',');
    }
    if (!has_descr || !has_order || !has_shape) return {};
    return header;
  }

 private:
  char peek() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_[0];
  }

  bool take(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool word(std::string_view expected) {
    peek();
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  std::optional<std::string> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return {};
    const auto end = rest_.find(quote, 1);
    if (end == std::string_view::npos) return {};
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::string> bracketed() {
    const auto end = rest_.find(']');
    if (end == std::string_view::npos) return {};
    std::string text(rest_.substr(0, end + 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool shape(std::vector<std::int64_t>& shape) {
    if (!take('(')) return false;
    while (!take(')')) {
      std::int64_t size = 0;
      if (!std::isdigit(static_cast<unsigned char>(peek()))) return false;
      while (std::isdigit(static_cast<unsigned char>(peek()))) {
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, rest_[0] - '0', &size))
          return false;
        rest_.remove_prefix(1);
      }
      shape.push_back(size);
      if (!take(',') && peek() != ')') return false;
    }
    return true;
  }

  std::string_view rest_;
};

struct ElementType {
  DType dtype;
  bool big_endian;
};

std::optional<ElementType> element_type(std::string_view descr) {
  if (descr.size() != 3 || descr[1] != 'f') return {};
  const bool native_is_big = std::endian::native == std::endian::big;
  if (descr[0] != '<' && descr[0] != '>' && descr[0] != '=') return {};
  const bool big = descr[0] == '=' ? native_is_big : descr[0] == '>';
  switch (descr[2]) {
    case '2':
      return ElementType{DType::f16, big};
    case '4':
      return ElementType{DType::f32, big};
    case '8':
      return ElementType{DType::f64, big};
  }
  return {};
}

/// What the dtypes people have by mistake are called.
std::string describe_descr(std::string_view descr) {
  const char kind = descr.size() >= 2 ? descr[1] : '\0';
  const std::string bytes(descr.size() > 2 ? descr.substr(2) : "");
  const auto bits = [&] {
    return bytes.size() == 1 || bytes == "16" ? std::to_string(std::atoi(bytes.c_str()) * 8) : "";
  };
  if (kind == 'i') return "int" + bits();
  if (kind == 'u') return "uint" + bits();
  if (kind == 'c') return "complex" + bits();
  if (kind == 'f') return "float" + bits();
  if (kind == 'b') return "bool";
  if (kind == 'O') return "Python objects";
  if (kind == 'U' || kind == 'S') return "text";
  if (kind == 'V') return "raw bytes (bfloat16 has no .npy form)";
  return "a structured type";
}

void swap_bytes(std::vector<std::byte>& data, std::size_t width) {
  for (std::size_t i = 0; i + width <= data.size(); i += width)
    std::reverse(data.begin() + std::ptrdiff_t(i), data.begin() + std::ptrdiff_t(i + width));
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) refuse("does not exist");
    if (std::filesystem::is_directory(status)) refuse("is a directory, not a .npy file");
    if (!std::filesystem::is_regular_file(status)) refuse("is not a regular file");
    size_ = std::filesystem::file_size(path, error);
    file_.open(path, std::ios::binary);
    if (error || !file_) refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
  }

  [[noreturn]] void refuse(const std::string& what) const { throw Failure(fmt::format("{} {}", path_, what)); }

  std::uint64_t left() const { return size_ - position_; }

  void read(void* to, std::size_t bytes) {
    file_.read(static_cast<char*>(to), std::streamsize(bytes));
    if (std::size_t(file_.gcount()) != bytes) refuse("could not be read to its end");
    position_ += bytes;
  }

 private:
  const std::string& path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
};

std::string read_header_text(Reader& reader) {
  std::array<char, 8> start{};
  if (reader.left() < start.size())
    reader.refuse("is not a .npy file: it is shorter than the format's first 8 bytes");
  reader.read(start.data(), start.size());
  if (std::string_view(start.data(), magic.size()) != magic) {
    const bool zip = start[0] == 'P' && start[1] == 'K';
    reader.refuse(zip ? "is a .npz archive, not a .npy file: save the array with numpy.save"
                      : "is not a .npy file: it does not begin with \\x93NUMPY");
  }
  const int major = start[6];
  if (major < 1 || major > 3)
    reader.refuse(fmt::format("has .npy version {}.{}, known are 1 to 3", major, int(start[7])));
  std::array<unsigned char, 4> length_bytes{};
  const std::size_t length_width = major == 1 ? 2 : 4;
  if (reader.left() < length_width) reader.refuse("is truncated: it ends within its header");
  reader.read(length_bytes.data(), length_width);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_width; ++i) length |= std::uint64_t(length_bytes[i]) << (8 * i);
  if (reader.left() < length) reader.refuse("is truncated: it ends within its header");
  std::string text(length, '\0');
  reader.read(text.data(), text.size());
  return text;
}

}  // namespace

const char* numpy_name(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "float16";
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
  }
  return "unknown";
}

std::string format_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

Tensor NpyArray::view(int leading_ones) {
  const int rank = leading_ones + int(shape.size());
  if (rank > max_rank) throw Failure(fmt::format("an array of shape {} has too many axes", format_shape(shape)));
  std::vector<std::int64_t> sizes(std::size_t(leading_ones), 1);
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  Tensor tensor = dense(static_cast<void*>(data.data()), dtype, sizes);
  if (fortran_order) {
    std::int64_t stride = 1;
    for (int axis = leading_ones; axis < rank; ++axis) {
      tensor.strides[std::size_t(axis)] = stride;
      stride *= std::max<std::int64_t>(sizes[std::size_t(axis)], 1);
    }
  }
  return tensor;
}

NpyArray read_npy(const std::string& path) {
  Reader reader(path);
  const auto header = HeaderParser(read_header_text(reader)).parse();
  if (!header) reader.refuse("has a damaged .npy header");
  const auto type = element_type(header->descr);
  if (!type)
    reader.refuse(
        fmt::format("holds {} ('{}'); tconv computes on float16, float32 and float64: convert it first, as in "
                    "x.astype(numpy.float32)",
                    describe_descr(header->descr), header->descr));

  // The size is checked against the file before memory is asked for: a damaged header must not ask for all of it.
  std::uint64_t bytes = size_of(type->dtype);
  bool fits = true;
  for (const std::int64_t size : header->shape)
    fits = fits && !__builtin_mul_overflow(bytes, std::uint64_t(size), &bytes);
  if (!fits || reader.left() < bytes)
    reader.refuse(fmt::format("is truncated: shape {} of {} needs {} bytes of data, the file has {}",
                              format_shape(header->shape), numpy_name(type->dtype),
                              fits ? std::to_string(bytes) : "more than 2^64", reader.left()));
  if (reader.left() > bytes)
    reader.refuse(fmt::format("is damaged: {} bytes follow the data of its shape {}", reader.left() - bytes,
                              format_shape(header->shape)));

  NpyArray array{.dtype = type->dtype, .fortran_order = header->fortran_order, .shape = header->shape, .data = {}};
  array.data.resize(bytes);
  reader.read(array.data.data(), bytes);
  if (type->big_endian != (std::endian::native == std::endian::big)) swap_bytes(array.data, size_of(type->dtype));
  return array;
}

}  // namespace tconv::cli
