#include "cpu/convolve.hpp"

#include <algorithm>

#include "cpu/compute_type.hpp"
#include "cpu/convert.hpp"
#include "cpu/kernels/outer_product.hpp"
#include "cpu/machine.hpp"
#include "cpu/workers.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

int panel_rows(bool wide) {
  return wide ? outer_product_kernels<double>().rows : outer_product_kernels<float>().rows;
}

/// Elements behind the last plane that the last vectors of a run may read.
template <class Compute>
int64_t source_slack() {
  const auto& kernels = outer_product_kernels<Compute>();
  return int64_t(kernels.lanes) * kernels.max_vectors;
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(Convolution convolution, DType dtype)
    : conv(std::move(convolution)),
      weight(conv, panel_rows(computes_in_double(dtype)), second_level_cache(), computes_in_double(dtype) ? 8 : 4),
      slots(conv),
      wide(computes_in_double(dtype)) {}

ConvolutionBinding::ConvolutionBinding(const ConvolutionPlan& plan, int64_t batch, const Extents& source_size,
                                       const Extents& target_size)
    : plan_(&plan) {
  const Convolution& conv = plan.conv;
  const int64_t element_bytes = plan.wide ? 8 : 4;

  Grid grid;
  grid.skips_padding = true;
  grid.count[batch_dim] = grid.real[batch_dim] = batch;
  double positions = double(batch);
  int64_t targets_per_position = 1;
  for (int d = 0; d < 3; ++d) {
    const int64_t step = conv.target.step[d], padding = conv.target.padding[d];
    grid.first[d + 1] = padding / step;
    grid.count[d + 1] = (target_size[d] - 1 + padding) / step - grid.first[d + 1] + 1;
    grid.real[d + 1] = ceil_div(source_size[d], conv.source.step[d]);
    positions *= double(grid.count[d + 1]);
    targets_per_position *= std::min(step, target_size[d]);
  }

  // Where every tap meets real elements; its share tells the tiling what skipping saves.
  std::array<double, 3> useful{}, all{};
  std::vector<std::vector<std::array<Range, 3>>> useful_q;
  for (const PhaseClass& c : conv.classes) {
    auto& ranges = useful_q.emplace_back();
    for (const SharedTap& tap : c.taps) {
      std::array<Range, 3>& q = ranges.emplace_back();
      for (int d = 0; d < 3; ++d) {
        const Range source = phase_range(conv.planes[std::size_t(tap.plane)][d], conv.source.step[d],
                                         conv.source.padding[d], source_size[d]);
        q[d] = {std::max(source.begin - tap.offset[d], grid.first[d + 1]),
                std::min(source.end - tap.offset[d], grid.first[d + 1] + grid.count[d + 1])};
        useful[d] += double(c.phases.size()) * double(q[d].size());
        all[d] += double(c.phases.size()) * double(grid.count[d + 1]);
      }
    }
  }
  for (int d = 0; d < 3; ++d) grid.useful_taps[d + 1] = useful[d] / all[d];

  // Taps that meet nothing at this shape are left out, so that the reach is bounded by the tensors, whatever
  // the dilation.
  const auto meets = [](const std::array<Range, 3>& q) { return q[0].size() && q[1].size() && q[2].size(); };
  Reach reach;
  for (std::size_t c = 0; c < conv.classes.size(); ++c)
    for (std::size_t t = 0; t < conv.classes[c].taps.size(); ++t)
      if (meets(useful_q[c][t])) reach.include(conv.classes[c].taps[t].offset);
  for (int d = 0; d < 3; ++d) {
    grid.lowest_offset[d + 1] = reach.lowest[d];
    grid.highest_offset[d + 1] = reach.highest[d];
  }

  const int64_t row_channels = plan.weight.largest_row_block(), sum_channels = plan.weight.largest_sum_block();
  const int64_t rows = conv.phase_count() * row_channels;
  const int64_t planes = int64_t(conv.planes.size());
  const int64_t item_kinds = conv.groups * plan.weight.row_blocks();
  multiply_adds_ =
      positions * double(conv.groups * conv.row_channels) * double(conv.sum_channels) * double(conv.tap_count());
  TileCosts costs;
  with_compute(plan.wide, [&](auto compute) {
    const auto& kernels = outer_product_kernels<decltype(compute)>();
    costs.lanes = costs.column_unit = kernels.lanes;
    costs.units = kernels.widest[std::min<int64_t>(rows, kernels.rows)];
  });
  costs.multiply_adds = double(row_channels * conv.tap_count()) * double(conv.sum_channels);
  costs.source_elements = double(conv.sum_channels * planes);
  costs.sum_elements = double(row_channels * targets_per_position);
  costs.sum_rows = costs.sum_elements / double(std::min(conv.target.step[2], target_size[2]));
  costs.source_is_strided = conv.source.step[2] > 1;
  costs.sums_are_strided = conv.target.step[2] > 1;
  costs.cache_bytes = second_level_cache() * 5 / 8;  // the rest is for weights passing by
  costs.source_bytes_per_position = double(sum_channels * planes * element_bytes);
  costs.sum_bytes_per_position = double(rows * element_bytes);
  costs.wanted_columns = 1024;
  const int64_t wanted_items = 4 * processors();  // enough for all threads to share evenly
  costs.fewest_tiles = multiply_adds_ < 16 * serial_multiply_adds ? 1 : ceil_div(wanted_items, item_kinds);
  tiling_ = choose_tiling(grid, costs);
  const double targets = double(batch) * double(conv.groups * conv.row_channels) * double(target_size[0]) *
                         double(target_size[1]) * double(target_size[2]);
  streaming_ = targets * double(element_bytes) > double(streaming_bytes());
  channel_pitch_ = spread_pitch(tiling_.plane_elements, element_bytes);
  plane_pitch_ = sum_channels * channel_pitch_;
  row_pitch_ = spread_pitch(tiling_.columns(), element_bytes);

  for (std::size_t c = 0; c < conv.classes.size(); ++c) {
    auto& taps = taps_.emplace_back();
    for (std::size_t t = 0; t < conv.classes[c].taps.size(); ++t) {
      if (!meets(useful_q[c][t])) continue;
      const SharedTap& tap = conv.classes[c].taps[t];
      TileTap tile_tap{.source = tap.plane * plane_pitch_, .index = int64_t(t), .useful = {}};
      for (int d = 0; d < 4; ++d) {
        const int dim = tiling_.dim[d];
        if (dim == batch_dim) {
          tile_tap.useful[d] = {0, batch};
        } else {
          tile_tap.useful[d] = useful_q[c][t][dim - 1];
          tile_tap.source += (tap.offset[dim - 1] - tiling_.lowest_offset[d]) * tiling_.pitch[d];
        }
      }
      taps.push_back(tile_tap);
    }
    // Taps of one plane read nearly the same lines: one after the other they find them in the first-level cache.
    std::sort(taps.begin(), taps.end(), [](const TileTap& a, const TileTap& b) { return a.source < b.source; });
  }
}

template <class Compute>
struct ConvolutionBinding::Scratch {
  Compute* source;
  Compute* sums;
  Compute* start;  // one value per row
  Compute* row_buffer;
  TapOffset* taps;
  Compute* piece;  // of packed weight, where the worker packs for itself
};

template <class Compute>
ConvolutionBinding::Scratch<Compute> ConvolutionBinding::scratch(Arena& arena, bool packs_weight) const {
  const int64_t rows = plan_->conv.phase_count() * plan_->weight.largest_row_block();
  std::size_t most_taps = 0;
  for (const auto& taps : taps_) most_taps = std::max(most_taps, taps.size());
  Scratch<Compute> s;
  s.source = arena.take<Compute>(int64_t(plan_->conv.planes.size()) * plane_pitch_ + source_slack<Compute>());
  s.sums = arena.take<Compute>(rows * row_pitch_);
  s.start = arena.take<Compute>(rows);
  s.row_buffer = arena.take<Compute>(row_buffer_elements(plan_->conv.target, tiling_));
  s.taps = arena.take<TapOffset>(int64_t(most_taps));
  s.piece = packs_weight && packs_pieces() ? arena.take<Compute>(plan_->weight.largest_piece()) : nullptr;
  return s;
}

int64_t ConvolutionBinding::items() const {
  return tiling_.tile_count() * plan_->conv.groups * plan_->weight.row_blocks();
}

template <class Compute>
std::size_t ConvolutionBinding::scratch_bytes(bool packs_weight) const {
  Arena arena;
  scratch<Compute>(arena, packs_weight);
  return arena.bytes();
}

std::size_t ConvolutionBinding::workspace_bytes(int workers, bool packs_weight) const {
  return with_compute(plan_->wide, [&](auto compute) {
    using Compute = decltype(compute);
    Arena shared;
    if (packs_weight && !packs_pieces()) shared.take<Compute>(plan_->weight.elements());
    shared.take<Compute>(plan_->conv.groups * plan_->conv.row_channels);  // bias
    shared.take<char>(0);                                                 // where the workers begin
    return shared.bytes() +
           std::size_t(std::min<int64_t>(workers, items())) * scratch_bytes<Compute>(packs_weight);
  });
}

template <class Compute>
void ConvolutionBinding::multiply(std::size_t class_index, const Box& box, const Compute* packed, Span channels,
                                  Span sums, bool first, const Scratch<Compute>& s) const {
  const PhaseClass& phase_class = plan_->conv.classes[class_index];
  const auto& kernels = outer_product_kernels<Compute>();
  int64_t first_row = 0;
  for (std::size_t c = 0; c < class_index; ++c)
    first_row += int64_t(plan_->conv.classes[c].phases.size()) * channels.size();
  const int64_t rows = int64_t(phase_class.phases.size()) * channels.size();
  const int64_t panels = plan_->weight.panels(rows);
  const int64_t vectors = ceil_div(run_length(tiling_, box), kernels.lanes);
  const int64_t strips = ceil_div(vectors, kernels.widest[ceil_div(rows, panels)]);

  OuterProduct<Compute> product;
  product.channel_stride = channel_pitch_;
  product.channels = sums.size();
  product.taps = s.taps;
  product.row_pitch = row_pitch_;

  std::array<int64_t, 3> outer{1, 1, 1};  // positions outside the runs
  for (int d = 0; d < tiling_.run_from; ++d) outer[d] = box.extent[d];
  std::array<int64_t, 3> e;
  for (e[0] = 0; e[0] < outer[0]; ++e[0])
    for (e[1] = 0; e[1] < outer[1]; ++e[1])
      for (e[2] = 0; e[2] < outer[2]; ++e[2]) {
        int64_t source = 0, column = 0;
        for (int d = 0; d < tiling_.run_from; ++d) {
          source += e[d] * tiling_.pitch[d];
          column += e[d] * tiling_.column_stride(d);
        }
        product.tap_count = 0;
        const std::vector<TileTap>& taps = taps_[class_index];
        for (const TileTap& tap : taps) {
          bool useful = true;
          for (int d = 0; d < tiling_.run_from; ++d) {
            const int64_t q = box.begin[d] + e[d];
            useful = useful && q >= tap.useful[d].begin && q < tap.useful[d].end;
          }
          if (useful) s.taps[product.tap_count++] = {.source = tap.source, .weight = tap.index * sums.size()};
        }
        // A strip of source stays in the first-level cache while the weights of all panels pass by.
        for (int64_t strip = 0; strip < strips; ++strip) {
          const Span columns = piece(vectors, strips, strip);
          product.source = s.source + source + columns.begin * kernels.lanes;
          for (int64_t p = 0; p < panels; ++p) {
            const Span panel = plan_->weight.panel(rows, p);
            product.weight = packed + panel.begin * int64_t(phase_class.taps.size()) * sums.size();
            product.sums =
                s.sums + (first_row + panel.begin) * row_pitch_ + column + columns.begin * kernels.lanes;
            product.start = first ? s.start + first_row + panel.begin : nullptr;
            kernels.kernel[panel.size()][columns.size()](product);
          }
        }
      }
}

template <class Compute>
void ConvolutionBinding::run_item(const ConstTensor& source, const ConstTensor& weight, const Compute* packed,
                                  const Compute* bias, const Tensor& target, const Scratch<Compute>& s,
                                  int64_t item) const {
  const Convolution& conv = plan_->conv;
  const PackedWeight& layout = plan_->weight;
  // Row blocks of one tile follow each other, while its source is still in a cache.
  const int64_t row_block = item % layout.row_blocks();
  const int64_t tile = item / layout.row_blocks() % tiling_.tile_count();
  const int64_t group = item / layout.row_blocks() / tiling_.tile_count();
  const Span channels = layout.row_block(row_block);
  const Box box = tile_box(tiling_, tile);
  const int64_t first_channel = group * conv.row_channels + channels.begin;
  const Compute* block_bias = bias ? bias + first_channel : nullptr;

  // Vectors at the end of a run read the gaps between channels. What comes of it is thrown away, but should not
  // be computed from whatever the workspace held: subnormal numbers cost a hundred cycles each.
  Compute* source_end = s.source + int64_t(conv.planes.size()) * plane_pitch_;
  for (Compute* channel = s.source; channel != source_end; channel += channel_pitch_)
    std::fill_n(channel + tiling_.plane_elements, channel_pitch_ - tiling_.plane_elements, Compute(0));
  std::fill_n(source_end, source_slack<Compute>(), Compute(0));

  const int64_t rows = conv.phase_count() * channels.size();
  for (int64_t row = 0; row < rows; ++row)
    s.start[row] = block_bias ? block_bias[row % channels.size()] : Compute(0);

  for (int64_t block = 0; block < layout.sum_blocks(); ++block) {
    const Span sums = layout.sum_block(block);
    load_planes(source, conv.source, conv.planes, tiling_, box, group * conv.sum_channels + sums.begin,
                sums.size(), s.source, plane_pitch_, channel_pitch_);
    const Compute* piece = s.piece;
    if (packed)
      piece = packed + layout.piece_offset(group, row_block, block);
    else
      pack_piece(conv, layout, weight, group, row_block, block, s.piece);
    for (std::size_t c = 0; c < conv.classes.size(); ++c)
      multiply(c, box, piece + layout.class_offset(row_block, block, c), channels, sums, block == 0, s);
  }
  store_box(SumTile<Compute>{.sums = s.sums,
                             .row_pitch = row_pitch_,
                             .channels = channels.size(),
                             .bias = block_bias,
                             .row_buffer = s.row_buffer,
                             .streaming = streaming_},
            plan_->slots, conv.target, tiling_, box, first_channel, target);
}

template <class Compute>
void ConvolutionBinding::run_in(const ConstTensor& source, const ConstTensor& weight, const ConstTensor* bias,
                                const Tensor& target, const void* packed, const RunOptions& options,
                                int workers) const {
  Arena arena(options.workspace);
  const Compute* ready = static_cast<const Compute*>(packed);
  if (ready == nullptr && !packs_pieces()) {
    Compute* space = arena.take<Compute>(plan_->weight.elements());
    pack_weight(*plan_, weight, space, options.executor, workers);
    ready = space;
  }
  const int64_t channels = plan_->conv.groups * plan_->conv.row_channels;
  Compute* converted_bias = arena.take<Compute>(channels);
  if (bias) row_kernels<Compute>().load(bias->dtype, bias->data, bias->strides[0], channels, converted_bias);

  workers = int(std::min<int64_t>(workers, items()));
  if (multiply_adds_ < serial_multiply_adds) workers = 1;
  const std::size_t per_worker = scratch_bytes<Compute>(packed == nullptr);
  char* scratch_memory = arena.take<char>(0);
  share(options.executor, workers, items(), [&](int worker, int64_t item) {
    Arena mine(scratch_memory + std::size_t(worker) * per_worker);
    run_item<Compute>(source, weight, ready, bias ? converted_bias : nullptr, target,
                      scratch<Compute>(mine, packed == nullptr), item);
  });
}

void ConvolutionBinding::run(const ConstTensor& source, const ConstTensor& weight, const ConstTensor* bias,
                             const Tensor& target, const void* packed, const RunOptions& options,
                             int workers) const {
  with_compute(plan_->wide, [&](auto compute) {
    run_in<decltype(compute)>(source, weight, bias, target, packed, options, workers);
  });
}

void pack_weight(const ConvolutionPlan& plan, const ConstTensor& weight, void* packed, Executor* executor,
                 int workers) {
  with_compute(plan.wide, [&](auto compute) {
    using Compute = decltype(compute);
    constexpr int64_t serial_elements = 32 << 10;
    const int64_t row_blocks = plan.weight.row_blocks(), sum_blocks = plan.weight.sum_blocks();
    share(executor, plan.weight.elements() < serial_elements ? 1 : workers,
          plan.conv.groups * row_blocks * sum_blocks, [&](int, int64_t item) {
            const int64_t group = item / sum_blocks / row_blocks;
            const int64_t row_block = item / sum_blocks % row_blocks, sum_block = item % sum_blocks;
            pack_piece(plan.conv, plan.weight, weight, group, row_block, sum_block,
                       static_cast<Compute*>(packed) + plan.weight.piece_offset(group, row_block, sum_block));
          });
  });
}

}  // namespace tconv::cpu
