// Packed weights and the slabs that are cut from them: fragments for the general kernel, rows for those of warpgroups.
#pragma once

#include "sizes/tile.cuh"

namespace tconv::device {

/// Octets of channel words in all, some of zeros where groups of them are packed together; a layer of at most four
/// words has one, with two steps in it.
constexpr int octets_of(const GemmConfig& c) {
  return round_up(ceil_div(c.group_in, 8 * channels_per_word(c)), c.octet_group);
}
constexpr int substeps_of(const GemmConfig& c) { return c.chunk_words >= 8 ? c.chunk_words / 8 : 1; }

// Fragments. A slab is `steps_per_slab` steps of each octet of channel words.
constexpr int row_tiles_of(const GemmConfig& c) { return c.warps_m * c.tiles_m; }
/// The A fragments of one octet and step.
constexpr int step_words(const GemmConfig& c) { return row_tiles_of(c) * warp_size * 4; }
constexpr int slab_words(const GemmConfig& c) { return substeps_of(c) * c.steps_per_slab * step_words(c); }
constexpr int weight_ring_words(const GemmConfig& c) {
  return c.resident_steps ? octets_of(c) * c.resident_steps * step_words(c) : c.stages * slab_words(c);
}

// Rows.
/// The weights of one octet and step: all rows of eight words.
constexpr int row_step_bytes(const GemmConfig& c) { return c.rows * 8 * 4; }
constexpr int row_slab_bytes(const GemmConfig& c) {
  return substeps_of(c) * c.steps_per_slab * weight_parts(c) * row_step_bytes(c);
}
// Packed weights of a row block are [octet / group][step][octet of the group], and slabs are cut from them: a copy of
// many bytes takes little more time than one of few. Places are counted in the weights of one octet and step.
/// Octets of a step that lie side by side in shared memory, and from which octet to the next group of them.
constexpr int slab_octets(const GemmConfig& c) {
  return c.resident_steps ? c.octet_group : min_of(c.octet_group, substeps_of(c));
}
constexpr int slab_place(const GemmConfig& c, int octet, int step) {
  const int side = slab_octets(c), steps = c.resident_steps ? c.resident_steps : c.steps_per_slab;
  return (octet / side * steps + step) * side + octet % side;
}
/// Copies that streamed weights of a chunk take for each of its steps.
constexpr double copies_per_step(const GemmConfig& c) {
  if (c.resident_steps) return 0;
  const int octets = substeps_of(c);
  return octets < c.octet_group ? 1.0 : double(octets / c.octet_group) / c.steps_per_slab;
}
/// Where the weights of a chunk begin that are there to stay.
constexpr int resident_place(const GemmConfig& c, int chunk) {
  const int octet = chunk * substeps_of(c);
  return octet / c.octet_group * c.octet_group * c.resident_steps + octet % c.octet_group;
}

/// Of the block, where weights are resident; of a team otherwise.
constexpr int resident_bytes(const GemmConfig& c) {
  return octets_of(c) * c.resident_steps * weight_parts(c) * row_step_bytes(c);
}
constexpr int weight_ring_bytes(const GemmConfig& c) { return c.resident_steps ? 0 : c.stages * row_slab_bytes(c); }

/// fp32: sums so short that the tensor core's truncation would be most of their error. Others are added in larger
/// parts, since each addition rounds.
constexpr bool short_sums(const GemmConfig& c) {
  const Int3 phases{min_of(c.stride.d, c.kernel.d), min_of(c.stride.h, c.kernel.h),
                    min_of(input_stride(c), c.kernel.w)};
  return octets_of(c) * volume(c.kernel) < 12 * volume(phases);
}

}  // namespace tconv::device
