// Export, which only the CUDA engine has something to say to.
#include "cuda/export.hpp"

namespace tconv {

std::string export_layer(const Layer& layer, std::int64_t batch, const Extents& input,
                         const ExportOptions& options) {
  return cuda::export_layer(layer, batch, input, options);
}

}  // namespace tconv
