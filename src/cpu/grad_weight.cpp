#include <algorithm>

#include "cpu/compute_type.hpp"
#include "cpu/convert.hpp"
#include "cpu/grad_weight_scratch.hpp"
#include "cpu/kernels/dot_product.hpp"
#include "cpu/machine.hpp"
#include "layer/views.hpp"

namespace tconv::cpu {

using std::int64_t;

GradWeightBinding::GradWeightBinding(const Convolution& mirror, DType dtype, const Shape& shape)
    : mirror_(&mirror), wide_(computes_in_double(dtype)) {
  const int64_t element_bytes = wide_ ? 8 : 4;
  const std::vector<SharedTap>& taps = mirror.classes[0].taps;

  Grid grid;
  grid.count[batch_dim] = grid.real[batch_dim] = shape.batch;
  double positions = double(shape.batch);
  for (int d = 0; d < 3; ++d) {
    grid.count[d + 1] = shape.input[d];
    grid.real[d + 1] = ceil_div(shape.output[d], mirror.source.step[d]);
    positions *= double(shape.input[d]);
  }
  // Taps that meet nothing at this shape have gradient zero. They are left out, so that the reach is bounded by
  // the tensors, whatever the dilation.
  Reach reach;
  std::vector<std::array<Range, 3>> useful;
  std::array<double, 3> useful_positions{};
  for (const SharedTap& tap : taps) {
    bool meets = true;
    std::array<Range, 3>& q = useful.emplace_back();
    for (int d = 0; d < 3; ++d) {
      const Range g = phase_range(mirror.planes[std::size_t(tap.plane)][d], mirror.source.step[d],
                                  mirror.source.padding[d], shape.output[d]);
      q[d] = {std::max<int64_t>(0, g.begin - tap.offset[d]), std::min(shape.input[d], g.end - tap.offset[d])};
      meets = meets && q[d].size() > 0;
      useful_positions[d] += double(q[d].size());
    }
    if (meets) reach.include(tap.offset);
    taps_.push_back({.plane = tap.plane, .shift = 0, .meets = meets, .useful = {}});
  }
  for (int d = 0; d < 3; ++d) {
    grid.lowest_offset[d + 1] = reach.lowest[d];
    grid.highest_offset[d + 1] = reach.highest[d];
  }
  multiply_adds_ = positions * double(weights());
  blocks_ = choose_blocks(mirror, wide_, positions);
  pairs_ = blocks_.outer && operand_kind(dtype, 2) == OperandKind::bf16_pair;
  // Columns of dot products are seen through different taps, but go over the same positions.
  grid.skips_padding = blocks_.outer;
  for (int d = 0; d < 3 && blocks_.outer; ++d)
    grid.useful_taps[d + 1] = useful_positions[d] / double(int64_t(taps.size()) * shape.input[d]);

  TileCosts costs;
  costs.lanes = wide_ ? dot_product_kernels<double>().lanes : dot_product_kernels<float>().lanes;
  costs.units = blocks_.positions;  // a run is one call, however long
  costs.multiply_adds = double(most_in() * most_out()) * double(taps.size());
  if (blocks_.outer) {
    costs.multiply_adds /= double(costs.lanes * (pairs_ ? 2 : 1));
    costs.column_unit = 1;
    costs.call_units = 3;  // all runs of a tile are one call, but each begins a loop
    // A sample's channels go to as many places as it has positions: a power of two apart, these would all be in
    // one set of the first-level cache.
    costs.sample_gap = 1;
  } else {
    costs.column_unit = costs.run_tail = costs.lanes;
  }
  costs.source_elements = double(most_in() + most_out() * planes());
  costs.cache_bytes = second_level_cache() / 2;
  costs.source_bytes_per_position = costs.source_elements * double(element_bytes);
  costs.wanted_columns = blocks_.positions;
  tiling_ = choose_tiling(grid, costs);

  // Enough items for threads to share, few enough that the partial sums stay small.
  constexpr int64_t largest_partials = int64_t(64) << 20;
  const int64_t blocks = mirror.groups * blocks_.in_blocks * blocks_.out_blocks;
  const int64_t most_chunks = std::min(
      {largest_partials / (weights() * element_bytes), tiling_.tile_count(),
       int64_t(std::min(positions / double(blocks_.fewest_chunk_positions), double(blocks_.wanted_items)))});
  chunks_ = std::clamp<int64_t>(ceil_div(blocks_.wanted_items, blocks), 1, std::max<int64_t>(1, most_chunks));

  channel_pitch_ = spread_pitch(tiling_.plane_elements, element_bytes);
  x_tiling_ = tiling_;
  x_tiling_.lowest_offset = {};
  for (std::size_t t = 0; t < taps.size(); ++t)
    for (int d = 0; d < 4 && taps_[t].meets; ++d) {
      const int dim = tiling_.dim[d];
      const int64_t offset = dim == batch_dim ? 0 : taps[t].offset[dim - 1];
      taps_[t].useful[d] = dim == batch_dim ? Range{0, shape.batch} : useful[t][dim - 1];
      taps_[t].shift += (offset - tiling_.lowest_offset[d]) * tiling_.pitch[d];
    }
}

int64_t GradWeightBinding::weights() const {
  return mirror_->groups * mirror_->row_channels * mirror_->sum_channels *
         int64_t(mirror_->classes[0].taps.size());
}

int64_t GradWeightBinding::items() const {
  return chunks_ * mirror_->groups * blocks_.in_blocks * blocks_.out_blocks;
}

/// Where the sums of chunk 0 and of the other chunks are, each [in channel][out channel][tap].
template <class Compute>
struct GradWeightBinding::Partials {
  Compute* first;
  Compute* rest;  // of chunk c at c · weights()
};

template <class Compute>
GradWeightBinding::Scratch<Compute> GradWeightBinding::scratch(Arena& arena) const {
  const auto& kernels = outer_product_kernels<Compute>();
  const int64_t slack = kernels.lanes;  // behind the last run, for dot products
  Scratch<Compute> s{};
  if (!blocks_.outer) {
    s.x_elements = most_in() * channel_pitch_ + slack;
    s.g_elements = most_out() * planes() * channel_pitch_ + slack;
  }
  s.x = arena.take<Compute>(s.x_elements);
  s.g = arena.take<Compute>(s.g_elements);
  s.runs = arena.take<int64_t>(tiling_.run_count);
  if (blocks_.outer) {
    const bool inputs = blocks_.inputs_in_vectors;
    const int64_t rows = inputs ? most_out() : most_in();
    s.vector_pitch = round_up(inputs ? most_in() : most_out(), kernels.lanes);
    s.vector_elements = (inputs ? 1 : planes()) * tiling_.plane_elements * s.vector_pitch;
    s.vectors = arena.take<Compute>(s.vector_elements);
    s.row_elements = (inputs ? planes() : 1) * tiling_.plane_elements * rows;
    s.rows = arena.take<Compute>(s.row_elements);
    s.sums = arena.take<Compute>(int64_t(taps_.size()) * rows * s.vector_pitch);
    s.steps = arena.take<TapOffset>(tiling_.run_count);
  }
  return s;
}

template <class Compute>
std::size_t GradWeightBinding::scratch_bytes() const {
  Arena arena;
  scratch<Compute>(arena);
  return arena.bytes();
}

std::size_t GradWeightBinding::workspace_bytes(int workers) const {
  return with_compute(wide_, [&](auto compute) {
    using Compute = decltype(compute);
    Arena shared;
    shared.take<Compute>(chunks_ * weights());
    shared.take<char>(0);  // where the workers begin
    return shared.bytes() + std::size_t(std::min<int64_t>(workers, items())) * scratch_bytes<Compute>();
  });
}

template <class Compute>
void GradWeightBinding::run_item(const ConstTensor& x, const ConstTensor& gy, const Partials<Compute>& partials,
                                 const Scratch<Compute>& s, int64_t item) const {
  const Span outs = blocks_.out_block(mirror_->sum_channels, item % blocks_.out_blocks);
  item /= blocks_.out_blocks;
  const Span ins = blocks_.in_block(mirror_->row_channels, item % blocks_.in_blocks);
  item /= blocks_.in_blocks;
  const int64_t group = item % mirror_->groups, chunk = item / mirror_->groups;
  const int64_t taps = int64_t(taps_.size());
  Compute* partial = (chunk == 0 ? partials.first : partials.rest + chunk * weights()) +
                     ((group * mirror_->row_channels + ins.begin) * mirror_->sum_channels + outs.begin) * taps;

  // Vectors at the end of a run read past it: x must be zero there, and gy a number.
  std::fill_n(s.x, s.x_elements, Compute(0));
  std::fill_n(s.g, s.g_elements, Compute(0));
  const Span tiles = piece(tiling_.tile_count(), chunks_, chunk);
  if (blocks_.outer)
    sum_outer_products(x, gy, Channels{group, ins, outs}, tiles, s, partial);
  else
    sum_dot_products(x, gy, Channels{group, ins, outs}, tiles, s, partial);
}

template <class Compute>
void GradWeightBinding::run_in(const ConstTensor& x, const ConstTensor& gy, const Tensor& gw,
                               const RunOptions& options, int workers) const {
  Arena arena(options.workspace);
  // Chunk 0 is summed in gw itself where gw looks like a chunk.
  const bool in_place = is_dense(gw) && size_of(gw.dtype) == sizeof(Compute);
  Partials<Compute> partials;
  partials.rest = arena.take<Compute>(chunks_ * weights());
  partials.first = in_place ? static_cast<Compute*>(gw.data) : partials.rest;
  char* scratch_memory = arena.take<char>(0);
  const std::size_t per_worker = scratch_bytes<Compute>();
  if (multiply_adds_ < serial_multiply_adds) workers = 1;
  share(options.executor, int(std::min<int64_t>(workers, items())), items(), [&](int worker, int64_t item) {
    Arena mine(scratch_memory + std::size_t(worker) * per_worker);
    run_item<Compute>(x, gy, partials, scratch<Compute>(mine), item);
  });
  const bool all_meet = std::all_of(taps_.begin(), taps_.end(), [](const TileTap& tap) { return tap.meets; });
  if (in_place && chunks_ == 1 && all_meet) return;

  // Add the chunks, one input channel at a time, and spread the sums over gw's own strides.
  const int64_t in_channels = gw.sizes[0], row = weights() / in_channels;
  share(options.executor, workers, in_channels, [&](int, int64_t channel) {
    Compute* sums = partials.first + channel * row;
    for (int64_t chunk = 1; chunk < chunks_; ++chunk) {
      const Compute* more = partials.rest + chunk * weights() + channel * row;
      for (int64_t i = 0; i < row; ++i) sums[i] += more[i];
    }
    if (!all_meet)
      for (int64_t i = 0; i < row; ++i)
        if (!taps_[std::size_t(i) % taps_.size()].meets) sums[i] = 0;
    if (in_place) return;
    with_storage<Compute>(gw.dtype, [&](auto storage) {
      using Storage = decltype(storage);
      Storage* to = static_cast<Storage*>(gw.data) + channel * gw.strides[0];
      for (int64_t out = 0; out < gw.sizes[1]; ++out)
        for (int64_t d = 0; d < gw.sizes[2]; ++d)
          for (int64_t h = 0; h < gw.sizes[3]; ++h)
            for (int64_t w = 0; w < gw.sizes[4]; ++w)
              to[out * gw.strides[1] + d * gw.strides[2] + h * gw.strides[3] + w * gw.strides[4]] =
                  demote<Storage>(*sums++);
    });
  });
}

void GradWeightBinding::run(const ConstTensor& x, const ConstTensor& gy, const Tensor& gw,
                            const RunOptions& options, int workers) const {
  with_compute(wide_, [&](auto compute) { run_in<decltype(compute)>(x, gy, gw, options, workers); });
}

}  // namespace tconv::cpu
