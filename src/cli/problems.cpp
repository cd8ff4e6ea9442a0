#include "cli/problems.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "cli/command.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

using nlohmann::json;

json parse_json(const std::string& text, const std::string& source) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    throw Failure(fmt::format("{} is not valid JSON: {}", source, error.what()));
  }
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) throw Failure(fmt::format("cannot read {}", path));
  return text.str();
}

/// Letters to change, add or leave out to make one word of the other.
std::size_t edits_between(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j < row.size(); ++j) {
      const std::size_t changed = diagonal + (from[i - 1] != to[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row[to.size()];
}

/// Reads fields of one problem; errors name the file, the problem and the field.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw Failure(fmt::format("{} must be an object", where_));
  }

  /// Refuses a field that is none, and names the one that may have been meant.
  void know(const std::vector<std::string>& known) const {
    for (const auto& [field, value] : object_.items()) {
      if (std::find(known.begin(), known.end(), field) != known.end()) continue;
      const std::string& nearest = *std::min_element(known.begin(), known.end(),
                                                     [&field = field](const std::string& a, const std::string& b) {
                                                       return edits_between(field, a) < edits_between(field, b);
                                                     });
      // Half the letters wrong is no misspelling.
      throw Failure(
          2 * edits_between(field, nearest) <= nearest.size()
              ? fmt::format("{}: there is no '{}'; is '{}' meant?", where_, field, nearest)
              : fmt::format("{}: there is no '{}'; known are {}", where_, field, fmt::join(known, ", ")));
    }
  }

  std::int64_t integer(const char* field, std::int64_t usual) const {
    return object_.contains(field) ? integer_at(field, object_[field]) : usual;
  }

  std::int64_t integer(const char* field) const {
    require(field);
    return integer_at(field, object_[field]);
  }

  std::string text(const char* field) const {
    if (!object_.contains(field)) return "";
    if (!object_[field].is_string()) refuse(field, "must be a string");
    return object_[field];
  }

  std::vector<std::string> texts(const char* field) const {
    std::vector<std::string> result;
    if (!object_.contains(field)) return result;
    if (!object_[field].is_array()) refuse(field, "must be a list of strings");
    for (const json& entry : object_[field]) {
      if (!entry.is_string()) refuse(field, "must be a list of strings");
      result.push_back(entry);
    }
    return result;
  }

  bool flag(const char* field) const {
    if (!object_.contains(field)) return false;
    if (!object_[field].is_boolean()) refuse(field, "must be true or false");
    return object_[field];
  }

  Extents extents(const char* field, int dims, std::int64_t usual) const {
    return object_.contains(field) ? extents_at(field, dims) : Extents{usual, usual, usual};
  }

  Extents extents(const char* field, int dims) const {
    require(field);
    return extents_at(field, dims);
  }

  int list_length(const char* field) const {
    require(field);
    if (!object_[field].is_array()) refuse(field, "must be a list with one number per dimension");
    return int(std::min<std::size_t>(object_[field].size(), 4));
  }

  std::map<std::string, double> numbers(const char* field) const {
    std::map<std::string, double> result;
    if (!object_.contains(field)) return result;
    for (const auto& [key, value] : object_[field].items())
      if (value.is_number()) result[key] = value.get<double>();
    return result;
  }

 private:
  [[noreturn]] void refuse(const char* field, const std::string& what) const {
    throw Failure(fmt::format("{}: '{}' {}", where_, field, what));
  }

  void require(const char* field) const {
    if (!object_.contains(field)) refuse(field, "is missing");
  }

  std::int64_t integer_at(const char* field, const json& value) const {
    if (!value.is_number_integer()) refuse(field, fmt::format("must be a whole number, got {}", value.dump()));
    return value.get<std::int64_t>();
  }

  Extents extents_at(const char* field, int dims) const {
    const json& value = object_[field];
    if (!value.is_array() || value.size() != std::size_t(dims))
      refuse(field, fmt::format("must be a list of {} numbers, one per dimension, got {}", dims, value.dump()));
    Extents extents{1, 1, 1};
    for (int d = 0; d < dims; ++d) extents[d] = integer_at(field, value[std::size_t(d)]);
    return extents;
  }

  const json& object_;
  std::string where_;
};

