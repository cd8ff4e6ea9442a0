// The sums of grad-weight over a chunk of tiles, by dot products and by outer products.
#include <algorithm>
#include <type_traits>

#include "cpu/grad_weight_scratch.hpp"
#include "cpu/kernels/bf16_pairs.hpp"
#include "cpu/kernels/dot_product.hpp"

namespace tconv::cpu {

using std::int64_t;

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
void GradWeightBinding::load_x(const ConstTensor& x, const Box& box, int64_t group, Span channels,
                               Compute* tile) const {
  const Stepping plain;
  load_plane(PlaneView{&x, &plain, {0, 0, 0}}, x_tiling_, box, Fill::box_only,
             group * mirror_->row_channels + channels.begin, channels.size(), tile, channel_pitch_);
}

template <class Compute>
void GradWeightBinding::load_g(const ConstTensor& gy, const Box& box, int64_t group, Span channels, Compute* tile,
                               int64_t plane_pitch) const {
  load_planes(gy, mirror_->source, mirror_->planes, tiling_, box, group * mirror_->sum_channels + channels.begin,
              channels.size(), tile, plane_pitch, channel_pitch_);
}

template <class Compute>
void GradWeightBinding::multiply_dot(const Box& box, int64_t in_channels, int64_t out_channels, Compute* partial,
                                     const Scratch<Compute>& s) const {
  const auto& kernels = dot_product_kernels<Compute>();
  const int64_t taps = int64_t(taps_.size());
  DotProduct<Compute> product;
  product.x_pitch = channel_pitch_;
  product.runs = s.runs;
  product.run_count = list_runs(box, s.runs);
  product.run_length = round_up(run_length(tiling_, box), kernels.lanes);
  product.row_pitch = mirror_->sum_channels * taps;

  // Columns of gy stay in the first-level cache while all rows of x pass by.
  const int64_t columns = out_channels * taps, plane_pitch = most_out() * channel_pitch_;
  const int64_t column_panels = ceil_div(columns, kernels.columns),
                row_panels = ceil_div(in_channels, kernels.rows);
  for (int64_t column_panel = 0; column_panel < column_panels; ++column_panel) {
    const Span column = piece(columns, column_panels, column_panel);
    for (int64_t c = column.begin; c < column.end; ++c) {
      const TileTap& tap = taps_[std::size_t(c % taps)];
      product.g[c - column.begin] = s.g + tap.plane * plane_pitch + c / taps * channel_pitch_ + tap.shift;
    }
    for (int64_t row_panel = 0; row_panel < row_panels; ++row_panel) {
      const Span row = piece(in_channels, row_panels, row_panel);
      product.x = s.x + row.begin * channel_pitch_;
      product.sums = partial + row.begin * product.row_pitch + column.begin;
      kernels.kernel[row.size()][column.size()](product);
    }
  }
}

template <class Compute>
void GradWeightBinding::sum_dot_products(const ConstTensor& x, const ConstTensor& gy, const Channels& channels,
                                         Span tiles, const Scratch<Compute>& s, Compute* partial) const {
  const int64_t taps = int64_t(taps_.size());
  for (int64_t row = 0; row < channels.ins.size(); ++row)
    std::fill_n(partial + row * mirror_->sum_channels * taps, channels.outs.size() * taps, Compute(0));
  std::array<int64_t, 4> last_extent = tiling_.extent;
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const Box box = tile_box(tiling_, tile);
    if (box.extent != last_extent) std::fill_n(s.x, s.x_elements, Compute(0));  // a smaller box leaves a rim
    last_extent = box.extent;
    load_x(x, box, channels.group, channels.ins, s.x);
    load_g(gy, box, channels.group, channels.outs, s.g, most_out() * channel_pitch_);
    multiply_dot(box, channels.ins.size(), channels.outs.size(), partial, s);
  }
}

namespace {

/// How the two sides of an outer product are cut for the kernels: rows into panels, vectors into strips.
template <class Compute>
struct Cut {
  Cut(int64_t row_channels, int64_t vector_channels)
      : rows(row_channels),
        panels(ceil_div(rows, kernels.rows)),
        vectors(ceil_div(vector_channels, kernels.lanes)),
        strips(ceil_div(vectors, kernels.widest[ceil_div(rows, panels)])) {}

  const OuterProductKernels<Compute>& kernels = outer_product_kernels<Compute>();
  int64_t rows, panels, vectors, strips;

  Span panel(int64_t index) const { return piece(rows, panels, index); }
  Span strip(int64_t index) const { return piece(vectors, strips, index); }
};

}  // namespace

