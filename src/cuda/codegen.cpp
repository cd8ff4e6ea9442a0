#include "cuda/codegen.hpp"

#include <sstream>

#include "cuda/int3.hpp"
#include "cuda/kernels/sizes/tile.cuh"

namespace tconv::cuda {
namespace {

using device::GemmConfig;
using device::Math;

std::string text(const Int3& v) {
  return "{" + std::to_string(v.d) + ", " + std::to_string(v.h) + ", " + std::to_string(v.w) + "}";
}
std::string text(const Extents& v) {
  return text(int3(v));
}
std::string text(bool v) {
  return v ? "true" : "false";
}
std::string text(Math math) {
  switch (math) {
    case Math::fp32:
      return "Math::fp32";
    case Math::tf32:
      return "Math::tf32";
    case Math::f16:
      return "Math::f16";
    case Math::bf16:
      return "Math::bf16";
    case Math::halves:
      return "Math::halves";
    case Math::half:
      return "Math::half";
    case Math::f64:
      return "Math::f64";
  }
  return "";
}
const char* element_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
  }
  return "";
}

std::string config_text(const GemmConfig& c) {
  std::ostringstream out;
  out << "constexpr GemmConfig config{\n"
      << "    .math = " << text(c.math) << ",\n"
      << "    .groups = " << c.groups << ", .group_in = " << c.group_in << ", .group_out = " << c.group_out
      << ",\n"
      << "    .kernel = " << text(c.kernel) << ", .stride = " << text(c.stride)
      << ", .padding = " << text(c.padding) << ", .dilation = " << text(c.dilation) << ",\n"
      << "    .first_position = " << text(c.first_position) << ", .reach = " << text(c.reach) << ",\n"
      << "    .channel_phases = {" << c.channel_phases.count << ", " << c.channel_phases.lead << ", "
      << c.channel_phases.first_tap << ", " << c.channel_phases.taps << "},\n"
      << "    .x_channels_last = " << text(c.x_channels_last) << ", .y_rows = " << text(c.y_rows)
      << ", .x_vector = " << c.x_vector << ",\n"
      << "    .types = " << c.types << ", .channel_blocks = " << c.channel_blocks
      << ", .channels_per_block = " << c.channels_per_block << ", .x_phases = " << c.x_phases << ",\n"
      << "    .phase_major = " << text(c.phase_major) << ", .width_phases = " << c.width_phases
      << ", .width_slots = " << c.width_slots << ", .line_phases = " << c.line_phases
      << ", .run_phases = " << c.run_phases << ", .row_pairs = " << text(c.row_pairs)
      << ", .stage_group_tiles = " << c.stage_group_tiles << ", .stage_group_lines = " << c.stage_group_lines
      << ", .masked = " << text(c.masked) << ",\n"
      << "    .box = " << text(c.box) << ", .warps_m = " << c.warps_m << ", .warps_n = " << c.warps_n
      << ", .tiles_m = " << c.tiles_m << ", .tiles_n = " << c.tiles_n << ",\n"
      << "    .chunk_words = " << c.chunk_words << ", .steps_per_slab = " << c.steps_per_slab
      << ", .stages = " << c.stages << ", .x_stages = " << c.x_stages << ", .octet_group = " << c.octet_group
      << ",\n"
      << "    .resident_steps = " << c.resident_steps << ", .blocks_per_sm = " << c.blocks_per_sm << ",\n"
      << "    .teams = " << c.teams << ", .rows = " << c.rows << ", .position_tiles = " << c.position_tiles
      << ", .images = " << c.images << ", .window = " << c.window << ",\n"
      << "    .stage_rows = " << c.stage_rows << ", .stage_buffers = " << c.stage_buffers
      << ", .round_on_load = " << text(c.round_on_load) << ", .y_channels = " << c.y_channels
      << ", .channel_rows = " << text(c.channel_rows) << ",\n"
      << "    .panel_columns = " << c.panel_columns << ", .panel_stages = " << c.panel_stages
      << ", .product_rows = " << c.product_rows << ", .whole_rows = " << text(c.whole_rows)
      << ", .run_rows = " << c.run_rows << ", .team_blocks = " << c.team_blocks << ", .box_parts = " << c.box_parts
      << ", .loaders = " << c.loaders << ", .fill_buffers = " << c.fill_buffers
      << ", .panel_flat = " << text(c.panel_flat) << ",\n"
      << "    .turned = " << text(c.turned) << ", .turned_once = " << text(c.turned_once)
      << ", .panel_steps = " << c.panel_steps << ", .shared_halo = " << text(c.shared_halo)
      << ", .rows_beside = " << text(c.rows_beside) << ",\n    .mapped = " << text(c.mapped)
      << ", .in_turns = " << text(c.in_turns) << ", .fills = " << text(c.fills)
      << ", .depth_splits = " << c.depth_splits << ", .clustered = " << text(c.clustered)
      << ", .march = " << c.march << "};\n";
  return out.str();
}

