// The CUDA engine on a GPU: is it right, everywhere, and does it load in time. `make test-gpu` runs it all.
//
// The float64 result of large problems comes from the generic kernel in double, which the sweep holds against the
// oracle on the CPU. Exit status 1 if anything is off, 2 if nothing could be checked, as without a GPU.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cuda/runtime/driver.hpp"
#include "gpu/commands.hpp"
#include "gpu/device_tools.hpp"

namespace {

constexpr const char* usage =
    "usage: gpu_check problems [NAME...]        every problem, precision and layout against float64\n"
    "       gpu_check sweep COUNT SEED [few]    random layers against the oracle; few: of few channels per group\n"
    "       gpu_check families [PREFERENCE]     small layers that touch every kernel family\n"
    "       gpu_check preferences [panels]      what families can be asked for; the values of "
    "TCONV_PREFER_PANELS\n"
    "       gpu_check caching                   first use, cached use, many lengths\n"
    "       gpu_check tune MODE COUNT [last] [NAME... | file PATH | random LAYERS SEED]\n"
    "                                           times of the tiles the cost model likes best\n";

}  // namespace

int main(int argc, char** argv) {
  using namespace tconv::cuda;
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::string command = words.empty() ? "" : words[0];
    if (command == "preferences" && (words.size() == 1 || (words.size() == 2 && words[1] == "panels")))
      return check::print_preferences(words.size() == 2);
    const ContextScope context(check::gpu());
    const auto rest = [&](std::size_t from) {
      return std::vector<std::string>(words.begin() + std::ptrdiff_t(from), words.end());
    };
    int failures = -1;
    if (command == "problems") failures = check::problems(rest(1));
    if (command == "sweep" && (words.size() == 3 || (words.size() == 4 && words[3] == "few")))
      failures =
          check::sweep(std::atoi(words[1].c_str()), unsigned(std::atoi(words[2].c_str())), words.size() == 4);
    if (command == "families" && words.size() <= 2) failures = check::families(words.size() == 2 ? words[1] : "");
    if (command == "caching" && words.size() == 1) failures = check::caching(argv[0]);
    if (command == "use" && words.size() == 3) failures = check::use(words[1], words[2]);
    if (command == "tune" && words.size() >= 3)
      failures = check::tune(words[1], std::atoi(words[2].c_str()), rest(3));
    if (failures >= 0) return failures > 0;
    std::fputs(usage, stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_check: %s\n", error.what());
  }
  return 2;
}
