// Packing: unpacked by the documented order, every weight is where the kernels will look for it, once.
#include "cpu/packed_weight.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cpu/operand.hpp"
#include "support/random.hpp"

namespace {

using namespace tconv;
using namespace tconv::cpu;

ConstTensor weight_view(const void* values, const Geometry& g) {
  ConstTensor t;
  t.data = values;
  t.rank = 5;
  t.sizes = {g.in_channels(), g.group_out, g.kernel[0], g.kernel[1], g.kernel[2]};
  std::int64_t stride = 1;
  for (int d = 4; d >= 0; stride *= t.sizes[std::size_t(d--)]) t.strides[std::size_t(d)] = stride;
  return t;
}

/// Weights that say which one they are, as far as their type can, and what an operand says of them.
struct Singles {
  using Storage = float;
  using Operand = float;
  static constexpr DType dtype = DType::f32;
  static Storage weight(std::int64_t index) { return float(index); }
  static std::int64_t part(Operand operand, int) { return std::int64_t(operand); }
  static std::int64_t named(std::int64_t index) { return index; }
};
struct Pairs {
  using Storage = std::uint16_t;
  using Operand = BFloat16Pair;
  static constexpr DType dtype = DType::bf16;
  static Storage weight(std::int64_t index) { return Storage(named(index)); }
  static std::int64_t part(Operand operand, int i) { return operand.bits >> (16 * i) & 0xffff; }
  static std::int64_t named(std::int64_t index) { return index % 0xffff + 1; }  // zero is none
};

template <class Kind>
void check(const Geometry& g, bool forward, int panel_rows, std::int64_t cache) {
  constexpr int parts = OperandTraits<typename Kind::Operand>::channels;
  const Convolution conv = forward ? forward_convolution(g) : grad_input_convolution(g);
  const PackedWeight layout(conv, panel_rows, cache, 4, parts);
  std::vector<typename Kind::Storage> weight(std::size_t(g.in_channels() * g.group_out * g.taps()));
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = Kind::weight(std::int64_t(i));
  ConstTensor view = weight_view(weight.data(), g);
  view.dtype = Kind::dtype;
  ASSERT_EQ(layout.sum_channels(), ceil_div(conv.sum_channels, parts));
  ASSERT_EQ(layout.elements() * conv.sum_channels, layout.sum_channels() * std::int64_t(weight.size()));
  std::vector<typename Kind::Operand> packed(std::size_t(layout.elements()));
  for (std::int64_t group = 0; group < g.groups; ++group)
    for (std::int64_t rows = 0; rows < layout.row_blocks(); ++rows)
      for (std::int64_t sums = 0; sums < layout.sum_blocks(); ++sums)
        pack_piece(conv, layout, view, group, rows, sums, packed.data() + layout.piece_offset(group, rows, sums));

  // Read it back in the order packed_weight.hpp promises.
  std::size_t at = 0, found = 0;
  for (std::int64_t group = 0; group < g.groups; ++group)
    for (std::int64_t row_block = 0; row_block < layout.row_blocks(); ++row_block)
      for (std::int64_t sum_block = 0; sum_block < layout.sum_blocks(); ++sum_block) {
        const Span channels = layout.row_block(row_block), sums = layout.sum_block(sum_block);
        for (std::size_t c = 0; c < conv.classes.size(); ++c) {
          ASSERT_EQ(std::int64_t(at), layout.piece_offset(group, row_block, sum_block) +
                                          layout.class_offset(row_block, sum_block, c));
          const PhaseClass& phase_class = conv.classes[c];
          const std::int64_t rows = std::int64_t(phase_class.phases.size()) * channels.size();
          for (std::int64_t p = 0; p < layout.panels(rows); ++p) {
            const Span panel = layout.panel(rows, p);
            ASSERT_LE(panel.size(), panel_rows);
            for (std::size_t tap = 0; tap < phase_class.taps.size(); ++tap)
              for (std::int64_t operand = sums.begin; operand < sums.end; ++operand)
                for (std::int64_t row = panel.begin; row < panel.end; ++row, ++at)
                  for (int i = 0; i < parts; ++i) {
                    const std::int64_t sum = operand * parts + i;
                    if (sum == conv.sum_channels) {
                      ASSERT_EQ(Kind::part(packed[at], i), 0);
                      continue;
                    }
                    const std::int64_t k = phase_class.phases[std::size_t(row / channels.size())].k[tap];
                    const std::int64_t channel = channels.begin + row % channels.size();
                    const std::int64_t in = group * g.group_in + (forward ? sum : channel);
                    const std::int64_t out = forward ? channel : sum;
                    ASSERT_EQ(Kind::part(packed[at], i), Kind::named((in * g.group_out + out) * g.taps() + k));
                    ++found;
                  }
          }
        }
      }
  EXPECT_EQ(found, weight.size());
}

TEST(PackedWeight, HoldsEveryWeightOnceInTheDocumentedOrder) {
  testing_support::Random random(31);
  for (int i = 0; i < 200; ++i) {
    Geometry g;
    g.groups = random.integer(1, 3);
    g.group_in = random.integer(1, 150);
    g.group_out = random.integer(1, 40);
    for (int d = 0; d < 3; ++d) {
      g.kernel[d] = random.integer(1, d == 2 ? 5 : 2);
      g.stride[d] = random.integer(1, 3);
      g.dilation[d] = random.integer(1, 3);
    }
    const bool forward = random.chance(0.5);
    const int panel_rows = int(random.integer(1, 8));
    const std::int64_t cache = random.pick({1 << 15, 1 << 18, 1 << 21});
    check<Singles>(g, forward, panel_rows, cache);
    check<Pairs>(g, forward, panel_rows, cache);
  }
}

}  // namespace