/// "qualifier type name[] = {a, b, …};", never empty.
template <class Range, class Write>
void array(std::ostringstream& out, const std::string& declaration, const Range& values, const Write& write) {
  out << declaration << "[] = {";
  std::size_t column = 0;
  for (const auto& value : values) out << (column++ % 16 == 0 ? "\n    " : " ") << write(value) << ",";
  if (column == 0) out << "0";
  out << "};\n";
}

/// Tables of different length, one after the other, with the first index of each.
struct Concatenated {
  std::vector<int> first;
  std::vector<Step> steps;
};
Concatenated all_steps(const RowPlan& rows) {
  Concatenated all;
  for (const BlockType& type : rows.types) {
    all.first.push_back(int(all.steps.size()));
    all.steps.insert(all.steps.end(), type.steps.begin(), type.steps.end());
  }
  return all;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string offset_text(const Int3& shift) {
  if (shift.d < 0) return "0";  // padding of a paired step: its weights are zero
  return "step_offset(config, {" + std::to_string(shift.d) + ", " + std::to_string(shift.h) + ", " +
         std::to_string(shift.w) + "})";
}

/// What both programs know of the types: steps, where their weights begin.
/// Tables of the panel kernel are constants to the compiler as well, which turns all steps of a group into
/// immediates; the other kernels would be unrolled by that into more registers than there are.
std::string table(const GemmConfig& c, const char* declaration) {
  return std::string("__constant__ ") + (c.panel_columns ? "constexpr " : "") + declaration;
}
std::string types_text(const RowPlan& rows, const Geometry& geometry, const GemmConfig& c) {
  std::ostringstream out;
  const auto number = [](auto v) { return std::to_string(v); };
  std::vector<int> counts;
  std::vector<std::int64_t> bases;
  for (std::size_t t = 0; t < rows.types.size(); ++t) {
    counts.push_back(int(rows.types[t].steps.size()));
    bases.push_back(
        rows.weight_base(int(t), geometry, device::channels_per_word(c), c.teams ? device::weight_parts(c) : 1));
  }
  array(out, table(c, "int step_count"), counts, number);
  array(out, table(c, "i64 weight_bases"), bases, number);
  return out.str();
}

Geometry geometry_in(const GemmConfig& c) {
  Geometry g;
  g.groups = c.groups, g.group_in = c.group_in, g.group_out = c.group_out;
  return g;
}

}  // namespace

