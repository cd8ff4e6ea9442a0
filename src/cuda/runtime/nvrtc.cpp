#include "cuda/runtime/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "cuda/runtime/device_sources.hpp"
#include "engine/environment.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

namespace fs = std::filesystem;

using nvrtcProgram = struct nvrtcProgram_st*;

struct Nvrtc {
  int (*version)(int*, int*);
  const char* (*error_string)(int);
  int (*create)(nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(nvrtcProgram*);
  int (*compile)(nvrtcProgram, int, const char* const*);
  int (*log_size)(nvrtcProgram, std::size_t*);
  int (*log)(nvrtcProgram, char*);
  int (*cubin_size)(nvrtcProgram, std::size_t*);
  int (*cubin)(nvrtcProgram, char*);
  int (*architecture_count)(int*);
  int (*architectures)(int*);
};

struct Found {
  std::unique_ptr<Nvrtc> nvrtc;
  std::string version;
  std::string missing;
};

/// Directories that may hold libnvrtc, nearest first.
std::vector<fs::path> candidate_directories() {
  std::vector<fs::path> directories;
  const auto add = [&](const fs::path& path) {
    std::error_code error;
    if (!path.empty() && fs::is_directory(path, error) &&
        std::find(directories.begin(), directories.end(), path) == directories.end())
      directories.push_back(path);
  };
  const auto add_nvidia_packages = [&](const fs::path& site) {
    std::error_code error;
    for (const auto& package : fs::directory_iterator(site / "nvidia", error)) add(package.path() / "lib");
  };
  if (const char* place = setting("TCONV_NVRTC_PATH")) {
    add(place);
    add(fs::path(place) / "lib64");
    add_nvidia_packages(place);
    return directories;
  }
  // Libraries of PyTorch's CUDA packages that are loaded already, and the packages beside them.
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> seen;
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash == std::string::npos || line.find(".so") == std::string::npos) continue;
    const fs::path library = line.substr(slash);
    if (!seen.insert(library.parent_path().string()).second) continue;
    for (fs::path at = library.parent_path(); at.has_relative_path(); at = at.parent_path())
      if (at.filename() == "site-packages" || at.filename() == "dist-packages") add_nvidia_packages(at);
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = setting(variable)) add(fs::path(home) / "lib64");
  add("/usr/local/cuda/lib64");
  return directories;
}

/// The newest libnvrtc of a directory, with its builtins loaded first: NVRTC looks for them by name.
void* open_in(const fs::path& directory) {
  std::vector<fs::path> libraries, builtins;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(directory, error)) {
    const std::string name = file.path().filename().string();
    if (name.find(".alt.") != std::string::npos) continue;
    if (name.starts_with("libnvrtc.so")) libraries.push_back(file.path());
    if (name.starts_with("libnvrtc-builtins.so")) builtins.push_back(file.path());
  }
  std::sort(libraries.rbegin(), libraries.rend());
  for (const fs::path& b : builtins) dlopen(b.c_str(), RTLD_NOW | RTLD_GLOBAL);
  for (const fs::path& library : libraries)
    if (void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  return nullptr;
}

void* open_library() {
  if (!setting("TCONV_NVRTC_PATH"))
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
      if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  for (const fs::path& directory : candidate_directories())
    if (void* handle = open_in(directory)) return handle;
  return nullptr;
}

Found open_nvrtc() {
  void* library = open_library();
  if (!library) {
    if (const char* place = setting("TCONV_NVRTC_PATH"))
      return {nullptr, "", std::string("NVRTC was not found in ") + place + ", where TCONV_NVRTC_PATH points"};
    return {nullptr, "",
            "NVRTC was not found: install a CUDA toolkit or the Python package nvidia-cuda-nvrtc, or set "
            "TCONV_NVRTC_PATH to the directory of libnvrtc.so"};
  }
  auto n = std::make_unique<Nvrtc>();
  bool complete = true;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function;
  };
  load(n->version, "nvrtcVersion");
  load(n->error_string, "nvrtcGetErrorString");
  load(n->create, "nvrtcCreateProgram");
  load(n->destroy, "nvrtcDestroyProgram");
  load(n->compile, "nvrtcCompileProgram");
  load(n->log_size, "nvrtcGetProgramLogSize");
  load(n->log, "nvrtcGetProgramLog");
  load(n->cubin_size, "nvrtcGetCUBINSize");
  load(n->cubin, "nvrtcGetCUBIN");
  load(n->architecture_count, "nvrtcGetNumSupportedArchs");
  load(n->architectures, "nvrtcGetSupportedArchs");
  int major = 0, minor = 0;
  if (!complete || n->version(&major, &minor) != 0 || major < 12)
    return {nullptr, "", "the NVRTC found is older than 12.0, which tconv needs"};
  return {std::move(n), std::to_string(major) + "." + std::to_string(minor), ""};
}

/// Throws where this NVRTC is older than the architecture.
void check_architecture(const Nvrtc& n, const std::string& architecture, const std::string& version) {
  int count = 0;
  std::vector<int> known;
  if (n.architecture_count(&count) == 0 && count > 0) {
    known.resize(std::size_t(count));
    n.architectures(known.data());
  }
  const std::size_t digits = std::string("sm_").size();
  const int wanted = architecture.size() > digits ? std::atoi(architecture.c_str() + digits) : 0;
  if (std::find(known.begin(), known.end(), wanted) == known.end())
    throw Unsupported("NVRTC " + version + " cannot compile for " + architecture + ": another version is needed");
}

const Found& found() {
  // Never destroyed: other threads may still compile while the process exits.
  static const Found* const result = new Found(open_nvrtc());
  return *result;
}

}  // namespace

const std::string& nvrtc_version() {
  return found().version;
}
const std::string& why_no_nvrtc() {
  return found().missing;
}

std::vector<std::string> nvrtc_options(const std::string& architecture) {
  return {"--gpu-architecture=" + architecture, "--std=c++20", "--device-as-default-execution-space",
          "--ptxas-options=-v"};
}

CompiledCode nvrtc_compile(const std::string& source, const std::string& architecture) {
  if (!found().nvrtc) throw Unsupported(why_no_nvrtc());
  const Nvrtc& n = *found().nvrtc;
  check_architecture(n, architecture, found().version);
  std::vector<const char*> names, contents;
  for (const DeviceSource& file : device_sources()) names.push_back(file.name), contents.push_back(file.text);

  nvrtcProgram program = nullptr;
  const auto check = [&](int result, const char* what, const std::string& log = "") {
    if (result == 0) return;
    if (program) n.destroy(&program);
    throw Error(ErrorCode::device_error,
                std::string(what) + " failed: " + n.error_string(result) + (log.empty() ? "" : "\n" + log));
  };
  check(n.create(&program, source.c_str(), "tconv_kernel.cu", int(names.size()), contents.data(), names.data()),
        "nvrtcCreateProgram");
  const std::vector<std::string> options = nvrtc_options(architecture);
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const int result = n.compile(program, int(arguments.size()), arguments.data());
  CompiledCode code;
  std::size_t size = 0;
  if (n.log_size(program, &size) == 0 && size > 1) {
    code.log.resize(size);
    n.log(program, code.log.data());
    code.log.resize(size - 1);
  }
  check(result, "compiling a kernel", code.log);
  check(n.cubin_size(program, &size), "nvrtcGetCUBINSize");
  code.binary.resize(size);
  check(n.cubin(program, code.binary.data()), "nvrtcGetCUBIN");
  n.destroy(&program);
  return code;
}

}  // namespace tconv::cuda
