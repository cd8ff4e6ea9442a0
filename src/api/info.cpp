// What is here.
#include "api/engines.hpp"
#include "tconv/tconv.hpp"

#ifndef TCONV_VERSION
#define TCONV_VERSION "unknown"
#endif

namespace tconv {

SystemInfo system_info() {
  SystemInfo info;
  info.version = TCONV_VERSION;
  describe_engines(info);
  return info;
}

}  // namespace tconv
