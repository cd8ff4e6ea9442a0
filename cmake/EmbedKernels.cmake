# Turns every device source into a string of the library: kernels are compiled at run time, by NVRTC.
# Run as a script with -DKERNELS=<directory> -DOUTPUT=<file>.
file(GLOB_RECURSE files RELATIVE ${KERNELS} ${KERNELS}/*.cuh)
list(SORT files)
set(entries "")
foreach(file IN LISTS files)
  file(READ ${KERNELS}/${file} text)
  string(APPEND entries "      {\"${file}\", R\"tconv_source(${text})tconv_source\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new
     "// Generated from the device sources by cmake/EmbedKernels.cmake.
#include \"cuda/runtime/device_sources.hpp\"

namespace tconv::cuda {

const std::vector<DeviceSource>& device_sources() {
  static const std::vector<DeviceSource> sources = {
${entries}  };
  return sources;
}

}  // namespace tconv::cuda
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
