#include "cuda/export.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>

#include "cuda/codegen.hpp"
#include "cuda/engine.hpp"
#include "cuda/kernels/launch_params.cuh"
#include "cuda/runtime/cache.hpp"
#include "cuda/runtime/device_sources.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "layer/layer.hpp"

#ifndef TCONV_VERSION
#define TCONV_VERSION "unknown"
#endif

namespace tconv::cuda {
namespace {

using std::int64_t;
using Values = std::map<std::string, std::string>;

const char* text_named(const std::vector<DeviceSource>& texts, const std::string& name) {
  for (const DeviceSource& text : texts)
    if (name == text.name) return text.text;
  throw Error(ErrorCode::internal_error, "there is no embedded text " + name);
}

/// A template with every @NAME@ replaced.
std::string filled(const std::string& name, const Values& values) {
  std::string text = text_named(export_templates(), name);
  for (const auto& [key, value] : values) {
    const std::string place = "@" + key + "@";
    for (std::size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += value.size())
      text.replace(at, place.size(), value);
  }
  return text;
}

// ---- Sources -----------------------------------------------------------------------------------------------

/// The name in a line `#include "name"`, or nothing.
std::string included(const std::string& line) {
  const std::string begin = "#include \"";
  return line.starts_with(begin) ? line.substr(begin.size(), line.size() - begin.size() - 1) : "";
}

/// Appends a device source after those it includes, each once.
void flatten(const std::string& name, std::set<std::string>& seen, std::string& out) {
  if (!seen.insert(name).second) return;
  std::istringstream lines(text_named(device_sources(), name));
  std::string own;
  for (std::string line; std::getline(lines, line);) {
    if (const std::string other = included(line); !other.empty())
      flatten(other, seen, out);
    else if (line != "#pragma once")
      own += line + "\n";
  }
  out += "// ---- " + name + "\n" + own;
}

/// What the engine compiles for one kind of device.
struct Kernels {
  KernelRequest pack;    // no source where weights are read as they are
  KernelRequest scales;  // of weights, and none where they are packed as they are
  int64_t packed_words = 0;
  struct Forward {
    KernelRequest kernel;
    KernelRequest turn;  // of x that it reads turned, else no source
    bool operator==(const Forward&) const = default;
  };
  std::vector<Forward> forward;  // for rows of every alignment, those that ask for most first

