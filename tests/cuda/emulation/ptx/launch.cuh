// Emulated: kernels run one after the other.
#pragma once

namespace tconv::device::ptx {

inline void let_next_begin() {}
inline void wait_for_previous() {}
inline void leave_for_next() {}
inline void begin_after_previous() {}

}  // namespace tconv::device::ptx
