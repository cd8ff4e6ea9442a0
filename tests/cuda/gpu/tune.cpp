#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "cli/problems.hpp"
#include "cuda/heuristics/packing_plan.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"
#include "cuda/int3.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/kernels/sizes/block.cuh"
#include "cuda/kernels/sizes/general.cuh"
#include "cuda/layer_view.hpp"
#include "cuda/preferences.hpp"
#include "cuda/tensor_views.hpp"
#include "cuda/tile_choice.hpp"
#include "cuda/tile_kernels.hpp"
#include "gpu/commands.hpp"
#include "gpu/layer_on_gpu.hpp"

namespace tconv::cuda::check {

using std::int64_t;

namespace {

/// Layers nobody listed, of the sizes that people run: what the cost model is judged by.
std::vector<cli::Problem> random_problems(int count, unsigned seed) {
  std::mt19937 rng(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[pick(0, int(values.size()) - 1)];
  };
  std::vector<cli::Problem> problems;
  while (int(problems.size()) < count) {
    cli::Problem p;
    Layer& l = p.layer;
    l.dims = pick(1, 3);
    l.in_channels = one_of({16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512});
    l.out_channels = one_of({8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 512});
    l.bias = false;
    const int stride = one_of({1, 1, 2, 2, 2, 3, 4});
    double positions = 1, taps = 1, outputs = 1;
    p.batch = one_of({1, 2, 4, 8, 16, 32});
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) {
      l.stride[d] = l.dims == 1 && pick(0, 3) == 0 ? one_of({5, 8}) : stride;
      l.kernel[d] = std::max<int64_t>(l.stride[d], pick(0, 2) ? one_of({2, 3, 3, 4, 5, 7}) : l.stride[d] * 2);
      l.padding[d] = pick(0, int(l.kernel[d] / 2));
      const int longest = l.dims == 1 ? 17 : l.dims == 2 ? 9 : 6;
      p.input[d] = (1 << pick(l.dims == 1 ? 5 : 3, longest)) + (pick(0, 2) ? 0 : pick(-3, 3));
      positions *= double(p.input[d]), taps *= double(l.kernel[d]), outputs *= double(p.input[d] * l.stride[d]);
    }
    const double flops = 2.0 * double(p.batch) * positions * taps * double(l.in_channels * l.out_channels);
    const double bytes =
        4.0 * double(p.batch) * (positions * double(l.in_channels) + outputs * double(l.out_channels));
    if (flops < 2e8 || flops > 2e11 || bytes > 1.5e9) continue;
    const auto e = [&](const Extents& v) { return format_extents(l.dims, v); };
    p.name = std::to_string(l.dims) + "d_" + std::to_string(p.batch) + "x" + std::to_string(l.in_channels) + "-" +
             std::to_string(l.out_channels) + "_" + e(p.input) + "_k" + e(l.kernel) + "_s" + e(l.stride) + "_p" +
             e(l.padding);
    std::erase(p.name, ' ');
    problems.push_back(p);
  }
  return problems;
}

/// A tile of a layer, with what it takes to run it.
struct Candidate {
  cli::Problem problem;
  TileChoice choice;
  RowPlan rows;
  Access access;
  View view;
  std::shared_ptr<const Kernel> kernel, turn;
};

/// The kinds of tile, of each of which some are timed.
int kind_of(const device::GemmConfig& c) {
  if (c.march) return 100000 + 100 * device::scales(c.math) + 10 * c.box_parts + c.position_tiles;
  const int blocks = std::min(c.team_blocks, 2);
  return 1000 * device::scales(c.math) + 2000 * (c.loaders - 1) + 4000 * (c.fill_buffers - 1) + 100 * c.x_phases +
         50 * c.in_turns + 25 * (c.product_rows > 1) + 8000 * c.whole_rows +
         (c.turned              ? 10 + blocks
          : c.mapped            ? 20 + blocks
          : c.panel_columns > 0 ? blocks + 2 * (c.box_parts - 1)
                                : 0);
}

/// What tiles differ in beside their pipeline.
std::string shape_of_tile(const device::GemmConfig& c) {
  std::string text;
  for (const int part : {int(device::scales(c.math)),
                         c.images,
                         c.box.d,
                         c.box.h,
                         c.box.w,
                         c.warps_m,
                         c.warps_n,
                         c.window,
                         c.teams,
                         c.blocks_per_sm,
                         c.panel_columns,
                         c.chunk_words,
                         c.fill_buffers,
                         c.loaders,
                         c.team_blocks,
                         c.box_parts,
                         int(c.turned),
                         int(c.mapped),
                         c.x_phases,
                         int(c.in_turns),
                         c.product_rows,
                         int(c.whole_rows),
                         c.run_rows,
                         c.run_phases})
    text += std::to_string(part) + ".";
  return text;
}

/// Of each kind of tile `count` that differ in more than their pipeline: the favourites first, then a sample of
/// the others, for the model is to be judged, too.
std::vector<Candidate> candidates_of(const cli::Problem& problem, Layout layout, int count, bool hopper) {
  const Geometry g = geometry_of(problem.layer);
  const Shape s = shape_of(problem.layer, problem.batch, problem.input);
  const Access access = dense_access(g, s, problem.layer.dtype, layout);
  struct Taken {
    int count = 0, skipped = 1;
  };
  std::vector<Candidate> candidates;
  std::map<std::string, int> seen;
  std::map<int, Taken> taken;
  auto packings = plan_packings(g, math_of(problem.layer), layout, {.warpgroups = hopper});
  // The general kernel shares a kind with those of warpgroups for positions of one input, which come first.
  const auto order = [](const PackingPlan& p) {
    return std::tuple(device::scales(p.math), p.rows.x_phases, p.kernels == Kernels::general);
  };
  std::ranges::stable_sort(packings, {}, order);
  for (const PackingPlan& packing : packings) {
    if (preferences().march && packing.kernels != Kernels::march) continue;
    for (const TileChoice& choice : tiles_of(packing, g, s, access, {})) {
      Taken& t = taken[kind_of(choice.config)];
      if (t.count == count || seen[shape_of_tile(choice.config)]++ > 0 ||
          (t.count >= (count + 1) / 2 && t.skipped++ % 8 != 0))
        continue;
      candidates.push_back({problem, choice, packing.rows, access, packing.view, nullptr, nullptr});
      ++t.count;
    }
  }
  return candidates;
}

/// Of the problems named, of those in a file ("file", its path), of random ones ("random", how many, a seed), or
/// of all.
std::vector<Candidate> candidates(const Mode& mode, int count, Layout layout,
                                  const std::vector<std::string>& names, bool hopper) {
  std::vector<cli::Problem> list = cli::load_problems("");
  if (names.size() == 3 && names[0] == "random")
    list = random_problems(std::stoi(names[1]), unsigned(std::stoi(names[2])));
  else if (names.size() == 2 && names[0] == "file")
    list = cli::load_problems(names[1]);
  else if (!names.empty())
    list = cli::problems_named(list, names);
  std::vector<Candidate> all;
  for (cli::Problem& problem : list) {
    problem.layer.dtype = mode.dtype, problem.layer.precision = mode.precision;
    for (Candidate& candidate : candidates_of(problem, layout, count, hopper)) all.push_back(std::move(candidate));
  }
  return all;
}

struct Time {
  double ms, turn_ms;  // of the whole call, and of the kernel that turns x
};

Time time_of(const Candidate& candidate, const Mode& mode, Layout layout, const Tools& tools) {
  const Geometry g = geometry_of(candidate.problem.layer);
  const Shape s = shape_of(candidate.problem.layer, candidate.problem.batch, candidate.problem.input);
  const auto& c = candidate.choice.config;
  const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
  const int64_t y_count = s.batch * g.out_channels() * volume(s.output);
  const int64_t packed =
      candidate.rows.weight_words(g, device::channels_per_word(c), c.teams ? device::weight_parts(c) : 1);
  const Buffer x(std::size_t(x_count) * size_of(mode.dtype)), w(std::size_t(packed) * 4);
  const Buffer y(std::size_t(y_count) * size_of(mode.dtype));
  const Buffer scales(std::size_t(g.out_channels()) * 4);  // any will do
  const Tensor xt = dense_view(x.get(), mode.dtype, s.batch, g.in_channels(), s.input, layout);
  const Tensor yt = dense_view(y.get(), mode.dtype, s.batch, g.out_channels(), s.output, layout);
  // Numbers like those of a layer: kernels that multiply zeros draw less power, and run faster.
  tools.randomize(xt, nullptr, 1, 1);
  tools.randomize(dense_view(w.get(), mode.dtype, 1, 1, {1, 1, int64_t(w.bytes() / size_of(mode.dtype))},
                             Layout::channels_first),
                  nullptr, 2, 1);
  device::ForwardParams params = forward_params(candidate.view, c, s, image_strides(xt), image_strides(yt));
  params.x = x.get(), params.y = y.get(), params.weight = static_cast<const unsigned*>(w.get());
  params.scales = static_cast<const float*>(scales.get());
  std::optional<Buffer> turned;
  device::TurnParams turn{};
  if (c.turned) {
    turn = device::turn_params(c, params);
    turned.emplace(std::size_t(device::turned_workspace_bytes(c, params)));
    device::place_in_workspace(c, static_cast<unsigned char*>(turned->get()), params, turn);
  }
  const auto run_turn = [&] {
    if (c.turned) candidate.turn->launch(device::launch_of(turn, gpu().multiprocessors), turn, nullptr);
  };
  const double ms = median_ms(
      [&] {
        run_turn();
        if (!launch_forward(*candidate.kernel, c, params, gpu(), nullptr))
          throw std::runtime_error("a tensor map was refused");
      },
      5);
  return {ms, c.turned ? median_ms(run_turn, 5) : 0};
}

void print(const Candidate& candidate, const Mode& mode, const Time& time) {
  const auto& c = candidate.choice.config;
  std::printf(
      "%-18s %s%s model %8.4f ms %8.4f  box %d.%d.%d.%d rows %d warps %dx%d tiles %dx%d m %d teams %d window %d "
      "chunk %d sps %d st %d xst %d res %d stage %dx%d smem %d occ %d types %d round %d panel %d%s x%d fill "
      "%dx%d blocks %d parts %d inputs %d turns %d joined %d turned %.4f%s runs %d.%d fills %d march %d\n",
      candidate.problem.name.c_str(), mode.name, device::scales(c.math) ? "_scaled" : "",
      candidate.choice.cycles / 1.755e6, time.ms, c.images, c.box.d, c.box.h, c.box.w, c.rows, c.warps_m,
      c.warps_n, c.tiles_m, c.tiles_n, c.position_tiles, c.teams, c.window, c.chunk_words, c.steps_per_slab,
      c.stages, c.x_stages, c.resident_steps, c.stage_rows, c.stage_buffers,
      c.teams ? device::team_shared_bytes(c) : device::shared_bytes(c), c.blocks_per_sm, c.types, c.round_on_load,
      c.panel_columns, c.panel_flat ? "f" : "", c.panel_stages, c.loaders, c.fill_buffers, c.team_blocks,
      c.box_parts, c.x_phases, c.in_turns, c.product_rows, time.turn_ms, c.mapped ? " mapped" : "",
      c.whole_rows ? c.run_rows : 0, c.run_phases, c.fills, c.march);
  std::fflush(stdout);
}

}  // namespace