  bool operator==(const Kernels&) const = default;
};

KernelRequest request_for(const KernelRecord& record, const std::string& entry) {
  for (const KernelRequest& request : record.requests())
    if (request.entry == entry) return request;
  return {};
}

Kernels kernels_for(const Layer& layer, int64_t batch, const Extents& input, const char* architecture) {
  Kernels kernels;
  KernelRecord considered;
  DeviceProperties device = absent_device(architecture);
  device.record = &considered, device.exported = true;
  // Weights are packed the way that serves the size exported best.
  device.scaled = dense_kernel(layer, shape_of(layer, batch, input), device).scaled;
  const std::size_t last = std::size_t(layer.dims) - 1;
  const auto add = [&](int64_t width, bool turns) {
    KernelRecord record;
    device.record = &record, device.turns = turns;
    Extents size = input;
    size[last] = width;
    const auto plan = make_plan(layer, device);
    plan->bind(shape_of(layer, batch, size));
    kernels.pack = request_for(record, "pack"), kernels.scales = request_for(record, "find");
    kernels.packed_words = int64_t(plan->packed_weight_bytes(Pass::forward) / 4);
    Kernels::Forward forward{request_for(record, "forward"), {}};
    for (const int slices : {1, device::turn_depth})
      if (const KernelRequest turn = request_for(record, turn_entry(slices)); !turn.source.empty())
        forward.turn = turn;
    if (forward.turn.source.empty() && turns) return;
    if (std::find(kernels.forward.begin(), kernels.forward.end(), forward) == kernels.forward.end())
      kernels.forward.push_back(forward);
  };
  // Rows of the next width of every remainder: what can be read and stored in vectors depends on nothing else
  // where tensors are dense. The most even remainders come first. Kernels that read turned x do so where that is
  // best, and leave calls that want too large a workspace to those behind them.
  const int64_t vector = 16 / int64_t(size_of(layer.dtype));
  const int64_t even = (input[last] + vector - 1) / vector * vector;
  for (const bool turns : {true, false})
    for (int64_t step = vector; step >= 1; step /= 2)
      for (int64_t remainder = step % vector; remainder < vector; remainder += 2 * step)
        add(even + remainder, turns);
  return kernels;
}

/// The header a kernel's source begins with: its family.
std::string header_of(const KernelRequest& request) {
  return included(request.source.substr(0, request.source.find('\n')));
}

/// A kernel's source inside a namespace of its own. Entry points have no C linkage there, for they would be one.
std::string in_namespace(const std::string& name, const KernelRequest& request) {
  const std::string begin = "namespace tconv::device {\n", end = "}  // namespace tconv::device\n";
  const std::size_t first = request.source.find(begin) + begin.size(), last = request.source.rfind(end);
  std::string body = request.source.substr(first, last - first);
  const std::string linkage = "extern \"C\" ";
  for (std::size_t at; (at = body.find(linkage)) != std::string::npos;) body.erase(at, linkage.size());
  return "namespace " + name + " {\n" + body +
         "constexpr int shared_bytes = " + std::to_string(request.shared_bytes) + ";\n}  // namespace " + name +
         "\n";
}

constexpr const char* turning_text =
    R"(/// The kernels that turn x, where it is turned: for one slice at a time, and for several.
struct Turning {
  void (*one)(TurnParams) = nullptr;
  void (*several)(TurnParams) = nullptr;
  int shared_bytes = 0;
};
)";

std::string selected(const Kernels& kernels) {
  std::string out = "namespace tconv::device::selected {\n", attempts;
  if (!kernels.pack.source.empty()) {
    const bool scaled = !kernels.scales.source.empty();
    out += "constexpr long long packed_words = " + std::to_string(kernels.packed_words) + ";\n" +
           in_namespace("packing", kernels.pack) + (scaled ? in_namespace("scaling", kernels.scales) : "") +
           "constexpr bool scaled = " + (scaled ? "true" : "false") +
           ";  // weights, by output channel: the scales are the last words\n"
           "/// Launches what finds the scales of weights, where they have any.\n"
           "template <class Begin>\n"
           "void find_scales(const Begin&" +
           (scaled ? " begin) {\n  begin(scaling::find, scaling::shared_bytes);\n}\n" : ") {}\n");
  }
  const bool packs = !kernels.pack.source.empty();  // as kernels do that x may be turned for
  if (packs) out += turning_text;
  for (std::size_t i = 0; i < kernels.forward.size(); ++i) {
    const std::string name = "kernel_" + std::to_string(i), turn = "turn_" + std::to_string(i);
    const auto& [forward, turning] = kernels.forward[i];
    out += in_namespace(name, forward);
    if (!turning.source.empty()) out += in_namespace(turn, turning);
    attempts += (i ? " ||\n         " : "") + std::string("attempt(") + name + "::config, " + name +
                "::forward, " + name + "::shared_bytes";
    if (packs && turning.source.empty()) attempts += ", Turning{}";
    if (packs && !turning.source.empty())
      attempts += ", Turning{" + turn + "::turn_slices, " + turn + "::turn, " + turn + "::shared_bytes}";
    attempts += ")";
  }
  if (header_of(kernels.forward.front().kernel) != "generic.cuh")
    out +=
        "/// Attempts one kernel after the other until one will do.\n"
        "template <class Attempt>\n"
        "bool any(const Attempt& attempt) {\n"
        "  return " +
        attempts + ";\n}\n";
  return out + "}  // namespace tconv::device::selected\n";
}

// ---- Text --------------------------------------------------------------------------------------------------

std::string numbers(int dims, const Extents& values) {
  std::string text;
  for (int d = 0; d < dims; ++d) text += (d ? ", " : "") + std::to_string(values[std::size_t(d)]);
  return text;
}

/// As Python writes a tuple.
std::string tuple(int dims, const Extents& values) {
  return "(" + numbers(dims, values) + (dims == 1 ? ",)" : ")");
}

/// One number where all are equal.
std::string parameter(int dims, const Extents& values) {
  const bool same = std::all_of(values.begin(), values.begin() + dims, [&](int64_t v) { return v == values[0]; });
  return same ? std::to_string(values[0]) : tuple(dims, values);
}

struct Parameter {
  std::string name, type, value, attribute;
};

/// The parameters of torch.nn.ConvTranspose*d, in its order. `attribute`: what its module holds.
std::vector<Parameter> parameters_of(const Layer& l) {
  const auto integer = [](const char* name, int64_t value) {
    return Parameter{name, "int", std::to_string(value), std::to_string(value)};
  };
  const auto extents = [&](const char* name, const Extents& value) {
    return Parameter{name, "int | tuple[int, ...]", parameter(l.dims, value), tuple(l.dims, value)};
  };
  return {integer("in_channels", l.in_channels), integer("out_channels", l.out_channels),
          extents("kernel_size", l.kernel),      extents("stride", l.stride),
          extents("padding", l.padding),         extents("output_padding", l.output_padding),
          integer("groups", l.groups),           {"bias", "bool", l.bias ? "True" : "False", ""},
          extents("dilation", l.dilation)};
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
  }
  return "";
}

