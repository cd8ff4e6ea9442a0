// The command line: subcommands and their flags. CLI11 does the work; it is slow to compile, so it stays
// behind this header, in one source.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tconv::cli {

/// One flag; `given` says whether it was on the command line.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}
  bool given() const;
  Flag required() const;

 private:
  CLI::Option* option_;
};

/// The flags of one subcommand. Values keep what they held where a flag is not given. `type` is what stands
/// behind the flag in the help text.
class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(app) {}

  /// The title under which the flags that follow are listed.
  void heading(const char* title) { heading_ = title; }
  /// What the help text ends with.
  void footer(const char* text);

  Flag text(const char* name, std::string& value, const char* about, const char* type);
  Flag integer(const char* name, std::int64_t& value, const char* about, const char* type,
               std::int64_t smallest = std::numeric_limits<std::int64_t>::min());
  Flag seconds(const char* name, double& value, const char* about);
  Flag toggle(const char* name, bool& value, const char* about);
  /// Values separated by commas; the flag may be repeated.
  Flag list(const char* name, std::vector<std::string>& values, const char* about, const char* type);
  /// What is given without a flag: one word, or any number of them.
  Flag positional(const char* name, std::string& value, const char* about, const char* type);
  Flag positionals(const char* name, std::vector<std::string>& values, const char* about, const char* type);

 private:
  Flag finish(CLI::Option* option, const char* type);

  CLI::App* app_;
  const char* heading_ = "Options";
};

class CommandLine {
 public:
  CommandLine(const char* about, const char* footer, std::function<std::string()> version);
  ~CommandLine();

  Flags add(const char* command, const char* about);
  /// Reads the command line. An exit code, where that is all there is to do: text was asked for and printed,
  /// or the line is wrong, which has been said.
  std::optional<int> parse(int argc, char** argv);
  bool chosen(const std::string& command) const;

  std::string help() const;
  std::string help_of(const std::string& command) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace tconv::cli
