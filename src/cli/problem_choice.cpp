#include "cli/problem_choice.hpp"

#include <fmt/format.h>

#include "cli/command.hpp"

namespace tconv::cli {

void ProblemChoice::add_to(Flags& add) {
  add.positionals("problem", names_, "Problems by name; 'tconv bench --list' shows them", "NAME");
  add.toggle("--mission", mission_, "The four KernelBench layers that `make run` times: kb64, 74, 79 and 81");
  add.toggle("--all", all_, "All problems");
  add.text("--file", file_, "Take problems from a file like bench/problems.json", "FILE");
}

std::vector<Problem> ProblemChoice::problems(const char* command) const {
  const bool whole_file = !file_.empty() && names_.empty() && !mission_;
  const int ways = int(!names_.empty()) + int(mission_) + int(layer_.any()) + int(all_ || whole_file);
  if (ways == 0)
    throw UsageError(fmt::format(
        "name a problem, or give --mission, --all, --file or a layer by flags; 'tconv help {}' explains",
        command));
  if (ways > 1) throw UsageError("give problems in one way only: by name, --mission, --all or a layer by flags");
  if (layer_.any()) return {layer_.problem()};
  const std::vector<Problem> all = known();
  if (!names_.empty()) return problems_named(all, names_);
  std::vector<Problem> chosen;
  for (const Problem& problem : all)
    if (!mission_ || problem.mission) chosen.push_back(problem);
  if (chosen.empty()) throw Failure(fmt::format("no problem in {} is marked 'mission'", file_));
  return chosen;
}

}  // namespace tconv::cli
