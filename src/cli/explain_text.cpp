#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/explain_render.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

using std::int64_t;

constexpr int64_t most_taps_shown = 16, most_phases_shown = 16, most_phase_taps_shown = 8, most_tile_shown = 16;

/// Colours of phases, from the terminal's 256; neighbours differ.
constexpr int phase_colours[] = {39, 208, 70, 203, 80, 176, 220, 137};

class Painter {
 public:
  explicit Painter(const TextStyle& style) : style_(style) {}

  std::string phase(const std::string& text, int64_t r) const {
    return wrap(text, fmt::format("38;5;{}", phase_colours[std::size_t(r) % std::size(phase_colours)]));
  }
  std::string bold(const std::string& text) const { return wrap(text, "1"); }
  std::string faint(const std::string& text) const { return wrap(text, "2"); }
  const char* dot() const { return style_.unicode ? "·" : "."; }
  const char* times() const { return style_.unicode ? "×" : "x"; }
  const char* arrow() const { return style_.unicode ? "→" : "->"; }
  const char* minus() const { return style_.unicode ? "−" : "-"; }

 private:
  std::string wrap(const std::string& text, const std::string& code) const {
    return style_.colour ? "\x1b[" + code + "m" + text + "\x1b[0m" : text;
  }
  const TextStyle& style_;
};

/// Rows are taps, columns outputs, and a cell is the input they meet at.
std::string tap_grid(const DimensionFacts& f, const TextStyle& style, const Painter& paint) {
  constexpr int label_width = 10;
  const int64_t room = std::max<int64_t>(6, (style.width - label_width) / 4);
  const int64_t shown = std::min({f.output, room, int64_t(32)});
  const int cell = std::max<int>(4, int(std::to_string(f.input_of(shown - 1, 0)).size()) + 2);
  const auto row = [&](const std::string& label, const auto& cell_text) {
    std::string text = "  " + pad(label, label_width - 2);
    for (int64_t o = 0; o < shown; ++o) text += pad(cell_text(o), cell, '>');
    return text + "\n";
  };
  std::string text = row("output", [&](int64_t o) { return std::to_string(o); });
  text += row("phase", [&](int64_t o) { return paint.phase(std::to_string(f.phase_of(o)), f.phase_of(o)); });
  const int64_t taps = std::min(f.kernel, most_taps_shown);
  for (int64_t k = 0; k < taps; ++k)
    text += row("tap " + std::to_string(k), [&](int64_t o) {
      const int64_t i = f.input_of(o, k);
      return i < 0 ? paint.faint(paint.dot()) : paint.phase("x" + std::to_string(i), f.phase_of(o));
    });
  if (taps < f.kernel) text += fmt::format("  ... and {} more taps\n", f.kernel - taps);
  if (shown < f.output) text += paint.faint(fmt::format("  the first {} of {} outputs", shown, f.output)) + "\n";
  return text;
}

std::string phase_list(const DimensionFacts& f, const Painter& paint) {
  std::string text = paint.faint("  q is (output + padding) / stride, rounded down") + "\n";
  const std::vector<PhaseFacts> phases = f.first_phases(most_phases_shown);
  for (const PhaseFacts& phase : phases) {
    std::vector<std::string> taps;
    for (int64_t j = 0; j < std::min(phase.taps, most_phase_taps_shown); ++j) {
      const int64_t k = phase.first_tap + j * phase.tap_step, shift = phase.first_shift + j * phase.shift_step;
      taps.push_back(shift == 0 ? fmt::format("tap {} of input q", k)
                                : fmt::format("tap {} of input q{}{}", k, paint.minus(), shift));
    }
    if (phase.taps > most_phase_taps_shown) taps.push_back(fmt::format("... {} taps in all", phase.taps));
    text += fmt::format("  {}  {}\n", paint.phase(fmt::format("phase {:<3}", phase.r), phase.r),
                        fmt::join(taps, ", "));
  }
  const int64_t others = f.phases_with_taps - int64_t(phases.size());
  if (others > 0) text += fmt::format("  ... and {} more phases\n", others);
  const int64_t empty = f.stride - f.phases_with_taps;
  if (empty > 0)
    text +=
        paint.faint(fmt::format("  {} phase{} without taps: the bias, or zero", empty, empty == 1 ? "" : "s")) +
        "\n";
  return text;
}

bool same_pattern(const DimensionFacts& a, const DimensionFacts& b) {
  return a.kernel == b.kernel && a.stride == b.stride && a.padding == b.padding && a.dilation == b.dilation;
}

std::string dimension_text(const LayerFacts& facts, std::size_t d, const TextStyle& style, const Painter& paint) {
  const DimensionFacts& f = facts.dimensions[d];
  std::string title = fmt::format("Dimension {}: {} {} {}, kernel {}, stride {}, padding {}, dilation {}", d,
                                  f.input, paint.arrow(), f.output, f.kernel, f.stride, f.padding, f.dilation);
  if (f.output_padding) title += fmt::format(", output padding {}", f.output_padding);
  for (std::size_t earlier = 0; earlier < d; ++earlier)
    if (same_pattern(facts.dimensions[earlier], f))
      return fmt::format("{}\n  the same pattern as dimension {}\n\n", paint.bold(title), earlier);
  return paint.bold(title) + "\n" + tap_grid(f, style, paint) + phase_list(f, paint) + "\n";
}

