# The kernels' sources become strings of the library: they are compiled at run time, on the user's machine.
file(GLOB_RECURSE TCONV_KERNELS CONFIGURE_DEPENDS src/cuda/kernels/*.cuh)
set(TCONV_DEVICE_SOURCES ${PROJECT_BINARY_DIR}/generated/device_sources.cpp)
add_custom_command(
  OUTPUT ${TCONV_DEVICE_SOURCES}
  COMMAND ${CMAKE_COMMAND} -DKERNELS=${PROJECT_SOURCE_DIR}/src/cuda/kernels -DOUTPUT=${TCONV_DEVICE_SOURCES} -P
          ${PROJECT_SOURCE_DIR}/cmake/EmbedKernels.cmake
  DEPENDS ${TCONV_KERNELS} ${PROJECT_SOURCE_DIR}/cmake/EmbedKernels.cmake
  COMMENT "Embedding the device sources"
  VERBATIM)
