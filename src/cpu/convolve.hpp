// Forward and grad-input: tiles of source through the outer-product kernels into tiles of sums.
#pragma once

#include <memory>
#include <optional>

#include "cpu/convolution.hpp"
#include "cpu/operand.hpp"
#include "cpu/packed_weight.hpp"
#include "cpu/tile_io.hpp"
#include "cpu/tiling.hpp"
#include "cpu/workers.hpp"

namespace tconv::cpu {

/// What a layer fixes.
struct ConvolutionPlan {
  Convolution conv;
  OperandKind operand;
  PackedWeight weight;
  PhaseSlots slots;

  ConvolutionPlan(Convolution convolution, DType dtype);
  ConvolutionPlan(const ConvolutionPlan&) = delete;

  std::size_t packed_bytes() const { return std::size_t(weight.elements() * operand_bytes(operand)); }
};

/// A tap inside a tile.
struct TileTap {
  std::int64_t source;          // offset into the widened tile
  std::int64_t index;           // among the taps of its class
  std::array<Range, 4> useful;  // q at which it meets real elements, tile order
};

/// What a shape fixes.
class ConvolutionBinding {
 public:
  ConvolutionBinding(const ConvolutionPlan& plan, std::int64_t batch, const Extents& source_size,
                     const Extents& target_size);

  std::size_t workspace_bytes(int workers, bool packs_weight) const;

  /// target = weight ∗ source (+ bias). `packed` is null, or holds the packed weight.
  void run(const ConstTensor& source, const ConstTensor& weight, const ConstTensor* bias, const Tensor& target,
           const void* packed, const RunOptions& options, int workers) const;

  const Tiling& tiling() const { return tiling_; }
  bool by_inputs() const { return inputs_.has_value(); }
  std::int64_t items() const;
  double multiply_adds() const { return multiply_adds_; }

 private:
  /// With few tiles, every worker packs the piece of weight it is about to use: the packed weight then never
  /// leaves its cache, where packing it all would send it to memory and back.
  bool packs_pieces() const { return tiling_.tile_count() <= 2; }

  template <class Operand>
  struct Scratch;
  template <class Operand>
  Scratch<Operand> scratch(Arena& arena, bool packs_weight) const;
  template <class Operand>
  std::size_t scratch_bytes(bool packs_weight) const;
  template <class Operand>
  void run_in(const ConstTensor& source, const ConstTensor& weight, const ConstTensor* bias, const Tensor& target,
              const void* packed, const RunOptions& options, int workers) const;
  template <class Operand>
  void run_item(const ConstTensor& source, const ConstTensor& weight, const Operand* packed,
                const SumOf<Operand>* bias, const Tensor& target, const Scratch<Operand>& scratch,
                std::int64_t item) const;
  /// Loads a block of sum channels of a tile into the tile of source.
  template <class Operand>
  void load(const ConstTensor& source, std::int64_t tile, std::int64_t group, Span sums,
            const Scratch<Operand>& scratch) const;
  template <class Operand>
  void multiply(std::size_t class_index, const Box& box, const Operand* packed, Span rows, Span sums, bool first,
                const Scratch<Operand>& scratch) const;

  template <class Operand>
  void multiply_by_inputs(std::size_t class_index, const Box& box, const Operand* packed, Span rows, Span sums,
                          const Scratch<Operand>& scratch) const;
  /// How the tile of source lies in memory.
  const Tiling& source_tiling() const { return inputs_ ? *inputs_ : tiling_; }

  const ConvolutionPlan* plan_;
  Tiling tiling_;
  std::optional<Tiling> inputs_;    // where products are by inputs
  std::int64_t channel_pitch_ = 0;  // of the source tile, [plane][channel][position]
  std::int64_t plane_pitch_ = 0;
  std::int64_t row_pitch_ = 0;              // of the sums
  std::vector<std::vector<TileTap>> taps_;  // [class][tap that meets something]
  double multiply_adds_ = 0;
  bool streaming_ = false;  // the target is written past the caches
};

/// Packs the weight with all workers. `packed` has packed_bytes().
void pack_weight(const ConvolutionPlan& plan, const ConstTensor& weight, void* packed, Executor* executor,
                 int workers);

}  // namespace tconv::cpu
