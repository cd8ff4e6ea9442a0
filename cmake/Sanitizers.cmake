# TCONV_SANITIZE: everything, the tests included, is built with the sanitizers named, and a report ends the
# program, so that a test cannot pass over one.
if(TCONV_SANITIZE)
  set(sanitizers "${TCONV_SANITIZE}")
  if(NOT sanitizers MATCHES "^(address|undefined|address,undefined|thread)$")
    message(FATAL_ERROR "TCONV_SANITIZE must be address, undefined, address,undefined or thread, got ${sanitizers}")
  endif()
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  # Instrumented code makes GCC see uninitialised values in its own headers.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${sanitizers})
endif()
