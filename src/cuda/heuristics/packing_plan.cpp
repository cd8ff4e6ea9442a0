#include "cuda/heuristics/packing_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/heuristics/march_tiles.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"

namespace tconv::cuda {

using device::Math;

Math math_of(const Layer& layer) {
  switch (layer.dtype) {
    case DType::f16:
      return Math::f16;
    case DType::bf16:
      return Math::bf16;
    case DType::f64:
      return Math::f64;
    default:
      return layer.precision == Precision::tf32 ? Math::tf32 : Math::fp32;
  }
}

namespace {

/// Of the multiplications that tensor cores do for a plan of one channel a word, those that the layer asks for.
double used_share(const Geometry& geometry, const RowPlan& rows) {
  double tiles = 0;
  for (const BlockType& type : rows.types)
    for (const Step& step : type.steps) tiles += std::popcount(step.mask);
  const double octets = std::ceil(double(geometry.group_in) / 8);
  return double(geometry.taps() * geometry.group_in * geometry.group_out) /
         (tiles * rows.channel_blocks * octets * 8 * rows.tile_rows);
}

/// For the kernels of warpgroups where they suit the layer, else for the general one; where it has few rows, also
/// for positions of several inputs, which shapes of wide rows take; with the lines of all phases along the height
/// together, which shapes of short or ragged rows take, or apart, which small images take; with outputs along the
/// width as channels, where strides are large or channels few; and numbers of 32 bits also as scaled fp16 numbers.
std::vector<PackingPlan> ways_of_packing(const Geometry& geometry, Math math, Layout layout,
                                         const PackingOptions& options) {
  const bool last = layout == Layout::channels_last;
  std::vector<PackingPlan> plans;
  RowPlan rows;
  const auto plan_wide = [&](Math as, int inputs) {
    const int per_word = device::channels_per_word(as), parts = device::weight_parts(as);
    return inputs ? make_wide_row_plan(geometry, per_word, parts, last, inputs, rows)
                  : make_wide_row_plan(geometry, per_word, parts, last, rows);
  };
  const auto add = [&](bool warpgroups, Math as) {
    plans.push_back({warpgroups ? Kernels::warpgroups : Kernels::general, as, std::move(rows)});
  };
  const auto add_wide = [&](Math as) {
    const bool suits = plan_wide(as, std::max(1, options.inputs)) && suits_warpgroups(geometry, as, rows);
    if (suits) add(true, as);
    return suits;
  };
  const auto add_whole_rows = [&](Math as) {
    const int per_word = device::channels_per_word(as), parts = device::weight_parts(as);
    if (options.exported || last || !plan_wide(as, std::max(1, options.inputs))) return;
    if (auto whole = with_whole_rows(geometry, per_word, parts, rows);
        whole && suits_panels(geometry, per_word, *whole)) {
      rows = std::move(*whole);
      if (suits_warpgroups(geometry, as, rows)) add(true, as);
    }
  };
  const auto add_lines_apart = [&](Math as) {
    const int per_word = device::channels_per_word(as), parts = device::weight_parts(as);
    if (options.exported || last || !plan_wide(as, std::max(1, options.inputs))) return;
    if (auto apart = with_lines_apart(geometry, per_word, parts, rows)) {
      rows = std::move(*apart);
      if (suits_panels(geometry, per_word, rows) && suits_warpgroups(geometry, as, rows)) add(true, as);
    }
  };
  const auto add_several_inputs = [&](Math as) {
    if (options.inputs == 0 && !options.exported && plan_wide(as, 0) && rows.x_phases > 1 &&
        (suits_warpgroups(geometry, as, rows) || may_suit_warpgroups(as, rows)))
      add(true, as);
  };
  const device::ChannelPhases phases =
      channel_phases_of(geometry, device::element_bytes(math), options.any_phases);
  const Geometry phased = seen(View::channel_phases, geometry, phases);
  // Where channels are few, for layers that no other plan has enough rows for.
  const auto add_channel_phases = [&](Math as) {
    const bool served = std::ranges::any_of(plans, [&](const PackingPlan& plan) {
      return plan.kernels == Kernels::warpgroups && plan.math == as && plan.view == View::plain &&
             suits_warpgroups(geometry, as, plan.rows);
    });
    if (served && !has_many_phases(geometry) && !options.any_phases) return;
    if (phases.count > 1 && options.warpgroups && !last && !options.exported && options.inputs == 0 &&
        make_wide_row_plan(phased, device::channels_per_word(as), device::weight_parts(as), phases, rows) &&
        suits_panels(phased, device::channels_per_word(as), rows) && suits_warpgroups(phased, as, rows))
      plans.push_back({Kernels::warpgroups, as, std::move(rows), View::channel_phases});
  };
  // Layers of two dimensions march along their height.
  const auto add_march = [&](Math as) {
    const bool flat = geometry.kernel[0] == 1 && geometry.stride[0] == 1 && geometry.padding[0] == 0;
    const View view = flat ? View::upright : View::plain;
    const Geometry marched = seen(view, geometry, {});
    if (options.marches && !last && !options.exported && options.inputs == 0 &&
        make_march_row_plan(marched, device::channels_per_word(as), device::weight_parts(as), rows) &&
        suits_march(marched, as, rows))
      plans.push_back({Kernels::march, as, std::move(rows), view});
  };
  if (math == Math::f64) {              // warpgroups have no products of doubles
    constexpr double least_used = 0.3;  // below, the direct kernel is as fast
    if (!options.doubles || !make_row_plan(geometry, device::channels_per_word(math), 4, rows)) return plans;
    if (used_share(geometry, rows) >= least_used) add(false, math);
    return plans;
  }
  const bool scales = options.warpgroups && device::element_bytes(math) == 4 && options.scaled.value_or(true);
  const Math scaled = math == Math::fp32 ? Math::halves : Math::half;
  if (scales && options.scaled) {
    const bool wide = add_wide(scaled);
    if (wide) add_whole_rows(scaled), add_lines_apart(scaled), add_march(scaled);
    add_channel_phases(scaled);
    if (!plans.empty()) return plans;
  }
  if (!(options.warpgroups && add_wide(math)) &&
      make_row_plan(geometry, device::channels_per_word(math), 4, rows)) {
    add(false, math);
    if (options.warpgroups && !options.exported && plan_wide(math, 1) && may_suit_warpgroups(math, rows))
      add(true, math);
  }
  if (!options.warpgroups) return plans;
  const bool both = scales && !options.scaled && !plans.empty();
  if (!plans.empty()) {
    add_whole_rows(math);
    add_lines_apart(math);
    add_several_inputs(math);
    add_march(math);
  }
  if (both) {
    add_wide(scaled);
    add_whole_rows(scaled);
    add_lines_apart(scaled);
    add_several_inputs(scaled);
    add_march(scaled);
  }
  add_channel_phases(math);
  if (scales && !options.scaled) add_channel_phases(scaled);
  return plans;
}

}  // namespace

std::vector<PackingPlan> plan_packings(const Geometry& geometry, Math math, Layout layout,
                                       const PackingOptions& options) {
  std::vector<PackingPlan> plans = ways_of_packing(geometry, math, layout, options);
  if (options.row_pairs && device::element_bytes(math) == 2)
    for (PackingPlan& plan : plans)
      if (plan.kernels == Kernels::warpgroups && plan.view == View::plain) pair_rows(geometry, plan.rows);
  return plans;
}

}  // namespace tconv::cuda