Problem read_problem(const json& object, const std::string& source, std::size_t position) {
  const Fields unnamed(object, fmt::format("problem {} of {}", position + 1, source));
  Problem problem;
  problem.name = unnamed.text("name");
  const Fields fields(object, problem.name.empty() ? fmt::format("problem {} of {}", position + 1, source)
                                                   : fmt::format("problem {} of {}", problem.name, source));
  fields.know({"name", "about", "mission", "dims", "batch", "in_channels", "out_channels", "spatial", "kernel",
               "stride", "padding", "groups", "output_padding", "dilation", "bias", "constructor",
               "pytorch_h200_ms", "floor_ms"});
  if (problem.name.empty()) problem.name = fmt::format("problem-{}", position + 1);
  problem.about = fields.text("about");
  problem.mission = fields.flag("mission");

  Layer& layer = problem.layer;
  layer.dims = fields.list_length("spatial");
  if (layer.dims < 1 || layer.dims > 3)
    throw Failure(fmt::format("problem {} of {}: 'spatial' must have 1 to 3 entries", problem.name, source));
  if (fields.integer("dims", layer.dims) != layer.dims)
    throw Failure(fmt::format("problem {} of {}: 'dims' must be the number of entries of 'spatial', {}",
                              problem.name, source, layer.dims));
  layer.in_channels = fields.integer("in_channels");
  layer.out_channels = fields.integer("out_channels");
  layer.groups = fields.integer("groups", 1);
  layer.bias = fields.flag("bias");
  layer.kernel = fields.extents("kernel", layer.dims);
  layer.stride = fields.extents("stride", layer.dims, 1);
  layer.padding = fields.extents("padding", layer.dims, 0);
  layer.output_padding = fields.extents("output_padding", layer.dims, 0);
  layer.dilation = fields.extents("dilation", layer.dims, 1);
  problem.batch = fields.integer("batch", 1);
  problem.input = fields.extents("spatial", layer.dims);
  problem.constructor = fields.texts("constructor");
  problem.pytorch_h200_ms = fields.numbers("pytorch_h200_ms");
  try {
    work(layer, problem.batch, problem.input);
  } catch (const Error& error) {
    throw Failure(fmt::format("problem {} of {}: {}", problem.name, source, error.what()));
  }
  return problem;
}

}  // namespace

H200Ceilings h200_ceilings() {
  const json ceilings = json::parse(embedded_problems).at("measured").at("ceilings");
  H200Ceilings result{.copy_bytes_per_second = ceilings.at("copy_TBs").get<double>() * 1e12,
                      .flops_per_second = {}};
  for (const char* const precision : {"tf32", "fp32", "fp16", "bf16", "fp64"})
    result.flops_per_second[precision] = ceilings.at(std::string("gemm_") + precision).get<double>() * 1e12;
  return result;
}

std::vector<Problem> load_problems(const std::string& path) {
  const std::string source = path.empty() ? "the built-in problems" : path;
  const json root = parse_json(path.empty() ? embedded_problems : read_text(path), source);
  // A bare list of problems will do as well.
  const json& list = root.is_object() && root.contains("problems") ? root["problems"] : root;
  if (!list.is_array()) throw Failure(fmt::format("{} has no list of problems", source));
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < list.size(); ++i) problems.push_back(read_problem(list[i], source, i));
  if (problems.empty()) throw Failure(fmt::format("{} has no problems in it", source));
  return problems;
}

std::vector<Problem> problems_named(const std::vector<Problem>& known, const std::vector<std::string>& names) {
  std::vector<Problem> chosen;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const Problem& problem) { return problem.name == name; });
    if (found == known.end()) {
      std::vector<std::string> all;
      for (const Problem& problem : known) all.push_back(problem.name);
      throw UsageError(fmt::format("there is no problem '{}'; known are {}", name, fmt::join(all, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

void ProblemFlags::add_to(Flags& add) {
  add.heading("Layer by flags");
  flags_ = {add.text("--size", size_, "Input size, one number per dimension: 64x128 is 2D", "N[xN[xN]]"),
            add.integer("--in", in_channels_, "Input channels", "N", 1),
            add.integer("--out", out_channels_, "Output channels", "N", 1),
            add.text("--kernel", kernel_, "Kernel size; one number serves all dimensions", "N[,N]"),
            add.text("--stride", stride_, "Stride (1)", "N[,N]"),
            add.text("--padding", padding_, "Padding (0)", "N[,N]"),
            add.text("--output-padding", output_padding_, "Output padding (0)", "N[,N]"),
            add.text("--dilation", dilation_, "Dilation (1)", "N[,N]"),
            add.integer("--groups", groups_, "Groups (1)", "N", 1)};
}

bool ProblemFlags::any() const {
  return std::any_of(flags_.begin(), flags_.end(), [](const Flag& flag) { return flag.given(); });
}

Problem ProblemFlags::problem() const {
  if (size_.empty() || kernel_.empty() || in_channels_ == 0 || out_channels_ == 0)
    throw UsageError("a layer by flags needs --size, --in, --out and --kernel");
  Problem problem;
  problem.name = "layer";
  Layer& layer = problem.layer;
  layer.dims = int(parse_list("--size", size_).size());
  problem.input = parse_extents("--size", size_, layer.dims);
  layer.in_channels = in_channels_;
  layer.out_channels = out_channels_;
  layer.groups = groups_;
  layer.kernel = parse_extents("--kernel", kernel_, layer.dims);
  if (!stride_.empty()) layer.stride = parse_extents("--stride", stride_, layer.dims);
  if (!padding_.empty()) layer.padding = parse_extents("--padding", padding_, layer.dims);
  if (!output_padding_.empty())
    layer.output_padding = parse_extents("--output-padding", output_padding_, layer.dims);
  if (!dilation_.empty()) layer.dilation = parse_extents("--dilation", dilation_, layer.dims);
  output_size(layer, problem.input);  // refuses what no run could accept
  return problem;
}

}  // namespace tconv::cli
