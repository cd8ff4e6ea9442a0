#include "emulated/emulator.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>

#include "cuda/runtime/cache.hpp"
#include "cuda/runtime/device_sources.hpp"

namespace tconv::cuda::emulated {
namespace {

int emulators = 0;  // of this process

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

/// A generated kernel as the CPU's compiler can take it.
std::string emulated_source(std::string source, const std::string& entry, int shared_bytes) {
  // The one instruction that is written out in the source.
  if (const auto begin = source.find("struct Wgmma {"); begin != std::string::npos) {
    const auto end = source.find("\n};\n", begin) + 4;
    source.replace(begin, end - begin,
                   source.find("march_gemm.cuh") != std::string::npos
                       ? "using Wgmma = EmulatedMarchWgmma<config.rows, config.math>;\n"
                       : "using Wgmma = EmulatedWgmma<config.panel_columns ? config.panel_columns : config.rows, "
                         "config.math,\n"
                         "                            (config.panel_columns > 0)>;\n");
  }
  std::smatch params;
  std::regex_search(source, params, std::regex("__grid_constant__ (\\w+) params"));
  const bool clusters = source.find("__cluster_dims__") != std::string::npos;
  const std::string run = clusters ? "run_cluster(block, cluster, blocks, threads, tconv::device::memory"
                                   : "run_block(block, blocks, threads";
  return "#include \"emulate.hpp\"\n" + source +
         "\nextern \"C\" void emulated_launch(unsigned blocks, unsigned threads, " +
         "const void* params) {\n  const auto& p = *static_cast<const tconv::device::" + params[1].str() +
         "*>(params);\n  emulation::shared_bytes = " + std::to_string(shared_bytes) +
         ";\n  emulation::races::memory_is_at(tconv::device::memory, tconv::device::shared, sizeof "
         "tconv::device::memory);\n" +
         "  const unsigned cluster = " + (clusters ? "tconv::device::config.depth_splits" : "1") +
         ";\n  emulation::require(blocks % cluster == 0, \"a cluster that is not whole\");\n" +
         "  for (unsigned block = 0; block < blocks; block += cluster) {\n    "
         "tconv::device::spoil_shared_memory();\n" +
         "    emulation::" + run + ", [&] { tconv::device::" + entry + "(p); });\n  }\n}\n";
}

}  // namespace

// Libraries stay loaded, and are known by their names: every emulator has a folder of its own.
Emulator::Emulator()
    : folder_(std::filesystem::temp_directory_path() /
              ("tconv-emulation-" + std::to_string(getpid()) + "-" + std::to_string(emulators++))) {
  for (const DeviceSource& file : device_sources()) write(folder_ / file.name, file.text);
  // The emulation's own files stand in for those of the same name.
  std::filesystem::copy(
      TCONV_EMULATION_SOURCES, folder_,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::set<std::filesystem::path> files;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder_))
    if (file.is_regular_file()) files.insert(file.path());
  for (const auto& file : files) sources_ += file.lexically_relative(folder_).string() + '\n' + read(file);
}

Emulator::~Emulator() {
  std::filesystem::remove_all(folder_);
}

void Emulator::launch(const KernelRequest& request, unsigned blocks, unsigned threads, const void* params) {
  ++launched[request.entry];
  compiled(request)(blocks, threads, params);
}

Emulator::Launch Emulator::compiled(const KernelRequest& request) {
  Launch& launch = launches_[request.entry + '\n' + request.source];  // a source may have two entries
  if (launch) return launch;
  const std::string name = (folder_ / ("kernel" + std::to_string(launches_.size()))).string();
  compile(emulated_source(request.source, request.entry, request.shared_bytes), name);
  void* const library = dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  launch = reinterpret_cast<Launch>(dlsym(library, "emulated_launch"));
  return launch;
}

/// Makes `name`.so, or copies it from where TCONV_EMULATION_CACHE says that other builds of the tests, whose
/// kernels are the same, have kept it.
void Emulator::compile(const std::string& source, const std::string& name) const {
  namespace fs = std::filesystem;
  // Instrumented, and linked without the library that is for: races.cpp has its functions.
  const std::string compiler =
      std::string(TCONV_COMPILER) + " -std=c++20 -O1 -g1 -fsanitize=thread,alignment -w -Wno-psabi -fPIC -c -I ";
  const char* const cache = std::getenv("TCONV_EMULATION_CACHE");
  const fs::path kept = cache ? fs::path(cache) / digest(compiler + sources_ + source) : fs::path();
  std::error_code missing;
  if (cache && fs::copy_file(kept, name + ".so", missing)) return;
  write(name + ".cpp", source);
  const std::string command = compiler + folder_.string() + " -o " + name + ".o " + name + ".cpp && " +
                              TCONV_COMPILER + " -shared -o " + name + ".so " + name + ".o";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("the CPU's compiler refused a kernel");
  if (!cache) return;
  // Whole or not at all: other tests run beside this one.
  const fs::path whole = kept.string() + "-" + std::to_string(getpid());
  fs::create_directories(cache);
  fs::copy_file(name + ".so", whole, fs::copy_options::overwrite_existing);
  fs::rename(whole, kept);
}

}  // namespace tconv::cuda::emulated
