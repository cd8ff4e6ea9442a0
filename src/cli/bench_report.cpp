#include "cli/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/text.hpp"

namespace tconv::cli {
namespace {

constexpr const char* bold = "\x1b[1m";
constexpr const char* red = "\x1b[31m";
constexpr const char* green = "\x1b[32m";
constexpr const char* dim = "\x1b[2m";
constexpr const char* reset = "\x1b[0m";

struct Column {
  const char* title;
  char align;
};

constexpr Column columns[] = {{"problem", '<'}, {"layer", '<'},   {"input", '<'},    {"pass", '<'},
                              {"batch", '>'},   {"time", '>'},    {"GFLOP/s", '>'},  {"GB/s", '>'},
                              {"floor", '>'},   {"x floor", '>'}, {"bound by", '<'}, {"error", '>'}};
constexpr std::size_t column_count = std::size(columns);

using Row = std::vector<std::string>;

std::string rate(double per_second) {
  const double giga = per_second * 1e-9;
  return giga >= 99.95 ? fmt::format("{:.0f}", giga) : fmt::format("{:.1f}", giga);
}

Row row_of(const Measurement& m, bool unicode) {
  const Layer& layer = m.problem.layer;
  Row row{
      m.problem.name, format_layer(layer, unicode), format_size(layer.dims, m.problem.input, unicode), m.pass,
      m.batch == m.problem.batch ? fmt::format("{}", m.batch) : fmt::format("{} of {}", m.batch, m.problem.batch)};
  if (m.right()) {
    const double seconds = m.median();
    row.insert(row.end(), {format_seconds(seconds), rate(m.flops / seconds), rate(m.bytes / seconds),
                           format_seconds(m.floor.seconds), fmt::format("{:.2f}", m.times_floor()),
                           m.floor.memory_bound ? "memory" : "compute", fmt::format("{:.1e}", m.verdict.error())});
  } else {
    row.insert(row.end(), {"WRONG", "", "", "", "", "", ""});
  }
  return row;
}

std::string table_text(const std::vector<Row>& rows, bool colour, bool unicode) {
  std::vector<int> widths;
  for (std::size_t c = 0; c < column_count; ++c) {
    int width = display_width(columns[c].title);
    for (const Row& row : rows) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  const auto line = [&](const Row& row) {
    std::string text;
    for (std::size_t c = 0; c < column_count; ++c)
      text += (c ? "  " : "") + pad(row[c], widths[c], columns[c].align);
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
  };
  Row titles;
  int total = 0;
  for (std::size_t c = 0; c < column_count; ++c) {
    titles.push_back(columns[c].title);
    total += widths[c] + (c ? 2 : 0);
  }
  std::string text = (colour ? bold : "") + line(titles) + (colour ? reset : "");
  if (colour) text += dim;
  for (int i = 0; i < total; ++i) text += unicode ? "─" : "-";
  if (colour) text += reset;
  text += "\n";
  std::string previous;
  for (Row row : rows) {
    // A problem is named once; its further passes stand below it.
    const std::string name = row[0];
    if (name == previous) row[0] = row[1] = row[2] = "";
    previous = name;
    text += line(row);
  }
  return text;
}

double geometric_mean_of_floors(const std::vector<Measurement>& measurements, const std::string& pass,
                                int& count) {
  double logarithms = 0;
  count = 0;
  for (const Measurement& m : measurements)
    if (m.right() && m.pass == pass) {
      logarithms += std::log(m.times_floor());
      ++count;
    }
  return count ? std::exp(logarithms / count) : 0;
}

std::string engine_line(const BenchReport& report) {
  const std::string threads = fmt::format("{} thread{}", report.threads, report.threads == 1 ? "" : "s");
  for (const DeviceInfo& device : report.system.devices)
    if (device.device.kind == DeviceKind::cpu) {
      std::string text = fmt::format("{} engine on {}, {}", device.engine, device.name, device.details);
      return text.ends_with(threads) ? text : text + ", limited to " + threads;
    }
  return threads;
}

nlohmann::ordered_json list_of(int dims, const Extents& extents) {
  return std::vector<std::int64_t>(extents.begin(), extents.begin() + dims);
}

nlohmann::ordered_json json_of(const Measurement& m) {
  const Layer& layer = m.problem.layer;
  nlohmann::ordered_json result{
      {"problem", m.problem.name},
      {"pass", m.pass},
      {"batch", m.batch},
      {"full_batch", m.problem.batch},
      {"in_channels", layer.in_channels},
      {"out_channels", layer.out_channels},
      {"spatial", list_of(layer.dims, m.problem.input)},
      {"kernel", list_of(layer.dims, layer.kernel)},
      {"stride", list_of(layer.dims, layer.stride)},
      {"padding", list_of(layer.dims, layer.padding)},
      {"output_padding", list_of(layer.dims, layer.output_padding)},
      {"dilation", list_of(layer.dims, layer.dilation)},
      {"groups", layer.groups},
      {"bias", layer.bias},
      {"right", m.right()},
      {"elements_checked", m.verdict.checked},
      {"flops", m.flops},
      {"bytes", m.bytes},
      {"floor_ms", m.floor.seconds * 1e3},
      {"bound_by", m.floor.memory_bound ? "memory" : "compute"},
  };
  if (!m.verdict.right()) result["complaint"] = m.verdict.complaint;
  if (m.right())
    result.update({{"error", m.verdict.error()},
                   {"repetitions", m.seconds.size()},
                   {"median_ms", m.median() * 1e3},
                   {"best_ms", m.seconds.front() * 1e3},
                   {"gflops", m.flops / m.median() * 1e-9},
                   {"gbs", m.bytes / m.median() * 1e-9},
                   {"times_floor", m.times_floor()}});
  return result;
}

}  // namespace

bool all_right(const BenchReport& report) {
  return report.complaints.empty() && std::all_of(report.measurements.begin(), report.measurements.end(),
                                                  [](const Measurement& m) { return m.right(); });
}

std::string table_of(const BenchReport& report, bool colour, bool unicode) {
  const char* dot = unicode ? " · " : ", ";
  std::string text =
      fmt::format("tconv {}{}{}\n{}{}{}{}ceilings measured now: copy {:.1f} GB/s, {} {:.0f} GFLOP/s\n\n",
                  report.system.version, dot, engine_line(report), to_string(report.dtype), dot,
                  to_string(report.layout), dot, report.ceilings.copy_bytes_per_second * 1e-9,
                  size_of(report.dtype) == 2 ? "multiply-add in fp32" : "multiply-add",
                  report.ceilings.flops_per_second * 1e-9);

  std::vector<Row> rows;
  for (const Measurement& m : report.measurements) rows.push_back(row_of(m, unicode));
  if (!rows.empty()) text += table_text(rows, colour, unicode) + "\n";

  std::vector<std::string> seen;
  for (const Measurement& m : report.measurements) {
    if (std::find(seen.begin(), seen.end(), m.pass) != seen.end()) continue;
    seen.push_back(m.pass);
    int count = 0;
    const double mean = geometric_mean_of_floors(report.measurements, m.pass, count);
    if (count > 1)
      text += fmt::format("{}: {:.2f} times the floor (geometric mean of {} problems)\n", m.pass, mean, count);
  }

  for (const Measurement& m : report.measurements)
    if (!m.verdict.right())
      text += fmt::format("{}{} {}: WRONG RESULT: {}{}\n", colour ? red : "", m.problem.name, m.pass,
                          m.verdict.complaint, colour ? reset : "");
  for (const std::string& complaint : report.complaints)
    text += fmt::format("{}not run: {}{}\n", colour ? red : "", complaint, colour ? reset : "");
  std::int64_t checked = 0;
  for (const Measurement& m : report.measurements) checked += m.verdict.checked;
  if (all_right(report))
    text += fmt::format("{}All results are right: {} elements checked against float64.{}\n", colour ? green : "",
                        checked, colour ? reset : "");
  return text;
}

std::string json_of(const BenchReport& report) {
  nlohmann::ordered_json root{
      {"version", report.system.version},
      {"engine", engine_line(report)},
      {"threads", report.threads},
      {"seed", report.seed},
      {"dtype", to_string(report.dtype)},
      {"layout", to_string(report.layout)},
      {"ceilings",
       {{"copy_gbs", report.ceilings.copy_bytes_per_second * 1e-9},
        {"gflops", report.ceilings.flops_per_second * 1e-9}}},
      {"all_right", all_right(report)},
      {"results", nlohmann::ordered_json::array()},
      {"not_run", report.complaints},
  };
  for (const Measurement& m : report.measurements) root["results"].push_back(json_of(m));
  return root.dump(1) + "\n";
}

}  // namespace tconv::cli