/// Taps per output over one period of the two innermost dimensions.
std::string phase_tile(const LayerFacts& facts, const Painter& paint) {
  const DimensionFacts& rows = facts.dimensions[facts.dimensions.size() - 2];
  const DimensionFacts& columns = facts.dimensions.back();
  if (rows.stride > most_tile_shown || columns.stride > most_tile_shown || rows.stride * columns.stride == 1)
    return "";
  std::string text = paint.bold(fmt::format("Taps per output, one period of dimensions {} and {}",
                                            facts.dimensions.size() - 2, facts.dimensions.size() - 1)) +
                     "\n";
  for (int64_t r = 0; r < rows.stride; ++r) {
    text += "  ";
    for (int64_t c = 0; c < columns.stride; ++c) {
      const int64_t taps = rows.taps_of(r) * columns.taps_of(c);
      text +=
          pad(taps ? paint.phase(std::to_string(taps), r * columns.stride + c) : paint.faint(paint.dot()), 4, '>');
    }
    text += "\n";
  }
  return text + "\n";
}

std::string work_text(const LayerFacts& facts, const Painter& paint) {
  const double wasted = 1 - facts.real_products / facts.zero_insertion_products;
  std::string text = paint.bold("Work") + "\n";
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("  {:<22}{}\n", label, value);
  };
  line("phases", fmt::format("{:.0f}, {:.0f} of them with taps", facts.phase_count, facts.phases_with_taps));
  line("multiplications", format_count(facts.real_products) + " that meet a real input");
  line("with inserted zeros",
       fmt::format("{}, {:.3g}{} as many: {:.0f} % of them by zero", format_count(facts.zero_insertion_products),
                   facts.zero_insertion_products / std::max(facts.real_products, 1.0), paint.times(),
                   wasted * 100));
  line("FLOPs",
       fmt::format("{} ({} per output element)", format_count(facts.flops),
                   format_count(facts.flops / (facts.output_bytes / double(size_of(facts.problem.layer.dtype))))));
  line("bytes", fmt::format("{}: input {}, weight {}, output {}", format_bytes(facts.bytes),
                            format_bytes(facts.input_bytes), format_bytes(facts.weight_bytes),
                            format_bytes(facts.output_bytes)));
  line("col2im buffer", format_bytes(facts.column_bytes) + " would be written and read; tconv has none");
  line("arithmetic intensity", fmt::format("{:.1f} FLOP per byte", facts.intensity()));
  return text + "\n";
}

std::string floor_text(const LayerFacts& facts, const std::optional<Ceilings>& machine, const Painter& paint) {
  std::string text = paint.bold("Floor: the least time the forward pass can take") + "\n";
  const auto line = [&](const char* label, const Ceilings& ceilings) {
    const Floor floor = floor_of(ceilings, facts.flops, facts.bytes);
    text += fmt::format("  {:<22}{}, bound by {} ({}/s, {}FLOP/s)\n", label, format_seconds(floor.seconds),
                        floor.memory_bound ? "memory" : "compute", format_bytes(ceilings.copy_bytes_per_second),
                        format_count(ceilings.flops_per_second));
  };
  if (machine) line("this machine's CPU", *machine);
  const H200Ceilings h200 = h200_ceilings();
  const auto on_h200 = [&](const char* label, const char* precision) {
    line(label, {h200.copy_bytes_per_second, h200.flops_per_second.at(precision)});
  };
  const DType dtype = facts.problem.layer.dtype;
  if (dtype == DType::f16) on_h200("one H200, fp16", "fp16");
  if (dtype == DType::bf16) on_h200("one H200, bf16", "bf16");
  if (dtype == DType::f64) on_h200("one H200, fp64", "fp64");
  if (dtype == DType::f32) {
    on_h200("one H200, tf32", "tf32");
    on_h200("one H200, fp32 FFMA", "fp32");  // which split products on tensor cores go below
    if (const auto eager = facts.problem.pytorch_h200_ms.find("eager");
        eager != facts.problem.pytorch_h200_ms.end())
      text += fmt::format("  {:<22}{} on it in eager mode, at the batch this problem is defined with\n",
                          "PyTorch's default", format_seconds(eager->second * 1e-3));
  }
  return text;
}

}  // namespace

std::string explain_as_text(const LayerFacts& facts, const std::optional<Ceilings>& machine,
                            const TextStyle& style) {
  const Painter paint(style);
  const Problem& problem = facts.problem;
  const int dims = problem.layer.dims;
  std::string text = paint.bold(format_layer(problem.layer, style.unicode));
  if (!problem.about.empty()) text += fmt::format("   ({}: {})", problem.name, problem.about);
  text += fmt::format("\nbatch {}, input {}, output {}, {}\n\n", problem.batch,
                      format_size(dims, problem.input, style.unicode),
                      format_size(dims, facts.output, style.unicode), to_string(problem.layer.dtype));
  for (std::size_t d = 0; d < facts.dimensions.size(); ++d) text += dimension_text(facts, d, style, paint);
  if (dims >= 2) text += phase_tile(facts, paint);
  return text + work_text(facts, paint) + floor_text(facts, machine, paint);
}

}  // namespace tconv::cli
