#include "packed_weights.hpp"

#include <deque>
#include <mutex>
#include <unordered_map>

namespace tconv::pytorch {
namespace {

struct Packing {
  PackingKey key;
  TorchTensor packed;
};

struct Store {
  std::mutex mutex;
  std::unordered_map<std::int64_t, std::deque<Packing>> by_ticket;
};

Store& store() {
  static auto& instance = *new Store;  // never destroyed: PyTorch's allocator may go first
  return instance;
}

}  // namespace

std::optional<TorchTensor> find_packed(std::int64_t ticket, const PackingKey& key) {
  const std::lock_guard lock(store().mutex);
  const auto found = store().by_ticket.find(ticket);
  if (found == store().by_ticket.end()) return std::nullopt;
  for (const Packing& packing : found->second)
    if (packing.key == key) return packing.packed;
  return std::nullopt;
}

void keep_packed(std::int64_t ticket, const PackingKey& key, const TorchTensor& packed, std::size_t most) {
  std::optional<Packing> oldest;  // returns its memory after the lock
  const std::lock_guard lock(store().mutex);
  auto& packings = store().by_ticket[ticket];
  packings.push_back({key, packed});
  if (packings.size() > most) {
    oldest = std::move(packings.front());
    packings.pop_front();
  }
}

}  // namespace tconv::pytorch

std::int64_t tconv_torch_forget_packed(std::int64_t ticket) {
  using namespace tconv::pytorch;
  std::deque<Packing> packings;  // return their memory after the lock
  const std::lock_guard lock(store().mutex);
  const auto found = store().by_ticket.find(ticket);
  if (found == store().by_ticket.end()) return 0;
  packings = std::move(found->second);
  store().by_ticket.erase(found);
  return static_cast<std::int64_t>(packings.size());
}
