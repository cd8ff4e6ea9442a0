// Products of doubles on tensor cores wait for the sums they add to.
//
// A product is done some 40 cycles after it is issued, and another one that adds to the same sums must wait until
// then: on the barrier that the first one names (there are six to a warp). It is the assembler that sees to it,
// and those of CUDA 12.9 to 13.5 do not where m16n8k8 products of one sum alone are unrolled in a loop: none waits
// for the last one of the round before. Wrong sums on an H200 were what it took to find that, for the emulation
// has no assembler. So this reads machine code: of sm_90, where it is known how instructions say what they wait
// for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "cuda/codegen.hpp"
#include "cuda/heuristics/gemm_tiles.hpp"
#include "cuda/heuristics/packing_plan.hpp"
#include "cuda/runtime/nvrtc.hpp"
#include "support/needs_nvrtc.hpp"

namespace tconv::cuda {
namespace {

/// 16 bytes of machine code.
struct Instruction {
  std::uint64_t low, high;

  enum Opcode : unsigned { product = 0x23f, branch = 0x947, exit = 0x94d };
  unsigned opcode() const { return low & 0xfff; }
  bool always() const { return (low >> 12 & 0xf) == 7; }
  unsigned sums() const { return low >> 16 & 0xff; }  // the first register of a product's result
  unsigned added_to() const { return high & 0xff; }   // and of what it is added to
  unsigned barriers_waited_for() const { return unsigned(high >> 52 & 0x3f); }
  std::optional<unsigned> barrier() const {  // that says when its result is there
    const unsigned index = high >> 46 & 7;
    return index < 6 ? std::optional(index) : std::nullopt;
  }
  /// Bytes from the next instruction on.
  std::int64_t distance() const {
    const auto upper = std::int64_t((low >> 34) | (high & 0x3ffff) << 30) << 16 >> 16;
    return upper * 1024 + std::int64_t(low >> 16 & 0xff) * 4;
  }
};

using Code = std::vector<Instruction>;

/// The products that add to sums which another one may not have formed yet, on any way through the code.
std::vector<std::size_t> unwaited_products(const Code& code) {
  // Of each register, the barriers that are still to be waited for.
  using Pending = std::array<unsigned char, 256>;
  std::vector<std::optional<Pending>> before(code.size());
  std::vector<std::size_t> work;
  std::vector<bool> unwaited(code.size());
  const auto arrive = [&](std::size_t at, const Pending& pending) {
    if (at >= code.size()) return;
    Pending all = before[at].value_or(Pending{});
    for (std::size_t r = 0; r < all.size(); ++r) all[r] |= pending[r];
    if (before[at] && all == *before[at]) return;
    before[at] = all;
    work.push_back(at);
  };
  arrive(0, {});
  while (!work.empty()) {
    const std::size_t at = work.back();
    work.pop_back();
    const Instruction& now = code[at];
    Pending pending = *before[at];
    for (auto& barriers : pending) barriers &= static_cast<unsigned char>(~now.barriers_waited_for());
    if (now.opcode() == Instruction::product) {
      for (unsigned r = 0; r < 8; ++r)
        if (now.added_to() + r < 255 && pending[now.added_to() + r]) unwaited[at] = true;
      if (now.barrier())
        for (unsigned r = 0; r < 8; ++r)
          pending[now.sums() + r] = static_cast<unsigned char>(1u << *now.barrier());
    }
    if (now.opcode() == Instruction::branch) arrive(at + 1 + std::size_t(now.distance() / 16), pending);
    const bool ends = now.opcode() == Instruction::branch || now.opcode() == Instruction::exit;
    if (!ends || !now.always()) arrive(at + 1, pending);
  }
  std::vector<std::size_t> found;
  for (std::size_t at = 0; at < code.size(); ++at)
    if (unwaited[at]) found.push_back(at);
  return found;
}

/// The machine code of a kernel, from the section of the binary that has it.
Code code_of(const std::string& binary, const std::string& entry) {
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, binary.data() + at, bytes);
    return std::size_t(value);
  };
  const std::size_t sections = number(0x28, 8), size = number(0x3a, 2), count = number(0x3c, 2);
  const auto section = [&](std::size_t i) { return sections + i * size; };
  const std::size_t names = number(section(number(0x3e, 2)) + 0x18, 8);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = binary.data() + names + number(section(i), 4);
    if (name != ".text." + entry) continue;
    Code code(number(section(i) + 0x20, 8) / sizeof(Instruction));
    std::memcpy(code.data(), binary.data() + number(section(i) + 0x18, 8), code.size() * sizeof(Instruction));
    return code;
  }
  return {};
}

std::size_t products_of(const Code& code) {
  std::size_t count = 0;
  for (const Instruction& at : code) count += at.opcode() == Instruction::product;
  return count;
}

