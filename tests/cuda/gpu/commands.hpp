// The checks, one command each. They print what they find and return the number of failures.
#pragma once

#include <string>
#include <vector>

namespace tconv::cuda::check {

/// Every benchmark problem in every precision and layout, or those named: the whole output against float64, the
/// same bits in two runs, and the time of a run. GPU_CHECK_MODES, which sweeps and families heed as well, and
/// GPU_CHECK_LAYOUTS (first, last) name the ones to do.
int problems(const std::vector<std::string>& names);

/// Random layers against the oracle on the CPU, or such of few channels per group alone. GPU_CHECK_CASE names one
/// to do.
int sweep(int count, unsigned seed, bool few);

/// Small layers that touch every kernel family, for tools that make kernels slow. Fails if a family is not
/// touched.
/// All of them, or those that a preference asks for: one of the words that the next function prints.
int families(const std::string& only);

/// The preferences that families() knows, or the values of TCONV_PREFER_PANELS alone. Needs no GPU.
int print_preferences(bool panels);

/// First use, cached use and the use of many lengths of layers, each against its limit. `self` is this program.
int caching(const std::string& self);
/// What a process of `caching` does: uses a problem in a mode and prints how long that took, in ms.
int use(const std::string& name, const std::string& mode);

/// Times the tiles the cost model likes best, one line each with the model's price beside it.
int tune(const std::string& mode, int count, std::vector<std::string> names);

}  // namespace tconv::cuda::check