int tune(const std::string& mode_name, int count, std::vector<std::string> names) {
  const Mode& mode = mode_named(mode_name);
  const bool last = !names.empty() && names[0] == "last";
  if (last) names.erase(names.begin());
  const Layout layout = last ? Layout::channels_last : Layout::channels_first;
  std::vector<Candidate> timed = candidates(mode, count, layout, names, gpu().major == 9);
  in_parallel(int(timed.size()), [&](int i) {
    Candidate& candidate = timed[std::size_t(i)];
    try {
      const auto& config = candidate.choice.config;
      candidate.kernel = get_kernel(forward_request(config, candidate.rows), gpu());
      if (config.turned) {
        const Shape s = shape_of(candidate.problem.layer, candidate.problem.batch, candidate.problem.input);
        const auto turn = device::turn_params(config, forward_params(candidate.view, config, s));
        candidate.turn = get_kernel(turn_request(config, candidate.access, turn.item_slices), gpu());
      }
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", candidate.problem.name.c_str(), error.what());
    }
  });
  struct Judged {
    double chosen = 0, price = 0, best = 0;
  };
  std::map<std::string, Judged> judged;
  const Tools tools;
  for (const Candidate& candidate : timed) {
    if (!candidate.kernel) continue;
    const Time time = time_of(candidate, mode, layout, tools);
    print(candidate, mode, time);
    Judged& j = judged[candidate.problem.name];
    const double price = candidate.choice.cycles;
    if (j.price == 0 || price < j.price) j.price = price, j.chosen = time.ms;
    j.best = j.best == 0 ? time.ms : std::min(j.best, time.ms);
  }
  double loss = 0, worst = 1;
  for (const auto& [name, j] : judged)
    loss += std::log(j.chosen / j.best), worst = std::max(worst, j.chosen / j.best);
  std::printf("%zu layers: the tile chosen takes %.3f times the best one timed by geometric mean, %.2f at worst\n",
              judged.size(), std::exp(loss / double(std::max<std::size_t>(1, judged.size()))), worst);
  return 0;
}

}  // namespace tconv::cuda::check
