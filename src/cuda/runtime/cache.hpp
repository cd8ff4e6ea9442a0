// Compiled code on disk, shared by all processes of a user.
//
// An entry is written to a name of its own and renamed into place, so readers see a whole file or none.
// It carries a checksum: a damaged entry reads as absent and is compiled again. Nothing here throws:
// a cache that cannot be used costs compile time, not correctness.
#pragma once

#include <optional>
#include <string>
#include <system_error>

namespace tconv::cuda {

/// TCONV_CACHE_DIR, else $XDG_CACHE_HOME/tconv, else ~/.cache/tconv; empty where there is none.
std::string cache_directory();
/// False where TCONV_CACHE_DIR is set and empty: nothing shall be kept.
bool cache_wanted();

/// 128 bits of a text, as 32 hexadecimal digits.
std::string digest(const std::string& text);

/// The entry of a key. One that is there but damaged is given up with a notice.
std::optional<std::string> read_cache(const std::string& key);

/// Why the entry could not be kept, if it could not.
std::error_code write_cache(const std::string& key, const std::string& content);

}  // namespace tconv::cuda
