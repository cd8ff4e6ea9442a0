// NVRTC, opened at run time: from the loader path, a CUDA toolkit, or beside PyTorch's own CUDA packages.
#pragma once

#include <string>
#include <vector>

namespace tconv::cuda {

struct CompiledCode {
  std::string binary;  // cubin
  std::string log;     // what the compiler said, resource use included
};

/// "13.0", or empty where NVRTC was not found; `why_no_nvrtc()` then says why.
const std::string& nvrtc_version();
const std::string& why_no_nvrtc();

/// Compiles `source` for an architecture such as "sm_90a". The embedded device headers are at hand.
/// Throws a device error with the compiler's log.
CompiledCode nvrtc_compile(const std::string& source, const std::string& architecture);

/// The options every kernel is compiled with; part of the cache key.
std::vector<std::string> nvrtc_options(const std::string& architecture);

}  // namespace tconv::cuda
