// What a launch tells a kernel: pointers, strides and sizes. Host and device compile this file; the host
// fills a struct and hands its bytes to the driver.
#pragma once

#include "divisor.cuh"
#include "integers.cuh"

namespace tconv::device {

/// Strides in elements. Inside one image and channel they are below 2^31; the planner checks.
struct ImageStrides {
  long long n, c;
  int d, h, w;
};

struct ForwardParams {
  const void* x;
  const unsigned* weight;  // packed, see pack.cuh
  const float* scales;     // of the weights of each output channel where they were scaled: what undoes that
  const void* bias;        // may be null
  void* y;
  ImageStrides xs, ys;
  Int3 in, out;
  int batch;
  Divisor3 boxes;      // boxes of positions along each dimension
  int tiles;           // row blocks x boxes x batch, and the parts of their depth
  float* partials;     // where tiles share a sum: [sum][part][warpgroup], and
  unsigned* arrivals;  // how many of them are there, for each sum and warpgroup: zeros
};

/// What the driver makes of a description: the copy engine reads it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};
/// Of x as a tensor map has it: positions of an image, which follow one another, channels of a group, groups, and
/// images; and what a copy brings of the first two. Strides are bytes.
struct MapDescription {
  const void* x;
  unsigned long long sizes[4], strides[3];  // of all dimensions, and of those behind the first
  unsigned copied[2];
  bool bf16;
};
/// Of kernels that copy x by a map.
struct MappedParams : ForwardParams {
  TensorMap x_map;
};

/// What a load of x brings to the kernel that turns it.
enum class TurnLoad {
  element,  // a channel of an input
  pair,     // a channel of two neighbouring inputs, which are inside of x or outside together
  vector,   // all channels of a slice of an input
};

/// How x is turned, see turn_x.cuh.
struct TurnParams {
  const void* x;
  void* turned;
  ImageStrides xs;
  Int3 in;
  int batch;
  Divisor3 boxes;                   // of a call
  Int3 start, advance;              // where the x tile of the first box begins, and from box to box
  Divisor row_inputs, rows, depth;  // of an x tile: inputs of a row, rows of a layer, layers
  Divisor tile_inputs;              // of an x tile, which may have zeros behind its images
  int images;                       // of an x tile
  Divisor beside;                   // of them, those whose rows lie side by side
  int unit;                         // neighbouring inputs that a thread takes together, 1 or 2
  Divisor tile_units;
  Divisor x_phases;  // inputs of a position along the width
  int phase_stride;  // from one to the next in a slice
  int group_in;
  Divisor chunks, all_chunks;      // of a group, and of all
  int slices;                      // of a chunk
  int slice_stride, panel_stride;  // in slices of an input
  bool scaled;
  int scale_place;           // of a panel's scale, where x is scaled; in slices as well
  bool little;               // so few inputs that the kernel may begin early
  int threads;               // of a block
  int item_slices;           // slices of a position that a thread takes at a time: one, or `turn_depth`
  Divisor parts, all_parts;  // of a chunk, so taken; and of all
  long long inputs;          // of all x tiles
  unsigned* arrivals;        // to be zeros
  int arrival_count;
};
constexpr int turn_depth = 4;
/// Threads of a block at most, by the slices that each takes at a time; and where they do not share a panel.
constexpr int most_turn_threads(int item_slices) { return item_slices == 1 ? 1024 : 512; }
constexpr int turn_threads = 256;

struct PackParams {
  const void* weight;
  unsigned* packed;
  const float* scales;  // see ForwardParams
  long long stride_in, stride_out, stride_d, stride_h, stride_w;
  long long words;
};

/// Of the kernel that finds them, see weight_scales.cuh.
struct ScaleParams {
  const float* weight;
  float* scales;
  long long stride_in, stride_out, stride_d, stride_h, stride_w;
  int groups, group_in, group_out;
  Int3 kernel;
};

struct Strides5 {
  long long n, c, d, h, w;
};

struct GenericParams {
  const void* x;
  const void* weight;
  const void* bias;  // may be null
  void* y;
  Strides5 xs, ws, ys;  // of the weight: n = in, c = out
  long long bias_stride;
  long long batch;
  long long in_d, in_h, in_w, out_d, out_h, out_w;
};

/// Of the direct kernels. Work is counted in rows: (image, group, block of channels, row of outputs along the
/// depth, block of rows along the height), and tiles of positions along the width.
struct DirectParams {
  const void* x;
  const void* weight;
  const void* bias;  // may be null
  void* y;
  ImageStrides xs, ys;
  Strides5 ws;  // n = in, c = out
  Int3 in, out;
  int row_blocks;      // along the height
  int tiles;           // along the width
  int first_position;  // of tile 0
  int tile_positions;  // from tile to tile
  int lane_bits;       // 2^lane_bits lanes of a warp along the width, the others on further rows
  long long rows;
  long long items;  // what warps, or threads where lanes run over channels, take turns at
};

}  // namespace tconv::device
