// The picture of a layer. Per dimension: inputs above, outputs below, a curve for every product, and under
// each output the taps that feed it. Colours are phases. Below: what the layer costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/explain_render.hpp"
#include "cli/text.hpp"

namespace tconv::cli {
namespace {

using std::int64_t;

constexpr double page_width = 1040, margin = 36, label_width = 92;
constexpr double content_left = margin + label_width, content_width = page_width - margin - content_left;
constexpr int64_t most_outputs = 32, most_cropped = 4, most_taps = 16, most_curves = 256, most_tile = 12;

constexpr const char* ink = "#1f2933";
constexpr const char* soft_ink = "#64748b";
constexpr const char* empty_fill = "#eef1f5";
constexpr const char* input_fill = "#334155";
constexpr const char* phase_fills[] = {"#4c78a8", "#f58518", "#54a24b", "#e45756",
                                       "#2fa5a0", "#b279a2", "#d9a900", "#9d755d"};

const char* fill_of(int64_t phase) {
  return phase_fills[std::size_t(phase) % std::size(phase_fills)];
}

std::string escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  return escaped;
}

/// The elements of the document so far, and how far down the page they reach.
class Canvas {
 public:
  double y = margin;

  void text(double x, double at_y, double size, const std::string& content, const char* fill = ink,
            const char* anchor = "start", const char* weight = "400") {
    body_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" fill=\"{}\" text-anchor=\"{}\" "
        "font-weight=\"{}\">{}</text>\n",
        x, at_y, size, fill, anchor, weight, escape(content));
  }

  void box(double x, double at_y, double width, double height, const char* fill, const std::string& more = "") {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.1f}\" fill=\"{}\"{}/>\n", x,
        at_y, width, height, std::min(4.0, 0.18 * std::min(width, height)), fill, more);
  }

  void curve(double x0, double y0, double x1, double y1, const char* stroke) {
    const double bend = 0.5 * (y0 + y1);
    body_ += fmt::format(
        "<path d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"1.8\" stroke-opacity=\"0.8\"/>\n",
        x0, y0, x0, bend, x1, bend, x1, y1, stroke);
  }

  void line(double y_at) {
    body_ +=
        fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#dbe1e8\"/>\n", margin, y_at, page_width - margin);
  }

  std::string document() const {
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"Inter, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
        page_width, y + margin * 0.6, body_);
  }

 private:
  std::string body_;
};

/// Where the cells of one dimension stand. Outputs that padding crops are drawn as ghosts on the left.
struct Ruler {
  explicit Ruler(const DimensionFacts& f) {
    const int64_t reach = (f.kernel - 1) * f.dilation + 1;
    cropped = std::min(f.padding, most_cropped);
    outputs = std::min({f.output, most_outputs, std::max<int64_t>(20, 2 * f.stride + reach)});
    cell = std::min(34.0, content_width / double(outputs + cropped));
    box = cell - std::max(2.0, 0.1 * cell);
    font = std::clamp(0.4 * cell, 6.0, 12.5);
  }
  double centre(double o) const { return content_left + (o + double(cropped) + 0.5) * cell; }

  int64_t cropped, outputs;
  double cell, box, font;
};

void draw_cell(Canvas& canvas, const Ruler& ruler, double centre, double y, const char* fill,
               const std::string& label, const char* label_fill = "#ffffff", const std::string& more = "") {
  canvas.box(centre - ruler.box / 2, y, ruler.box, ruler.box, fill, more);
  if (!label.empty())
    canvas.text(centre, y + ruler.box / 2 + ruler.font * 0.36, ruler.font, label, label_fill, "middle", "600");
}

void draw_label(Canvas& canvas, double y, const std::string& label) {
  canvas.text(content_left - 14, y + 4, 12, label, soft_ink, "end");
}

/// An input stands above the middle of the outputs it feeds.
double input_centre(const DimensionFacts& f, const Ruler& ruler, int64_t i) {
  return ruler.centre(double(i * f.stride - f.padding) + 0.5 * double((f.kernel - 1) * f.dilation));
}

