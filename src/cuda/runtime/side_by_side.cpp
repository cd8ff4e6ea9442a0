#include "cuda/runtime/side_by_side.hpp"

#include <vector>

namespace tconv::cuda {

std::future<void> in_a_thread(const Work& work) {
  return std::async(std::launch::async, work);
}

void side_by_side(std::size_t count, const std::function<void(std::size_t)>& work,
                  const std::function<std::future<void>(const Work&)>& begin) {
  std::vector<std::future<void>> threads(count);
  for (std::size_t i = 0; i < count; ++i) {
    try {
      threads[i] = begin([&work, i] { work(i); });
    } catch (...) {  // a limit on threads or on memory
      work(i);
    }
  }
  for (const std::future<void>& thread : threads)
    if (thread.valid()) thread.wait();
}

}  // namespace tconv::cuda
