#include "cuda/engine.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>

#include "cuda/codegen.hpp"
#include "cuda/direct_launch.hpp"
#include "cuda/heuristics/shape_class.hpp"
#include "cuda/heuristics/warpgroup_tiles.hpp"
#include "cuda/int3.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/nvrtc.hpp"
#include "cuda/tensor_views.hpp"

namespace tconv::cuda {
namespace {

using device::GemmConfig;
using device::Math;
using std::int64_t;

enum class Family { warpgroup, gemm, direct, generic };

Math math_of(const Layer& layer) {
  switch (layer.dtype) {
    case DType::f16:
      return Math::f16;
    case DType::bf16:
      return Math::bf16;
    default:
      return layer.precision == Precision::tf32 ? Math::tf32 : Math::fp32;
  }
}

const char* name_of(Math math) {
  switch (math) {
    case Math::fp32:
      return "fp32";
    case Math::tf32:
      return "tf32";
    case Math::f16:
      return "f16";
    case Math::bf16:
      return "bf16";
    case Math::halves:
      return "fp32_halves";
    case Math::half:
      return "tf32_half";
  }
  return "";
}

constexpr std::size_t workspace_alignment = 256;
std::size_t aligned_up(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

/// Weights packed for a plan of rows: what it fixes is the layer's, and any shape is served from it.
struct Packing {
  Family family;  // gemm or warpgroup
  Math math;
  RowPlan rows;
  std::size_t offset = 0, bytes = 0;  // in the packed weight
  std::size_t scales = 0;             // where those of output channels are in it, which scaled weights have
  std::shared_ptr<const Kernel> kernel, find_scales;
};

/// What is fixed for a layer on a device; shared by the plan and its bindings.
struct State {
  State(const Layer& l, const DeviceProperties& d)
      : layer(l),
        geometry(geometry_of(l)),
        device(d),
        limits{.multiprocessors = d.multiprocessors,
               .shared_per_block = d.shared_per_block,
               .shared_per_multiprocessor = d.shared_per_multiprocessor,
               .exported = d.exported},
        math(math_of(l)) {}

  Layer layer;
  Geometry geometry;
  const DeviceProperties& device;
  DeviceLimits limits;
  Math math;
  Family family = Family::generic;
  std::vector<Packing> packings;  // of the families that have rows, in the order they are packed

  /// What was chosen for the shapes of a class; pricing all tiles takes milliseconds.
  struct Chosen {
    Shape shape;
    Access access;
    const Packing* packing;  // null: none serves
    TileChoice tile;
  };
  static constexpr std::size_t most_chosen = 64;

  mutable std::mutex mutex;
  mutable std::deque<Chosen> chosen;
  mutable std::shared_ptr<const Kernel> generic;
  mutable std::vector<std::pair<device::DirectConfig, std::shared_ptr<const Kernel>>> direct;

  bool has_rows() const { return !packings.empty(); }
  std::size_t packed_bytes() const {
    if (packings.empty()) return 0;
    const Packing& last = packings.back();
    return last.scales ? last.scales + std::size_t(geometry.out_channels()) * 4 : last.offset + last.bytes;
  }
  void add_packing(Family of, Math as, RowPlan rows) {
    const int parts = of == Family::warpgroup ? device::weight_parts(as) : 1;
    Packing packing;
    packing.family = of, packing.math = as, packing.offset = aligned_up(packed_bytes());
    packing.bytes = std::size_t(rows.weight_words(geometry, device::channels_per_word(as), parts)) * 4;
    packing.kernel = get_kernel({pack_source(pack_config(geometry, as, rows), rows, geometry), "pack", 0}, device);
    if (device::scales(as)) {
      packing.scales = aligned_up(packing.offset + packing.bytes);
      packing.find_scales = get_kernel({weight_scales_source(), "find", device::scale_shared_bytes}, device);
    }
    packing.rows = std::move(rows);
    packings.push_back(std::move(packing));
  }
};

Family family_of(const State& s) {
  const Geometry& g = s.geometry;
  if (s.layer.dtype == DType::f64) return Family::direct;
  if (g.in_channels() > 1'000'000 || g.out_channels() > 1'000'000) return Family::generic;
  // A tensor core multiplies 16 rows by 8 words whether they are there or not.
  const bool few = g.group_in * g.group_out <= 16 && g.group_in <= 8 && g.group_out <= 8;
  return few ? Family::direct : Family::gemm;
}

class CudaBinding final : public EngineBinding {
 public:
  /// Compiles the kernel for dense, aligned tensors of the layer's layout; other views compile when they
  /// come.
  CudaBinding(std::shared_ptr<const State> state, const Shape& shape);

  std::size_t workspace_bytes(Pass pass, int, bool packs) const override {
    if (pass != Pass::forward) return 0;
    const std::size_t bytes = (packs ? aligned_up(state_->packed_bytes()) : 0) + turned_bytes_;
    return bytes ? bytes + workspace_alignment : 0;
  }

  void run(Pass pass, const Operands& operands, const RunOptions& options) const override;
  std::string kernel_name(Pass pass) const override;

 private:
  struct Gemm {
    GemmConfig config;
    std::shared_ptr<const Kernel> kernel, turn;
    const Packing* packing = nullptr;
  };
  std::vector<TileChoice> choices_for(const Packing& packing, const Access& access) const;
  State::Chosen choose(const Access& access) const;
  std::size_t turned_bytes_of(const GemmConfig& config) const;
  const Gemm& gemm_for(const Access& access) const;
  void run_gemm(const Operands& operands, const RunOptions& options) const;
  void run_direct(const Operands& operands, const RunOptions& options) const;
  void run_generic(const Operands& operands, const RunOptions& options) const;

  std::shared_ptr<const State> state_;
  Shape shape_;
  std::size_t turned_bytes_ = 0;  // that a run may use
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Access, std::unique_ptr<Gemm>>> gemms_;
};

std::shared_ptr<const Kernel> generic_kernel(const State& s) {
  const std::lock_guard lock(s.mutex);
  if (!s.generic) s.generic = get_kernel({generic_source(s.geometry, s.layer.dtype), "forward", 0}, s.device);
  return s.generic;
}

std::shared_ptr<const Kernel> direct_kernel(const State& s, const device::DirectConfig& config) {
  const std::lock_guard lock(s.mutex);
  for (const auto& [known, kernel] : s.direct)
    if (known == config) return kernel;
  const int shared = device::direct_shared_bytes(config, s.layer.dtype == DType::f64 ? 8 : 4);
  s.direct.emplace_back(config, get_kernel({direct_source(config, s.layer.dtype), "forward", shared}, s.device));
  return s.direct.back().second;
}

CudaBinding::CudaBinding(std::shared_ptr<const State> state, const Shape& shape)
    : state_(std::move(state)), shape_(shape) {
  const State& s = *state_;
  if (s.family == Family::generic) {
    generic_kernel(s);
    return;
  }
  const auto dense = [&](int64_t channels, const Extents& size) {
    return dense_view(nullptr, s.layer.dtype, shape.batch, channels, size, s.layer.layout);
  };
  const Tensor x = dense(s.geometry.in_channels(), shape.input);
  const Tensor y = dense(s.geometry.out_channels(), shape.output);
  if (s.family == Family::direct) {
    if (const auto config = direct_config(s.geometry, s.layer.dtype, direct_access(s.geometry, x, y)))
      direct_kernel(s, *config);
    else
      generic_kernel(s);
    return;
  }
  if (const Gemm& gemm = gemm_for(access_of(s.geometry, x, y)); gemm.turn)
    turned_bytes_ = turned_bytes_of(gemm.config);
}

std::size_t CudaBinding::turned_bytes_of(const GemmConfig& c) const {
  const auto params = device::forward_params(c, shape_.batch, int3(shape_.input), int3(shape_.output));
  return aligned_up(std::size_t(device::turned_workspace_bytes(c, params)));
}

/// Packs a weight in one of the ways of its layer; `packed` is the memory of all of them.
void pack_on_device(const State& s, const Packing& packing, const ConstTensor& weight, void* packed,
                    void* stream) {
  unsigned char* const memory = static_cast<unsigned char*>(packed);
  float* const scales = packing.find_scales ? reinterpret_cast<float*>(memory + packing.scales) : nullptr;
  if (packing.find_scales) {
    const device::ScaleParams params{.weight = static_cast<const float*>(weight.data),
                                     .scales = scales,
                                     .stride_in = weight.strides[0],
                                     .stride_out = weight.strides[1],
                                     .stride_d = weight.strides[2],
                                     .stride_h = weight.strides[3],
                                     .stride_w = weight.strides[4],
                                     .groups = int(s.geometry.groups),
                                     .group_in = int(s.geometry.group_in),
                                     .group_out = int(s.geometry.group_out),
                                     .kernel = int3(s.geometry.kernel)};
    packing.find_scales->launch(device::launch_of(params), params, stream);
  }
  const device::PackParams params{.weight = weight.data,
                                  .packed = reinterpret_cast<unsigned*>(memory + packing.offset),
                                  .scales = scales,
                                  .stride_in = weight.strides[0],
                                  .stride_out = weight.strides[1],
                                  .stride_d = weight.strides[2],
                                  .stride_h = weight.strides[3],
                                  .stride_w = weight.strides[4],
                                  .words = int64_t(packing.bytes / 4)};
  packing.kernel->launch(device::launch_of(params, s.device.multiprocessors), params, stream);
}

class CudaPlan final : public EnginePlan {
 public:
  explicit CudaPlan(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  const char* engine_name() const override { return "cuda"; }
  std::unique_ptr<EngineBinding> bind(const Shape& shape) const override {
    return std::make_unique<CudaBinding>(state_, shape);
  }
  std::size_t packed_weight_bytes(Pass pass) const override {
    return pass == Pass::forward ? state_->packed_bytes() : 0;
  }
  void pack_weight(Pass pass, const ConstTensor& weight, void* packed, const RunOptions& options) const override {
    if (packed_weight_bytes(pass) == 0) return;
    const ContextScope context(state_->device);
    for (const Packing& packing : state_->packings)
      pack_on_device(*state_, packing, weight, packed, options.stream);
  }

 private:
  std::shared_ptr<const State> state_;
};

/// The tiles that serve views from one packing of the weights, the best first.
std::vector<TileChoice> CudaBinding::choices_for(const Packing& packing, const Access& access) const {
  const State& s = *state_;
  auto choices = (packing.family == Family::warpgroup ? price_warpgroup_tiles : price_tiles)(
      s.geometry, packing.math, packing.rows, shape_class(s.layer, shape_), access, s.limits);
  // Workspace was measured out for aligned tensors: other views turn x where it is enough for them.
  if (!gemms_.empty())
    std::erase_if(choices, [&](const TileChoice& choice) {
      return choice.config.turned && turned_bytes_of(choice.config) > turned_bytes_;
    });
  // For tests, which want every kernel on layers of every size: panels before all else, where they can serve; and
  // those that so many warpgroups share before others, those of turned x ("turned"), those that are
  // multiplied in turns ("turns"), those whose products cover several rows ("joined"), or store several as one run
  // ("runs"), or those that share sums ("split").
  if (const char* const wanted = std::getenv("TCONV_PREFER_PANELS")) {
    const bool split = std::string_view(wanted) == "split", in_turns = std::string_view(wanted) == "turns";
    const bool turned = split || std::string_view(wanted) == "turned";
    const int product_rows = std::string_view(wanted) == "joined" ? 2 : 1;
    const int run_rows = std::string_view(wanted) == "runs" ? 2 : 1;
    const int loaders = std::string_view(wanted) == "loaders" ? 2 : 1;
    for (const int at_least : {1, std::atoi(wanted)})
      std::stable_partition(choices.begin(), choices.end(), [&](const TileChoice& choice) {
        const GemmConfig& c = choice.config;
        return c.panel_columns > 0 && c.turned == turned && c.loaders >= loaders && c.in_turns >= in_turns &&
               c.product_rows >= product_rows && c.run_rows >= run_rows && (c.depth_splits > 1) >= split &&
               device::members_of(c) >= at_least;
      });
  }
  return choices;
}

State::Chosen CudaBinding::choose(const Access& access) const {
  const State& s = *state_;
  const bool any = gemms_.empty();  // the workspace is not measured out yet, and every tile may be chosen
  State::Chosen result{shape_class(s.layer, shape_), access, nullptr, {}};
  if (any) {
    const std::lock_guard lock(s.mutex);
    for (const State::Chosen& known : s.chosen)
      if (known.shape == result.shape && known.access == access) return known;
  }
  for (const Packing& packing : s.packings) {
    const auto choices = choices_for(packing, access);
    if (choices.empty()) continue;
    // For tests: scaled fp16 numbers wherever they serve.
    const bool last_choice =
        element_bytes(packing.math) == 4 && !scales(packing.math) && std::getenv("TCONV_PREFER_HALVES");
    const double cycles = choices.front().cycles * (last_choice ? 1e6 : 1);
    if (result.packing && result.tile.cycles <= cycles) continue;
    result.packing = &packing, result.tile = {choices.front().config, cycles};
  }
  if (any) {
    const std::lock_guard lock(s.mutex);
    if (s.chosen.size() == State::most_chosen) s.chosen.pop_front();
    s.chosen.push_back(result);
  }
  return result;
}

const CudaBinding::Gemm& CudaBinding::gemm_for(const Access& access) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [known, gemm] : gemms_)
    if (known == access) return *gemm;
  const State& s = *state_;
  auto gemm = std::make_unique<Gemm>();
  if (const State::Chosen chosen = choose(access); chosen.packing) {
    const GemmConfig& c = gemm->config = chosen.tile.config;
    const RowPlan& rows = chosen.packing->rows;
    gemm->packing = chosen.packing;
    gemm->kernel = get_kernel({c.teams ? warpgroup_source(c, rows) : gemm_source(c, rows), "forward",
                               c.teams ? device::team_shared_bytes(c) : device::shared_bytes(c)},
                              s.device);
  }
  if (gemm->config.turned) {
    const bool vectors = access.x_channels_last && access.x_vector == 4;
    const Math math = gemm->config.math;
    gemm->turn = get_kernel(
        {turn_source(math, device::turn_load(gemm->config, vectors)), "turn", device::turn_shared_bytes(math)},
        s.device);
  }
  gemms_.emplace_back(access, std::move(gemm));
  return *gemms_.back().second;
}

void CudaBinding::run_gemm(const Operands& o, const RunOptions& options) const {
  const State& s = *state_;
  const Gemm& gemm = gemm_for(access_of(s.geometry, *o.input, *o.output));
  if (!gemm.kernel) return run_generic(o, options);
  const GemmConfig& c = gemm.config;
  // Several images of one box are reached with 32 bits, too.
  if (const int64_t apart = o.input->strides[0];
      c.images > 1 && !c.turned && (apart < 0 || apart * c.images >= int64_t(1) << 31))
    return run_generic(o, options);
  auto workspace = aligned_up(reinterpret_cast<std::uintptr_t>(options.workspace));
  const void* packed = options.packed_weight;
  if (!packed) {
    pack_on_device(s, *gemm.packing, *o.weight, reinterpret_cast<void*>(workspace), options.stream);
    packed = reinterpret_cast<const void*>(workspace), workspace += aligned_up(s.packed_bytes());
  }
  device::ForwardParams params = device::forward_params(c, shape_.batch, int3(shape_.input), int3(shape_.output));
  params.x = o.input->data, params.y = o.output->data;
  const unsigned char* const memory = static_cast<const unsigned char*>(packed);
  params.weight = reinterpret_cast<const unsigned*>(memory + gemm.packing->offset);
  params.scales = reinterpret_cast<const float*>(memory + gemm.packing->scales);
  params.bias = o.bias ? o.bias->data : nullptr;
  params.xs = image_strides(*o.input), params.ys = image_strides(*o.output);
  if (c.turned) {
    device::TurnParams turn = device::turn_params(c, params);
    device::place_in_workspace(c, reinterpret_cast<unsigned char*>(workspace), params, turn);
    gemm.turn->launch(device::launch_of(turn, s.device.multiprocessors), turn, options.stream);
    gemm.kernel->launch(device::launch_of(c, params, s.device.multiprocessors), params, options.stream);
    return;
  }
  gemm.kernel->launch(device::launch_of(c, params, s.device.multiprocessors), params, options.stream);
}

void CudaBinding::run_direct(const Operands& o, const RunOptions& options) const {
  const State& s = *state_;
  DirectAccess access = direct_access(s.geometry, *o.input, *o.output);
  access.dense_weight = is_dense(*o.weight);
  const auto config = direct_config(s.geometry, s.layer.dtype, access);
  if (!config) return run_generic(o, options);
  device::DirectParams params = device::direct_params(*config, int(size_of(s.layer.dtype)), shape_.batch,
                                                      int3(shape_.input), int3(shape_.output));
  params.x = o.input->data, params.weight = o.weight->data, params.y = o.output->data;
  params.bias = o.bias ? o.bias->data : nullptr;
  params.xs = image_strides(*o.input), params.ys = image_strides(*o.output), params.ws = strides_of(*o.weight);
  direct_kernel(s, *config)
      ->launch(device::launch_of(*config, params, s.device.multiprocessors), params, options.stream);
}

void CudaBinding::run_generic(const Operands& o, const RunOptions& options) const {
  const State& s = *state_;
  const Extents &in = shape_.input, &out = shape_.output;
  const device::GenericParams params{.x = o.input->data,
                                     .weight = o.weight->data,
                                     .bias = o.bias ? o.bias->data : nullptr,
                                     .y = o.output->data,
                                     .xs = strides_of(*o.input),
                                     .ws = strides_of(*o.weight),
                                     .ys = strides_of(*o.output),
                                     .batch = shape_.batch,
                                     .in_d = in[0],
                                     .in_h = in[1],
                                     .in_w = in[2],
                                     .out_d = out[0],
                                     .out_h = out[1],
                                     .out_w = out[2]};
  generic_kernel(s)->launch(device::launch_of(params, s.geometry.out_channels(), s.device.multiprocessors), params,
                            options.stream);
}

void CudaBinding::run(Pass pass, const Operands& operands, const RunOptions& options) const {
  if (pass != Pass::forward)
    throw Unsupported(std::string(to_string(pass)) + " is not implemented on CUDA devices");
  const State& s = *state_;
  const ContextScope context(s.device);
  // Kernels other than the generic one count inside an image with 32 bits.
  const bool small = fits_image(*operands.input) && fits_image(*operands.output);
  if (s.has_rows() && small)
    run_gemm(operands, options);
  else if (s.family == Family::direct && small)
    run_direct(operands, options);
  else
    run_generic(operands, options);
}

std::string CudaBinding::kernel_name(Pass pass) const {
  if (pass != Pass::forward) return "none";
  const State& s = *state_;
  if (!s.has_rows()) return s.family == Family::direct ? "direct" : "generic";
  const std::lock_guard lock(mutex_);
  if (gemms_.empty() || !gemms_.back().second->kernel)
    return std::string(s.family == Family::warpgroup ? "warpgroup" : "implicit") + "_gemm_" + name_of(s.math);
  const GemmConfig& c = gemms_.back().second->config;
  const std::string name = std::string(c.panel_columns ? "panel"
                                       : c.teams       ? "warpgroup"
                                                       : "implicit") +
                           "_gemm_" + name_of(c.math);
  const auto number = [](int v) { return std::to_string(v); };
  const std::string box = (c.images > 1 ? number(c.images) + "." : "") + number(c.box.d) + "." + number(c.box.h) +
                          "." + number(c.box.w);
  const std::string tail = "_v" + number(c.x_vector) + (c.channel_rows ? "_y" + number(c.y_channels) : "") +
                           (c.resident_steps ? "_resident" : "");
  if (c.panel_columns)
    return name + "_" + number(c.position_tiles) + "x" + number(c.panel_columns) +
           (c.panel_flat         ? "_flat"
            : c.product_rows > 1 ? "_rows" + number(c.product_rows)
                                 : "") +
           (c.run_rows > 1 ? "_runs" + number(c.run_rows) : "") + "_" + box + "_t" + number(c.teams) + "x" +
           number(c.blocks_per_sm) +
           (c.team_blocks > 1 ? "_b" + number(c.team_blocks)
            : c.box_parts > 1 ? "_p2"
                              : "") +
           (c.in_turns ? "_turns" : "") + (c.fills ? "_fills" : "") +
           (c.depth_splits > 1 ? "_split" + number(c.depth_splits) : "") + (c.turned ? "_turned" : "") +
           (c.shared_halo == Int3{0, 0, 0} ? "" : "_shared") +
           (device::first_phase(c) == Int3{0, 0, 0} ? "" : "_moved") +
           (c.x_phases > 1 ? "_x" + number(c.x_phases) : "") + (c.loaders > 1 ? "_l" + number(c.loaders) : "") +
           "_k" + number(c.chunk_words) + (c.window > 1 ? "_aligned" : "") + tail;
  if (c.teams)
    return name + "_" + number(c.rows) + "x" + box + "_t" + number(c.teams) + "x" + number(c.blocks_per_sm) +
           "_k" + number(c.chunk_words) + (c.window > 1 ? "_aligned" : "") + tail;
  return name + "_" + number(device::row_tiles_of(c) * 16) + "x" + box + "_w" + number(c.warps_m) + "x" +
         number(c.warps_n) + tail;
}

/// How the weights of a layer are packed: for the kernels of warpgroups where they suit it, else for the general
/// one; where it has few rows, also for positions of several inputs, which shapes of wide rows take; and numbers
/// of 32 bits also as scaled fp16 numbers.
void plan_packings(State& s) {
  const bool last = s.layer.layout == Layout::channels_last;
  const bool warpgroups = s.device.major == 9 && !std::getenv("TCONV_NO_WGMMA");
  // For tests and timings: as many inputs of a position as are asked for.
  const char* const asked = std::getenv("TCONV_X_PHASES");
  const int inputs = asked ? std::max(1, std::atoi(asked)) : 1;
  RowPlan rows;
  const auto plan = [&](Math math, int x_phases) {
    return make_wide_row_plan(s.geometry, device::channels_per_word(math), device::weight_parts(math), last,
                              x_phases, rows);
  };
  const auto add_wide = [&](Math math) {
    const bool added = plan(math, inputs) && suits_warpgroups(s.geometry, math, rows);
    if (added) s.add_packing(Family::warpgroup, math, std::move(rows));
    return added;
  };
  const auto add_several_inputs = [&](Math math) {
    if (!asked &&
        make_wide_row_plan(s.geometry, device::channels_per_word(math), device::weight_parts(math), last, rows) &&
        rows.x_phases > 1 && suits_warpgroups(s.geometry, math, rows))
      s.add_packing(Family::warpgroup, math, std::move(rows));
  };
  const bool scales = warpgroups && device::element_bytes(s.math) == 4 && !std::getenv("TCONV_NO_HALVES");
  const Math scaled = s.math == Math::fp32 ? Math::halves : Math::half;
  if (scales && s.device.scaled == true && add_wide(scaled)) return;
  if (RowPlan general; !(warpgroups && add_wide(s.math)) &&
                       make_row_plan(s.geometry, device::channels_per_word(s.math), 4, general)) {
    s.add_packing(Family::gemm, s.math, std::move(general));
    if (warpgroups && !s.limits.exported && plan(s.math, 1) && may_suit_warpgroups(s.geometry, s.math, rows))
      s.add_packing(Family::warpgroup, s.math, std::move(rows));
  }
  if (s.packings.empty() || !warpgroups) return;
  if (!s.limits.exported) add_several_inputs(s.math);
  if (!scales || s.device.scaled) return;
  add_wide(scaled);
  if (!s.limits.exported) add_several_inputs(scaled);
}

}  // namespace

std::unique_ptr<EnginePlan> make_plan(const Layer& layer, int index) {
  if (!find_driver())
    throw Unsupported("device cuda:" + std::to_string(index) + " cannot be used: " + why_no_driver());
  return make_plan(layer, device_properties(index));
}

std::unique_ptr<EnginePlan> make_plan(const Layer& layer, const DeviceProperties& device) {
  if (device.major < 8)
    throw Unsupported("device cuda:" + std::to_string(device.index) + " (" + device.name +
                      ") has compute capability " + std::to_string(device.major) + "." +
                      std::to_string(device.minor) + "; tconv needs 8.0");
  auto state = std::make_shared<State>(layer, device);
  state->family = family_of(*state);
  if (state->family == Family::gemm) {
    plan_packings(*state);
    state->family = state->packings.empty() ? Family::generic : state->packings.front().family;
  }
  return std::make_unique<CudaPlan>(std::move(state));
}

void describe(SystemInfo& info) {
  if (!find_driver()) {
    info.missing.push_back("cuda: " + why_no_driver());
    return;
  }
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& p = device_properties(i);
    const std::string capability = std::to_string(p.major) + "." + std::to_string(p.minor);
    if (p.major < 8) {
      info.missing.push_back("cuda:" + std::to_string(i) + ": " + p.name + " has compute capability " +
                             capability + "; tconv needs 8.0");
      continue;
    }
    info.devices.push_back({.device = {.kind = DeviceKind::cuda, .index = i},
                            .engine = "cuda",
                            .name = p.name,
                            .details = "compute capability " + capability + ", " +
                                       std::to_string(p.multiprocessors) + " multiprocessors, " +
                                       std::to_string(p.memory >> 30) + " GiB, " +
                                       (nvrtc_version().empty() ? "no NVRTC" : "NVRTC " + nvrtc_version())});
  }
  if (nvrtc_version().empty()) info.missing.push_back("cuda: " + why_no_nvrtc() + "; cached kernels still run");
}

}  // namespace tconv::cuda
