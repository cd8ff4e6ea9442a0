#include "cpu/convolution.hpp"

#include <algorithm>
#include <map>

#include "layer/phases.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

/// Phases of one dimension that read the same positions, `offsets` from their own.
struct DimensionClass {
  std::vector<int64_t> offsets;
  std::vector<Phase> phases;
};

/// The classes of one dimension. Phases are counted from `first` on: those below it belong to the position before,
/// r + stride of it, and read one position further.
std::vector<DimensionClass> classes_of_dimension(int64_t kernel, int64_t stride, int64_t dilation, int64_t first) {
  std::vector<DimensionClass> classes;
  for (Phase& phase : phases_of(kernel, stride, dilation)) {
    const bool before = phase.r < first;
    std::vector<int64_t> offsets;
    for (const Tap& tap : phase.taps) offsets.push_back(before - tap.shift);
    phase.r += before * stride - first;
    auto same = std::find_if(classes.begin(), classes.end(), [&](const auto& c) { return c.offsets == offsets; });
    if (same == classes.end()) same = classes.insert(same, DimensionClass{std::move(offsets), {}});
    same->phases.push_back(std::move(phase));
  }
  return classes;
}

/// Output channels from which on every class has rows enough for a register tile of its own.
constexpr int64_t least_rows_of_class = 8;

/// Whether taps of one dimension read positions beside their own.
bool reads_neighbours(int64_t kernel, int64_t stride, int64_t dilation) {
  return (kernel - 1) * dilation >= stride;
}

/// Calls f({a[0][i], a[1][j], a[2][l]}) for every combination, the last dimension fastest.
template <class Item, class F>
void for_each_combination(const std::array<std::vector<Item>, 3>& a, const F& f) {
  for (const Item& depth : a[0])
    for (const Item& height : a[1])
      for (const Item& width : a[2]) f(std::array<const Item*, 3>{&depth, &height, &width});
}

int64_t flat_tap(const Geometry& g, const Extents& k) {
  return (k[0] * g.kernel[1] + k[1]) * g.kernel[2] + k[2];
}

}  // namespace

int64_t Convolution::phase_count() const {
  int64_t count = 0;
  for (const PhaseClass& c : classes) count += int64_t(c.phases.size());
  return count;
}

int64_t Convolution::tap_count() const {
  int64_t count = 0;
  for (const PhaseClass& c : classes) count += int64_t(c.phases.size() * c.taps.size());
  return count;
}

Convolution forward_convolution(const Geometry& g) {
  Convolution conv;
  conv.groups = g.groups;
  conv.row_channels = g.group_out;
  conv.sum_channels = g.group_in;
  conv.rows_are_outputs = true;
  conv.target = {.step = g.stride, .padding = g.padding};
  conv.planes = {Extents{0, 0, 0}};

  // With 4 × 4 taps, stride 2 and padding 1, the first output is one of phase 1: counted from phase 0, 8 × 8
  // outputs of each phase would take 9 × 9 positions. Counted from the phase of the first output they take 8 × 8,
  // but those below it read other inputs, and are rows of another class.
  std::array<std::vector<DimensionClass>, 3> classes;
  for (int d = 0; d < 3; ++d) {
    const bool moves =
        conv.row_channels >= least_rows_of_class && reads_neighbours(g.kernel[d], g.stride[d], g.dilation[d]);
    const int64_t first = moves ? g.padding[d] % g.stride[d] : 0;
    conv.target.padding[d] -= first;
    classes[d] = classes_of_dimension(g.kernel[d], g.stride[d], g.dilation[d], first);
  }
  for_each_combination(classes, [&](const std::array<const DimensionClass*, 3>& dims) {
    PhaseClass c;
    for_each_combination<int64_t>({dims[0]->offsets, dims[1]->offsets, dims[2]->offsets}, [&](const auto& offset) {
      c.taps.push_back({.plane = 0, .offset = {*offset[0], *offset[1], *offset[2]}});
    });
    for_each_combination<Phase>({dims[0]->phases, dims[1]->phases, dims[2]->phases}, [&](const auto& phase) {
      TargetPhase target{.r = {phase[0]->r, phase[1]->r, phase[2]->r}, .k = {}};
      for_each_combination<Tap>({phase[0]->taps, phase[1]->taps, phase[2]->taps}, [&](const auto& tap) {
        target.k.push_back(flat_tap(g, {tap[0]->k, tap[1]->k, tap[2]->k}));
      });
      c.phases.push_back(std::move(target));
    });
    conv.classes.push_back(std::move(c));
  });
  return conv;
}

Convolution grad_input_convolution(const Geometry& g) {
  Convolution conv;
  conv.groups = g.groups;
  conv.row_channels = g.group_in;
  conv.sum_channels = g.group_out;
  conv.rows_are_outputs = false;
  conv.source = {.step = g.stride, .padding = g.padding};

  PhaseClass all{.taps = {}, .phases = {TargetPhase{.r = {0, 0, 0}, .k = {}}}};
  std::map<Extents, int> plane_of;
  Extents k;
  for (k[0] = 0; k[0] < g.kernel[0]; ++k[0])
    for (k[1] = 0; k[1] < g.kernel[1]; ++k[1])
      for (k[2] = 0; k[2] < g.kernel[2]; ++k[2]) {
        Extents r, offset;
        for (int d = 0; d < 3; ++d) {
          const MirrorTap tap = mirror_tap(k[d], g.stride[d], g.dilation[d]);
          r[d] = tap.r;
          offset[d] = tap.shift;
        }
        const auto [plane, added] = plane_of.try_emplace(r, int(conv.planes.size()));
        if (added) conv.planes.push_back(r);
        all.taps.push_back({.plane = plane->second, .offset = offset});
        all.phases[0].k.push_back(flat_tap(g, k));
      }
  conv.classes.push_back(std::move(all));
  return conv;
}

}  // namespace tconv::cpu