void draw_products(Canvas& canvas, const DimensionFacts& f, const Ruler& ruler) {
  const double input_y = canvas.y, output_y = input_y + ruler.cell + 84;
  const double right = content_left + content_width;
  draw_label(canvas, input_y + ruler.box / 2, "input");
  draw_label(canvas, output_y + ruler.box / 2, "output");
  int64_t last_input = -1;
  for (int64_t o = 0; o < ruler.outputs; ++o)
    for (int64_t k = 0; k < std::min(f.kernel, most_curves); ++k) {
      const int64_t i = f.input_of(o, k);
      if (i < 0 || input_centre(f, ruler, i) > right) continue;
      last_input = std::max(last_input, i);
      canvas.curve(std::max(input_centre(f, ruler, i), content_left), input_y + ruler.box, ruler.centre(double(o)),
                   output_y, fill_of(f.phase_of(o)));
    }
  // Inputs stand a cell apart at least: none but the last of them fit beside the outputs.
  for (int64_t i = std::max<int64_t>(0, last_input - 2 * most_outputs); i <= last_input; ++i) {
    const double centre = input_centre(f, ruler, i);
    if (centre >= content_left) draw_cell(canvas, ruler, centre, input_y, input_fill, std::to_string(i));
  }
  for (int64_t o = -ruler.cropped; o < ruler.outputs; ++o) {
    const std::string dashes = " stroke=\"#b6c0cc\" stroke-dasharray=\"3 3\"";
    if (o < 0)
      draw_cell(canvas, ruler, ruler.centre(double(o)), output_y, "none", "", soft_ink, dashes);
    else
      draw_cell(canvas, ruler, ruler.centre(double(o)), output_y, fill_of(f.phase_of(o)), std::to_string(o));
  }
  canvas.y = output_y + ruler.cell + 10;
}

void draw_tap_grid(Canvas& canvas, const DimensionFacts& f, const Ruler& ruler) {
  const int64_t taps = std::min(f.kernel, most_taps);
  for (int64_t k = 0; k < taps; ++k) {
    draw_label(canvas, canvas.y + ruler.box / 2, fmt::format("tap {} reads", k));
    for (int64_t o = 0; o < ruler.outputs; ++o) {
      const int64_t i = f.input_of(o, k);
      draw_cell(canvas, ruler, ruler.centre(double(o)), canvas.y, i < 0 ? empty_fill : fill_of(f.phase_of(o)),
                i < 0 ? "" : std::to_string(i));
    }
    canvas.y += ruler.cell;
  }
  if (taps < f.kernel) {
    canvas.text(content_left, canvas.y + 12, 12, fmt::format("and {} more taps", f.kernel - taps), soft_ink);
    canvas.y += 18;
  }
}

void draw_dimension(Canvas& canvas, const DimensionFacts& f, std::size_t d) {
  const Ruler ruler(f);
  canvas.line(canvas.y);
  canvas.y += 30;
  canvas.text(margin, canvas.y, 16, fmt::format("Dimension {}: {} → {}", d, f.input, f.output), ink, "start",
              "600");
  std::string about =
      fmt::format("kernel {}, stride {}, padding {}, dilation {}", f.kernel, f.stride, f.padding, f.dilation);
  if (f.output_padding) about += fmt::format(", output padding {}", f.output_padding);
  about += fmt::format("; {} of {} phases {} taps", f.phases_with_taps, f.stride,
                       f.phases_with_taps == 1 ? "has" : "have");
  canvas.text(page_width - margin, canvas.y, 13, about, soft_ink, "end");
  canvas.y += 18;
  draw_products(canvas, f, ruler);
  draw_tap_grid(canvas, f, ruler);
  canvas.y += 22;
}