namespace {

/// The product of a warpgroup, 64 by `columns` sums. Operands are in shared memory, or the first in registers.
std::string wgmma_text(const GemmConfig& c, int columns, bool first_in_registers) {
  const char* const type = c.math == Math::bf16 ? "bf16" : device::channels_per_word(c) == 2 ? "f16" : "tf32";
  const bool halves = device::channels_per_word(c) == 2;
  const int sums = columns / 2, b = sums + (first_in_registers ? 4 : 1);
  const auto at = [](int operand) { return "%" + std::to_string(operand); };
  std::ostringstream out;
  out << "struct Wgmma {\n"
      << "  /// d = a·b, or d += a·b where `add`.\n"
      << "  __device__ static void multiply(float (&d)[" << sums << "], "
      << (first_in_registers ? "const u32 (&a)[4]" : "u64 a") << ", u64 b, bool add) {\n"
      << "    asm volatile(\n        \"{\\n.reg .pred p;\\nsetp.ne.b32 p, " << at(b + 1) << ", 0;\\n\"\n"
      << "        \"wgmma.mma_async.sync.aligned.m64n" << columns << (halves ? "k16" : "k8") << ".f32." << type
      << "." << type << " {\"";
  for (int i = 0; i < sums; ++i) {
    if (i % 16 == 0) out << "\n        \"";
    out << at(i) << (i + 1 < sums ? ", " : "");
    if (i % 16 == 15 || i + 1 == sums) out << "\"";
  }
  out << "\n        \"}, ";
  if (first_in_registers)
    out << "{" << at(sums) << ", " << at(sums + 1) << ", " << at(sums + 2) << ", " << at(sums + 3) << "}";
  else
    out << at(sums);
  out << ", " << at(b) << ", p, 1, 1"
      << (!halves              ? ""
          : first_in_registers ? ", 0"
          : c.mapped           ? ", 0, 1"  // positions are the major dimension
                               : ", 0, 0")
      << ";\\n}\\n\"\n        : ";
  for (int i = 0; i < sums; ++i)
    out << "\"+f\"(d[" << i << "])" << (i + 1 < sums ? i % 8 == 7 ? ",\n          " : ", " : "");
  out << "\n        : " << (first_in_registers ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)")
      << ", \"l\"(b), \"r\"(int(add)));\n  }\n};\n\n";
  return out.str();
}

std::string forward_source(const GemmConfig& c, const RowPlan& rows, const char* header, const char* kernel,
                           const std::string& instruction) {
  std::ostringstream out;
  out << "#include \"" << header << "\"\n\nnamespace tconv::device {\n\n" << config_text(c) << "\n";
  const Concatenated all = all_steps(rows);
  const auto number = [](auto v) { return std::to_string(v); };
  out << types_text(rows, geometry_in(c), c);
  array(out, table(c, "int first_step"), all.first, number);
  array(out, table(c, "int low_offsets"), all.steps, [](const Step& s) { return offset_text(s.low); });
  // What is no step of a pair has weights of zeros: panels are read where the other one does.
  array(out, table(c, "int high_offsets"), all.steps,
        [&](const Step& s) { return offset_text(c.panel_columns && s.high.d < 0 ? s.low : s.high); });
  array(out, table(c, "u32 step_masks"), all.steps, [](const Step& s) { return std::to_string(s.mask) + "u"; });
  std::vector<std::uint32_t> lines;
  for (const BlockType& type : rows.types)
    for (const Line& line : type.lines)
      lines.push_back(line.channel < 0
                          ? ~0u
                          : std::uint32_t(line.channel) | std::uint32_t(line.phase_d - rows.first_phase.d) << 16 |
                                std::uint32_t(line.phase_h - rows.first_phase.h) << 24);
  array(out, table(c, "u32 line_entries"), lines, [](std::uint32_t v) { return std::to_string(v) + "u"; });
  // Of panels by shift: the shift of each, along depth and height.
  std::vector<std::uint32_t> shifts;
  for (std::size_t i = 0; device::panels_by_shift(c) && i < all.steps.size(); i += std::size_t(c.panel_steps))
    shifts.push_back(std::uint32_t(all.steps[i].low.d) << 16 | std::uint32_t(all.steps[i].low.h));
  if (!shifts.empty())
    array(out, table(c, "u32 panel_shifts"), shifts, [](std::uint32_t v) { return std::to_string(v) + "u"; });
  std::string tables = R"(
struct Tables {
  __device__ static int steps(int type) { return step_count[type]; }
  __device__ static i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static int first_entry(int type) { return first_step[type]; }
  __device__ static int low_offset(int entry) { return low_offsets[entry]; }
  __device__ static int high_offset(int entry) { return high_offsets[entry]; }
  __device__ static u32 mask(int entry) { return step_masks[entry]; }
SHIFTS  __device__ static u32 line(int type, int line) { return line_entries[type * LINES + line]; }
};

)";
  replace_all(tables, "SHIFTS",
              shifts.empty()
                  ? ""
                  : "  /// The shift of the panel of a step, along depth and height.\n"
                    "  __device__ static int depth_shift(int entry) { return panel_shifts[entry / " +
                        number(c.panel_steps) +
                        "] >> 16; }\n"
                        "  __device__ static int height_shift(int entry) { return panel_shifts[entry / " +
                        number(c.panel_steps) + "] & 0xffff; }\n");
  replace_all(tables, "LINES", std::to_string(rows.types[0].lines.size()));
  if (c.panel_columns) replace_all(tables, "__device__ static", "__device__ static constexpr");
  out << tables << instruction << "using Kernel = " << kernel << R"(;

extern "C" __global__ void __launch_bounds__(Kernel::threads, config.blocks_per_sm))"
      << (c.clustered ? " __cluster_dims__(config.depth_splits)" : "") << R"(
    forward(const __grid_constant__ )"
      << (c.mapped ? "MappedParams" : "ForwardParams") << R"( params) {
  Kernel::run(params);
}

}  // namespace tconv::device
)";
  return out.str();
}

}  // namespace

