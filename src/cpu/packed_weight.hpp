// Weights in the order the outer-product kernels read them.
//
// Rows of the matrix product are (phase, row channel). They are cut into blocks of row channels, all phases
// of a channel in one block; a block's rows of one class are cut into panels of as many rows as a kernel
// has registers for; sums over channels are cut into blocks that keep a tile of source in the cache:
//
//   [group][row block][sum block][class][panel][tap][sum channel][row of the panel]
//
// Every weight appears exactly once, so a packed weight is as large as the weight, and every offset follows
// from counting. Nothing here depends on batch or length: one packing serves all shapes. Where operands are pairs
// of channels, "sum channel" is a pair everywhere below.
#pragma once

#include <cstdint>

#include "cpu/convolution.hpp"

namespace tconv::cpu {

/// A half-open range of channels or rows.
struct Span {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

/// Part `index` of `total` things cut into `parts` nearly equal pieces.
inline Span piece(std::int64_t total, std::int64_t parts, std::int64_t index) {
  return {total * index / parts, total * (index + 1) / parts};
}

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0);  // a + b may not fit: strides are whatever the caller likes
}
inline std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

class PackedWeight {
 public:
  /// `panel_rows`: rows of the largest kernel. `cache_bytes`: a second-level cache. `element_bytes`: of an
  /// operand, which holds `operand_channels`.
  PackedWeight(const Convolution& conv, int panel_rows, std::int64_t cache_bytes, std::int64_t element_bytes,
               int operand_channels = 1);

  std::int64_t row_blocks() const { return row_blocks_; }
  Span row_block(std::int64_t index) const { return piece(conv_->row_channels, row_blocks_, index); }
  std::int64_t largest_row_block() const { return ceil_div(conv_->row_channels, row_blocks_); }
  std::int64_t sum_blocks() const { return sum_blocks_; }
  Span sum_block(std::int64_t index) const { return piece(sum_channels_, sum_blocks_, index); }
  std::int64_t largest_sum_block() const { return ceil_div(sum_channels_, sum_blocks_); }
  std::int64_t sum_channels() const { return sum_channels_; }

  std::int64_t panels(std::int64_t rows) const { return ceil_div(rows, panel_rows_); }
  Span panel(std::int64_t rows, std::int64_t index) const { return piece(rows, panels(rows), index); }

  /// Elements from the start of the packing to a piece [group][row block][sum block], and from the start of a
  /// piece to a class.
  std::int64_t piece_offset(std::int64_t group, std::int64_t row_block, std::int64_t sum_block) const;
  std::int64_t class_offset(std::int64_t row_block, std::int64_t sum_block, std::size_t class_index) const;
  std::int64_t elements() const;
  std::int64_t largest_piece() const { return largest_row_block() * largest_sum_block() * conv_->tap_count(); }

 private:
  const Convolution* conv_;
  int panel_rows_;
  std::int64_t sum_channels_;
  std::int64_t row_blocks_;
  std::int64_t sum_blocks_;
};

/// Packs one piece of a canonical weight [in, out / groups, k…].
template <class Operand>
void pack_piece(const Convolution& conv, const PackedWeight& layout, const ConstTensor& weight, std::int64_t group,
                std::int64_t row_block, std::int64_t sum_block, Operand* packed);

}  // namespace tconv::cpu
