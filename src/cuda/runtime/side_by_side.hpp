// Work done side by side, in threads where there are any to be had.
#pragma once

#include <cstddef>
#include <functional>
#include <future>

namespace tconv::cuda {

using Work = std::function<void()>;

/// Begins work in a thread of its own; throws where the system gives none.
std::future<void> in_a_thread(const Work& work);

/// Calls work(0) … work(count − 1), each once, and returns when all have returned. Those that no thread is to be
/// had for are called here. None may throw.
void side_by_side(std::size_t count, const std::function<void(std::size_t)>& work,
                  const std::function<std::future<void>(const Work&)>& begin = in_a_thread);

}  // namespace tconv::cuda
