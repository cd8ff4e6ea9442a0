// A line on stderr for trouble that costs time and not correctness: said once, then kept quiet about.
#pragma once

#include <string>

namespace tconv::cuda {

/// Prints "tconv: text", unless the process has said so before.
void notice(const std::string& text);

}  // namespace tconv::cuda