// What the check says of code that is written down here.
Instruction product(unsigned sums, unsigned barrier, unsigned waits) {
  return {0x7000u | Instruction::product | std::uint64_t(sums) << 16,
          std::uint64_t(sums) | std::uint64_t(barrier) << 46 | std::uint64_t(waits) << 52};
}
Instruction back(int instructions) {
  const std::int64_t distance = -16 * (instructions + 1);
  const auto upper = std::uint64_t((distance - (distance & 1023)) / 1024);
  return {Instruction::branch | std::uint64_t(distance & 1023) / 4 << 16 | upper << 34,
          (upper >> 30 & 0x3ffff) | std::uint64_t(7) << 46};
}
const Instruction nothing{0x7918, std::uint64_t(7) << 46}, end{0x7000 | Instruction::exit, std::uint64_t(7) << 46};

TEST(DoubleProductsCheck, SeesWhatIsNotWaitedFor) {
  using Found = std::vector<std::size_t>;
  EXPECT_EQ(unwaited_products({product(8, 5, 0), product(8, 5, 1 << 5), end}), Found{});
  EXPECT_EQ(unwaited_products({product(8, 5, 0), product(8, 5, 0), end}), Found{1});
  EXPECT_EQ(unwaited_products({product(8, 5, 0), product(8, 5, 1 << 4), end}), Found{1});
  EXPECT_EQ(unwaited_products({product(8, 5, 0), product(16, 4, 0), product(8, 5, 1 << 5), end}), Found{});
  EXPECT_EQ(unwaited_products({product(8, 5, 0), product(12, 4, 0), end}), Found{1}) << "half of the registers";
  // Round a loop.
  EXPECT_EQ(unwaited_products({nothing, product(8, 5, 0), nothing, back(2), end}), Found{1});
  EXPECT_EQ(unwaited_products({nothing, product(8, 5, 1 << 5), nothing, back(2), end}), Found{});
  EXPECT_EQ(unwaited_products({product(8, 5, 0), product(8, 5, 1 << 5), back(2), end}), Found{0});
}

struct DoubleProducts : test::NeedsNvrtc {};

/// One sum and several, one octet of channels at a time and up to four, weights that stay and that are streamed,
/// row tiles that skip steps: of each layer the tiles that prices like best, of each kind.
TEST_F(DoubleProducts, WaitForTheSumsTheyAddTo) {
  struct Listed {
    int dims, in, out;
    Extents input, kernel, stride;
  };
  const Listed layers[] = {{2, 32, 64, {20, 24}, {3, 3}, {1, 1}},  {3, 32, 16, {5, 8, 20}, {3, 3, 3}, {1, 1, 1}},
                           {1, 64, 16, {64}, {18}, {9}},           {1, 64, 64, {320}, {3}, {1}},
                           {2, 64, 32, {12, 24}, {2, 2}, {2, 2}},  {3, 32, 32, {4, 6, 9}, {3, 3, 3}, {2, 2, 2}},
                           {2, 256, 128, {64, 64}, {4, 4}, {2, 2}}};
  int compiled = 0;
  for (const Listed& listed : layers) {
    Layer l;
    l.dims = listed.dims, l.in_channels = listed.in, l.out_channels = listed.out, l.dtype = DType::f64;
    l.kernel = listed.kernel, l.stride = listed.stride;
    for (std::size_t d = std::size_t(l.dims); d < 3; ++d) l.kernel[d] = l.stride[d] = 1;
    const Geometry g = geometry_of(l);
    const auto plans = plan_packings(g, device::Math::f64, l.layout, {.doubles = true});
    ASSERT_EQ(plans.size(), 1u);
    Access access;
    access.y_rows = true, access.x_vector = 1;
    const auto tiles = price_tiles(g, device::Math::f64, plans[0].rows, shape_of(l, 2, listed.input), access, {});
    std::vector<std::array<int, 3>> kinds;
    for (const TileChoice& tile : tiles) {
      const device::GemmConfig& c = tile.config;
      const std::array kind{c.tiles_m * c.tiles_n == 1 ? 1 : 2, c.chunk_words, c.resident_steps > 0 ? 1 : 0};
      if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
      kinds.push_back(kind);
      const Code code = code_of(nvrtc_compile(gemm_source(c, plans[0].rows), "sm_90a").binary, "forward");
      EXPECT_GE(products_of(code), 2u);
      EXPECT_TRUE(unwaited_products(code).empty())
          << listed.in << " -> " << listed.out << ", " << c.tiles_m << " x " << c.tiles_n << " tiles, chunks of "
          << c.chunk_words << (c.resident_steps ? ", resident" : "");
      ++compiled;
    }
  }
  EXPECT_GE(compiled, 20);
}

}  // namespace
}  // namespace tconv::cuda
