// Layers as kernels see them that were made for others: with dimensions in another order, or outputs along the
// width as channels. A packing of the weights (heuristics/packing_plan.hpp) is for one view.
#pragma once

#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/kernels/launch_params.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

enum class View {
  plain,
  /// Of two dimensions, for the march kernel: the height is the depth of a layer whose height is 1, for it is
  /// along the depth that it marches.
  upright,
  /// Outputs along the width that lie side by side are channels of one position, as many as the stride (or fewer).
  /// What is left is a layer of stride 1 whose channels are the fastest index: with strides of 17 and more, whose
  /// phases are more than rows of a line, outputs are stored as those of channels-last layers are; and where
  /// channels are few, they become enough to fill vectors.
  channel_phases,
};

/// Whether a layer has more phases along the width than a line of the panel kernel has rows.
bool has_many_phases(const Geometry& geometry);
/// How outputs along the width become channels: of a layer that it pays for, or of any that it can be done for.
/// `count` is 1 for others.
device::ChannelPhases channel_phases_of(const Geometry& geometry, int element_bytes, bool any = false);

/// The layer, and a shape of it, in a view.
Geometry seen(View view, const Geometry& geometry, const device::ChannelPhases& phases);
Shape seen(View view, const Shape& shape, const device::ChannelPhases& phases);
/// How its memory looks; of channel phases for outputs whose rows are contiguous.
Access seen(View view, const Access& access, const Shape& shape, const device::ChannelPhases& phases);

/// Sizes of a call, and strides of its tensors where it has some.
device::ForwardParams forward_params(View view, const device::GemmConfig& config, const Shape& shape,
                                     const device::ImageStrides& xs = {}, const device::ImageStrides& ys = {});

}  // namespace tconv::cuda
