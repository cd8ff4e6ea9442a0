#include "cpu/convolve.hpp"

#include <algorithm>

#include "cpu/compute_type.hpp"
#include "cpu/convert.hpp"
#include "cpu/kernels/bf16_pairs.hpp"
#include "cpu/machine.hpp"
#include "cpu/workers.hpp"

namespace tconv::cpu {
namespace {

using std::int64_t;

int panel_rows(OperandKind kind) {
  return with_operand(kind, [](auto operand) { return outer_product_kernels<decltype(operand)>().rows; });
}

/// Elements behind the last plane that the last vectors of a run may read.
template <class Operand>
int64_t source_slack() {
  const auto& kernels = outer_product_kernels<Operand>();
  return int64_t(kernels.lanes) * kernels.max_vectors;
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(Convolution convolution, DType dtype)
    : conv(std::move(convolution)),
      operand(operand_kind(dtype, conv.sum_channels)),
      weight(conv, panel_rows(operand), second_level_cache(), operand_bytes(operand), channels_of(operand)),
      slots(conv) {}

ConvolutionBinding::ConvolutionBinding(const ConvolutionPlan& plan, int64_t batch, const Extents& source_size,
                                       const Extents& target_size)
    : plan_(&plan) {
  const Convolution& conv = plan.conv;
  const int64_t element_bytes = operand_bytes(plan.operand);  // of sums as well

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
  with_operand(plan.operand, [&](auto operand) {
    const auto& kernels = outer_product_kernels<decltype(operand)>();
    costs.lanes = costs.column_unit = kernels.lanes;
    costs.units = kernels.widest[std::min<int64_t>(rows, kernels.rows)];
  });
  costs.multiply_adds = double(row_channels * conv.tap_count()) * double(plan.weight.sum_channels());
  costs.source_elements = double(conv.sum_channels * planes);
  costs.sum_elements = double(row_channels * targets_per_position);
  costs.sum_rows = costs.sum_elements / double(std::min(conv.target.step[2], target_size[2]));
  costs.cache_bytes = second_level_cache() * 5 / 8;  // the rest is for weights passing by
  costs.source_bytes_per_position = double(sum_channels * planes * element_bytes);
  costs.sum_bytes_per_position = double(rows * element_bytes);
  costs.wanted_columns = 1024;
  const int64_t wanted_items = 4 * processors();  // enough for all threads to share evenly
  costs.fewest_tiles = multiply_adds_ < 16 * serial_multiply_adds ? 1 : ceil_div(wanted_items, item_kinds);
  tiling_ = choose_tiling(grid, costs);
  // Inputs of one plane, as they are, have a place in a product by inputs.
  if (planes == 1 && conv.source.step == Extents{1, 1, 1} && conv.source.padding == Extents{0, 0, 0}) {
    costs.additions = double(row_channels * conv.tap_count()) * double(plan.weight.sum_blocks());
    const std::array<int64_t, 4> inputs{batch, source_size[0], source_size[1], source_size[2]};
    constexpr double worth_it = 0.9;
    if (auto samples = whole_samples(grid, inputs, costs); samples && samples->sums.cost < worth_it * tiling_.cost)
      tiling_ = samples->sums, inputs_ = samples->source;
  }
  const double targets = double(batch) * double(conv.groups * conv.row_channels) * double(target_size[0]) *
                         double(target_size[1]) * double(target_size[2]);
  streaming_ = targets * double(element_bytes) > double(streaming_bytes());
  channel_pitch_ = spread_pitch(source_tiling().plane_elements, element_bytes);
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

template <class Operand>
struct ConvolutionBinding::Scratch {
  using Sum = SumOf<Operand>;
  Operand* source;
  Sum* sums;
  Sum* start;  // one value per row
  Sum* row_buffer;
  Sum* products;  // of a register tile by inputs
  TapOffset* taps;
  Operand* piece;  // of packed weight, where the worker packs for itself
  float* singles;  // channels of the source on their way into pairs
};

// Channels that are loaded before they are joined to pairs: few, so that they stay in the first-level cache.
constexpr int64_t channels_joined = 8;

template <class Operand>
ConvolutionBinding::Scratch<Operand> ConvolutionBinding::scratch(Arena& arena, bool packs_weight) const {
  const int64_t rows = plan_->conv.phase_count() * plan_->weight.largest_row_block();
  std::size_t most_taps = 0;
  for (const auto& taps : taps_) most_taps = std::max(most_taps, taps.size());
  using Sum = SumOf<Operand>;
  Scratch<Operand> s;
  s.source = arena.take<Operand>(int64_t(plan_->conv.planes.size()) * plane_pitch_ + source_slack<Operand>());
  s.sums = arena.take<Sum>(rows * row_pitch_);
  s.start = arena.take<Sum>(rows);
  s.row_buffer = arena.take<Sum>(row_buffer_elements(plan_->conv.target, tiling_));
  using Kernels = OuterProductKernels<Operand>;
  s.products =
      inputs_ ? arena.take<Sum>(Kernels::max_rows * Kernels::max_vectors * outer_product_kernels<Operand>().lanes)
              : nullptr;
  s.taps = arena.take<TapOffset>(int64_t(most_taps));
  s.piece = packs_weight && packs_pieces() ? arena.take<Operand>(plan_->weight.largest_piece()) : nullptr;
  const int64_t singles = int64_t(plan_->conv.planes.size()) * channels_joined * channel_pitch_;
  s.singles = OperandTraits<Operand>::channels > 1 ? arena.take<float>(singles) : nullptr;
  return s;
}

int64_t ConvolutionBinding::items() const {
  return tiling_.tile_count() * plan_->conv.groups * plan_->weight.row_blocks();
}

template <class Operand>
std::size_t ConvolutionBinding::scratch_bytes(bool packs_weight) const {
  Arena arena;
  scratch<Operand>(arena, packs_weight);
  return arena.bytes();
}

std::size_t ConvolutionBinding::workspace_bytes(int workers, bool packs_weight) const {
  return with_operand(plan_->operand, [&](auto operand) {
    using Operand = decltype(operand);
    Arena shared;
    if (packs_weight && !packs_pieces()) shared.take<Operand>(plan_->weight.elements());
    shared.take<SumOf<Operand>>(plan_->conv.groups * plan_->conv.row_channels);  // bias
    shared.take<char>(0);                                                        // where the workers begin
    return shared.bytes() +
           std::size_t(std::min<int64_t>(workers, items())) * scratch_bytes<Operand>(packs_weight);
  });
}

template <class Operand>
void ConvolutionBinding::multiply(std::size_t class_index, const Box& box, const Operand* packed, Span channels,
                                  Span sums, bool first, const Scratch<Operand>& s) const {
  const PhaseClass& phase_class = plan_->conv.classes[class_index];
  const auto& kernels = outer_product_kernels<Operand>();
  int64_t first_row = 0;
  for (std::size_t c = 0; c < class_index; ++c)
    first_row += int64_t(plan_->conv.classes[c].phases.size()) * channels.size();
  const int64_t rows = int64_t(phase_class.phases.size()) * channels.size();
  const int64_t panels = plan_->weight.panels(rows);
  const int64_t vectors = ceil_div(run_length(tiling_, box), kernels.lanes);
  const int64_t strips = ceil_div(vectors, kernels.widest[ceil_div(rows, panels)]);

  OuterProduct<Operand> product;
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

template <class Operand>
void ConvolutionBinding::multiply_by_inputs(std::size_t class_index, const Box& box, const Operand* packed,
                                            Span channels, Span sums, const Scratch<Operand>& s) const {
  using Sum = SumOf<Operand>;
  const PhaseClass& phase_class = plan_->conv.classes[class_index];
  const auto& kernels = outer_product_kernels<Operand>();
  const RowKernels<Sum>& row_kernel = row_kernels<Sum>();
  int64_t first_row = 0;
  for (std::size_t c = 0; c < class_index; ++c)
    first_row += int64_t(plan_->conv.classes[c].phases.size()) * channels.size();
  const int64_t rows = int64_t(phase_class.phases.size()) * channels.size();
  const int64_t panels = plan_->weight.panels(rows);
  const int64_t depth = inputs_->extent[1], height = inputs_->extent[2], width = inputs_->extent[3];
  const int64_t columns = box.extent[0] * depth * height * width;
  const int64_t vectors = ceil_div(columns, kernels.lanes);
  const int64_t strips = ceil_div(vectors, kernels.widest[ceil_div(rows, panels)]);
  constexpr Sum zeros[OuterProductKernels<Operand>::max_rows] = {};

  OuterProduct<Operand> product;
  product.channel_stride = channel_pitch_;
  product.channels = sums.size();
  product.taps = s.taps;
  product.tap_count = 1;
  product.start = zeros;
  product.sums = s.products;
  for (int64_t strip = 0; strip < strips; ++strip) {
    const Span in_vectors = piece(vectors, strips, strip);
    const int64_t begin = in_vectors.begin * kernels.lanes,
                  end = std::min(in_vectors.end * kernels.lanes, columns);
    product.source = s.source + begin;
    product.row_pitch = in_vectors.size() * kernels.lanes;
    for (int64_t p = 0; p < panels; ++p) {
      const Span panel = plan_->weight.panel(rows, p);
      product.weight = packed + panel.begin * int64_t(phase_class.taps.size()) * sums.size();
      Sum* const panel_sums = s.sums + (first_row + panel.begin) * row_pitch_;
      for (const TileTap& tap : taps_[class_index]) {
        s.taps[0] = {.source = 0, .weight = tap.index * sums.size()};
        kernels.kernel[panel.size()][in_vectors.size()](product);
        // A row of inputs is a row of positions, as far as these have outputs.
        const Extents& offset = phase_class.taps[std::size_t(tap.index)].offset;
        for (int64_t row = begin / width; row * width < end; ++row) {
          const int64_t h = row % height - offset[1], d = row / height % depth - offset[0];
          const int64_t to_h = h - tiling_.first[2], to_d = d - tiling_.first[1];
          if (to_h < 0 || to_h >= tiling_.count[2] || to_d < 0 || to_d >= tiling_.count[1]) continue;
          const int64_t shift = offset[2] + tiling_.first[3];  // from a position's place to the input it takes
          const int64_t from_w = std::max({begin - row * width, int64_t(0), shift});
          const int64_t to_w = std::min({end - row * width, width, tiling_.count[3] + shift});
          if (from_w >= to_w) continue;
          const int64_t column = row / height / depth * tiling_.pitch[0] + to_d * tiling_.pitch[1] +
                                 to_h * tiling_.pitch[2] + from_w - shift;
          row_kernel.add(s.products + row * width + from_w - begin, product.row_pitch, panel.size(), to_w - from_w,
                         panel_sums + column, row_pitch_);
        }
      }
    }
  }
}

template <class Operand>
void ConvolutionBinding::load(const ConstTensor& source, int64_t tile, int64_t group, Span sums,
                              const Scratch<Operand>& s) const {
  const Convolution& conv = plan_->conv;
  const Tiling& tiling = source_tiling();
  const Box box = tile_box(tiling, tile);
  constexpr int64_t parts = OperandTraits<Operand>::channels;
  const int64_t first = sums.begin * parts, end = std::min(sums.end * parts, conv.sum_channels);
  if constexpr (parts == 1) {
    load_planes(source, conv.source, conv.planes, tiling, box, group * conv.sum_channels + first, end - first,
                s.source, plane_pitch_, channel_pitch_);
  } else {
    const int64_t plane_of_singles = channels_joined * channel_pitch_;
    for (int64_t channel = first; channel < end; channel += channels_joined) {
      const int64_t count = std::min(channels_joined, end - channel);
      load_planes(source, conv.source, conv.planes, tiling, box, group * conv.sum_channels + channel, count,
                  s.singles, plane_of_singles, channel_pitch_);
      for (std::size_t plane = 0; plane < conv.planes.size(); ++plane)
        for (int64_t c = 0; c < count; c += parts) {
          const float* const single = s.singles + int64_t(plane) * plane_of_singles + c * channel_pitch_;
          join_pairs(single, c + 1 < count ? single + channel_pitch_ : nullptr, tiling.plane_elements,
                     s.source + int64_t(plane) * plane_pitch_ + (channel - first + c) / parts * channel_pitch_);
        }
    }
  }
}

template <class Operand>
void ConvolutionBinding::run_item(const ConstTensor& source, const ConstTensor& weight, const Operand* packed,
                                  const SumOf<Operand>* bias, const Tensor& target, const Scratch<Operand>& s,
                                  int64_t item) const {
  using Sum = SumOf<Operand>;
  const Convolution& conv = plan_->conv;
  const PackedWeight& layout = plan_->weight;
  // Row blocks of one tile follow each other, while its source is still in a cache.
  const int64_t row_block = item % layout.row_blocks();
  const int64_t tile = item / layout.row_blocks() % tiling_.tile_count();
  const int64_t group = item / layout.row_blocks() / tiling_.tile_count();
  const Span channels = layout.row_block(row_block);
  const Box box = tile_box(tiling_, tile);
  const int64_t first_channel = group * conv.row_channels + channels.begin;
  const Sum* block_bias = bias ? bias + first_channel : nullptr;

  // Vectors at the end of a run read the gaps between channels. What comes of it is thrown away, but should not
  // be computed from whatever the workspace held: subnormal numbers cost a hundred cycles each.
  Operand* source_end = s.source + int64_t(conv.planes.size()) * plane_pitch_;
  const int64_t loaded = source_tiling().plane_elements;
  for (Operand* channel = s.source; channel != source_end; channel += channel_pitch_)
    std::fill_n(channel + loaded, channel_pitch_ - loaded, Operand{});
  std::fill_n(source_end, source_slack<Operand>(), Operand{});

  const int64_t rows = conv.phase_count() * channels.size();
  for (int64_t row = 0; row < rows; ++row) s.start[row] = block_bias ? block_bias[row % channels.size()] : Sum(0);
  for (int64_t row = 0; row < rows && inputs_; ++row)
    std::fill_n(s.sums + row * row_pitch_, tiling_.columns(), s.start[row]);

  for (int64_t block = 0; block < layout.sum_blocks(); ++block) {
    const Span sums = layout.sum_block(block);
    load(source, tile, group, sums, s);
    const Operand* piece = s.piece;
    if (packed)
      piece = packed + layout.piece_offset(group, row_block, block);
    else
      pack_piece(conv, layout, weight, group, row_block, block, s.piece);
    for (std::size_t c = 0; c < conv.classes.size(); ++c) {
      const Operand* const of_class = piece + layout.class_offset(row_block, block, c);
      if (inputs_)
        multiply_by_inputs(c, box, of_class, channels, sums, s);
      else
        multiply(c, box, of_class, channels, sums, block == 0, s);
    }
  }
  store_box(SumTile<Sum>{.sums = s.sums,
                         .row_pitch = row_pitch_,
                         .channels = channels.size(),
                         .bias = block_bias,
                         .row_buffer = s.row_buffer,
                         .streaming = streaming_},
            plan_->slots, conv.target, tiling_, box, first_channel, target);
}

template <class Operand>
void ConvolutionBinding::run_in(const ConstTensor& source, const ConstTensor& weight, const ConstTensor* bias,
                                const Tensor& target, const void* packed, const RunOptions& options,
                                int workers) const {
  Arena arena(options.workspace);
  const Operand* ready = static_cast<const Operand*>(packed);
  if (ready == nullptr && !packs_pieces()) {
    Operand* space = arena.take<Operand>(plan_->weight.elements());
    pack_weight(*plan_, weight, space, options.executor, workers);
    ready = space;
  }
  const int64_t channels = plan_->conv.groups * plan_->conv.row_channels;
  using Sum = SumOf<Operand>;
  Sum* converted_bias = arena.take<Sum>(channels);
  if (bias) row_kernels<Sum>().load(bias->dtype, bias->data, bias->strides[0], channels, converted_bias);

  workers = int(std::min<int64_t>(workers, items()));
  if (multiply_adds_ < serial_multiply_adds) workers = 1;
  const std::size_t per_worker = scratch_bytes<Operand>(packed == nullptr);
  char* scratch_memory = arena.take<char>(0);
  share(options.executor, workers, items(), [&](int worker, int64_t item) {
    Arena mine(scratch_memory + std::size_t(worker) * per_worker);
    run_item<Operand>(source, weight, ready, bias ? converted_bias : nullptr, target,
                      scratch<Operand>(mine, packed == nullptr), item);
  });
}

void ConvolutionBinding::run(const ConstTensor& source, const ConstTensor& weight, const ConstTensor* bias,
                             const Tensor& target, const void* packed, const RunOptions& options,
                             int workers) const {
  with_operand(plan_->operand, [&](auto operand) {
    run_in<decltype(operand)>(source, weight, bias, target, packed, options, workers);
  });
}

void pack_weight(const ConvolutionPlan& plan, const ConstTensor& weight, void* packed, Executor* executor,
                 int workers) {
  with_operand(plan.operand, [&](auto operand) {
    using Operand = decltype(operand);
    constexpr int64_t serial_elements = 32 << 10;
    const int64_t row_blocks = plan.weight.row_blocks(), sum_blocks = plan.weight.sum_blocks();
    share(executor, plan.weight.elements() < serial_elements ? 1 : workers,
          plan.conv.groups * row_blocks * sum_blocks, [&](int, int64_t item) {
            const int64_t group = item / sum_blocks / row_blocks;
            const int64_t row_block = item / sum_blocks % row_blocks, sum_block = item % sum_blocks;
            pack_piece(plan.conv, plan.weight, weight, group, row_block, sum_block,
                       static_cast<Operand*>(packed) + plan.weight.piece_offset(group, row_block, sum_block));
          });
  });
}

}  // namespace tconv::cpu
