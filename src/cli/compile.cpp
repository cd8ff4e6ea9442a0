// tconv compile: the kernels of layers, compiled into the disk cache ahead of time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <set>
#include <thread>

#include "cli/command.hpp"
#include "cli/flags.hpp"
#include "cli/gpu_layers.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"
#include "cuda/ahead_of_time.hpp"
#include "cuda/runtime/cache.hpp"
#include "cuda/runtime/nvrtc.hpp"

namespace tconv::cli {
namespace {

struct CompileFlags {
  GpuLayers layers;
  std::int64_t jobs = 0;
  std::string cache;
  bool check = false;
};

void add_flags(Flags& add, CompileFlags& flags) {
  flags.layers.add_to(add);
  add.text("--cache", flags.cache, "Where to put the code (TCONV_CACHE_DIR, or ~/.cache/tconv)", "FOLDER");
  add.toggle("--check", flags.check, "Compile nothing; exit code 1 if a kernel is not in the cache");
  add.integer("--jobs", flags.jobs, "Kernels to compile at a time (one per CPU)", "N", 1);
  flags.layers.add_layer_to(add);
  add.footer(R"(
tconv compiles the kernels of a layer for the GPU when they are first needed and keeps the code on disk.
This command does so ahead of time. It needs NVRTC and no GPU; a machine that has the cache (copy the
folder, and point TCONV_CACHE_DIR to it) needs a GPU and no NVRTC.

For each layer the engine itself is asked what it would run: on dense tensors of the given size and of
sizes with every other alignment, on views that begin anywhere, and on any other strides. Kernels belong
to a layer, not to a length; but a size of quite another magnitude may be served by another tile. List the
sizes you have as problems of their own, and check the result:

Examples:
  tconv compile --mission --arch sm_90a
  tconv compile --file my-layers.json --arch sm_80,sm_90a --dtype f16 --cache image/tconv-cache
  tconv compile --file my-layers.json --arch sm_90a --dtype f16 --cache image/tconv-cache --check)");
}

/// One kernel for one architecture.
struct Job {
  std::string problem, architecture;
  cuda::KernelRequest request;
};

std::vector<Job> jobs_of(const CompileFlags& flags) {
  const std::vector<Problem> problems = flags.layers.problems("compile");
  const auto targets = flags.layers.devices();
  Progress progress(int(problems.size()));
  std::vector<Job> jobs;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Problem& problem : problems) {
    progress.step("planning " + problem.name);
    for (const Layer& layer : flags.layers.variants(problem))
      for (const cuda::DeviceProperties& device : targets)
        for (cuda::KernelRequest& request : cuda::kernels_of(layer, problem.batch, problem.input, device)) {
          const std::string architecture = cuda::architecture_of(device);
          if (seen.insert({architecture, request.source}).second)
            jobs.push_back({problem.name, architecture, std::move(request)});
        }
  }
  return jobs;
}

/// Calls `work` for every job from several threads, with a progress bar. Throws what the first failure threw.
template <class Work>
void in_parallel(const std::vector<Job>& jobs, std::int64_t threads, const Work& work) {
  Progress progress(int(jobs.size()));
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  const std::size_t count = threads > 0 ? std::size_t(threads) : std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t t = 0; t < std::min(count, jobs.size()); ++t)
    workers.emplace_back([&] {
      for (std::size_t i; (i = next++) < jobs.size();) try {
          {
            const std::lock_guard lock(mutex);
            if (failure) return;
            progress.step(fmt::format("{} for {}", jobs[i].problem, jobs[i].architecture));
          }
          work(jobs[i]);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
        }
    });
  for (std::thread& worker : workers) worker.join();
  if (failure) std::rethrow_exception(failure);
}

int check(const std::vector<Job>& jobs) {
  std::set<std::string> incomplete;
  std::size_t missing = 0;
  for (const Job& job : jobs)
    if (!cuda::is_kept(job.request, job.architecture)) ++missing, incomplete.insert(job.problem);
  if (missing == 0) {
    fmt::print("all {} kernels are in {}\n", jobs.size(), cuda::cache_directory());
    return exit_ok;
  }
  throw Failure(
      fmt::format("{} of {} kernels are not in {}: those of {}; without --check this command compiles them",
                  missing, jobs.size(), cuda::cache_directory(), fmt::join(incomplete, ", ")));
}

int execute(const CompileFlags& flags) {
  if (!flags.cache.empty()) setenv("TCONV_CACHE_DIR", flags.cache.c_str(), 1);
  if (cuda::cache_directory().empty()) throw UsageError("there is no place for the cache; give --cache FOLDER");
  const std::vector<Job> jobs = jobs_of(flags);
  if (flags.check) return check(jobs);
  if (cuda::nvrtc_version().empty()) throw Failure(cuda::why_no_nvrtc());

  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> compiled{0};
  in_parallel(jobs, flags.jobs, [&](const Job& job) {
    compiled += cuda::keep_kernel(job.request, job.architecture) == cuda::Kept::compiled;
  });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  fmt::print("{} kernels in {}: {} compiled with NVRTC {} in {}, {} were there\n", jobs.size(),
             cuda::cache_directory(), compiled.load(), cuda::nvrtc_version(), format_seconds(elapsed.count()),
             int(jobs.size()) - compiled);
  return exit_ok;
}

}  // namespace

Command add_compile(CommandLine& line) {
  return command_of(line, "compile", "Compile the GPU kernels of layers ahead of time", add_flags, execute);
}

}  // namespace tconv::cli
