// The pool that serves runs whose caller brought no executor of its own.
#pragma once

#include "tconv/tconv.hpp"

namespace tconv {

/// The threads the default pool has: TCONV_NUM_THREADS, or the CPUs this process may use. Does not start it.
int default_pool_threads();

/// The process-wide pool, started at its first use and never stopped.
Executor& default_pool();

}  // namespace tconv
