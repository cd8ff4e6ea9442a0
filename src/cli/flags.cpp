#include "cli/flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/command.hpp"

namespace tconv::cli {

bool Flag::given() const {
  return option_->count() > 0;
}

Flag Flag::required() const {
  option_->required();
  return *this;
}

void Flags::footer(const char* text) {
  app_->footer(text);
}

Flag Flags::finish(CLI::Option* option, const char* type) {
  return Flag(option->type_name(type)->group(heading_));
}

Flag Flags::text(const char* name, std::string& value, const char* about, const char* type) {
  return finish(app_->add_option(name, value, about), type);
}

Flag Flags::integer(const char* name, std::int64_t& value, const char* about, const char* type,
                    std::int64_t smallest) {
  const auto in_range = [smallest](std::string& text) {
    std::int64_t number = 0;
    if (CLI::detail::lexical_cast(text, number) && number < smallest)
      return fmt::format("must be at least {}, got {}", smallest, text);
    return std::string();
  };
  return finish(app_->add_option(name, value, about)->check(CLI::Validator(in_range, "")), type);
}

Flag Flags::seconds(const char* name, double& value, const char* about) {
  return finish(app_->add_option(name, value, about)->check(CLI::NonNegativeNumber.description("")), "S");
}

Flag Flags::toggle(const char* name, bool& value, const char* about) {
  return Flag(app_->add_flag(name, value, about)->group(heading_));
}

Flag Flags::list(const char* name, std::vector<std::string>& values, const char* about, const char* type) {
  // Without extra arguments, so that a positional may follow.
  return finish(app_->add_option(name, values, about)->delimiter(',')->allow_extra_args(false), type);
}

Flag Flags::positional(const char* name, std::string& value, const char* about, const char* type) {
  return Flag(app_->add_option(name, value, about)->type_name(type));
}

Flag Flags::positionals(const char* name, std::vector<std::string>& values, const char* about, const char* type) {
  return Flag(app_->add_option(name, values, about)->type_name(type));
}

CommandLine::CommandLine(const char* about, const char* footer, std::function<std::string()> version)
    : app_(std::make_unique<CLI::App>(about, "tconv")) {
  app_->footer(footer);
  app_->require_subcommand(0, 1);
  app_->set_version_flag("--version", std::move(version), "Print the version");
}

CommandLine::~CommandLine() = default;

Flags CommandLine::add(const char* command, const char* about) {
  return Flags(app_->add_subcommand(command, about));
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return {};
  } catch (const CLI::Success& asked_for_text) {
    return app_->exit(asked_for_text);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "tconv: {}\nTry 'tconv help'.\n", error.what());
    return exit_usage;
  }
}

bool CommandLine::chosen(const std::string& command) const {
  return app_->got_subcommand(command);
}

std::string CommandLine::help() const {
  // CLI::App::help() would explain the chosen subcommand instead.
  return app_->get_formatter()->make_help(app_.get(), "tconv", CLI::AppFormatMode::Normal);
}

std::string CommandLine::help_of(const std::string& command) const {
  return app_->get_subcommand(command)->help("tconv");
}

}  // namespace tconv::cli