std::string gemm_source(const GemmConfig& c, const RowPlan& rows) {
  return forward_source(c, rows, "implicit_gemm.cuh", "ImplicitGemm<config, Tables>", "");
}

std::string warpgroup_source(const GemmConfig& c, const RowPlan& plan) {
  const bool moved = device::first_phase(c) != Int3{0, 0, 0};
  const RowPlan rows = moved ? from_first_output(plan, c.stride, c.padding).value() : plan;
  if (c.march)
    return forward_source(c, rows, "march_gemm.cuh", "MarchGemm<config, Tables, Wgmma>",
                          wgmma_text(c, c.rows, false));
  if (c.panel_columns)
    return forward_source(c, rows, "panel_gemm.cuh", "PanelGemm<config, Tables, Wgmma>",
                          wgmma_text(c, c.panel_columns, false));
  return forward_source(c, rows, "warpgroup_gemm.cuh", "WarpgroupGemm<config, Tables, Wgmma>",
                        wgmma_text(c, c.rows, true));
}

std::string turn_source(Math math, device::TurnLoad load) {
  const char* const names[] = {"element", "pair", "vector"};
  std::ostringstream out;
  out << "#include \"turn_x.cuh\"\n\nnamespace tconv::device {\n\n";
  for (const bool few : {false, true}) {
    const std::string turn =
        "TurnX<" + text(math) + ", TurnLoad::" + names[int(load)] + ", " + (few ? "1" : "turn_depth") + ">";
    out << "extern \"C\" __global__ void __launch_bounds__(" << turn << "::most_threads) "
        << turn_entry(few ? 1 : device::turn_depth) << "(const __grid_constant__ TurnParams params) {\n  " << turn
        << "::run(params);\n}\n\n";
  }
  out << "}  // namespace tconv::device\n";
  return out.str();
}

const char* turn_entry(int item_slices) {
  return item_slices == 1 ? "turn_slices" : "turn";
}

std::string weight_scales_source() {
  return R"(#include "weight_scales.cuh"

namespace tconv::device {

extern "C" __global__ void __launch_bounds__(256) find(const __grid_constant__ ScaleParams params) {
  find_weight_scales(params);
}

}  // namespace tconv::device
)";
}

