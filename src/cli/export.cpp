// tconv export: a layer as one Python file with its CUDA kernels.
#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/flags.hpp"
#include "cli/problems.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

struct ExportFlags {
  std::string name, file, output, dtype = "f32", precision = "fp32";
  ProblemFlags layer;
  std::int64_t batch = 0;
  std::vector<std::string> constructor;
  bool bias = false;
};

void add_flags(Flags& add, ExportFlags& flags) {
  add.positional("problem", flags.name, "A problem by name; 'tconv bench --list' shows them", "NAME");
  add.text("--file", flags.file, "Take the problem from a file like bench/problems.json", "FILE");
  add.text("--output", flags.output, "Where the Python file goes, or - for stdout", "FILE").required();
  add.text("--dtype", flags.dtype, "f32, f64, f16 or bf16 (f32)", "TYPE");
  add.text("--precision", flags.precision, "Of f32: fp32 or tf32 (fp32)", "NAME");
  add.integer("--batch", flags.batch, "Batch the tiles are chosen for (the problem's, or 1)", "N", 1);
  add.toggle("--bias", flags.bias, "Give the layer a bias by default");
  add.list("--constructor", flags.constructor, "Parameters of the module (the problem's, or PyTorch's)",
           "NAME[,NAME]");
  flags.layer.add_to(add);
  add.footer(R"(
The file holds the kernels tconv would run for the layer, on Hopper and elsewhere, and a module 'ModelNew'
around them: PyTorch's constructor and initialisation, gradients through PyTorch's own backward. It needs
PyTorch and a CUDA toolkit, which compiles it at the first call, and nothing of tconv. Its kernels serve any
batch and size; their tiles are chosen for the ones given here.

Examples:
  tconv export kb64 --precision tf32 --output kb64.py
  tconv export --size 861 --in 512 --out 256 --kernel 16 --stride 8 --padding 4 --dtype f16 --output up1.py)");
}

/// What can stand in the name of a Python module.
std::string identifier(const std::string& name) {
  std::string result = "tconv_";
  for (const char c : name) result += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return result;
}

/// What stands in the first line of the file. Of a problem's name, which comes from a file, what can stand there.
std::string title(const Problem& problem) {
  const Layer& layer = problem.layer;
  const std::string type = layer.dtype == DType::f32 ? to_string(layer.precision) : to_string(layer.dtype);
  std::string name = problem.name;
  for (char& c : name)
    if (c == '"' || c == '\\' || std::iscntrl(static_cast<unsigned char>(c))) c = '_';
  return fmt::format("{}: {}, {}.", name, format_layer(layer), type);
}

int execute(const ExportFlags& flags) {
  if (flags.name.empty() == !flags.layer.any())
    throw UsageError("name one problem, or give a layer by flags; 'tconv help export' explains");
  Problem problem =
      flags.name.empty() ? flags.layer.problem() : problems_named(load_problems(flags.file), {flags.name}).front();
  problem.layer.dtype = parse_dtype(flags.dtype);
  problem.layer.precision = parse_precision(flags.precision);
  problem.layer.bias |= flags.bias;
  if (flags.batch > 0) problem.batch = flags.batch;
  const std::string text =
      export_layer(problem.layer, problem.batch, problem.input,
                   {.name = identifier(problem.name),
                    .title = title(problem),
                    .constructor = flags.constructor.empty() ? problem.constructor : flags.constructor});
  if (flags.output == "-")
    fmt::print("{}", text);
  else
    write_whole_file(flags.output, {text});
  return exit_ok;
}

}  // namespace

Command add_export(CommandLine& line) {
  return command_of(line, "export", "Write a layer as one Python file with its CUDA kernels", add_flags, execute);
}

}  // namespace tconv::cli