template <class Compute>
void GradWeightBinding::load_outer(const ConstTensor& x, const ConstTensor& gy, const Channels& channels,
                                   const Box& box, const Scratch<Compute>& s) const {
  const bool inputs = blocks_.inputs_in_vectors;
  const int64_t ins = channels.ins.size(), outs = channels.outs.size();
  const Cut<Compute> cut(inputs ? outs : ins, inputs ? ins : outs);
  const auto blocks = [&](bool of_inputs) {
    const bool vectors = of_inputs == inputs;
    return ChannelBlocks<Compute>{
        .first_channel = of_inputs ? channels.group * mirror_->row_channels + channels.ins.begin
                                   : channels.group * mirror_->sum_channels + channels.outs.begin,
        .channels = of_inputs ? ins : outs,
        .unit = vectors ? cut.kernels.lanes : 1,
        .blocks = vectors ? cut.strips : cut.panels,
        .tile = vectors ? s.vectors : s.rows};
  };
  constexpr std::array<Extents, 1> one_plane{};
  load_positions(x, Stepping{}, one_plane, x_tiling_, box, Fill::box_only, blocks(true));
  load_positions(gy, mirror_->source, mirror_->planes, tiling_, box, Fill::widened, blocks(false));
}

int64_t GradWeightBinding::list_steps(const Box& box, const TileTap& tap, int64_t channel_stride,
                                      TapOffset* steps) const {
  std::array<Range, 3> useful{Range{0, 1}, Range{0, 1}, Range{0, 1}};
  for (int d = 0; d < tiling_.run_from; ++d)
    useful[d] = {std::max<int64_t>(0, tap.useful[d].begin - box.begin[d]),
                 std::min(box.extent[d], tap.useful[d].end - box.begin[d])};
  int64_t count = 0;
  std::array<int64_t, 3> e;
  for (e[0] = useful[0].begin; e[0] < useful[0].end; ++e[0])
    for (e[1] = useful[1].begin; e[1] < useful[1].end; ++e[1])
      for (e[2] = useful[2].begin; e[2] < useful[2].end; ++e[2]) {
        const int64_t run = e[0] * tiling_.pitch[0] + e[1] * tiling_.pitch[1] + e[2] * tiling_.pitch[2];
        steps[count++] = {.source = run * channel_stride, .weight = run};
      }
  return count;
}

void GradWeightBinding::join_positions(const Box& box, int64_t in_channels, int64_t out_channels,
                                       const Scratch<float>& s) const {
  const bool inputs = blocks_.inputs_in_vectors;
  const Cut<float> cut(inputs ? out_channels : in_channels, inputs ? in_channels : out_channels);
  const int64_t positions = tiling_.plane_elements, run = run_length(tiling_, box), runs = list_runs(box, s.runs);
  const auto join = [](float* first, int64_t count, int64_t channels) {
    const auto pairs = [](float* at) { return reinterpret_cast<BFloat16Pair*>(at); };
    float* const last = first + (count - 1) * channels;
    join_pairs(first, first + channels, (count - 1) * channels, pairs(first));
    join_pairs(last, nullptr, channels, pairs(last));
  };
  const auto join_block = [&](bool of_inputs, float* block, int64_t channels) {
    if (!of_inputs)
      for (int64_t plane = 0; plane < planes(); ++plane)
        join(block + plane * positions * channels, positions, channels);
    else  // the last of an odd number of positions meets whatever gy has behind the run: it is with zero
      for (int64_t i = 0; i < runs; ++i) join(block + s.runs[i] * channels, run, channels);
  };
  for (int64_t index = 0; index < cut.strips; ++index) {
    const Span strip = cut.strip(index);
    const int64_t lanes = cut.kernels.lanes;
    join_block(inputs, s.vectors + strip.begin * lanes * (inputs ? 1 : planes()) * positions,
               strip.size() * lanes);
  }
  for (int64_t index = 0; index < cut.panels; ++index) {
    const Span panel = cut.panel(index);
    join_block(!inputs, s.rows + panel.begin * (inputs ? planes() : 1) * positions, panel.size());
  }
}

