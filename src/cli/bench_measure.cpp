#include "cli/bench_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <set>

#include "cli/command.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Pass> all_passes(const BenchSettings& settings) {
  std::set<Pass> passes;
  for (const TimedPass& timed : settings.timed) passes.insert(timed.passes.begin(), timed.passes.end());
  return {passes.begin(), passes.end()};
}

double time_once(LayerRun& run, const TimedPass& timed) {
  const auto start = Clock::now();
  for (const Pass pass : timed.passes) run.run(pass);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Memory a benchmark may take: most of what is free, within the limit of the control group.
double usable_memory() {
  double available = std::numeric_limits<double>::infinity();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.starts_with("MemAvailable:")) available = std::stod(line.substr(13)) * 1024;
  double limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) available = std::min(available, limit);
  return 0.7 * available;
}

/// The largest batch up to the problem's own that fits in memory and runs in about a second.
std::int64_t choose_batch(const Problem& problem, const BenchSettings& settings, const std::vector<Pass>& passes) {
  constexpr double target_seconds = 1.0;
  const double usable = usable_memory();
  const auto bytes_at = [&](std::int64_t batch) {
    return LayerRun::operand_bytes(problem.layer, batch, problem.input, passes);
  };
  const auto fits = [&](std::int64_t batch) { return bytes_at(batch) <= usable; };
  const std::int64_t wanted = settings.batch > 0 ? settings.batch : problem.batch;
  if (!fits(settings.batch > 0 ? wanted : 1))
    throw Failure(fmt::format("{} needs {} of memory at batch {}, but only {} are free", problem.name,
                              format_bytes(bytes_at(settings.batch > 0 ? wanted : 1)),
                              settings.batch > 0 ? wanted : 1, format_bytes(usable)));
  if (settings.batch > 0 || wanted <= 1) return wanted;

  LayerRun single(problem.layer, 1, problem.input, passes, settings.executor, settings.seed, settings.prepack);
  double seconds = 0;
  for (const TimedPass& timed : settings.timed) {
    time_once(single, timed);
    seconds = std::max(seconds, time_once(single, timed));
  }
  auto batch = std::int64_t(std::clamp(target_seconds / std::max(seconds, 1e-9), 1.0, double(wanted)));
  while (batch > 1 && !fits(batch)) batch /= 2;
  return batch;
}

/// FLOPs and least bytes of a timed pass. Every pass but grad_bias does the multiply-adds of the forward.
Work work_of(const Layer& layer, std::int64_t batch, const Extents& input, const TimedPass& timed) {
  Work total;
  for (const Pass pass : timed.passes) {
    Layer one = layer;
    one.bias = layer.bias && pass == Pass::forward;
    const Work work_once = work(one, batch, input);
    if (pass == Pass::grad_bias) {
      const Shape shape = shape_of(layer, batch, input);
      const double gy = double(batch) * double(layer.out_channels) * double(shape.output[0]) *
                        double(shape.output[1]) * double(shape.output[2]);
      total.flops += gy;
      total.bytes += gy * double(size_of(layer.dtype));
    } else {
      total.flops += work_once.flops;
      total.bytes += work_once.bytes;
    }
  }
  return total;
}

std::vector<double> repeat(LayerRun& run, const TimedPass& timed, double budget) {
  constexpr std::size_t fewest = 3, most = 100'000;
  std::vector<double> seconds;
  const auto end = Clock::now() + std::chrono::duration<double>(budget);
  while (seconds.size() < fewest || (seconds.size() < most && Clock::now() < end))
    seconds.push_back(time_once(run, timed));
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace

double Measurement::median() const {
  const std::size_t middle = seconds.size() / 2;
  return seconds.size() % 2 ? seconds[middle] : 0.5 * (seconds[middle - 1] + seconds[middle]);
}

int progress_steps(const BenchSettings& settings) {
  return 2 + int(settings.timed.size());
}

std::vector<Measurement> measure(const Problem& problem, const BenchSettings& settings, const Ceilings& ceilings,
                                 Progress& progress) {
  const std::vector<Pass> passes = all_passes(settings);
  progress.step(problem.name + ": against the oracle");
  std::map<Pass, Verdict> small = verify_reduced(problem, passes, settings.executor, settings.seed);

  progress.step(problem.name + ": making data");
  const std::int64_t batch = choose_batch(problem, settings, passes);
  LayerRun run(problem.layer, batch, problem.input, passes, settings.executor, settings.seed + 1,
               settings.prepack);

  std::vector<Measurement> measurements;
  for (const TimedPass& timed : settings.timed) {
    progress.step(fmt::format("{}: {} at batch {}", problem.name, timed.name, batch));
    Measurement m;
    m.problem = problem;
    m.pass = timed.name;
    m.batch = batch;
    time_once(run, timed);  // warm-up, and what the spot checks look at
    for (const Pass pass : timed.passes) {
      m.verdict.add(small[pass]);
      m.verdict.add(spot_check(run, pass, settings.seed));
    }
    const Work cost = work_of(problem.layer, batch, problem.input, timed);
    m.flops = cost.flops;
    m.bytes = cost.bytes;
    m.floor = floor_of(ceilings, cost.flops, cost.bytes);
    if (m.verdict.right()) m.seconds = repeat(run, timed, settings.seconds);
    measurements.push_back(std::move(m));
  }
  return measurements;
}

}  // namespace tconv::cli
