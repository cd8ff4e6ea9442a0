// tconv explain: how a layer works and what it must cost, before anything runs.
#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/explain_render.hpp"
#include "cli/files.hpp"
#include "cli/flags.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

struct ExplainFlags {
  std::string name, file;
  ProblemFlags layer;
  std::int64_t batch = 0;
  std::string dtype = "f32";
  bool bias = false, ascii = false, no_measure = false;
  std::string svg;
};

void add_flags(Flags& add, ExplainFlags& flags) {
  add.positional("problem", flags.name, "A problem by name; 'tconv bench --list' shows them", "NAME");
  add.text("--file", flags.file, "Take the problem from a file like bench/problems.json", "FILE");
  add.integer("--batch", flags.batch, "Batch (the problem's, or 1)", "N", 1);
  add.text("--dtype", flags.dtype, "f32, f64, f16 or bf16 (f32)", "TYPE");
  add.toggle("--bias", flags.bias, "Give the layer a bias");
  add.text("--svg", flags.svg, "Write a picture to a file as well", "FILE");
  add.toggle("--ascii", flags.ascii, "Draw with plain characters, without colour");
  add.toggle("--no-measure", flags.no_measure, "Do not measure this machine to tell its floor");
  flags.layer.add_to(add);
  add.footer(R"(
A transposed convolution is a few ordinary convolutions, one per phase: outputs whose distance from the
first one leaves the same remainder modulo the stride are fed by the same taps. The grid shows, for each
dimension, which input every tap reads for every output; an empty cell is a multiplication by zero that an
implementation with inserted zeros does and tconv does not.

Examples:
  tconv explain kb81
  tconv explain kb79 --svg kb79.svg
  tconv explain --size 861 --in 512 --out 256 --kernel 16 --stride 8 --padding 4)");
}

int execute(const ExplainFlags& flags) {
  if (flags.name.empty() == !flags.layer.any())
    throw UsageError("name one problem, or give a layer by flags; 'tconv help explain' explains");
  Problem problem =
      flags.name.empty() ? flags.layer.problem() : problems_named(load_problems(flags.file), {flags.name}).front();
  problem.layer.dtype = parse_dtype(flags.dtype);
  problem.layer.bias |= flags.bias;
  if (flags.batch > 0) problem.batch = flags.batch;
  const LayerFacts facts(problem);
  if (!flags.svg.empty()) write_whole_file(flags.svg, {explain_as_svg(facts)});

  std::optional<Ceilings> machine;
  if (!flags.no_measure) machine = measure_ceilings(*make_thread_pool(), problem.layer.dtype, 0.5);
  const TextStyle style{.unicode = !flags.ascii && wants_unicode(),
                        .colour = !flags.ascii && wants_colour(stdout),
                        .width = terminal_width(stdout)};
  fmt::print("{}", explain_as_text(facts, machine, style));
  if (!flags.svg.empty()) fmt::print("\nPicture written to {}\n", flags.svg);
  return exit_ok;
}

}  // namespace

Command add_explain(CommandLine& line) {
  return command_of(line, "explain", "Show how a layer works and what it must cost", add_flags, execute);
}

}  // namespace tconv::cli
