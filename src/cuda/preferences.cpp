#include "cuda/preferences.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/environment.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cuda {
namespace {

struct NamedPanels {
  std::string_view name;
  PreferredPanels panels;
};
constexpr NamedPanels named_panels[] = {
    {"1", {}},                                                            // any
    {"2", {.members = 2}},                                                // panels that several warpgroups share
    {"turned", {.turned = true}},                                         // x that is turned before
    {"once", {.turned = true, .turned_once = true}},                      // and once for all boxes
    {"shifts", {.turned = true, .by_shift = true, .turned_once = true}},  // a panel for each shift of rows
    {"beside", {.turned = true, .rows_beside = true}},                    // rows of several images side by side
    {"mapped", {.mapped = true}},                                         // x that is copied as it lies
    {"split", {.turned = true, .depth_splits = 2}},                       // tiles that share sums
    {"clusters", {.clustered = true}},                                    // two of them, as blocks of a cluster
    {"mapped_clusters", {.mapped = true, .clustered = true}},             // of mapped x
    {"turned_clusters", {.turned = true, .clustered = true}},             // of turned x
    {"turns", {.in_turns = true}},                                        // warpgroups that multiply in turns
    {"joined", {.product_rows = 2}},                                      // products that cover several rows
    {"runs", {.whole_rows = true}},                                       // several rows of outputs in one run
    {"phases", {.channel_phases = true}},  // outputs along the width that are channels
    {"loaders", {.loaders = 2}},           // two warpgroups that fill panels
};

PreferredPanels panels_named(std::string_view wanted) {
  std::string names;
  for (const NamedPanels& named : named_panels) {
    if (named.name == wanted) return named.panels;
    names.append(names.empty() ? "" : ", ").append(named.name);
  }
  throw InvalidArgument("TCONV_PREFER_PANELS must be one of " + names + ", got '" + std::string(wanted) + "'");
}

int inputs_named(std::string_view wanted) {
  for (const int inputs : {1, 2, 4, 8})
    if (std::to_string(inputs) == wanted) return inputs;
  throw InvalidArgument("TCONV_X_PHASES must be 1, 2, 4 or 8, got '" + std::string(wanted) + "'");
}

}  // namespace

std::vector<std::string> panel_preferences() {
  std::vector<std::string> names;
  for (const NamedPanels& named : named_panels) names.emplace_back(named.name);
  return names;
}

Preferences preferences() {
  Preferences result;
  result.no_warpgroups = is_on("TCONV_NO_WGMMA");
  result.no_halves = is_on("TCONV_NO_HALVES");
  result.halves = is_on("TCONV_PREFER_HALVES");
  result.doubles = is_on("TCONV_PREFER_DOUBLES");
  result.row_pairs = is_on("TCONV_PREFER_PAIRS");
  result.no_march = is_on("TCONV_NO_MARCH");
  result.march = is_on("TCONV_PREFER_MARCH");
  if (is_on("TCONV_X_PHASES")) result.inputs = inputs_named(setting("TCONV_X_PHASES"));
  if (const char* const bytes = setting("TCONV_MOST_TURNED_BYTES")) result.turned_bytes = std::atoi(bytes);
  if (is_on("TCONV_PREFER_PANELS")) result.panels = panels_named(setting("TCONV_PREFER_PANELS"));
  return result;
}

bool is_preferred(const PreferredPanels& preferred, const device::GemmConfig& c) {
  return c.panel_columns > 0 && c.march == 0 && c.turned == preferred.turned && c.mapped == preferred.mapped &&
         c.clustered == preferred.clustered && c.turned_once >= preferred.turned_once &&
         device::panels_by_shift(c) == preferred.by_shift && c.in_turns >= preferred.in_turns &&
         c.rows_beside >= preferred.rows_beside && c.depth_splits >= preferred.depth_splits &&
         c.product_rows >= preferred.product_rows && c.whole_rows >= preferred.whole_rows &&
         (c.channel_phases.count > 1) >= preferred.channel_phases && c.loaders >= preferred.loaders;
}

void move_to_front(const PreferredPanels& preferred, std::vector<TileChoice>& choices) {
  for (const int members : {1, preferred.members})
    std::stable_partition(choices.begin(), choices.end(), [&](const TileChoice& choice) {
      return is_preferred(preferred, choice.config) && device::members_of(choice.config) >= members;
    });
}

}  // namespace tconv::cuda
