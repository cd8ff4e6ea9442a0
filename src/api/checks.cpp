#include "api/checks.hpp"

#include <cstdlib>

namespace tconv {
namespace {

using std::int64_t;
using std::string;
using std::to_string;

[[noreturn]] void refuse(const string& message) {
  throw InvalidArgument(message);
}

/// "[2, 3, 4]"
template <class Values>
string list(const Values& values, int count) {
  string text = "[";
  for (int i = 0; i < count; ++i) text.append(i ? ", " : "").append(to_string(values[i]));
  return text + "]";
}

/// Sizes of a tensor of some rank, and where its dimensions are found in the canonical form.
struct Ranked {
  const char* name;
  DType dtype;
  int rank;
  std::array<int64_t, 5> sizes{};
};

Ranked ranked(const Expected& expected) {
  Ranked r{.name = expected.name, .dtype = expected.dtype, .rank = expected.dims + 2};
  r.sizes[0] = expected.sizes[0];
  r.sizes[1] = expected.sizes[1];
  for (int d = 0; d < expected.dims; ++d) r.sizes[2 + d] = expected.sizes[5 - expected.dims + d];
  return r;
}

template <class AnyTensor>
void check_shape(const Ranked& expected, const AnyTensor& tensor) {
  const string name = expected.name;
  if (tensor.rank != expected.rank)
    refuse(name + " must have " + to_string(expected.rank) + " dimensions with sizes " +
           list(expected.sizes, expected.rank) + ", got " + to_string(tensor.rank) + " dimensions");
  if (tensor.dtype != expected.dtype)
    refuse(
        name + " must have the layer's dtype " + tconv::to_string(expected.dtype) + ", got " +
        (tensor.dtype > DType::bf16 ? "dtype " + to_string(int(tensor.dtype)) : tconv::to_string(tensor.dtype)));
  for (int d = 0; d < expected.rank; ++d)
    if (tensor.sizes[d] != expected.sizes[d])
      refuse(name + " must have sizes " + list(expected.sizes, expected.rank) + ", got " +
             list(tensor.sizes, expected.rank) + ", wrong in dimension " + to_string(d));
}

/// Whether check_shape() would have nothing to say, without making text.
template <class AnyTensor>
bool shape_fits(const Ranked& expected, const AnyTensor& tensor) {
  if (tensor.rank != expected.rank || tensor.dtype != expected.dtype) return false;
  for (int d = 0; d < expected.rank; ++d)
    if (tensor.sizes[d] != expected.sizes[d]) return false;
  return true;
}

bool is_empty(const Ranked& expected) {
  for (int d = 0; d < expected.rank; ++d)
    if (expected.sizes[d] == 0) return true;
  return false;
}

[[noreturn]] void refuse_reach(const Ranked& expected, const int64_t* strides) {
  refuse(string(expected.name) + " must lie within the address space, got sizes " +
         list(expected.sizes, expected.rank) + " with strides " + list(strides, expected.rank));
}

/// Where a non-empty tensor of checked shape lies in memory.
template <class AnyTensor>
Footprint footprint_of(const Ranked& expected, const AnyTensor& tensor) {
  const auto bytes = int64_t(size_of(expected.dtype));
  if (tensor.data == nullptr)
    refuse(string(expected.name) + " must have data, got a null pointer for sizes " +
           list(expected.sizes, expected.rank));
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % std::uintptr_t(bytes) != 0)
    refuse(string(expected.name) + " must be aligned to the " + to_string(bytes) + " bytes of an element of " +
           tconv::to_string(expected.dtype) + ", got an address " + to_string(address % std::uintptr_t(bytes)) +
           " bytes past that");

