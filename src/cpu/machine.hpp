// What the engine needs to know of the processor.
#pragma once

#include <cstdint>

namespace tconv::cpu {

/// Obeys TCONV_MAX_CPU_ISA (avx512_bf16, avx512, avx2 or scalar): the kernels then use no newer instructions. Read
/// once, before the first kernel is chosen. Throws InvalidArgument if the variable says anything else.
void obey_isa_limit();

/// Whether the limit leaves AVX-512's instructions for bf16, which not every machine with AVX-512 has.
bool allows_avx512_bf16();

/// Bytes of second-level cache of one core; tiles are sized after it.
std::int64_t second_level_cache();

/// Bytes beyond which a tensor that was just written is not found in a cache again, for the most part.
std::int64_t streaming_bytes();

/// Processors of the machine, at least one. Tilings are cut for so many; results do not depend on it.
int processors();

}  // namespace tconv::cpu
