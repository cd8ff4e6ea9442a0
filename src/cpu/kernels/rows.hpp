// Moving rows between tensors and tiles: conversion between storage and compute type, and the
// (de)interleaving that separates the phases of a row or merges them.
#pragma once

#include <cstdint>

#include "tconv/tconv.hpp"

namespace tconv::cpu {

/// The last elements of a streamed row, less than a vector of them. Rows of a tensor often follow each other
/// without a gap but begin in the middle of a line: written piece by piece, such a line would go through the
/// caches.
template <class Compute>
struct PendingStream {
  static constexpr int most = 64 / sizeof(Compute);
  Compute elements[most];
  std::int64_t count = 0;
  Compute* next = nullptr;  // where the element after them belongs
};

/// Strides up to this are interleaved and separated a row at a time, by pointers on the stack; larger ones are
/// scattered.
constexpr std::int64_t largest_interleave = 64;

/// Rows that are merged one after the other: how many, and how far they are apart.
struct Stack {
  std::int64_t rows = 1;
  std::int64_t source_pitch = 0, target_pitch = 0;
};

/// Kernels of the instruction set in use; Compute is float (storage f32, f16, bf16) or double (f64).
template <class Compute>
struct RowKernels {
  /// row[j] = source[j · stride]
  void (*load)(DType dtype, const void* source, std::int64_t stride, std::int64_t count, Compute* row);
  /// The same for several rows, each with `left` zeros before and `right` zeros behind it.
  void (*load_rows)(DType dtype, const void* source, std::int64_t row_stride, std::int64_t stride,
                    std::int64_t rows, std::int64_t left, std::int64_t count, std::int64_t right, Compute* tile,
                    std::int64_t tile_pitch);
  /// All phases of several rows, each with `left` zeros before and `right` zeros behind it, a multiple of `step`
  /// of elements altogether: targets[r][row · tile_pitch + j] = element j · step + r of the row, for r < step, at
  /// most `largest_interleave`; phases whose target is null are left out.
  void (*load_phases)(DType dtype, const void* source, std::int64_t row_stride, std::int64_t step,
                      std::int64_t rows, std::int64_t left, std::int64_t count, std::int64_t right,
                      Compute* const* targets, std::int64_t tile_pitch);
  /// tile[b · tile_pitch + a] = source[a · stride_a + b · stride_b]; made for stride_b = 1
  void (*load_transposed)(DType dtype, const void* source, std::int64_t stride_a, std::int64_t stride_b,
                          std::int64_t count_a, std::int64_t count_b, Compute* tile, std::int64_t tile_pitch);
  /// target[j] = row[j]
  void (*store)(DType dtype, const Compute* row, std::int64_t count, void* target);
  /// target[j] = row[j], past the caches: for targets too large to be found there again. The end of a row that
  /// does not fill a vector waits in `pending` for a row that continues it; end_stream() writes what still waits,
  /// and must be called before another thread may read the targets.
  void (*stream)(PendingStream<Compute>& pending, const Compute* row, std::int64_t count, Compute* target);
  void (*end_stream)(PendingStream<Compute>& pending);
  /// target[a · stride_a + b · stride_b] = tile[b · tile_pitch + a]; made for stride_b = 1
  void (*store_transposed)(DType dtype, const Compute* tile, std::int64_t tile_pitch, std::int64_t count_a,
                           std::int64_t count_b, void* target, std::int64_t stride_a, std::int64_t stride_b);
  /// target[i · target_pitch + j · step + r] = rows[r][i · source_pitch + j] for r < step and i < stack.rows
  void (*interleave)(const Compute* const* rows, std::int64_t step, std::int64_t count, Compute* target,
                     const Stack& stack);
  /// target[i · target_pitch + j] += source[i · source_pitch + j] for i < rows and j < count
  void (*add)(const Compute* source, std::int64_t source_pitch, std::int64_t rows, std::int64_t count,
              Compute* target, std::int64_t target_pitch);
  /// The sum of row[0 … count − 1]
  double (*sum)(const Compute* row, std::int64_t count);
};

template <class Compute>
const RowKernels<Compute>& row_kernels();

/// The instruction set in use, for people.
const char* instruction_set_name();

}  // namespace tconv::cpu
