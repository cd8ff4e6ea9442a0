// What a subcommand is: it adds its flags to the command line and hands back what to do once it was chosen.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "cli/flags.hpp"

namespace tconv::cli {

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

/// A subcommand that keeps the values of its flags in a struct.
template <class Values>
Command command_of(CommandLine& line, const char* name, const char* about, void (*add_flags)(Flags&, Values&),
                   int (*execute)(const Values&)) {
  Flags add = line.add(name, about);
  auto values = std::make_shared<Values>();
  add_flags(add, *values);
  return {name, [values, execute] { return execute(*values); }};
}

Command add_run(CommandLine& line);
Command add_bench(CommandLine& line);
Command add_explain(CommandLine& line);
Command add_tiles(CommandLine& line);
Command add_compile(CommandLine& line);
Command add_export(CommandLine& line);
Command add_info(CommandLine& line);

}  // namespace tconv::cli
