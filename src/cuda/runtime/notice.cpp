#include "cuda/runtime/notice.hpp"

#include <cstdio>
#include <mutex>
#include <set>

namespace tconv::cuda {

void notice(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string>* said = new std::set<std::string>;  // may be asked for while the process exits
  const std::lock_guard lock(mutex);
  if (said->insert(text).second) std::fprintf(stderr, "tconv: %s\n", text.c_str());
}

}  // namespace tconv::cuda
