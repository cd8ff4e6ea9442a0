#include "api/verbose.hpp"

#include <cstdio>

#include "engine/environment.hpp"

namespace tconv {
namespace {

/// "3x3" for a layer of two dimensions.
std::string joined(int dims, const Extents& extents) {
  std::string text = std::to_string(extents[0]);
  for (int d = 1; d < dims; ++d) text.append("x").append(std::to_string(extents[d]));
  return text;
}

}  // namespace

bool verbose() noexcept {
  static const bool asked = is_on("TCONV_VERBOSE");
  return asked;
}

std::string verbose_line(const VerboseRun& run) {
  const Layer& layer = run.layer;
  const int dims = layer.dims;
  std::string line = "tconv";
  for (const std::string& field : {std::string(run.engine), std::string(to_string(run.pass)), run.kernel,
                                   std::string(to_string(layer.dtype)), std::string(to_string(layer.layout))})
    line.append(",").append(field);
  line.append(",n").append(std::to_string(run.batch));
  line.append(" g").append(std::to_string(layer.groups));
  line.append(" ci").append(std::to_string(layer.in_channels));
  line.append(" co").append(std::to_string(layer.out_channels));
  line.append(" k").append(joined(dims, layer.kernel));
  line.append(" s").append(joined(dims, layer.stride));
  line.append(" p").append(joined(dims, layer.padding));
  line.append(" d").append(joined(dims, layer.dilation));
  return line.append(",").append(joined(dims, run.input)).append("->").append(joined(dims, run.output));
}

void VerboseTimer::print(const VerboseRun& run) const {
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start_;
  // One call, so that lines of several threads do not mix.
  std::fprintf(stderr, "%s,%.4g ms\n", verbose_line(run).c_str(), elapsed.count());
}

}  // namespace tconv
