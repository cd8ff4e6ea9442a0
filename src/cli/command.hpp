// What a subcommand is: it adds its flags to the command line and hands back what to do once it was chosen.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace tconv::cli {

class CommandLine;

enum ExitCode : int { exit_ok = 0, exit_failure = 1, exit_usage = 2 };

/// The command line itself is wrong: exit code 2. Everything else that goes wrong is exit code 1.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Something outside the program is wrong: a file, the disk, memory.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Command {
  std::string name;
  std::function<int()> execute;
};

Command add_run(CommandLine& line);
Command add_bench(CommandLine& line);
Command add_explain(CommandLine& line);
Command add_compile(CommandLine& line);
Command add_export(CommandLine& line);
Command add_info(CommandLine& line);

}  // namespace tconv::cli
