#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "cli/problems.hpp"
#include "cuda/engine.hpp"
#include "cuda/runtime/cache.hpp"
#include "gpu/commands.hpp"
#include "gpu/layer_on_gpu.hpp"

namespace tconv::cuda::check {
namespace {

namespace fs = std::filesystem;

constexpr double first_use_limit_ms = 3000, cached_use_limit_ms = 50;

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// What another process prints that uses a problem for the first time in its life.
double in_a_process(const std::string& self, const std::string& name, const std::string& mode) {
  const std::string command = "'" + self + "' use " + name + " " + mode;
  std::FILE* pipe = popen(command.c_str(), "r");
  double ms = -1;
  const bool read = pipe && std::fscanf(pipe, "%lf", &ms) == 1;
  if (!pipe || pclose(pipe) != 0 || !read) throw Error(ErrorCode::device_error, "failed: " + command);
  return ms;
}

std::size_t entries(const fs::path& folder) {
  return std::size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
}

/// A cache of its own for as long as it lives.
class EmptyCache {
 public:
  EmptyCache() : path_(fs::temp_directory_path() / ("tconv-gpu-check-" + std::to_string(std::random_device()()))) {
    fs::create_directories(path_);
    setenv("TCONV_CACHE_DIR", path_.c_str(), 1);
  }
  ~EmptyCache() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

int failed(bool failure) {
  std::printf("%s\n", failure ? "  TOO SLOW" : "  ok");
  std::fflush(stdout);
  return failure;
}

/// Lengths of one layer, as variable-length audio has them: each alignment of a row is compiled once.
int many_lengths() {
  const EmptyCache cache;
  Layer layer;
  layer.in_channels = 512, layer.out_channels = 256, layer.kernel = {16}, layer.stride = {8}, layer.padding = {4};
  layer.precision = Precision::tf32;
  const auto plan = make_plan(layer, gpu());
  const auto bind = [&](std::int64_t length) { plan->bind(shape_of(layer, 1, {length})); };
  bind(800), bind(801);
  const std::size_t compiled = entries(cache.path());
  const double ms = milliseconds([&] {
    for (std::int64_t length = 802; length < 850; ++length) bind(length);
  });
  const std::size_t after = entries(cache.path());
  std::printf(
      "50 lengths of one layer: %zu kernels for the first two, %zu for all; %.2f ms for each of the others",
      compiled, after, ms / 48);
  return failed(after != compiled || ms / 48 > 5);
}

/// An entry that is whole but no code this driver can load is compiled again.
int unloadable_entry() {
  const EmptyCache cache;
  const std::string source = "extern \"C\" __global__ void nothing(int) {}";
  const std::string key = cache_key(source, architecture_of(gpu()));
  if (const auto error = write_cache(key, "no code at all"))
    throw Error(ErrorCode::device_error, "cannot write to the cache: " + error.message());
  get_kernel({source, "nothing", 0}, gpu())->launch(1, 1, 0, nullptr);
  synchronize("running a kernel that was compiled again");
  std::printf("an entry that cannot be loaded is replaced");
  const auto kept = read_cache(key);
  return failed(!kept || kept->size() < 100);
}

}  // namespace

int use(const std::string& name, const std::string& mode_name) {
  const Mode& mode = mode_named(mode_name);
  cli::Problem problem = cli::problems_named(cli::load_problems(""), {name}).front();
  problem.layer.dtype = mode.dtype, problem.layer.precision = mode.precision;
  const Shape shape = shape_of(problem.layer, 1, problem.input);  // memory of a large batch is not what is timed
  std::unique_ptr<LayerOnGpu> layer;
  const double ms = milliseconds([&] {
    layer = std::make_unique<LayerOnGpu>(problem.layer, shape, Variation{.prepacked = false});
    layer->run();
    synchronize("using " + name);
  });
  std::printf("%.3f\n", ms);
  return 0;
}

int caching(const std::string& self) {
  int failures = 0;
  // Every family and type, and the largest sources among them.
  constexpr std::pair<const char*, const char*> uses[] = {
      {"kb64", "tf32"},     {"kb81", "fp32"},        {"kb61", "fp16"}, {"kb75", "tf32"},
      {"dcgan_g1", "bf16"}, {"depthwise1d", "fp32"}, {"kb79", "fp64"}};
  for (const auto& [name, mode] : uses) {
    const EmptyCache cache;
    const double first = in_a_process(self, name, mode);
    double cached = in_a_process(self, name, mode);
    // The better of two: a busy machine is not the cache's fault.
    cached = std::min(cached, in_a_process(self, name, mode));
    std::printf("%-12s %s  first use %7.0f ms, cached %6.1f ms", name, mode, first, cached);
    failures += failed(first > first_use_limit_ms || cached > cached_use_limit_ms);
  }
  failures += many_lengths();
  failures += unloadable_entry();
  std::printf("caching: %d failures\n", failures);
  return failures;
}

}  // namespace tconv::cuda::check
