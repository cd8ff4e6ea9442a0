// What a lane of the panel kernel stages of its positions: the outputs of its row, and of phases without taps the bias.
#pragma once

#include "epilogue/panel_lines.cuh"
#include "epilogue/vector_store.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelStaging {
  using Lines = PanelLines<C, Tables>;
  using Element = ElementOf<C>;
  static constexpr int columns = C.panel_columns, phases = C.width_phases, slots = C.width_slots;

  // Outputs of phases without taps are the bias. Lanes whose rows are padding stage as many of these as they can, those
  // of the first phase that has taps the others.
  static constexpr int gaps = C.stride.w - phases, padding = slots - phases, gaps_left = max_of(gaps - padding, 0);

  /// Calls `visit(phase, index)` for each of the phases without taps.
  template <class Visit>
  __device__ static void each_gap(const Visit& visit) {
    int index = 0;
#pragma unroll
    for (int phase = 0; phase < C.stride.w; ++phase)
      if (!phase_has_taps(C, phase)) visit(phase, index++);
  }

  /// What a lane stages of each position.
  struct OfLane {
    int phase;
    bool gap = false;
    __device__ explicit OfLane(int half) : phase(phase_of_slot<C>(Lines::slot_of_lane(half))) {
      each_gap([&](int empty, int index) {
        if (index < padding && Lines::slot_of_lane(half) == phases + index) phase = empty, gap = true;
      });
    }
    __device__ Element value(float sum, const RowOutput<C>& output) const {
      return to_element<Element>(padding > 0 && gaps > 0 && gap ? output.bias : output(sum));
    }
  };

  /// Stages one number of each position: `each(phase, visit)` calls `visit(to, sum)` for those of the lane, `to` being
  /// the first output of the position. Lanes part once, not at every position.
  template <class Each>
  __device__ static void stage_each(const RowOutput<C>& output, int half, const Each& each) {
    const OfLane lane(half);
    if (padding <= gaps || lane.phase >= 0)
      each(lane.phase, [&](Element* to, float sum) { to[lane.phase] = lane.value(sum, output); });
    if constexpr (gaps_left > 0) {
      if (!lane.gap && lane.phase == phase_with_taps(C, 0))
        each(lane.phase, [&](Element* to, float) {
          each_gap([&](int empty, int index) {
            if (index >= padding) to[empty] = to_element<Element>(output.bias);
          });
        });
    }
  }

  /// Of a lane's two neighbouring columns, whether it stages the second one first. Words of the first ones alone would
  /// be those of half the banks.
  __device__ static bool second_first() {
    if (sizeof(Element) == 2 || C.stride.w == 1) return false;
    return slots >= 8 ? lane_index() % 4 >= 2 : Lines::line_of_lane() % 2 != 0;
  }

  /// The same of a lane whose first output goes to `first`, wherever lines begin: lanes of every other line write where
  /// those of the lines between them do not.
  __device__ static bool second_first(const Element* first) {
    constexpr bool alternate = sizeof(Element) == 4 && (C.stride.w == 2 || C.stride.w == 4) && slots == C.stride.w;
    if constexpr (!alternate) return second_first();
    return (reinterpret_cast<u64>(first) / (C.stride.w * sizeof(Element)) + u64(Lines::line_of_lane())) % 2 != 0;
  }

  /// Where rows are paired, in which words a lane stages its four outputs of two neighbouring columns. With a stride of
  /// two they follow one another: one store where the first is aligned for it, two, or a word between two elements.
  /// With others, they are two words apart, or four elements.
  enum class Grouped { quads, pairs, middle, elements };
  static constexpr bool outputs_follow = C.stride.w == 2;
  /// What suits outputs, the first of which is so many behind a multiple of four.
  static constexpr Grouped grouped_at(int place) {
    return place % 2 == 0   ? outputs_follow && place % 4 == 0 ? Grouped::quads : Grouped::pairs
           : outputs_follow ? Grouped::middle
                            : Grouped::elements;
  }

  /// Stages columns n and n + 1 of both of a lane's rows, all of which are outputs; `to` is where the first one goes.
  template <Grouped by>
  __device__ static void stage_paired(Element* to, const float (&sum)[columns / 2], int n, const RowOutput<C>& output) {
    const float a = output(sum[n * 4]), b = output(sum[n * 4 + 2]);      // a position's two phases,
    const float c = output(sum[n * 4 + 1]), d = output(sum[n * 4 + 3]);  // and those of the next position
    if constexpr (by == Grouped::quads) {
      store_quad(to, a, b, c, d);
    } else if constexpr (by == Grouped::pairs) {
      store_pair(to, a, b), store_pair(to + C.stride.w, c, d);
    } else {
      to[0] = to_element<Element>(a);
      if constexpr (by == Grouped::middle)
        store_pair(to + 1, b, c);
      else
        to[1] = to_element<Element>(b), to[C.stride.w] = to_element<Element>(c);
      to[C.stride.w + 1] = to_element<Element>(d);
    }
  }

  /// A lane's sum of one of two neighbouring columns, or of the other one.
  __device__ static float sum_of(const float (&sum)[columns / 2], int n, int half, int e, bool other) {
    const int first = n * 4 + half * 2;
    return other ? sum[first + 1 - e] : sum[first + e];
  }
};

}  // namespace tconv::device
