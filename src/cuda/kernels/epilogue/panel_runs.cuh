// How runs of the panel kernel leave: lines of a pass side by side, 16 bytes at a time but for their ragged ends.
#pragma once

#include "epilogue/panel_lines.cuh"
#include "epilogue/vector_store.cuh"
#include "ptx/store.cuh"
#include "words.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelRuns {
  using Lines = PanelLines<C, Tables>;
  using Element = ElementOf<C>;
  using Run = typename Lines::Run;
  static constexpr int vector = store_vector(C);
  static constexpr int run_stride = panel_run_stride(C), pass_runs = panel_pass_runs(C);
  /// The lanes that have sums of a run.
  static constexpr int own_lanes = panel_line_lanes(C) * Lines::run_lines;
  /// The lanes that have sums of a line store its run, one vector after another; but eight at least, which are a whole
  /// line of memory. Long runs of 32-bit outputs are stored by 16 at least, which begin where a line of memory does,
  /// and only sectors that a run has all of leave as vectors: memory is slow to take sectors in two parts. Long runs of
  /// 16-bit outputs are several rows, and a warp stores one after the other.
  static constexpr bool long_runs = sizeof(Element) == 4 && !C.panel_flat && run_stride >= 32 * vector;
  static constexpr bool warp_runs = sizeof(Element) == 2 && C.whole_rows && run_stride >= 64 * vector;
  static constexpr int run_lanes = warp_runs ? warp_size : max_of(own_lanes, long_runs ? 16 : 8);
  static constexpr int whole_unit = long_runs ? 32 / int(sizeof(Element)) : vector;

  /// The run of a lane that stages it.
  __device__ static Run run_of(const Run& run, int lane) {
    const u64 at = reinterpret_cast<u64>(run.at);
    const u32 low = __shfl_sync(0xffffffff, u32(at), lane), high = __shfl_sync(0xffffffff, u32(at >> 32), lane);
    const u32 ends = __shfl_sync(0xffffffff, u32(run.first) | u32(run.end) << 16, lane);
    Run result;
    result.at = reinterpret_cast<Element*>(u64(low) | u64(high) << 32);
    result.first = static_cast<unsigned short>(ends), result.end = static_cast<unsigned short>(ends >> 16);
    return result;
  }

  /// What a run is stored from: where its vectors are staged,
  struct Staged {
    const Element* from;
    __device__ uint4 vector_at(int index) const { return *reinterpret_cast<const uint4*>(from + index); }
    __device__ Element element_at(int index) const { return from[index]; }
  };
  /// or one number.
  struct Filled {
    u32 bits;
    __device__ explicit Filled(u32 of_element) : bits(of_element) {}
    __device__ uint4 vector_at(int) const {
      const u32 word = sizeof(Element) == 2 ? bits | bits << 16 : bits;
      return make_uint4(word, word, word, word);
    }
    __device__ Element element_at(int) const { return element_of<Element>(bits); }
  };

  /// Vectors are aligned in memory and in the staging buffer, and the first one may begin before the run: where a lane
  /// stores, and from where, is a constant from its first vector on. `source_of(line)` is what the run of a line is
  /// stored from.
  template <class Source>
  __device__ static void store_runs(const Run& of_lane, const Source& source_of) {
    constexpr int lanes = run_lanes, unit = whole_unit, together = 4;
    constexpr int vectors = run_stride / vector + (long_runs ? 7 : 0);  // from the beginning of a line of memory on
    const int index = lane_index() % lanes;
#pragma unroll
    for (int line = 0; line < pass_runs; line += warp_size / lanes) {
      const int own = line + lane_index() / lanes;
      const Run run = lanes == own_lanes ? of_lane : run_of(of_lane, own * own_lanes);
      const auto source = source_of(own);
      const int skew = skew_of<vector>(run.at), begin = run.first + skew, end = run.end + skew;
      Element* const to = run.at - skew;
      // Outputs from `head` to `tail` are whole vectors, or whole sectors.
      const int place = index - (long_runs ? int(reinterpret_cast<u64>(to) / 16 % 8) : 0);
      const int lead = long_runs ? skew_of<unit>(to) : 0;
      const int head = min(round_up(begin + lead, unit) - lead, end), tail = max(head, ((end + lead) & -unit) - lead);
      const u32 from_head = u32(place * vector - head), whole = u32(tail - head);
      Element* own_to = to + place * vector;
      asm volatile("" : "+l"(own_to));  // or it would be worked out again for each store
#pragma unroll
      for (int first = 0; first < vectors; first += lanes * together) {
        uint4 value[together];
        bool exists[together];
#pragma unroll
        for (int i = 0; i < together; ++i) {
          const int next = first + i * lanes;
          exists[i] = next < vectors && from_head + u32(next * vector) < whole;
          if (long_runs ? exists[i] : next + place < vectors) value[i] = source.vector_at((place + next) * vector);
        }
#pragma unroll
        for (int i = 0; i < together; ++i)
          if (exists[i]) ptx::store(own_to + (first + i * lanes) * vector, value[i]);
      }
      // What is before them and behind them, a lane each.
      const auto store_element = [&](int own, int limit) {
        if (own < limit) ptx::store(to + own, source.element_at(own));
      };
      if constexpr (lanes >= 2 * unit &&
                    !Lines::beside_gap) {  // together; beside gaps that was slower (docs/kernels.md)
        const bool behind = index >= lanes / 2;
        store_element(behind ? tail + index - lanes / 2 : begin + index, behind ? end : head);
      } else {
        store_element(begin + index, head);
        store_element(tail + index, end);
      }
    }
  }
};

}  // namespace tconv::device