const char* scalar_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "kFloat";
    case DType::f64:
      return "kDouble";
    case DType::f16:
      return "kHalf";
    case DType::bf16:
      return "kBFloat16";
  }
  return "";
}

/// The family a kernel belongs to. Where none was asked for, no tile fits, and the engine runs the generic kernel.
std::string family_of(const KernelRequest& request) {
  const std::string header = header_of(request);
  return header.empty() ? "generic" : header.substr(0, header.rfind(".cuh"));
}

[[noreturn]] void refuse(const Layer& layer, const std::string& why) {
  throw Unsupported("the layer cannot be exported: " + why + "; use tconv.nn.ConvTranspose" +
                    std::to_string(layer.dims) + "d or tconv.convert, which run every layer");
}

/// How the host runs a family.
const char* host_of(const Layer& layer, const KernelRequest& request) {
  const std::string family = family_of(request);
  if (request.source.empty())
    refuse(layer, "it is served by the kernel family '" + family +
                      "', because its taps reach too far for a tile of any other");
  if (family == "generic") return "run_generic.cu.in";
  if (family == "implicit_gemm" || family == "warpgroup_gemm" || family == "panel_gemm") return "run_gemm.cu.in";
  if (family == "direct_rows") return "run_direct.cu.in";
  refuse(layer, "it is served by the kernel family '" + family + "', for which there is no exported form");
}

std::string cuda_source(const Layer& layer, int64_t batch, const Extents& input) {
  const Kernels hopper = kernels_for(layer, batch, input, "sm_90a");
  // The least shared memory any architecture has: what fits there fits everywhere.
  const Kernels portable = kernels_for(layer, batch, input, "sm_86");
  const std::string host = host_of(layer, portable.forward.front().kernel);
  std::set<std::string> seen;
  std::string out;
  for (const Kernels* kernels : {&portable, &hopper}) {
    for (const auto& [request, turn] : kernels->forward) {
      if (host != host_of(layer, request))
        refuse(layer, "it is served by the kernel family '" + family_of(portable.forward.front().kernel) +
                          "' on one GPU or alignment and by '" + family_of(request) +
                          "' on another, and a file holds one kind");
      flatten(header_of(request), seen, out);
      if (!turn.source.empty()) flatten(header_of(turn), seen, out);
    }
    for (const KernelRequest* request : {&kernels->pack, &kernels->scales})
      if (!request->source.empty()) flatten(header_of(*request), seen, out);
  }
  flatten("launch_rules.cuh", seen, out);
  out += "\n// ---- The kernels of this layer ----\n";
  out += hopper == portable ? selected(portable)
                            : "#if TCONV_SM90\n" + selected(hopper) + "#else\n" + selected(portable) + "#endif\n";
  const int dims = layer.dims;
  return out + filled("host.cu.in", {{"DIMS", std::to_string(dims)},
                                     {"IN_CHANNELS", std::to_string(layer.in_channels)},
                                     {"OUT_CHANNELS", std::to_string(layer.out_channels)},
                                     {"GROUPS", std::to_string(layer.groups)},
                                     {"KERNEL", numbers(dims, layer.kernel)},
                                     {"STRIDE", numbers(dims, layer.stride)},
                                     {"PADDING", numbers(dims, layer.padding)},
                                     {"OUTPUT_PADDING", numbers(dims, layer.output_padding)},
                                     {"DILATION", numbers(dims, layer.dilation)},
                                     {"SCALAR", scalar_name(layer.dtype)},
                                     {"RUN", filled(host, {})}});
}

