// A layer as one Python file of its own: the kernels the engine would run, specialised and inlined, built by
// PyTorch, with a module around them. Nothing of tconv is needed to use it.
//
// The engine is asked for the kernels through the plans it makes for devices that are not here (targets.hpp), so
// that an exported file holds what the engine runs: on Hopper the kernels for wgmma, elsewhere the portable ones.
#pragma once

#include <string>
#include <vector>

#include "tconv/tconv.hpp"

namespace tconv::cuda {

/// The text of the file. See tconv::export_layer().
std::string export_layer(const Layer& layer, std::int64_t batch, const Extents& input,
                         const ExportOptions& options);

}  // namespace tconv::cuda
