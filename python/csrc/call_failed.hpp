// Failures that PyTorch has the better words for: memory that ran out, an operator of its own that failed.
//
// The Stable ABI tells that a call of PyTorch's has failed, not how: the type and the words of its error are
// lost on the way. python/tconv/_retry.py recognises this error by its words and asks PyTorch once more, from
// Python, where its own errors arrive whole.
#pragma once

#include <stdexcept>
#include <string>

namespace tconv::pytorch {

class CallFailed : public std::runtime_error {
 public:
  explicit CallFailed(const std::string& what) : std::runtime_error("tconv: the call failed: " + what) {}
};

}  // namespace tconv::pytorch