/// One period of the two innermost dimensions: how many taps feed an output of each phase.
void draw_phase_tile(Canvas& canvas, const LayerFacts& facts) {
  const DimensionFacts& rows = facts.dimensions[facts.dimensions.size() - 2];
  const DimensionFacts& columns = facts.dimensions.back();
  if (rows.stride > most_tile || columns.stride > most_tile || rows.stride * columns.stride == 1) return;
  constexpr double cell = 34;
  canvas.line(canvas.y);
  canvas.y += 30;
  canvas.text(margin, canvas.y, 16, "Taps per output in one period", ink, "start", "600");
  canvas.text(page_width - margin, canvas.y, 13,
              fmt::format("rows: phases of dimension {}, columns: of dimension {}", facts.dimensions.size() - 2,
                          facts.dimensions.size() - 1),
              soft_ink, "end");
  canvas.y += 18;
  int64_t most = 1;
  for (int64_t r = 0; r < rows.stride; ++r)
    for (int64_t c = 0; c < columns.stride; ++c) most = std::max(most, rows.taps_of(r) * columns.taps_of(c));
  for (int64_t r = 0; r < rows.stride; ++r) {
    draw_label(canvas, canvas.y + cell / 2, fmt::format("phase {}", r));
    for (int64_t c = 0; c < columns.stride; ++c) {
      const int64_t taps = rows.taps_of(r) * columns.taps_of(c);
      const double x = content_left + double(c) * cell;
      const std::string opacity =
          fmt::format(" fill-opacity=\"{:.2f}\"", 0.35 + 0.65 * double(taps) / double(most));
      canvas.box(x, canvas.y, cell - 3, cell - 3, taps ? "#4c78a8" : empty_fill, taps ? opacity : "");
      if (taps)
        canvas.text(x + (cell - 3) / 2, canvas.y + cell / 2 + 3, 12.5, std::to_string(taps), "#ffffff", "middle",
                    "600");
    }
    canvas.y += cell;
  }
  canvas.y += 22;
}

void draw_bar(Canvas& canvas, const std::string& label, double share, const char* fill, const std::string& value) {
  constexpr double height = 18, label_room = 210, value_room = 150;
  const double room = page_width - 2 * margin - label_room - value_room;
  canvas.text(margin, canvas.y + height * 0.72, 13, label, ink);
  canvas.box(margin + label_room, canvas.y, std::max(2.0, room * share), height, fill);
  canvas.text(margin + label_room + std::max(2.0, room * share) + 10, canvas.y + height * 0.72, 13, value,
              soft_ink);
  canvas.y += height + 8;
}

void draw_cost(Canvas& canvas, const LayerFacts& facts) {
  canvas.line(canvas.y);
  canvas.y += 30;
  canvas.text(margin, canvas.y, 16, "Cost of the forward pass", ink, "start", "600");
  canvas.text(page_width - margin, canvas.y, 13, fmt::format("{:.1f} FLOP per byte", facts.intensity()), soft_ink,
              "end");
  canvas.y += 18;
  const double products = std::max(facts.real_products, facts.zero_insertion_products);
  draw_bar(canvas, "multiplications needed", facts.real_products / products, "#54a24b",
           format_count(facts.real_products));
  draw_bar(canvas, "with inserted zeros", facts.zero_insertion_products / products, "#cbd5e1",
           format_count(facts.zero_insertion_products));
  canvas.y += 6;
  const double bytes = std::max(facts.bytes, facts.bytes + 2 * facts.column_bytes);
  draw_bar(canvas, "bytes that must move", facts.bytes / bytes, "#4c78a8", format_bytes(facts.bytes));
  draw_bar(canvas, "with a col2im buffer", (facts.bytes + 2 * facts.column_bytes) / bytes, "#cbd5e1",
           format_bytes(facts.bytes + 2 * facts.column_bytes));
}

}  // namespace

std::string explain_as_svg(const LayerFacts& facts) {
  const Problem& problem = facts.problem;
  const int dims = problem.layer.dims;
  Canvas canvas;
  canvas.y += 12;
  canvas.text(margin, canvas.y, 22, format_layer(problem.layer), ink, "start", "700");
  canvas.y += 24;
  std::string about =
      fmt::format("batch {}, input {}, output {}, {}", problem.batch, format_size(dims, problem.input),
                  format_size(dims, facts.output), to_string(problem.layer.dtype));
  if (!problem.about.empty()) about = fmt::format("{} ({}): {}", problem.name, problem.about, about);
  canvas.text(margin, canvas.y, 14, about, soft_ink);
  canvas.y += 20;
  for (std::size_t d = 0; d < facts.dimensions.size(); ++d) draw_dimension(canvas, facts.dimensions[d], d);
  if (dims >= 2) draw_phase_tile(canvas, facts);
  draw_cost(canvas, facts);
  return canvas.document();
}

}  // namespace tconv::cli
