// The row plan: which (phase, channel) rows of the matrix product share a block, and the steps each
// block walks through.
//
// A row is one phase of one output channel. Rows of a line (one channel, one phase along depth and
// height; all phases along the width) stay together, because the store interleaves them into one run of
// output. A block type is a set of phase pairs (depth, height); its steps are the shifts any of its rows
// needs, and a mask per step says which row tiles need it, so no tile multiplies a tap it does not have.
// Types whose phases have no taps have no steps: their blocks store the bias.
//
// Lines of a channel that differ in their phases along the height may be neighbours: their outputs are rows that
// follow one another in memory. They take the steps that any of them needs. Where these are no more than they
// would be in blocks of their own (kernel = stride, or few channels), a plan has them together; where they are, or
// some phases along the height have no taps, that is another plan beside it (`whole_rows`), which serves tiles
// that store whole rows of outputs, those of phases without taps with them.
//
// Where channels are few, a position is several inputs along the width (`x_phases`), and the rows of a line are
// the outputs of all of them: to the store a layer of so many times the stride. Neighbouring inputs share most of
// their steps, so that more rows take few more steps. Along the width a shift counts inputs back from the
// position's first one; it is negative where a step reads the others.
//
// The row plan depends on the layer alone, and it fixes the order of packed weights: one packing serves
// every shape.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/kernels/gemm_config.cuh"
#include "layer/layer.hpp"

namespace tconv::cuda {

using device::Int3;

struct Line {
  int channel;  // inside the channel block
  int phase_d, phase_h;
};

struct Row {
  int channel = -1;  // inside the channel block; -1: padding
  Int3 phase{0, 0, 0};
};

/// One step of the product: a shift for eight words of channels, or two shifts for four words each: of wide blocks
/// the larger one is `low`.
struct Step {
  Int3 low;
  Int3 high;  // equals low where steps are not paired; -1 in every entry: there is none, its weights are zeros
  std::uint32_t mask = 0;
};

struct BlockType {
  std::vector<Line> lines;
  std::vector<Row> rows;  // 16 for each row tile
  std::vector<Step> steps;
};

struct RowPlan {
  std::vector<BlockType> types;
  int row_tiles = 0;
  int tile_rows = 16;
  int stage_group_tiles = 1, stage_group_lines = 16;
  bool phase_major = true;
  bool masked = false;
  int x_phases = 1;  // inputs of a position along the width
  int width_phases = 1;
  int width_slots = 1;      // rows of a line: its phases, or more, so that eight rows are whole lines
  int line_phases = 1;      // phases along the height whose lines are neighbours: all that have taps, or 1
  int run_phases = 1;       // phases along the height whose outputs may be rows of one run: all, or 1
  bool whole_rows = false;  // it is for tiles that store whole rows alone
  int channels_per_block = 0, channel_blocks = 0;
  bool paired = false;        // at most four channel words: a step holds two shifts
  bool channel_rows = false;  // of wide blocks: channels are the fastest index of rows, not phases
  bool row_pairs = false;     // of wide blocks: rows of neighbouring phases are eight apart, see pair_rows
  Int3 reach{0, 0, 0};
  Int3 first_phase{0, 0, 0};             // of depth and height, see from_first_output
  int octet_group = 1;                   // of wide blocks: octets of a step that packed weights hold together
  device::ChannelPhases channel_phases;  // channels are neighbouring outputs of those of the layer
  int march = 0;                         // slots of sums of the march kernel; 0: rows of another kernel

  int rows() const { return row_tiles * tile_rows; }
  /// Words of the packed weight in front of `type`, and in all; `parts` of them for each weight.
  std::int64_t weight_base(int type, const Geometry& geometry, int channels_per_word, int parts) const;
  std::int64_t weight_words(const Geometry& geometry, int channels_per_word, int parts) const {
    return weight_base(int(types.size()), geometry, channels_per_word, parts);
  }
};

/// Blocks of about `row_tiles` tiles of 16 rows, as far as the layer's phases allow. False where it has too many
/// phases for blocks of rows, or for the tables that a kernel has of them.
bool make_row_plan(const Geometry& geometry, int channels_per_word, int row_tiles, RowPlan& plan);

/// The plan beside one that has the lines of all phases along the height together: with blocks of one phase each,
/// whose positions may begin where it has an output. None where that is no other plan.
std::optional<RowPlan> with_lines_apart(const Geometry& geometry, int channels_per_word, int weight_parts,
                                        const RowPlan& plan);

/// The same rows of a wide plan, with positions along depth and height that begin where every phase has an output.
///
/// Positions are q of output q·stride + phase − padding: with phases from 0 on, some have no output at the first
/// position and others none at the last, and small images have a row of positions more than they need. Here phases
/// begin below zero, such that q is the same for the first output of all of them; those below zero read their
/// inputs one shift further. Weights are packed the same way. Images larger than a box have a row more of halo, so
/// this is for small ones. None where that is no other plan, or rows of a block would take different shifts.
std::optional<RowPlan> from_first_output(const RowPlan& plan, Int3 stride, Int3 padding);

/// Has two neighbouring phases of a line eight rows apart, as a thread of wgmma has its rows: 16-bit outputs of
/// both are one word then, where they are staged. For lines of an even number of phases, all of which have taps;
/// other plans stay as they are.
void pair_rows(const Geometry& geometry, RowPlan& plan);

/// Whether the panel kernel has a tile for a wide plan, whatever the shape.
bool suits_panels(const Geometry& geometry, int channels_per_word, const RowPlan& plan);

/// The order of rows in a wide plan: phases along the width are the fastest index, or channels are, where outputs
/// are stored channels last; these may be outputs along the width themselves.
struct RowOrder {
  bool channels = false;
  device::ChannelPhases phases{};
  RowOrder(bool channels_fastest) : channels(channels_fastest) {}
  RowOrder(const device::ChannelPhases& outputs) : channels(true), phases(outputs) {}
};

/// Blocks for the warpgroup kernel, whose products take up to 128 rows at once and any multiple of 8. Rows need no
/// masks there: phase pairs share a block where that costs less than a block of their own. A position
/// is several inputs where rows are few, which only the panel kernel takes; or as many as `x_phases` says.
bool make_wide_row_plan(const Geometry& geometry, int channels_per_word, int weight_parts, const RowOrder& order,
                        RowPlan& plan);
bool make_wide_row_plan(const Geometry& geometry, int channels_per_word, int weight_parts, const RowOrder& order,
                        int x_phases, RowPlan& plan);

/// The plan beside such a one, for outputs of channels first, that has the lines of all phases along the height
/// together. None where that is no other plan, or takes more products than stores could gain.
std::optional<RowPlan> with_whole_rows(const Geometry& geometry, int channels_per_word, int weight_parts,
                                       const RowPlan& plan);

/// Blocks for the march kernel: rows are (slot, channel), a slot for each tap along the depth, and steps are the
/// shifts along height and width alone. False where the layer has another stride than 1, one tap along the depth,
/// or weights that are more than a multiprocessor keeps.
bool make_march_row_plan(const Geometry& geometry, int channels_per_word, int weight_parts, RowPlan& plan);

}  // namespace tconv::cuda