  int64_t low = 0, high = 1, count = 1;  // in elements
  bool fits = true;
  for (int d = 0; d < expected.rank; ++d) {
    count *= expected.sizes[d];
    if (expected.sizes[d] == 1) continue;
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(expected.sizes[d] - 1, tensor.strides[d], &reach);
    int64_t& bound = reach < 0 ? low : high;
    fits = fits && !__builtin_add_overflow(bound, reach, &bound);
  }
  // Each side below 2^59 elements keeps every later product with 8 bytes, and their difference, in 63 bits.
  constexpr int64_t limit = int64_t(1) << 59;
  if (!fits || low < -limit || high > limit) refuse_reach(expected, tensor.strides.data());
  Footprint footprint;
  if (__builtin_sub_overflow(address, std::uintptr_t(-low * bytes), &footprint.begin) ||
      __builtin_add_overflow(address, std::uintptr_t(high * bytes), &footprint.end))
    refuse_reach(expected, tensor.strides.data());
  footprint.dense = high - low == count;
  return footprint;
}

/// Whether some ordering of the dimensions nests them: one step in a dimension clears everything the
/// smaller ones reach. Every slice, transpose, expansion-free view or diagonal of a dense tensor does.
template <class AnyTensor>
bool elements_apart(const Ranked& expected, const AnyTensor& tensor) {
  struct Dimension {
    int64_t step, size;
  };
  std::array<Dimension, 5> dims;
  int count = 0;
  for (int d = 0; d < expected.rank; ++d) {
    if (expected.sizes[d] == 1) continue;
    const Dimension dim{std::abs(tensor.strides[d]), expected.sizes[d]};
    int at = count++;
    for (; at > 0 && dims[at - 1].step > dim.step; --at) dims[at] = dims[at - 1];
    dims[at] = dim;
  }
  int64_t reach = 0;
  for (int d = 0; d < count; ++d) {
    if (dims[d].step <= reach) return false;
    reach += dims[d].step * (dims[d].size - 1);  // within the checked footprint
  }
  return true;
}

template <class AnyTensor>
Footprint check_memory(const Ranked& expected, const AnyTensor& tensor, bool written) {
  if (!shape_fits(expected, tensor)) check_shape(expected, tensor);
  if (is_empty(expected)) return {};
  const Footprint footprint = footprint_of(expected, tensor);
  if (written && !elements_apart(expected, tensor))
    refuse(string(expected.name) + " is written and must not have elements that share memory, got sizes " +
           list(expected.sizes, expected.rank) + " with strides " + list(tensor.strides, expected.rank));
  return footprint;
}

template <class AnyTensor>
Checked<AnyTensor> check_canonical(const Expected& expected, const AnyTensor& tensor, bool written) {
  const Ranked sizes = ranked(expected);
  Checked<AnyTensor> checked;
  checked.footprint = check_memory(sizes, tensor, written);
  AnyTensor& view = checked.view;
  view.data = tensor.data;
  view.dtype = tensor.dtype;
  view.rank = 5;
  view.sizes = expected.sizes;
  view.strides.fill(1);
  for (int d = 0; d < sizes.rank; ++d)
    if (sizes.sizes[d] != 1) view.strides[d < 2 ? d : 5 - sizes.rank + d] = tensor.strides[d];
  return checked;
}

template <class AnyTensor>
Checked<AnyTensor> check_vector(const char* name, DType dtype, int64_t channels, const AnyTensor& tensor,
                                bool written) {
  const Ranked sizes{.name = name, .dtype = dtype, .rank = 1, .sizes = {channels}};
  Checked<AnyTensor> checked;
  checked.footprint = check_memory(sizes, tensor, written);
  checked.view = tensor;
  if (channels == 1) checked.view.strides[0] = 1;
  return checked;
}

}  // namespace

Checked<ConstTensor> check_input(const Expected& expected, const ConstTensor& tensor) {
  return check_canonical(expected, tensor, false);
}

Checked<Tensor> check_output(const Expected& expected, const Tensor& tensor) {
  return check_canonical(expected, tensor, true);
}

Checked<ConstTensor> check_input_vector(const char* name, DType dtype, int64_t channels,
                                        const ConstTensor& tensor) {
  return check_vector(name, dtype, channels, tensor, false);
}

Checked<Tensor> check_output_vector(const char* name, DType dtype, int64_t channels, const Tensor& tensor) {
  return check_vector(name, dtype, channels, tensor, true);
}

void check_apart(const char* output_name, const Footprint& output, const char* input_name,
                 const Footprint& input) {
  if (output.begin >= input.end || input.begin >= output.end) return;  // also when one is empty
  // Of two dense views that meet, the later one begins inside the earlier one. With holes, only a view's
  // own first and last element are certain to be its own.
  const auto inside = [](const Footprint& view, std::uintptr_t address) {
    return view.begin <= address && address < view.end;
  };
  const bool certain = output.begin == input.begin || output.end == input.end ||
                       (output.dense && (inside(output, input.begin) || inside(output, input.end - 1))) ||
                       (input.dense && (inside(input, output.begin) || inside(input, output.end - 1)));
  if (certain)
    refuse(string(output_name) + " is written and must not share memory with " + input_name +
           ", got overlapping views");
}

void check_packed(const char* name, const void* packed, std::size_t alignment) {
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(packed) % alignment;
  if (past == 0) return;
  refuse(string(name) + " must begin at a multiple of " + to_string(alignment) + " bytes, got an address " +
         to_string(past) + " bytes past one; pack into memory as its allocator returns it");
}

void check_workspace(Pass pass, std::size_t needed, const RunOptions& options) {
  const std::size_t given = options.workspace == nullptr ? 0 : options.workspace_bytes;
  if (given >= needed) return;
  const string null_note = options.workspace == nullptr && options.workspace_bytes > 0 ? " (a null pointer)" : "";
  refuse(string("workspace must have at least ") + to_string(needed) + " bytes for " + tconv::to_string(pass) +
         ", got " + to_string(given) + null_note);
}

}  // namespace tconv
