#include "api/verbose.hpp"

#include <cstdio>
#include <cstdlib>

namespace tconv {
namespace {

/// "3x3" for a layer of two dimensions.
std::string joined(int dims, const Extents& extents) {
  std::string text = std::to_string(extents[0]);
  for (int d = 1; d < dims; ++d) text += "x" + std::to_string(extents[d]);
  return text;
}

}  // namespace

bool verbose() noexcept {
  static const bool asked = [] {
    const char* value = std::getenv("TCONV_VERBOSE");
    return value != nullptr && *value != '\0' && std::string(value) != "0";
  }();
  return asked;
}

std::string verbose_line(const VerboseRun& run) {
  const Layer& layer = run.layer;
  const int dims = layer.dims;
  std::string line = std::string("tconv,") + run.engine + "," + to_string(run.pass) + "," + run.kernel + "," +
                     to_string(layer.dtype) + "," + to_string(layer.layout) + ",";
  line += "n" + std::to_string(run.batch) + " g" + std::to_string(layer.groups) + " ci" +
          std::to_string(layer.in_channels) + " co" + std::to_string(layer.out_channels) + " k" +
          joined(dims, layer.kernel) + " s" + joined(dims, layer.stride) + " p" + joined(dims, layer.padding) +
          " d" + joined(dims, layer.dilation);
  return line + "," + joined(dims, run.input) + "->" + joined(dims, run.output);
}

void VerboseTimer::print(const VerboseRun& run) const {
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start_;
  // One call, so that lines of several threads do not mix.
  std::fprintf(stderr, "%s,%.4g ms\n", verbose_line(run).c_str(), elapsed.count());
}

}  // namespace tconv
