// What the engine needs to know of the processor.
#pragma once

#include <cstdint>

namespace tconv::cpu {

/// Bytes of second-level cache of one core; tiles are sized after it.
std::int64_t second_level_cache();

}  // namespace tconv::cpu
