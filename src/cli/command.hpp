// What a subcommand is: it adds its options to the parser and hands back what to do once it was chosen.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

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
  CLI::App* app;
  std::function<int()> execute;
};

Command add_run(CLI::App& parent);
Command add_bench(CLI::App& parent);
Command add_explain(CLI::App& parent);
Command add_info(CLI::App& parent);

}  // namespace tconv::cli
