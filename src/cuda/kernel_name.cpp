#include "cuda/kernel_name.hpp"

#include "cuda/kernels/sizes/weights.cuh"

namespace tconv::cuda {
namespace {

using device::GemmConfig;
using device::Int3;
using device::Math;

const char* name_of(Math math) {
  switch (math) {
    case Math::fp32:
      return "fp32";
    case Math::tf32:
      return "tf32";
    case Math::f16:
      return "f16";
    case Math::bf16:
      return "bf16";
    case Math::halves:
      return "fp32_halves";
    case Math::half:
      return "tf32_half";
    case Math::f64:
      return "f64";
  }
  return "";
}

std::string number(int value) {
  return std::to_string(value);
}

/// "_rows4", where there are several.
std::string several(const char* what, int count) {
  return count > 1 ? what + number(count) : "";
}

std::string where(bool is_so, const char* what) {
  return is_so ? what : "";
}

/// Teams, and blocks on a multiprocessor.
std::string teams(const GemmConfig& c) {
  return "_t" + number(c.teams) + "x" + number(c.blocks_per_sm);
}

std::string chunk(const GemmConfig& c) {
  return "_k" + number(c.chunk_words) + where(c.window > 1, "_aligned");
}

std::string march_tile(const GemmConfig& c, const std::string& box) {
  return number(c.box_parts) + "x" + number(c.position_tiles) + "x" + number(c.rows) + "_" + box +
         several("_runs", c.run_rows) + several("_l", c.loaders) + chunk(c);
}

std::string panel_tile(const GemmConfig& c, const std::string& box) {
  return number(c.position_tiles) + "x" + number(c.panel_columns) +
         (c.panel_flat ? "_flat" : several("_rows", c.product_rows)) +
         (c.whole_rows ? "_runs" + number(c.run_rows) : "") + "_" + box + teams(c) +
         (c.team_blocks > 1 ? several("_b", c.team_blocks) : where(c.box_parts > 1, "_p2")) +
         where(c.row_pairs, "_pairs") + where(c.in_turns, "_turns") + where(c.fills, "_fills") +
         (c.clustered ? "_cluster" : several("_split", c.depth_splits)) + where(c.turned, "_turned") +
         where(c.turned_once, device::panels_by_shift(c) ? "_shifts" : "_once") + where(c.mapped, "_mapped") +
         where(c.shared_halo != Int3{0, 0, 0}, "_shared") + where(c.rows_beside, "_beside") +
         where(device::first_phase(c) != Int3{0, 0, 0}, "_moved") + several("_phases", c.channel_phases.count) +
         several("_x", c.x_phases) + several("_l", c.loaders) + chunk(c);
}

}  // namespace

std::string kernel_name(const char* family, Math math) {
  return std::string(family) + "_gemm_" + name_of(math);
}

std::string kernel_name(const GemmConfig& c) {
  const std::string box = (c.images > 1 ? number(c.images) + "." : "") + number(c.box.d) + "." + number(c.box.h) +
                          "." + number(c.box.w);
  const std::string loads_and_stores = "_v" + number(c.x_vector) +
                                       (c.channel_rows ? "_y" + number(c.y_channels) : "") +
                                       where(c.resident_steps, "_resident");
  const char* const family = c.march ? "march" : c.panel_columns ? "panel" : c.teams ? "warpgroup" : "implicit";
  const std::string tile = c.march           ? march_tile(c, box)
                           : c.panel_columns ? panel_tile(c, box)
                           : c.teams         ? number(c.rows) + "x" + box + teams(c) + chunk(c)
                                             : number(device::row_tiles_of(c) * 16) + "x" + box + "_w" +
                                           number(c.warps_m) + "x" + number(c.warps_n);
  return kernel_name(family, c.math) + "_" + tile + loads_and_stores;
}

}  // namespace tconv::cuda
