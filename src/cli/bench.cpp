// tconv bench: problems verified against the oracle, then timed and held against the machine's ceilings.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "cli/bench_measure.hpp"
#include "cli/bench_report.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/flags.hpp"
#include "cli/problem_choice.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

struct BenchFlags {
  ProblemChoice choice;
  bool list = false;
  std::vector<std::string> passes;
  std::string dtype = "f32", layout = "channels_first";
  std::int64_t batch = 0;
  std::int64_t threads = 0;
  double seconds = 2;
  bool bias = false, prepack = false;
  std::int64_t seed = 0;
  std::string json;
};

void add_flags(Flags& add, BenchFlags& flags) {
  flags.choice.add_to(add);
  add.toggle("--list", flags.list, "List the problems and stop");
  add.list("--pass", flags.passes, "forward (the default), grad_input, grad_weight, grad_bias, backward or all",
           "PASS[,PASS]");
  add.text("--dtype", flags.dtype, "f32, f64, f16 or bf16 (f32)", "TYPE");
  add.text("--layout", flags.layout, "channels_first or channels_last (channels_first)", "LAYOUT");
  add.integer("--batch", flags.batch, "Batch (the problem's, reduced until a run takes about a second)", "N", 1);
  add.integer("--threads", flags.threads, "Threads (0: TCONV_NUM_THREADS, or one per CPU)", "N", 0);
  add.seconds("--seconds", flags.seconds, "Time to spend on timing each pass (2)");
  add.toggle("--bias", flags.bias, "Give every layer a bias");
  add.toggle("--prepack", flags.prepack, "Pack the weights once, outside of the timing");
  add.integer("--seed", flags.seed, "Seed of the random data (new data every time)", "N", 1);
  add.text("--json", flags.json, "Write the results as JSON to a file, or to stdout with -", "FILE");
  flags.choice.add_layer_to(add);
  add.footer(R"(
Layers run on the CPU; what a GPU takes is timed by bench/gpu/bench.py. Every pass is verified before it
is timed: all elements of a small version of the problem against the oracle, then single elements at full
size against the definition, both in float64. A wrong result is not timed, and the exit code is 1. The
pass 'backward' is the gradients of input and weight together.

The times are medians after a warm-up. 'floor' is the least time the pass can take on this machine: its
bytes, each moved once, over the copy rate, or its FLOPs over the multiply-add rate, whichever is longer.
Both rates are measured in the same run. Data that stays in a cache between runs can beat the floor.

Examples:
  tconv bench kb64
  tconv bench --mission --pass forward,backward
  tconv bench kb81 hifigan_up1 --threads 1 --dtype bf16 --seconds 5
  tconv bench --size 861 --in 512 --out 256 --kernel 16 --stride 8 --padding 4 --bias
  tconv bench --file my-layers.json --json results.json)");
}

TimedPass timed_pass(const std::string& name) {
  for (const Pass pass : {Pass::forward, Pass::grad_input, Pass::grad_weight, Pass::grad_bias})
    if (name == to_string(pass)) return {name, {pass}};
  if (name == "backward") return {name, {Pass::grad_input, Pass::grad_weight}};
  throw UsageError(
      fmt::format("--pass must be forward, grad_input, grad_weight, grad_bias, backward or all, got '{}'", name));
}

std::vector<TimedPass> timed_passes(const std::vector<std::string>& names) {
  std::vector<TimedPass> timed;
  const auto add = [&](const std::string& name) {
    for (const TimedPass& known : timed)
      if (known.name == name) return;
    timed.push_back(timed_pass(name));
  };
  for (const std::string& name : names)
    if (name == "all")
      for (const char* each : {"forward", "grad_input", "grad_weight", "grad_bias"}) add(each);
    else
      add(name);
  if (timed.empty()) add("forward");
  return timed;
}

int list_problems(const std::vector<Problem>& problems) {
  const bool unicode = wants_unicode();
  for (const Problem& problem : problems)
    fmt::print("{:<18} {:<3} {} {}\n", problem.name, problem.batch,
               pad(format_size(problem.layer.dims, problem.input, unicode), 12),
               format_layer(problem.layer, unicode));
  return exit_ok;
}

std::vector<Problem> chosen_problems(const BenchFlags& flags) {
  std::vector<Problem> chosen = flags.choice.problems("bench");
  for (Problem& problem : chosen) {
    problem.layer.dtype = parse_dtype(flags.dtype);
    problem.layer.layout = parse_layout(flags.layout);
    problem.layer.bias |= flags.bias;
    if (problem.name == "layer" && flags.batch > 0) problem.batch = flags.batch;
  }
  return chosen;
}

int execute(const BenchFlags& flags) {
  if (flags.list) return list_problems(flags.choice.known());
  const std::vector<Problem> problems = chosen_problems(flags);
  BenchSettings settings;
  settings.timed = timed_passes(flags.passes);
  settings.batch = flags.batch;
  settings.seconds = flags.seconds;
  settings.prepack = flags.prepack;
  settings.seed = flags.seed ? std::uint64_t(flags.seed) : std::random_device()();
  if (!flags.json.empty() && flags.json != "-") check_writable(flags.json);
  settings.executor =
      make_thread_pool(int(std::min<std::int64_t>(flags.threads, std::numeric_limits<int>::max())));

  BenchReport report;
  report.system = system_info();
  report.threads = settings.executor->concurrency();
  report.seed = settings.seed;
  report.dtype = parse_dtype(flags.dtype);
  report.layout = parse_layout(flags.layout);
  {
    Progress progress(1 + int(problems.size()) * progress_steps(settings));
    progress.step("measuring the machine's ceilings");
    report.ceilings = measure_ceilings(*settings.executor, report.dtype, std::min(1.0, settings.seconds));
    for (const Problem& problem : problems) try {
        for (Measurement& m : measure(problem, settings, report.ceilings, progress))
          report.measurements.push_back(std::move(m));
      } catch (const Failure& failure) {
        report.complaints.push_back(failure.what());
      } catch (const std::bad_alloc&) {
        report.complaints.push_back(problem.name + ": out of memory");
      }
  }

  if (flags.json == "-")
    fmt::print("{}", json_of(report));
  else
    fmt::print("{}", table_of(report, wants_colour(stdout), wants_unicode()));
  if (!flags.json.empty() && flags.json != "-") write_whole_file(flags.json, {json_of(report)});
  return all_right(report) ? exit_ok : exit_failure;
}

}  // namespace

Command add_bench(CommandLine& line) {
  return command_of(line, "bench", "Verify layers on the CPU, then time them", add_flags, execute);
}

}  // namespace tconv::cli
