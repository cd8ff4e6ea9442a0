// tconv, the command-line tool: parses, calls the subcommand, turns errors into one line and an exit code.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "cli/command.hpp"
#include "cli/flags.hpp"
#include "tconv/tconv.hpp"

namespace {

using namespace tconv::cli;

constexpr const char* about =
    "Transposed convolutions in 1, 2 and 3 dimensions: compute them, time them, see how they work.";

constexpr const char* footer = R"(
Examples:
  tconv run --input x.npy --weight w.npy --stride 2 --padding 1 --output y.npy
  tconv bench kb64                 verify and time a known problem on this machine
  tconv bench --mission            four KernelBench layers: 1D, dilated, strided, 2D
  tconv explain kb81               which taps feed which outputs, and what the layer must cost
  tconv tiles kb81 --arch sm_90a   which GPU kernel serves it, and at what price
  tconv compile --mission --arch sm_90a  kernels for a GPU, ahead of time
  tconv export kb64 --output kb64.py   a layer as one Python file with its kernels
  tconv info                       engines and devices found

'tconv help COMMAND' or 'tconv COMMAND --help' says more about a command.
Exit codes: 0 done, 1 something went wrong (the last line says what), 2 the command line is wrong.)";

int fail(int code, const char* message) {
  std::fflush(stdout);
  fmt::print(stderr, "tconv: {}\n", message);
  return code;
}

/// What was printed must have arrived: a full disk behind a pipe is a failure, too.
int finish(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return fail(exit_failure, fmt::format("cannot write to standard output: {}", std::strerror(errno)).c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  CommandLine line(about, footer, [] { return "tconv " + tconv::system_info().version; });
  const std::vector<Command> commands = {add_run(line),     add_bench(line),  add_explain(line), add_tiles(line),
                                         add_compile(line), add_export(line), add_info(line)};
  std::string topic;
  line.add("help", "Explain a command").positional("command", topic, "The command to explain", "COMMAND");
  if (const auto code = line.parse(argc, argv)) return *code;

  for (const Command& command : commands) {
    if (line.chosen(command.name)) return finish(command.execute());
    if (topic == command.name) {
      fmt::print("{}", line.help_of(topic));
      return finish(exit_ok);
    }
  }
  if (!topic.empty()) throw UsageError(fmt::format("there is no command '{}'; 'tconv help' lists them", topic));
  fmt::print("{}", line.help());
  return line.chosen("help") ? exit_ok : exit_usage;
} catch (const UsageError& error) {
  return fail(exit_usage, error.what());
} catch (const std::bad_alloc&) {
  return fail(exit_failure, "out of memory");
} catch (const std::exception& error) {
  return fail(exit_failure, error.what());
}