template <class Operand>
void GradWeightBinding::multiply_outer(const Box& box, int64_t in_channels, int64_t out_channels, bool first,
                                       const Scratch<SumOf<Operand>>& s) const {
  using Compute = SumOf<Operand>;
  constexpr int64_t at_once = OperandTraits<Operand>::channels;  // positions of an operand
  const bool inputs = blocks_.inputs_in_vectors;
  const int64_t positions = tiling_.plane_elements, lanes = outer_product_kernels<Compute>().lanes;
  const Cut<Compute> cut(inputs ? out_channels : in_channels, inputs ? in_channels : out_channels);
  constexpr Compute zeros[OuterProductKernels<Compute>::max_rows] = {};

  const auto& kernels = outer_product_kernels<Operand>();
  const Operand* const vectors = reinterpret_cast<const Operand*>(s.vectors);
  const Operand* const row_panels = reinterpret_cast<const Operand*>(s.rows);

  // Positions take the place of channels, and the runs of the tile the place of taps.
  OuterProduct<Operand> product;
  product.row_pitch = s.vector_pitch;
  product.channels = ceil_div(run_length(tiling_, box), at_once);
  product.weight_step = at_once;
  product.taps = s.steps;
  product.start = first ? zeros : nullptr;
  for (int64_t index = 0; index < cut.strips; ++index) {
    const Span strip = cut.strip(index);
    const int64_t pitch = strip.size() * lanes;
    product.channel_stride = pitch * at_once;
    for (std::size_t t = 0; t < taps_.size(); ++t) {
      // The tap reads gy, on whichever side that is.
      const TileTap& tap = taps_[t];
      product.tap_count = list_steps(box, tap, pitch, s.steps);
      if (product.tap_count == 0 && !first) continue;
      const int64_t place = tap.plane * positions + tap.shift;
      product.source =
          vectors + strip.begin * lanes * (inputs ? 1 : planes()) * positions + (inputs ? 0 : place * pitch);
      for (int64_t p = 0; p < cut.panels; ++p) {
        const Span panel = cut.panel(p);
        product.weight =
            row_panels + panel.begin * (inputs ? planes() : 1) * positions + (inputs ? place * panel.size() : 0);
        product.sums = s.sums + (int64_t(t) * cut.rows + panel.begin) * s.vector_pitch + strip.begin * lanes;
        kernels.kernel[panel.size()][strip.size()](product);
      }
    }
  }
}

template <class Compute>
void GradWeightBinding::sum_outer_products(const ConstTensor& x, const ConstTensor& gy, const Channels& channels,
                                           Span tiles, const Scratch<Compute>& s, Compute* partial) const {
  const int64_t ins = channels.ins.size(), outs = channels.outs.size(), taps = int64_t(taps_.size());
  const bool inputs = blocks_.inputs_in_vectors;
  // Vectors are whole; what lies beyond the channels is computed and thrown away, but should be a number.
  if ((inputs ? ins : outs) < s.vector_pitch) std::fill_n(s.vectors, s.vector_elements, Compute(0));
  std::array<int64_t, 4> last_extent = tiling_.extent;
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const Box box = tile_box(tiling_, tile);
    // What is between the rows of one run of x must be zero: a smaller box leaves a rim there, and pairs are left.
    // What pairs find behind a run of gy must be a number.
    const bool fresh = tile == tiles.begin || box.extent != last_extent;
    const auto zero = [&](bool of_inputs) {
      if (of_inputs == inputs)
        std::fill_n(s.vectors, s.vector_elements, Compute(0));
      else
        std::fill_n(s.rows, s.row_elements, Compute(0));
    };
    if (tiling_.run_from < 3 && (fresh || pairs_)) zero(true);
    if (fresh && (tiling_.run_from < 3 || pairs_)) zero(false);
    last_extent = box.extent;
    load_outer(x, gy, channels, box, s);
    if constexpr (std::is_same_v<Compute, float>) {
      if (pairs_) {
        join_positions(box, ins, outs, s);
        multiply_outer<BFloat16Pair>(box, ins, outs, tile == tiles.begin, s);
        continue;
      }
    }
    multiply_outer<Compute>(box, ins, outs, tile == tiles.begin, s);
  }

  // From [tap][row][channel] to [in][out][tap].
  const RowKernels<Compute>& kernels = row_kernels<Compute>();
  const DType dtype = wide_ ? DType::f64 : DType::f32;
  const int64_t in_pitch = mirror_->sum_channels * taps;
  const int64_t rows = inputs ? outs : ins;
  for (int64_t row = 0; row < rows; ++row)
    kernels.load_transposed(dtype, s.sums + row * s.vector_pitch, rows * s.vector_pitch, 1, taps,
                            inputs ? ins : outs, partial + row * (inputs ? taps : in_pitch),
                            inputs ? in_pitch : taps);
}

template void GradWeightBinding::sum_dot_products(const ConstTensor&, const ConstTensor&, const Channels&, Span,
                                                  const Scratch<float>&, float*) const;
template void GradWeightBinding::sum_dot_products(const ConstTensor&, const ConstTensor&, const Channels&, Span,
                                                  const Scratch<double>&, double*) const;
template void GradWeightBinding::sum_outer_products(const ConstTensor&, const ConstTensor&, const Channels&, Span,
                                                    const Scratch<float>&, float*) const;
template void GradWeightBinding::sum_outer_products(const ConstTensor&, const ConstTensor&, const Channels&, Span,
                                                    const Scratch<double>&, double*) const;

}  // namespace tconv::cpu
