// PyTorch's thread pool as the executor of tconv's CPU engine, so that torch.set_num_threads() holds and
// no thread is started beside PyTorch's own.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "tconv/tconv.hpp"

namespace tconv::pytorch {

class TorchExecutor final : public Executor {
 public:
  int concurrency() const noexcept override {
    std::uint32_t threads = 1;
    return torch_get_num_threads(&threads) == TORCH_SUCCESS && threads > 0 ? static_cast<int>(threads) : 1;
  }

  void parallel_for(std::int64_t count, Task task) override {
    if (count == 1) return task(0);
    torch::stable::parallel_for(0, count, 1, [task](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) task(index);
    });
  }
};

}  // namespace tconv::pytorch
