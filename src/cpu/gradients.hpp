// Grad-weight and grad-bias: sums over all positions.
//
// Grad-weight is a matrix of dot products, rows (input channel) and columns (output channel, tap), over the
// positions of the input. Tiles of x and gy are laid out alike, gy one plane per phase, so that a column is
// a shift of a plane; grad_weight_blocks.hpp says how they are multiplied. Positions are cut into chunks; each
// chunk has partial sums of its own, and chunks are added in order: the result does not depend on the number of
// threads.
#pragma once

#include <memory>

#include "cpu/convolution.hpp"
#include "cpu/grad_weight_blocks.hpp"
#include "cpu/kernels/outer_product.hpp"
#include "cpu/operand.hpp"
#include "cpu/tile_io.hpp"
#include "cpu/tiling.hpp"
#include "cpu/workers.hpp"

namespace tconv::cpu {

class GradWeightBinding {
 public:
  /// `mirror` is the layer's grad_input_convolution: it has the planes of gy and what each tap reads of them.
  GradWeightBinding(const Convolution& mirror, DType dtype, const Shape& shape);

  std::size_t workspace_bytes(int workers) const;
  void run(const ConstTensor& x, const ConstTensor& gy, const Tensor& gw, const RunOptions& options,
           int workers) const;
  const Tiling& tiling() const { return tiling_; }
  bool outer() const { return blocks_.outer; }
  bool pairs() const { return pairs_; }

 private:
  template <class Compute>
  struct Scratch;
  template <class Compute>
  struct Partials;
  /// A tap of gy inside a tile.
  struct TileTap {
    std::int64_t plane;
    std::int64_t shift;
    bool meets;                   // any product of this shape uses it
    std::array<Range, 4> useful;  // positions of x at which gy is not padding, tile order
  };

  /// What of the channels an item computes.
  struct Channels {
    std::int64_t group;
    Span ins;   // within the group
    Span outs;  // within the group
  };

  template <class Compute>
  Scratch<Compute> scratch(Arena& arena) const;
  template <class Compute>
  std::size_t scratch_bytes() const;
  template <class Compute>
  void run_in(const ConstTensor& x, const ConstTensor& gy, const Tensor& gw, const RunOptions& options,
              int workers) const;
  template <class Compute>
  void run_item(const ConstTensor& x, const ConstTensor& gy, const Partials<Compute>& partials,
                const Scratch<Compute>& scratch, std::int64_t item) const;

  /// Sums of a chunk's tiles, written to `partial`.
  template <class Compute>
  void sum_dot_products(const ConstTensor& x, const ConstTensor& gy, const Channels& channels, Span tiles,
                        const Scratch<Compute>& scratch, Compute* partial) const;
  template <class Compute>
  void sum_outer_products(const ConstTensor& x, const ConstTensor& gy, const Channels& channels, Span tiles,
                          const Scratch<Compute>& scratch, Compute* partial) const;

  /// Loads channels [begin, end) of the group into [plane][channel][position]; x has one plane.
  template <class Compute>
  void load_x(const ConstTensor& x, const Box& box, std::int64_t group, Span channels, Compute* tile) const;
  template <class Compute>
  void load_g(const ConstTensor& gy, const Box& box, std::int64_t group, Span channels, Compute* tile,
              std::int64_t plane_pitch) const;
  template <class Compute>
  void multiply_dot(const Box& box, std::int64_t in_channels, std::int64_t out_channels, Compute* partial,
                    const Scratch<Compute>& scratch) const;
  template <class Compute>
  void load_outer(const ConstTensor& x, const ConstTensor& gy, const Channels& channels, const Box& box,
                  const Scratch<Compute>& scratch) const;
  /// The runs of a box in which a tap meets elements of gy, as the kernel takes them; returns how many.
  std::int64_t list_steps(const Box& box, const TileTap& tap, std::int64_t channel_stride, TapOffset* steps) const;
  /// Has positions of a loaded tile take the place of pairs of bf16 numbers, each with the one behind it.
  void join_positions(const Box& box, std::int64_t in_channels, std::int64_t out_channels,
                      const Scratch<float>& scratch) const;
  template <class Operand>
  void multiply_outer(const Box& box, std::int64_t in_channels, std::int64_t out_channels, bool first,
                      const Scratch<SumOf<Operand>>& scratch) const;

  /// Offsets of the runs of a box, the same in x and gy; returns how many.
  std::int64_t list_runs(const Box& box, std::int64_t* runs) const;
  std::int64_t items() const;
  std::int64_t weights() const;
  std::int64_t most_in() const { return blocks_.most_in(mirror_->row_channels); }
  std::int64_t most_out() const { return blocks_.most_out(mirror_->sum_channels); }
  std::int64_t planes() const { return std::int64_t(mirror_->planes.size()); }

  const Convolution* mirror_;
  bool wide_;
  bool pairs_ = false;  // outer products of bf16 numbers take two positions at a time
  GradWeightBlocks blocks_;
  Tiling tiling_;
  Tiling x_tiling_;  // the same, but x is read where it is, not where the taps read gy
  std::int64_t chunks_ = 1;
  std::int64_t channel_pitch_ = 0;  // of loaded tiles
  std::vector<TileTap> taps_;       // by kernel index
  double multiply_adds_ = 0;
};

class GradBiasBinding {
 public:
  GradBiasBinding(std::int64_t channels, DType dtype, const Shape& shape);
  std::size_t workspace_bytes(int workers) const;
  void run(const ConstTensor& gy, const Tensor& gb, const RunOptions& options, int workers) const;

 private:
  std::int64_t positions() const;    // of a sample
  std::int64_t buffer_size() const;  // of one worker, in doubles

  std::int64_t channels_;
  bool wide_;
  Shape shape_;
  std::int64_t spans_;  // of samples
  std::int64_t parts_;  // of a sample's positions
};

}  // namespace tconv::cpu
