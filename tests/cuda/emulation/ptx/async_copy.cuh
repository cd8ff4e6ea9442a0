// Emulated: copies complete at once.
#pragma once

#include "base.cuh"

namespace tconv::device::ptx {

/// Addresses of shared memory are offsets; the two arrays kernels declare never meet in one kernel.
inline unsigned char* shared_base(const void* pointer) {
  const auto at = static_cast<const unsigned char*>(pointer);
  return at >= memory && at < memory + sizeof memory ? memory : reinterpret_cast<unsigned char*>(shared);
}
inline unsigned char* shared_array = memory;
inline u32 shared_address(const void* pointer) {
  shared_array = shared_base(pointer);
  const auto offset = static_cast<const unsigned char*>(pointer) - shared_array;
  emulation::require(offset >= 0 && offset < i64(sizeof memory), "an address outside shared memory");
  return u32(offset);
}
inline unsigned char* shared_pointer(u32 address, u32 bytes) {
  emulation::require(address + bytes <= emulation::shared_bytes, "an access outside shared memory");
  return shared_array + address;
}

template <int Bytes>
inline void copy_async(u32 to, const void* from, bool valid) {
  emulation::require(to % Bytes == 0, "a copy to a misaligned address");
  unsigned char* const target = shared_pointer(to, Bytes);
  emulation::races::begins_copy(to, Bytes);
  emulation::require(!valid || reinterpret_cast<std::uintptr_t>(from) % Bytes == 0,
                     "a copy from a misaligned address");
  emulation::races::unrecorded([&] {
    if (valid)
      std::memcpy(target, from, Bytes);
    else
      std::memset(target, 0, Bytes);
  });
}
inline void commit_copies() { emulation::races::commits_copies(); }
template <int Pending>
inline void wait_copies() {
  emulation::races::waits_for_copies(Pending);
}

}  // namespace tconv::device::ptx
