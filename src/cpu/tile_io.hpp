// Moving boxes of positions between tensors of any strides and dtype and tiles of the compute type.
#pragma once

#include <span>

#include "cpu/convolution.hpp"
#include "cpu/kernels/rows.hpp"
#include "cpu/packed_weight.hpp"
#include "cpu/tiling.hpp"
#include "layer/phases.hpp"

namespace tconv::cpu {

inline std::int64_t magnitude(std::int64_t stride) {
  return stride < 0 ? -stride : stride;
}

/// Elements of a tensor from one q to the next. Zero where no two positions of the dimension are `step` apart:
/// nothing is ever multiplied with it then, and a huge step does not overflow.
inline std::int64_t stepped_stride(std::int64_t step, std::int64_t size, std::int64_t stride) {
  return step < size ? step * stride : 0;
}

/// A tensor seen through the grid of one plane: position = q·step + r − padding in each spatial dimension.
struct PlaneView {
  const ConstTensor* tensor;
  const Stepping* stepping;
  Extents r;
};

/// The q at which a plane meets real elements, in tensor order (batch first).
std::array<Range, 4> plane_ranges(const PlaneView& view);

/// Which positions of a widened box are loaded; the others become zero.
enum class Fill { widened, box_only };

/// Loads channels [first_channel, first_channel + channels) of a plane for the box widened by the reach of the
/// taps, from q0 = begin + lowest offset. What lies outside the tensor becomes zero.
///
///   tile[channel · channel_pitch + Σ (q − q0) · pitch]
template <class Compute>
void load_plane(const PlaneView& view, const Tiling& tiling, const Box& box, Fill fill, std::int64_t first_channel,
                std::int64_t channels, Compute* tile, std::int64_t channel_pitch);

/// Loads all planes of a stepping, plane i at tile + i · plane_pitch. Planes that share their rows are separated
/// in one pass over them.
template <class Compute>
void load_planes(const ConstTensor& tensor, const Stepping& stepping, const std::vector<Extents>& planes,
                 const Tiling& tiling, const Box& box, std::int64_t first_channel, std::int64_t channels,
                 Compute* tile, std::int64_t plane_pitch, std::int64_t channel_pitch);

/// Channels that lie side by side in blocks of a tile, block after block, each [plane][position][channel]: `units`
/// of so many channels are cut into `blocks` nearly equal pieces.
template <class Compute>
struct ChannelBlocks {
  std::int64_t first_channel;
  std::int64_t channels;
  std::int64_t unit;
  std::int64_t blocks;
  Compute* tile;

  Span units(std::int64_t block) const { return piece(ceil_div(channels, unit), blocks, block); }
};

/// Loads all planes of a stepping with the channels of a position side by side, as for load_planes otherwise:
///
///   block[(plane · plane_elements + Σ (q − q0) · pitch) · channels of the block + channel]
template <class Compute>
void load_positions(const ConstTensor& tensor, const Stepping& stepping, std::span<const Extents> planes,
                    const Tiling& tiling, const Box& box, Fill fill, const ChannelBlocks<Compute>& target);

/// Sums of one box on their way to the target: where the row of (phase, channel) lies.
template <class Compute>
struct SumTile {
  const Compute* sums;
  std::int64_t row_pitch;
  std::int64_t channels;  // row = phase slot · channels + channel
  const Compute* bias;    // [channel], or null for zeros
  Compute* row_buffer;    // row_buffer_elements()
  bool streaming;         // the target is too large to be found in a cache again
};

/// Where the phases of a convolution lie among the sums, by the per-dimension index of r.
class PhaseSlots {
 public:
  explicit PhaseSlots(const Convolution& conv);
  /// Ascending values of r that have taps in dimension d.
  const std::vector<std::int64_t>& r(int d) const { return r_[d]; }
  /// Index into r(d), or −1 where r has no taps.
  int index(int d, std::int64_t r) const;
  std::int64_t slot(int depth, int height, int width) const {
    return slots_[(std::size_t(depth) * r_[1].size() + std::size_t(height)) * r_[2].size() + std::size_t(width)];
  }

 private:
  std::array<std::vector<std::int64_t>, 3> r_;
  std::vector<std::int64_t> slots_;
};

/// Writes every target element the box owns, [begin·step − padding, (begin + extent)·step − padding) clipped to
/// the tensor, phases without taps as bias.
template <class Compute>
void store_box(const SumTile<Compute>& tile, const PhaseSlots& slots, const Stepping& stepping,
               const Tiling& tiling, const Box& box, std::int64_t first_channel, const Tensor& target);

/// Elements SumTile::row_buffer needs.
std::int64_t row_buffer_elements(const Stepping& stepping, const Tiling& tiling);

}  // namespace tconv::cpu
