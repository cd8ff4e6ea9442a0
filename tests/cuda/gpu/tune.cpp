#include <algorithm>
#include <cstdio>
#include <map>

#include "cli/problems.hpp"
#include "cuda/codegen.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "gpu/commands.hpp"
#include "gpu/layer_on_gpu.hpp"

namespace tconv::cuda::check {

using std::int64_t;

int tune(const std::string& mode_name, int count, const std::vector<std::string>& names) {
  const Mode& mode = mode_named(mode_name);
  struct Entry {
    cli::Problem problem;
    TileChoice choice;
    RowPlan rows;
    std::shared_ptr<const Kernel> kernel;
  };
  std::vector<Entry> entries;
  std::vector<cli::Problem> list = cli::load_problems("");
  if (!names.empty()) list = cli::problems_named(list, names);
  for (cli::Problem& problem : list) {
    problem.layer.dtype = mode.dtype, problem.layer.precision = mode.precision;
    const Geometry g = geometry_of(problem.layer);
    const Shape s = shape_of(problem.layer, problem.batch, problem.input);
    const device::Math math = mode.dtype == DType::f16            ? device::Math::f16
                              : mode.dtype == DType::bf16         ? device::Math::bf16
                              : mode.precision == Precision::tf32 ? device::Math::tf32
                                                                  : device::Math::fp32;
    const int per_word = size_of(mode.dtype) == 2 ? 2 : 1;
    Access access;
    access.x_vector = s.input[2] % (4 * per_word) == 0 ? 4 * per_word : s.input[2] % per_word == 0 ? per_word : 1;
    RowPlan rows;
    const bool warpgroups = gpu().major == 9 &&
                            make_wide_row_plan(g, per_word, math == device::Math::fp32 ? 2 : 1, false, rows) &&
                            suits_warpgroups(g, math, rows);
    if (!warpgroups && !make_row_plan(g, per_word, 4, rows)) continue;
    // The best of each kind, tiles that differ in more than their pipeline; the favourites first, then a sample of
    // the others: the model is to be judged, too.
    std::map<std::string, int> seen;
    int taken = 0, skipped = 1;
    for (const TileChoice& choice :
         (warpgroups ? price_warpgroup_tiles : price_tiles)(g, math, rows, s, access, {})) {
      const auto& c = choice.config;
      std::string kind;
      for (const int part :
           {c.images, c.box.d, c.box.h, c.box.w, c.warps_m, c.warps_n, c.window, c.teams, c.blocks_per_sm})
        kind += std::to_string(part) + ".";
      if (seen[kind]++ > 0 || (taken >= (count + 1) / 2 && skipped++ % 8 != 0)) continue;
      entries.push_back({problem, choice, rows, nullptr});
      if (++taken == count) break;
    }
  }
  in_parallel(int(entries.size()), [&](int i) {
    Entry& e = entries[std::size_t(i)];
    try {
      const auto& c = e.choice.config;
      e.kernel = get_kernel({c.teams ? warpgroup_source(c, e.rows) : gemm_source(c, e.rows), "forward",
                             c.teams ? device::warpgroup_shared_bytes(c) : device::shared_bytes(c)},
                            gpu());
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", e.problem.name.c_str(), error.what());
    }
  });
  for (const Entry& e : entries) {
    if (!e.kernel) continue;
    const Geometry g = geometry_of(e.problem.layer);
    const Shape s = shape_of(e.problem.layer, e.problem.batch, e.problem.input);
    const auto& c = e.choice.config;
    const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
    const int64_t y_count = s.batch * g.out_channels() * volume(s.output);
    const int64_t packed =
        e.rows.weight_words(g, device::channels_per_word(c), c.teams ? device::weight_parts(c) : 1);
    const Buffer x(std::size_t(x_count) * size_of(mode.dtype)), w(std::size_t(packed) * 4);
    x.fill(0), w.fill(0);  // the time does not depend on values
    const Buffer y(std::size_t(y_count) * size_of(mode.dtype));
    const Tensor xt = view5(x.get(), mode.dtype, s.batch, g.in_channels(), s.input, Layout::channels_first);
    const Tensor yt = view5(y.get(), mode.dtype, s.batch, g.out_channels(), s.output, Layout::channels_first);
    const auto image = [](const Tensor& t) {
      return device::ImageStrides{t.strides[0], t.strides[1], int(t.strides[2]), int(t.strides[3]),
                                  int(t.strides[4])};
    };
    const auto int3 = [](const Extents& v) { return Int3{int(v[0]), int(v[1]), int(v[2])}; };
    device::ForwardParams params = device::forward_params(c, s.batch, int3(s.input), int3(s.output));
    params.x = x.get(), params.y = y.get(), params.weight = static_cast<const unsigned*>(w.get());
    params.xs = image(xt), params.ys = image(yt);
    const device::Launch launch = device::launch_of(c, params, gpu().multiprocessors);
    const double ms = median_ms([&] { e.kernel->launch(launch, params, nullptr); }, 5);
    std::printf(
        "%-18s %s model %8.4f ms %8.4f  box %d.%d.%d.%d rows %d warps %dx%d tiles %dx%d m %d teams %d window %d "
        "chunk %d "
        "sps %d st %d xst %d res %d stage %dx%d smem %d occ %d types %d round %d\n",
        e.problem.name.c_str(), mode.name, e.choice.cycles / 1.755e6, ms, c.images, c.box.d, c.box.h, c.box.w,
        c.rows, c.warps_m, c.warps_n, c.tiles_m, c.tiles_n, c.position_tiles, c.teams, c.window, c.chunk_words,
        c.steps_per_slab, c.stages, c.x_stages, c.resident_steps, c.stage_rows, c.stage_buffers,
        c.teams ? device::warpgroup_shared_bytes(c) : device::shared_bytes(c), c.blocks_per_sm, c.types,
        c.round_on_load);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace tconv::cuda::check
