// How a call is cut into tiles and launched, for any batch and any length. For the host: the engine compiles this
// file, and exported layers carry it.
#pragma once

#include "direct_config.cuh"
#include "launch_params.cuh"
#include "sizes/panel_team.cuh"

namespace tconv::device {

struct Launch {
  unsigned blocks, threads;
  bool early = true;  // may begin while the kernel before ends, where the device can
};

constexpr long long at_most(long long value, long long limit) { return value < limit ? value : limit; }
constexpr long long between(long long low, long long value, long long high) {
  return value < low ? low : at_most(value, high);
}
constexpr long long parts_of(long long whole, long long part) { return (whole + part - 1) / part; }

/// Positions q of one dimension that have an output, from the first one of them.
constexpr int positions_from(int first, long long out, int stride, int padding) {
  return int((out - 1 + padding - first_phase(first, stride, padding)) / stride - first + 1);
}
constexpr int positions_of(long long out, int stride, int padding) {
  return positions_from(padding / stride, out, stride, padding);
}

// ---- Implicit GEMM -------------------------------------------------------------------------------

constexpr Int3 positions_of(const GemmConfig& c, Int3 out) {
  return {positions_from(c.first_position.d, out.d, c.stride.d, c.padding.d),
          positions_from(c.first_position.h, out.h, c.stride.h, c.padding.h),
          positions_from(c.first_position.w, out.w, c.stride.w, c.padding.w)};
}

/// The boxes that cover the positions of an output.
constexpr Int3 boxes_of(const GemmConfig& c, Int3 out) {
  const Int3 positions = positions_of(c, out);
  // Boxes that overlap along the width: the last one ends behind the last position.
  const int advance = box_advance(c), overlap = c.box.w - advance;
  return {ceil_div(positions.d, c.box.d), ceil_div(positions.h, c.box.h),
          positions.w <= c.box.w ? 1 : ceil_div(positions.w - overlap, advance)};
}

/// Sizes and how the work is cut; pointers and strides are the caller's to fill in.
inline ForwardParams forward_params(const GemmConfig& c, long long batch, Int3 in, Int3 out) {
  ForwardParams p{};
  p.in = in, p.out = out, p.batch = int(batch);
  p.boxes = boxes_of(c, out);
  p.tiles = int(parts_of(batch, c.images) * block_sets_of(c) * volume(p.boxes) * c.depth_splits);
  return p;
}

/// As many blocks as the device holds at once: they take turns at the tiles. A block that keeps its weights
/// takes tiles of one row block alone.
constexpr long long blocks_of(const GemmConfig& c, long long tiles, int multiprocessors) {
  const long long most = (long long)multiprocessors * c.blocks_per_sm;
  if (!c.teams) return at_most(tiles, most);
  if (c.clustered) return at_most(tiles, most / c.depth_splits * c.depth_splits);
  if (c.resident_steps == 0) return at_most(parts_of(tiles, c.teams), most);
  const long long sets = block_sets_of(c);
  return sets * between(1, most / sets, parts_of(tiles / sets, c.teams));
}

constexpr Launch launch_of(const GemmConfig& c, const ForwardParams& p, int multiprocessors) {
  return {unsigned(blocks_of(c, p.tiles, multiprocessors)),
          unsigned(c.teams ? warpgroup_size * warpgroups_of(c) : threads_of(c))};
}

// ---- Mapped x ------------------------------------------------------------------------------------

inline MapDescription map_description(const GemmConfig& c, const ForwardParams& p) {
  MapDescription d{};
  d.x = p.x, d.bf16 = c.math == Math::bf16;
  d.sizes[0] = volume(p.in), d.sizes[1] = c.group_in, d.sizes[2] = c.groups, d.sizes[3] = p.batch;
  d.strides[0] = 2 * p.xs.c, d.strides[1] = d.strides[0] * c.group_in;
  d.strides[2] = p.batch > 1 ? 2 * p.xs.n : d.strides[1] * c.groups;
  d.copied[0] = mapped_positions, d.copied[1] = mapped_channels(c);
  return d;
}

// ---- Turned x ------------------------------------------------------------------------------------

/// `vectors`: channels are last, and those of a slice are one aligned vector.
constexpr TurnLoad turn_load(const GemmConfig& c, bool vectors) {
  return vectors ? TurnLoad::vector : c.x_vector > 1 ? TurnLoad::pair : TurnLoad::element;
}
/// What turns the x of a call; its pointers, strides and sizes are in `p`.
inline TurnParams turn_params(const GemmConfig& c, const ForwardParams& p) {
  TurnParams t{};
  t.x = p.x, t.xs = p.xs, t.in = p.in, t.batch = p.batch, t.boxes = p.boxes;
  t.start = {c.first_position.d - c.reach.d, c.first_position.h - c.reach.h,
             c.x_phases * (c.first_position.w - c.reach.w - x_lead(c))};
  t.advance = {c.box.d, c.box.h, c.x_phases * box_advance(c)};
  const Int3 extent = turned_extent(c, p.boxes);
  // What is turned together: the x tile of a box, or once for all boxes, what those of all of them read.
  int inputs = x_inputs(c);
  if (c.turned_once) t.boxes.d = 1, t.boxes.h = 1, inputs = c.x_phases * volume(extent);
  t.row_inputs = c.x_phases * extent.w, t.rows = extent.h, t.depth = extent.d;
  t.images = c.images, t.beside = rows_beside(c), t.tile_inputs = inputs, t.unit = c.x_vector;
  t.tile_units = inputs / t.unit;
  t.x_phases = c.x_phases, t.phase_stride = c.turned_once ? volume(extent) : x_phase_stride(c);
  t.group_in = c.group_in, t.chunks = chunks_of(c), t.all_chunks = c.groups * chunks_of(c);
  t.slices = panel_slices(c);
  t.slice_stride = c.turned_once ? inputs : panel_slice_stride(c);
  t.panel_stride = c.turned_once ? weight_parts(c) * t.slices * inputs : panel_bytes(c) / 16;
  t.scaled = scales(c.math), t.scale_place = panel_scale_place(c) / 16;
  t.inputs = parts_of(p.batch, c.images) * volume(t.boxes) * inputs;
  constexpr int little = 256 * turn_threads;
  t.little = t.inputs / t.unit * t.all_chunks.by * parts_of(t.slices, turn_depth) <= little;
  // Where there is little to do, many threads wait for a few loads each; elsewhere a thread has many under way.
  const bool fits_threads = !t.scaled || t.tile_units.by * t.slices <= most_turn_threads(1);
  t.item_slices = t.little && fits_threads ? 1 : turn_depth;
  t.parts = parts_of(t.slices, t.item_slices), t.all_parts = t.all_chunks.by * t.parts.by;
  const int items = t.tile_units.by * t.parts.by;  // of a panel
  t.threads = t.scaled ? min_of(round_up(items, warp_size), most_turn_threads(t.item_slices)) : turn_threads;
  return t;
}
/// Bytes of turned x; and of what follows it where tiles share sums: their parts, then counts of them.
inline long long turned_bytes(const TurnParams& t) {
  return t.inputs / t.tile_inputs.by * t.all_chunks.by * t.panel_stride * 16;
}
inline long long partials_bytes(const GemmConfig& c, const ForwardParams& p) {
  return (long long)(p.tiles / c.depth_splits) * partial_bytes(c);
}
inline int arrival_count(const GemmConfig& c, const ForwardParams& p) {
  return c.depth_splits > 1 && !c.clustered ? p.tiles / c.depth_splits * members_of(c) : 0;
}
/// All of them, and how they lie one after the other in `workspace`, which is aligned to 256 bytes.
inline long long turned_workspace_bytes(const GemmConfig& c, const ForwardParams& p) {
  return parts_of(turned_bytes(turn_params(c, p)), 256) * 256 + partials_bytes(c, p) + 4LL * arrival_count(c, p);
}
inline void place_in_workspace(const GemmConfig& c, unsigned char* workspace, ForwardParams& p, TurnParams& t) {
  t.turned = workspace, p.x = workspace;
  unsigned char* const partials = workspace + parts_of(turned_bytes(t), 256) * 256;
  p.partials = reinterpret_cast<float*>(partials);
  p.arrivals = t.arrivals = reinterpret_cast<unsigned*>(partials + partials_bytes(c, p));
  t.arrival_count = arrival_count(c, p);
}

/// Many blocks that begin early would all go to the few multiprocessors with room beside the kernel before.
constexpr Launch launch_of(const TurnParams& p, int multiprocessors) {
  const long long items = p.scaled ? p.inputs / p.tile_inputs.by * p.all_chunks.by
                                   : parts_of(p.inputs / p.unit, p.threads) * p.all_parts.by;
  return {unsigned(between(1, items, multiprocessors * 32)), unsigned(p.threads), p.little};
}

constexpr Launch launch_of(const PackParams& p, int multiprocessors) {
  return {unsigned(between(1, parts_of(p.words, 2048), multiprocessors * 16)), 256};  // eight pieces, see pack.cuh
}

constexpr int scale_threads = 256;
constexpr Launch launch_of(const ScaleParams& p) { return {unsigned(p.groups * p.group_out), scale_threads}; }

/// Shared memory of kernels that look for the largest of a block's numbers: a word for each warp.
constexpr int scale_shared_bytes = scale_threads / warp_size * 4;
constexpr int turn_shared_bytes(Math math) { return scales(math) ? most_turn_threads(1) / warp_size * 4 : 0; }

// ---- Direct --------------------------------------------------------------------------------------

constexpr int floor_div(int a, int b) { return a / b - (a % b < 0); }

/// How a warp covers a row with 2^bits lanes: one tile where the row fits, none where it cannot.
struct RowCut {
  long long tiles;
  int first_position, tile_positions;
};

/// `vector`: elements of 16 bytes.
constexpr RowCut cut_row(const DirectConfig& c, int vector, long long out, int bits) {
  const int stride = c.stride.w, padding = c.padding.w, positions = c.positions << bits;
  if (!c.staged) return {parts_of(out, (long long)positions * stride), 0, positions};
  const int most_skew = vector - 1;  // outputs of the first vector of a row that belong to the row before
  const int first = padding / stride / c.x_vector * c.x_vector;
  const long long last = (out - 1 + padding) / stride;
  if (first + positions > last && (long long)positions * stride >= out + most_skew) return {1, first, positions};
  // A tile begins up to `most_skew` outputs before its share of the row's vectors.
  const int start = floor_div(floor_div(padding - most_skew, stride), c.x_vector) * c.x_vector;
  const int slack = floor_div(padding - 1, stride) + 1 - start;
  const int whole = vector / gcd(vector, stride), unit = whole / gcd(whole, c.x_vector) * c.x_vector;
  const int share = (positions - slack) / unit * unit;
  if (share <= 0) return {0, 0, 0};
  return {parts_of(out + most_skew, (long long)share * stride), start, share};
}

/// The cut that leaves the fewest lanes idle; rows side by side fill a warp. Short tiles must save a quarter of
/// them: their runs are short, too.
inline void cut_rows(const DirectConfig& c, int vector, DirectParams& p) {
  long long best = 0;
  for (int bits = 5; bits >= 0; --bits) {
    const RowCut cut = cut_row(c, vector, p.out.w, bits);
    if (cut.tiles == 0 || (best != 0 && (cut.tiles << bits) * 4 > best * 3)) continue;
    best = cut.tiles << bits;
    p.tiles = int(cut.tiles), p.lane_bits = bits;
    p.first_position = cut.first_position, p.tile_positions = cut.tile_positions;
  }
}

/// Sizes and how the work is cut; pointers and strides are the caller's to fill in.
inline DirectParams direct_params(const DirectConfig& c, int element_bytes, long long batch, Int3 in, Int3 out) {
  DirectParams p{};
  p.in = in, p.out = out;
  p.row_blocks = c.rows == 0 ? out.h : ceil_div(positions_of(out.h, c.stride.h, c.padding.h), c.rows);
  p.rows = batch * out.d * p.row_blocks;
  if (c.channels_last) {
    p.tiles = ceil_div(positions_of(out.w, c.stride.w, c.padding.w), c.positions);
    p.items = p.rows * p.tiles;
  } else {
    cut_rows(c, 16 / element_bytes, p);
    p.rows *= (long long)c.groups * ceil_div(c.group_out, c.channels);
    p.items = parts_of(p.rows, 32 >> p.lane_bits) * p.tiles;
  }
  return p;
}

/// Enough blocks for every multiprocessor to be full several times over; more would only begin more often.
constexpr Launch launch_of(const DirectConfig& c, const DirectParams& p, int multiprocessors) {
  const long long most = multiprocessors * 32;
  if (!c.channels_last) return {unsigned(between(1, parts_of(p.items, 8), most)), direct_threads};
  const long long slabs = ceil_div(c.groups, c.slots * c.channels), places = direct_threads / c.slots;
  const long long share = between(1, most / slabs, most);
  return {unsigned(slabs * between(1, parts_of(p.items, places), share)), direct_threads};
}

// ---- Generic -------------------------------------------------------------------------------------

constexpr Launch launch_of(const GenericParams& p, long long out_channels, int multiprocessors) {
  const long long outputs = p.batch * out_channels * p.out_d * p.out_h * p.out_w;
  return {unsigned(between(1, parts_of(outputs, 256), multiprocessors * 128)), 256};
}

}  // namespace tconv::device
