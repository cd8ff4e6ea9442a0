// tconv, the command-line tool: parses, calls the subcommand, turns errors into one line and an exit code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <vector>

#include "cli/command.hpp"
#include "tconv/tconv.hpp"

namespace {

using namespace tconv::cli;

constexpr const char* about =
    "Transposed convolutions in 1, 2 and 3 dimensions: compute them, time them, see how they work.";

constexpr const char* footer = R"(
Examples:
  tconv run --input x.npy --weight w.npy --stride 2 --padding 1 --output y.npy
  tconv bench kb64                 verify and time a known problem on this machine
  tconv bench --mission            the four problems tconv is held against
  tconv explain kb81               which taps feed which outputs, and what the layer must cost
  tconv info                       engines and devices found

'tconv help COMMAND' or 'tconv COMMAND --help' says more about a command.
Exit codes: 0 done, 1 something went wrong (the last line says what), 2 the command line is wrong.)";

int fail(int code, const char* message) {
  std::fflush(stdout);
  fmt::print(stderr, "tconv: {}\n", message);
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app(about, "tconv");
  app.footer(footer);
  app.require_subcommand(0, 1);
  app.set_version_flag(
      "--version", [] { return "tconv " + tconv::system_info().version; }, "Print the version");
  const std::vector<Command> commands = {add_run(app), add_bench(app), add_explain(app), add_info(app)};
  std::string topic;
  CLI::App* help = app.add_subcommand("help", "Explain a command");
  help->add_option("command", topic, "The command to explain");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_text) {
    return app.exit(asked_for_text);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "tconv: {}\nTry 'tconv help'.\n", error.what());
    return exit_usage;
  }

  if (help->parsed() && !topic.empty()) {
    for (const Command& command : commands)
      if (command.app->get_name() == topic) {
        fmt::print("{}", command.app->help("tconv"));
        return exit_ok;
      }
    throw UsageError(fmt::format("there is no command '{}'; 'tconv help' lists them", topic));
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.execute();
  // app.help() would explain the chosen subcommand, which is `help`.
  fmt::print("{}", app.get_formatter()->make_help(&app, "tconv", CLI::AppFormatMode::Normal));
  return help->parsed() ? exit_ok : exit_usage;
} catch (const UsageError& error) {
  return fail(exit_usage, error.what());
} catch (const std::bad_alloc&) {
  return fail(exit_failure, "out of memory");
} catch (const std::exception& error) {
  return fail(exit_failure, error.what());
}