/// The parameters of ModelNew's constructor: those named, in their order, or all.
std::vector<Parameter> constructor_of(const Layer& layer, const std::vector<std::string>& names) {
  const std::vector<Parameter> all = parameters_of(layer);
  if (names.empty()) return all;
  std::vector<Parameter> chosen;
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    if (found == all.end())
      throw InvalidArgument("a constructor's parameters are those of torch.nn.ConvTranspose" +
                            std::to_string(layer.dims) + "d, got '" + name + "'");
    if (std::any_of(chosen.begin(), chosen.end(), [&](const Parameter& p) { return p.name == name; }))
      throw InvalidArgument("a constructor's parameters must differ, got '" + name + "' twice");
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace

std::string export_layer(const Layer& layer, int64_t batch, const Extents& input, const ExportOptions& options) {
  validate(layer);
  shape_of(layer, std::max<int64_t>(batch, 1), input);
  if (layer.layout != Layout::channels_first) throw Unsupported("layers in channels_last cannot be exported");
  for (const char c : options.name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_')
      throw InvalidArgument("name must be letters, digits and _, got '" + options.name + "'");
  // It stands in the docstring of a program.
  for (const char c : options.title)
    if (c == '"' || c == '\\' || std::iscntrl(static_cast<unsigned char>(c)))
      throw InvalidArgument("title must be one line without \" and \\, got '" + options.title + "'");
  const std::string cuda = cuda_source(layer, std::max<int64_t>(batch, 1), input);
  const std::vector<Parameter> parameters = constructor_of(layer, options.constructor);
  std::string fields, declared, arguments;
  for (const Parameter& p : parameters_of(layer)) {
    if (!p.attribute.empty()) fields += "    \"" + p.name + "\": " + p.attribute + ",\n";
    const bool given = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const Parameter& other) { return other.name == p.name; });
    arguments += "            " + p.name + "=" + (given ? p.name : p.value) + ",\n";
  }
  for (const Parameter& p : parameters) declared += "        " + p.name + ": " + p.type + " = " + p.value + ",\n";
  const std::string dims = std::to_string(layer.dims);
  const bool tf32 = layer.dtype == DType::f32 && layer.precision == Precision::tf32;
  return filled("module.py.in",
                {{"TITLE", options.title.empty() ? "A transposed convolution in " + dims + "D, " +
                                                       (tf32 ? "TF32" : torch_name(layer.dtype)) + "."
                                                 : options.title},
                 {"VERSION", TCONV_VERSION},
                 {"LAYER", fields},
                 {"DTYPE", torch_name(layer.dtype)},
                 {"NAME", options.name + "_" + digest(cuda).substr(0, 12)},
                 {"CUDA", cuda},
                 {"PARAMETERS", declared},
                 {"ARGUMENTS", arguments},
                 {"DIMS", dims},
                 {"ATTRIBUTE", layer.dims == 1 ? "conv1d_transpose" : "conv_transpose" + dims + "d"}});
}

}  // namespace tconv::cuda
