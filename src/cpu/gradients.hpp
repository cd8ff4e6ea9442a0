// Grad-weight and grad-bias: sums over all positions.
//
// Grad-weight is a matrix of dot products, rows (input channel) and columns (output channel, tap), over the
// positions of the input. Tiles of x and gy are laid out alike, gy one plane per phase, so that a column is
// a shift of a plane. Positions are cut into chunks; each chunk has partial sums of its own, and chunks are
// added in order: the result does not depend on the number of threads.
#pragma once

#include <memory>

#include "cpu/convolution.hpp"
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
  bool outer() const { return outer_; }

 private:
  template <class Compute>
  struct Scratch;
  template <class Compute>
  struct Partials;
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
  template <class Compute>
  void multiply(const Box& box, std::int64_t in_channels, std::int64_t out_channels, Compute* partial,
                const Scratch<Compute>& scratch) const;

  /// The same through outer products, into scratch.sums.
  template <class Compute>
  void multiply_outer(const Box& box, std::int64_t in_channels, std::int64_t out_channels,
                      const Scratch<Compute>& scratch) const;

  /// Offsets of the runs of a box, the same in x and gy; returns how many.
  std::int64_t list_runs(const Box& box, std::int64_t* runs) const;
  std::int64_t items() const;
  std::int64_t weights() const;
  std::int64_t g_rows_elements() const {
    return std::int64_t(mirror_->planes.size()) * tiling_.plane_elements * out_pitch_;
  }
  std::int64_t sums_elements() const {
    return std::int64_t(tap_offset_.size()) * ((mirror_->row_channels + in_blocks_ - 1) / in_blocks_) * out_pitch_;
  }

  const Convolution* mirror_;
  bool wide_;
  Tiling tiling_;
  Tiling x_tiling_;  // the same, but x is read where it is, not where the taps read gy
  std::int64_t in_blocks_ = 1;
  std::int64_t out_blocks_ = 1;
  std::int64_t chunks_ = 1;
  bool outer_ = false;                    // outer products rather than dot products
  std::int64_t out_pitch_ = 0;            // of the tiles of outer products
  std::int64_t x_pitch_ = 0;              // between channels of the x tile
  std::int64_t g_pitch_ = 0;              // between channels of the gy tile
  std::vector<std::int64_t> tap_offset_;  // [tap]: into the gy tile
  std::vector<bool> tap_meets_;           // [tap]: whether any product of this shape uses it
  double multiply_adds_ = 0;
};

class GradBiasBinding {
 public:
  GradBiasBinding(std::int64_t channels, DType dtype, const Shape& shape);
  std::size_t workspace_bytes(int workers) const;
  void run(const ConstTensor& gy, const Tensor& gb, const RunOptions& options, int workers) const;

 private:
  std::int64_t buffer_size() const;  // of one worker, in doubles

  std::int64_t channels_;
  bool wide_;
  Shape shape_;
  std::int64_t parts_;  // of a sample's rows
};

}  // namespace tconv::cpu
