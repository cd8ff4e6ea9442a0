#include <algorithm>

#include "cpu/compute_type.hpp"
#include "cpu/convert.hpp"
#include "cpu/gradients.hpp"
#include "cpu/kernels/dot_product.hpp"
#include "cpu/kernels/outer_product.hpp"
#include "cpu/machine.hpp"
#include "cpu/packed_weight.hpp"

namespace tconv::cpu {

using std::int64_t;

GradWeightBinding::GradWeightBinding(const Convolution& mirror, DType dtype, const Shape& shape)
    : mirror_(&mirror), wide_(computes_in_double(dtype)) {
  const int64_t element_bytes = wide_ ? 8 : 4;
  const std::vector<SharedTap>& taps = mirror.classes[0].taps;
  const int64_t planes = int64_t(mirror.planes.size());

  // Blocks of channels whose tiles fit the second-level cache at a thousand positions: a long run pays for
  // adding up the lanes at its end. Where the channels are too many for that, tiles would be loaded again and
  // again; outer products do with far fewer positions.
  int64_t wanted_positions = 1024;
  const int64_t budget = second_level_cache() / 2;
  const int64_t channel_rows = std::max<int64_t>(8, budget / (wanted_positions * element_bytes));
  in_blocks_ = ceil_div(mirror.row_channels, std::max<int64_t>(4, channel_rows / 3));
  out_blocks_ = ceil_div(mirror.sum_channels, std::max<int64_t>(1, channel_rows * 2 / 3 / planes));
  const int64_t lanes = wide_ ? dot_product_kernels<double>().lanes : dot_product_kernels<float>().lanes;
  outer_ = in_blocks_ * out_blocks_ > 1 && mirror.sum_channels >= 2 * lanes && mirror.row_channels >= 8;
  if (outer_) {
    wanted_positions = 256;
    in_blocks_ = ceil_div(mirror.row_channels, 256);
    out_blocks_ = ceil_div(mirror.sum_channels, std::clamp<int64_t>(512 / planes, 2 * lanes, 128));
  }
  const int64_t in_channels = ceil_div(mirror.row_channels, in_blocks_);
  const int64_t out_channels = ceil_div(mirror.sum_channels, out_blocks_);
  out_pitch_ = round_up(out_channels, lanes);

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
  for (const SharedTap& tap : taps) {
    bool meets = true;
    for (int d = 0; d < 3; ++d) {
      const Range g = phase_range(mirror.planes[std::size_t(tap.plane)][d], mirror.source.step[d],
                                  mirror.source.padding[d], shape.output[d]);
      meets =
          meets && std::max<int64_t>(0, g.begin - tap.offset[d]) < std::min(shape.input[d], g.end - tap.offset[d]);
    }
    if (meets) reach.include(tap.offset);
    tap_meets_.push_back(meets);
  }
  for (int d = 0; d < 3; ++d) {
    grid.lowest_offset[d + 1] = reach.lowest[d];
    grid.highest_offset[d + 1] = reach.highest[d];
  }
  multiply_adds_ = positions * double(weights());

  TileCosts costs;
  costs.lanes = lanes;
  costs.vectors = wanted_positions;  // a run is one call, however long
  costs.multiply_adds = double(in_channels * out_channels) * double(taps.size());
  costs.source_elements = double(in_channels + out_channels * planes);
  costs.source_is_strided = mirror.source.step[2] > 1;
  costs.cache_bytes = outer_ ? budget * 3 / 2 : budget;
  costs.source_bytes_per_position = costs.source_elements * double(element_bytes) * (outer_ ? 2 : 1);
  costs.wanted_columns = wanted_positions;
  costs.run_tail = costs.lanes;
  tiling_ = choose_tiling(grid, costs);

  // Enough items for threads to share, few enough that the partial sums stay small.
  constexpr int64_t wanted_items = 32;
  constexpr int64_t largest_partials = int64_t(64) << 20;
  const int64_t blocks = mirror.groups * in_blocks_ * out_blocks_;
  const int64_t most_chunks = std::max<int64_t>(1, largest_partials / (weights() * element_bytes));
  chunks_ = std::clamp<int64_t>(ceil_div(wanted_items, blocks), 1, std::min(most_chunks, tiling_.tile_count()));

  x_pitch_ = spread_pitch(tiling_.plane_elements, element_bytes);
  g_pitch_ = spread_pitch(planes * tiling_.plane_elements, element_bytes);
  x_tiling_ = tiling_;
  x_tiling_.lowest_offset = {};
  for (std::size_t t = 0; t < taps.size(); ++t) {
    int64_t offset = taps[t].plane * tiling_.plane_elements;
    for (int d = 0; d < 4 && tap_meets_[t]; ++d) {
      const int dim = tiling_.dim[d];
      const int64_t shift = dim == batch_dim ? 0 : taps[t].offset[dim - 1];
      offset += (shift - tiling_.lowest_offset[d]) * tiling_.pitch[d];
    }
    tap_offset_.push_back(offset);
  }
}

int64_t GradWeightBinding::weights() const {
  return mirror_->groups * mirror_->row_channels * mirror_->sum_channels *
         int64_t(mirror_->classes[0].taps.size());
}

int64_t GradWeightBinding::items() const {
  return chunks_ * mirror_->groups * in_blocks_ * out_blocks_;
}

template <class Compute>
struct GradWeightBinding::Scratch {
  Compute* x;
  Compute* g;
  int64_t x_elements;
  int64_t g_elements;
  int64_t* runs;
  // Of outer products: [panel][position][row], [plane][position][out channel], [tap][in channel][out channel].
  Compute* x_columns;
  Compute* g_rows;
  Compute* sums;
};

/// Where the sums of chunk 0 and of the other chunks are, each [in channel][out channel][tap].
template <class Compute>
struct GradWeightBinding::Partials {
  Compute* first;
  Compute* rest;  // of chunk c at c · weights()
};

template <class Compute>
GradWeightBinding::Scratch<Compute> GradWeightBinding::scratch(Arena& arena) const {
  const int64_t slack = dot_product_kernels<Compute>().lanes;
  Scratch<Compute> s{};
  s.x_elements = ceil_div(mirror_->row_channels, in_blocks_) * x_pitch_ + slack;
  s.g_elements = ceil_div(mirror_->sum_channels, out_blocks_) * g_pitch_ + slack;
  s.x = arena.take<Compute>(s.x_elements);
  s.g = arena.take<Compute>(s.g_elements);
  s.runs = arena.take<int64_t>(tiling_.run_count);
  if (outer_) {
    s.x_columns = arena.take<Compute>(ceil_div(mirror_->row_channels, in_blocks_) * tiling_.plane_elements);
    s.g_rows = arena.take<Compute>(g_rows_elements());
    s.sums = arena.take<Compute>(sums_elements());
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

int64_t GradWeightBinding::list_runs(const Box& box, int64_t* runs) const {
  std::array<int64_t, 3> outer{1, 1, 1};
  for (int d = 0; d < tiling_.run_from; ++d) outer[d] = box.extent[d];
  int64_t count = 0;
  std::array<int64_t, 3> e;
  for (e[0] = 0; e[0] < outer[0]; ++e[0])
    for (e[1] = 0; e[1] < outer[1]; ++e[1])
      for (e[2] = 0; e[2] < outer[2]; ++e[2]) {
        int64_t& start = runs[count++];
        start = 0;
        for (int d = 0; d < tiling_.run_from; ++d) start += e[d] * tiling_.pitch[d];
      }
  return count;
}

template <class Compute>
void GradWeightBinding::multiply(const Box& box, int64_t in_channels, int64_t out_channels, Compute* partial,
                                 const Scratch<Compute>& s) const {
  const auto& kernels = dot_product_kernels<Compute>();
  const int64_t taps = int64_t(tap_offset_.size());
  DotProduct<Compute> product;
  product.x_pitch = x_pitch_;
  product.runs = s.runs;
  product.run_length = round_up(run_length(tiling_, box), kernels.lanes);
  product.row_pitch = mirror_->sum_channels * taps;

  product.run_count = list_runs(box, s.runs);

  // Columns of gy stay in the first-level cache while all rows of x pass by.
  const int64_t columns = out_channels * taps;
  const int64_t column_panels = ceil_div(columns, kernels.columns),
                row_panels = ceil_div(in_channels, kernels.rows);
  for (int64_t column_panel = 0; column_panel < column_panels; ++column_panel) {
    const Span column = piece(columns, column_panels, column_panel);
    for (int64_t c = column.begin; c < column.end; ++c)
      product.g[c - column.begin] = s.g + c / taps * g_pitch_ + tap_offset_[std::size_t(c % taps)];
    for (int64_t row_panel = 0; row_panel < row_panels; ++row_panel) {
      const Span row = piece(in_channels, row_panels, row_panel);
      product.x = s.x + row.begin * x_pitch_;
      product.sums = partial + row.begin * product.row_pitch + column.begin;
      kernels.kernel[row.size()][column.size()](product);
    }
  }
}

template <class Compute>
void GradWeightBinding::multiply_outer(const Box& box, int64_t in_channels, int64_t out_channels,
                                       const Scratch<Compute>& s) const {
  const auto& kernels = outer_product_kernels<Compute>();
  const RowKernels<Compute>& rows = row_kernels<Compute>();
  const DType dtype = wide_ ? DType::f64 : DType::f32;
  const int64_t positions = tiling_.plane_elements, planes = int64_t(mirror_->planes.size());
  const int64_t panels = ceil_div(in_channels, kernels.rows);
  for (int64_t p = 0; p < panels; ++p) {
    const Span panel = piece(in_channels, panels, p);
    rows.load_transposed(dtype, s.x + panel.begin * x_pitch_, x_pitch_, 1, panel.size(), positions,
                         s.x_columns + panel.begin * positions, panel.size());
  }
  for (int64_t plane = 0; plane < planes; ++plane)
    rows.load_transposed(dtype, s.g + plane * positions, g_pitch_, 1, out_channels, positions,
                         s.g_rows + plane * positions * out_pitch_, out_pitch_);

  // Positions take the place of channels, and output channels the place of positions.
  const TapOffset here{.source = 0, .index = 0};
  OuterProduct<Compute> product;
  product.channel_stride = out_pitch_;
  product.channels = run_length(tiling_, box);
  product.taps = &here;
  product.tap_count = 1;
  product.row_pitch = out_pitch_;
  product.start = nullptr;
  const int64_t runs = list_runs(box, s.runs);
  const int64_t vectors = ceil_div(out_channels, kernels.lanes);
  const int64_t strips = ceil_div(vectors, kernels.widest[ceil_div(in_channels, panels)]);
  for (std::size_t tap = 0; tap < tap_offset_.size(); ++tap)
    for (int64_t strip = 0; strip < strips; ++strip) {
      const Span columns = piece(vectors, strips, strip);
      for (int64_t p = 0; p < panels; ++p) {
        const Span panel = piece(in_channels, panels, p);
        product.sums =
            s.sums + (int64_t(tap) * in_channels + panel.begin) * out_pitch_ + columns.begin * kernels.lanes;
        for (int64_t run = 0; run < runs; ++run) {
          product.weight = s.x_columns + panel.begin * positions + s.runs[run] * panel.size();
          product.source =
              s.g_rows + (tap_offset_[tap] + s.runs[run]) * out_pitch_ + columns.begin * kernels.lanes;
          kernels.kernel[panel.size()][columns.size()](product);
        }
      }
    }
}

template <class Compute>
void GradWeightBinding::run_item(const ConstTensor& x, const ConstTensor& gy, const Partials<Compute>& partials,
                                 const Scratch<Compute>& s, int64_t item) const {
  const Convolution& mirror = *mirror_;
  const int64_t taps = int64_t(tap_offset_.size());
  const Span outs = piece(mirror.sum_channels, out_blocks_, item % out_blocks_);
  item /= out_blocks_;
  const Span ins = piece(mirror.row_channels, in_blocks_, item % in_blocks_);
  item /= in_blocks_;
  const int64_t group = item % mirror.groups, chunk = item / mirror.groups;
  const int64_t row_pitch = mirror.sum_channels * taps;
  Compute* partial = (chunk == 0 ? partials.first : partials.rest + chunk * weights()) +
                     (group * mirror.row_channels + ins.begin) * row_pitch + outs.begin * taps;

  for (int64_t row = 0; row < ins.size(); ++row)
    std::fill_n(partial + row * row_pitch, outs.size() * taps, Compute(0));
  // Vectors at the end of a run read past it: x must be zero there, and gy a number.
  std::fill_n(s.x, s.x_elements, Compute(0));
  std::fill_n(s.g, s.g_elements, Compute(0));
  if (outer_) {
    std::fill_n(s.g_rows, g_rows_elements(), Compute(0));
    std::fill_n(s.sums, sums_elements(), Compute(0));
  }
  const Stepping plain;
  std::array<int64_t, 4> last_extent = tiling_.extent;
  const Span tiles = piece(tiling_.tile_count(), chunks_, chunk);
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const Box box = tile_box(tiling_, tile);
    if (box.extent != last_extent) std::fill_n(s.x, s.x_elements, Compute(0));  // a smaller box leaves a rim
    last_extent = box.extent;
    load_plane(PlaneView{&x, &plain, {0, 0, 0}}, x_tiling_, box, Fill::box_only,
               group * mirror.row_channels + ins.begin, ins.size(), s.x, x_pitch_);
    load_planes(gy, mirror.source, mirror.planes, tiling_, box, group * mirror.sum_channels + outs.begin,
                outs.size(), s.g, tiling_.plane_elements, g_pitch_);
    if (outer_)
      multiply_outer(box, ins.size(), outs.size(), s);
    else
      multiply(box, ins.size(), outs.size(), partial, s);
  }
  if (outer_)  // [tap][in][out] to [in][out][tap]
    for (int64_t in = 0; in < ins.size(); ++in)
      row_kernels<Compute>().load_transposed(wide_ ? DType::f64 : DType::f32, s.sums + in * out_pitch_,
                                             ins.size() * out_pitch_, 1, taps, outs.size(),
                                             partial + in * row_pitch, taps);
}

namespace {

bool is_dense(const Tensor& t) {
  int64_t stride = 1;
  for (int d = t.rank - 1; d >= 0; stride *= t.sizes[d--])
    if (t.sizes[d] > 1 && t.strides[d] != stride) return false;
  return true;
}

}  // namespace

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
  const bool all_meet = std::find(tap_meets_.begin(), tap_meets_.end(), false) == tap_meets_.end();
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
        if (!tap_meets_[std::size_t(i) % tap_meets_.size()]) sums[i] = 0;
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