std::string pack_source(const GemmConfig& c, const RowPlan& rows, const Geometry& geometry) {
  std::ostringstream out;
  out << "#include \"pack.cuh\"\n\nnamespace tconv::device {\n\n" << config_text(c) << "\n";
  const Concatenated all = all_steps(rows);
  out << types_text(rows, geometry, c);
  array(out, table(c, "int first_step"), all.first, [](int v) { return std::to_string(v); });
  array(out, "__device__ const Int3 low_shifts", all.steps, [](const Step& s) { return text(s.low); });
  array(out, "__device__ const Int3 high_shifts", all.steps, [](const Step& s) { return text(s.high); });
  out << "struct __align__(16) Row {\n  int channel;\n  Int3 phase;\n};\n";
  std::vector<Row> flat;
  for (const BlockType& type : rows.types) flat.insert(flat.end(), type.rows.begin(), type.rows.end());
  array(out, "__device__ const Row all_rows", flat,
        [](const Row& r) { return "{" + std::to_string(r.channel) + ", " + text(r.phase) + "}"; });
  out << R"(
struct Tables {
  __device__ static int steps(int type) { return step_count[type]; }
  __device__ static i64 weight_base(int type) { return weight_bases[type]; }
  __device__ static Int3 step_shift(int type, int step, bool high) {
    return high ? high_shifts[first_step[type] + step] : low_shifts[first_step[type] + step];
  }
  __device__ static Row row(int type, int row) { return all_rows[type * )"
      << rows.rows() << R"( + row]; }
};

extern "C" __global__ void __launch_bounds__(256) pack(const __grid_constant__ PackParams params) {
  )" << (c.teams ? "pack_rows" : "pack_fragments")
      << R"(<config, Tables>(params);
}

}  // namespace tconv::device
)";
  return out.str();
}

namespace {

std::string layer_text(const Geometry& g, DType dtype) {
  std::ostringstream out;
  out << "struct Layer {\n"
      << "  using Element = " << element_name(dtype) << ";\n"
      << "  static constexpr int groups = " << g.groups << ", group_in = " << g.group_in
      << ", group_out = " << g.group_out << ";\n"
      << "  static constexpr Int3 kernel" << text(g.kernel) << ", stride" << text(g.stride) << ", padding"
      << text(g.padding) << ", dilation" << text(g.dilation) << ";\n"
      << "};\n";
  return out.str();
}

}  // namespace

std::string generic_source(const Geometry& g, DType dtype) {
  return "#include \"generic.cuh\"\n\nnamespace tconv::device {\n\n" + layer_text(g, dtype) + R"(
extern "C" __global__ void __launch_bounds__(256) forward(const __grid_constant__ GenericParams params) {
  generic_forward<Layer>(params);
}

}  // namespace tconv::device
)";
}

std::string direct_source(const device::DirectConfig& c, DType dtype) {
  std::ostringstream out;
  out << "#include \"" << (c.channels_last ? "direct_channels.cuh" : "direct_rows.cuh")
      << "\"\n\nnamespace tconv::device {\n\n"
      << "constexpr DirectConfig config{\n"
      << "    .groups = " << c.groups << ", .group_in = " << c.group_in << ", .group_out = " << c.group_out
      << ",\n"
      << "    .kernel = " << text(c.kernel) << ", .stride = " << text(c.stride)
      << ", .padding = " << text(c.padding) << ", .dilation = " << text(c.dilation) << ",\n"
      << "    .channels_last = " << text(c.channels_last) << ", .dense_weight = " << text(c.dense_weight)
      << ", .x_vector = " << c.x_vector << ", .y_vector = " << c.y_vector << ", .staged = " << text(c.staged)
      << ",\n"
      << "    .positions = " << c.positions << ", .rows = " << c.rows << ", .channels = " << c.channels
      << ", .slots = " << c.slots << ", .blocks_per_sm = " << c.blocks_per_sm << "};\n\n"
      << "using Kernel = " << (c.channels_last ? "DirectChannels" : "DirectRows") << "<" << element_name(dtype)
      << R"(, config>;

extern "C" __global__ void __launch_bounds__(direct_threads, config.blocks_per_sm)
    forward(const __grid_constant__ DirectParams params) {
  Kernel::run_layer(params);
}

}  // namespace tconv::device
)";
  return out.str();
}

}  // namespace tconv::cuda
