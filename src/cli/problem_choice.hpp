// Which problems a command works on: by name, the mission's, all of a list, or one spelled out by flags.
#pragma once

#include <string>
#include <vector>

#include "cli/problems.hpp"

namespace tconv::cli {

class ProblemChoice {
 public:
  /// The flags every such command has.
  void add_to(Flags& add);
  /// Those of a layer by flags, under a heading of their own: add them last.
  void add_layer_to(Flags& add) { layer_.add_to(add); }

  /// At least one problem. `command` is whose help explains.
  std::vector<Problem> problems(const char* command) const;
  /// The list the names come from.
  std::vector<Problem> known() const { return load_problems(file_); }

 private:
  std::vector<std::string> names_;
  bool mission_ = false, all_ = false;
  std::string file_;
  ProblemFlags layer_;
};

}  // namespace tconv::cli
