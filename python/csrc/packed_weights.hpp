// Packed weights that are kept from call to call.
//
// Whether a weight still holds what was packed is for its owner to say: modules hand out tickets
// (python/tconv/_packed.py), and a ticket stands for one weight with one content. What is kept here depends on
// the ticket, on the plan, which decides the order of packing, and on the stream: a packing is ready for what
// is launched on its own stream after it, and its memory goes back to PyTorch in the order of that stream.
#pragma once

#include <optional>

#include "tensor_view.hpp"

namespace tconv::pytorch {

struct PackingKey {
  std::int64_t plan = 0;
  void* stream = nullptr;  // also null throughout for tickets whose packings are ready for every stream

  bool operator==(const PackingKey&) const = default;
};

std::optional<TorchTensor> find_packed(std::int64_t ticket, const PackingKey& key);

/// Keeps a packing. Beyond `most` of one ticket the oldest makes room.
void keep_packed(std::int64_t ticket, const PackingKey& key, const TorchTensor& packed, std::size_t most);

}  // namespace tconv::pytorch

/// Lets go of all packings of a ticket and returns how many there were. Called from Python by its name.
extern "C" __attribute__((visibility("default"))) std::int64_t tconv_torch_forget_packed(std::int64_t ticket);
