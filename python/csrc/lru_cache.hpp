// A bounded map from integers to values that many threads may use at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace tconv::pytorch {

/// A key is everything a value depends on, written down as integers. It lives on the stack: looking
/// something up allocates nothing.
class IntegerKey {
 public:
  void add(std::int64_t value) {
    if (count_ == values_.size()) throw std::length_error("tconv: an operator's arguments do not fit a key");
    values_[count_++] = value;
  }

  std::size_t hash() const noexcept {
    std::uint64_t hash = 0x9e3779b97f4a7c15u;
    for (std::size_t i = 0; i < count_; ++i)
      hash = (hash ^ (hash >> 29) ^ static_cast<std::uint64_t>(values_[i])) * 0xff51afd7ed558ccdu;
    return hash ^ (hash >> 32);
  }

  bool operator==(const IntegerKey& other) const noexcept {
    return count_ == other.count_ && std::equal(values_.begin(), values_.begin() + count_, other.values_.begin());
  }

 private:
  std::array<std::int64_t, 64> values_;  // only the first count_ are set
  std::size_t count_ = 0;
};

/// Forgets what was used longest ago. Values are returned by copy: they should be cheap to copy.
template <class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  /// The value kept for `key`, made by `make()` where there is none. Two threads may make the same value
  /// at the same time: `make` runs outside the lock, so a slow one holds up nobody.
  template <class Make>
  Value get(const IntegerKey& key, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = index_.find(key); found != index_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->value;
      }
    }
    Value value = make();
    std::list<Entry> fresh;  // what may fail, fails before anything is kept
    fresh.push_front({nullptr, value});
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = index_.try_emplace(key, fresh.begin());
    if (is_new) {
      fresh.front().key = &place->first;
      entries_.splice(entries_.begin(), fresh);
      if (entries_.size() > capacity_) {
        index_.erase(index_.find(*entries_.back().key));
        entries_.pop_back();
      }
    }
    return value;
  }

 private:
  struct Entry {
    const IntegerKey* key;  // in the index, which does not move its keys
    Value value;
  };
  struct Hash {
    std::size_t operator()(const IntegerKey& key) const noexcept { return key.hash(); }
  };

  std::size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<IntegerKey, typename std::list<Entry>::iterator, Hash> index_;
};

}  // namespace tconv::pytorch
