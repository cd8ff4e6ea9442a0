#include "cuda/engine.hpp"

#include <algorithm>
#include <cstddef>
#include <mutex>

#include "cuda/codegen.hpp"
#include "cuda/direct_launch.hpp"
#include "cuda/int3.hpp"
#include "cuda/kernel_limits.hpp"
#include "cuda/kernel_name.hpp"
#include "cuda/kernels/launch_rules.cuh"
#include "cuda/memory_alignment.hpp"
#include "cuda/packings.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/notice.hpp"
#include "cuda/tensor_views.hpp"
#include "cuda/tile_choice.hpp"
#include "cuda/tile_kernels.hpp"
#include "layer/views.hpp"

namespace tconv::cuda {
namespace {

using device::GemmConfig;
using std::int64_t;

enum class Family { gemm, direct, generic };

/// As far as the layer alone decides.
Family family_of(const Geometry& g) {
  if (g.in_channels() > 1'000'000 || g.out_channels() > 1'000'000) return Family::generic;
  return few_channels(g) ? Family::direct : Family::gemm;
}

/// What is fixed for a layer on a device; shared by the plan and its bindings.
struct State {
  State(const Layer& l, const DeviceProperties& d)
      : layer(l),
        geometry(geometry_of(l)),
        device(d),
        family(family_of(geometry)),
        packings(geometry,
                 family == Family::gemm ? plan_packings(geometry, math_of(l), l.layout, packing_options(d))
                                        : std::vector<PackingPlan>(),
                 d),
        tiles(l, d) {
    if (family == Family::gemm && packings.empty()) family = without_tiles();
  }

  /// What serves where no tile does. The direct kernel keeps up with tensor cores in fp64 alone.
  Family without_tiles() const { return layer.dtype == DType::f64 ? Family::direct : Family::generic; }

  Layer layer;
  Geometry geometry;
  const DeviceProperties& device;
  Family family;
  Packings packings;  // of gemm, which has some; else none
  TileChooser tiles;

  mutable std::mutex mutex;
  mutable std::shared_ptr<const Kernel> generic;
  mutable std::vector<std::pair<device::DirectConfig, std::shared_ptr<const Kernel>>> direct;
};

/// What serves a call.
struct Served {
  Family family = Family::generic;
  const GemmConfig* tile = nullptr;  // of gemm
};

std::string name_of(const Served& served) {
  if (served.family == Family::gemm) return kernel_name(*served.tile);
  return served.family == Family::direct ? "direct" : "generic";
}

class CudaBinding final : public EngineBinding {
 public:
  /// Compiles the kernel for dense, aligned tensors of the layer's layout; other views compile when they
  /// come.
  CudaBinding(std::shared_ptr<const State> state, const Shape& shape);

  std::size_t workspace_bytes(Pass pass, int, bool packs) const override {
    if (pass != Pass::forward) return 0;
    const std::size_t bytes = (packs ? aligned_up(state_->packings.bytes()) : 0) + turned_bytes_;
    return bytes ? bytes + memory_alignment : 0;
  }

  void run(Pass pass, const Operands& operands, const RunOptions& options) const override {
    serve(pass, operands, options);
  }
  std::string run_named(Pass pass, const Operands& operands, const RunOptions& options) const override {
    return name_of(serve(pass, operands, options));
  }
  std::string kernel_name(Pass pass) const override { return pass == Pass::forward ? name_of(dense_) : "none"; }
  const Served& dense() const { return dense_; }

 private:
  struct Gemm {
    GemmConfig config;
    std::shared_ptr<const Kernel> kernel;
    const Packing* packing = nullptr;
    Shape part;                                     // of the batch, as much as a launch takes
    std::shared_ptr<const Kernel> turn, turn_rest;  // the second for the images that are left at last
  };
  const Gemm& gemm_for(const Access& access) const;
  Served serve(Pass pass, const Operands& operands, const RunOptions& options) const;
  Served run_gemm(const Operands& operands, const RunOptions& options) const;
  Served run_direct(const Operands& operands, const RunOptions& options) const;
  Served run_generic(const Operands& operands, const RunOptions& options) const;

  std::shared_ptr<const State> state_;
  Shape shape_;
  Family family_;                 // of the layer, or the generic one where sizes are too large for that
  std::size_t turned_bytes_ = 0;  // that a run may use
  Served dense_;                  // of dense, aligned tensors
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
    : state_(std::move(state)),
      shape_(shape),
      family_(has_small_sizes(state_->geometry, shape) ? state_->family : Family::generic) {
  const State& s = *state_;
  if (family_ == Family::generic) {
    generic_kernel(s);
    return;
  }
  if (family_ == Family::direct) {
    const auto dense = [&](int64_t channels, const Extents& size) {
      return dense_view(nullptr, s.layer.dtype, shape.batch, channels, size, s.layer.layout);
    };
    const Tensor x = dense(s.geometry.in_channels(), shape.input);
    const Tensor y = dense(s.geometry.out_channels(), shape.output);
    if (const auto config = direct_config(s.geometry, s.layer.dtype, direct_access(s.geometry, x, y)))
      direct_kernel(s, *config), dense_ = {Family::direct};
    else
      generic_kernel(s);
    return;
  }
  const Access access = dense_access(s.geometry, shape, s.layer.dtype, s.layer.layout);
  const Gemm& gemm = gemm_for(access);
  dense_ = gemm.kernel ? Served{Family::gemm, &gemm.config} : Served{s.without_tiles()};
  if (gemm.turn) turned_bytes_ = turned_bytes(gemm.packing->plan.view, gemm.config, gemm.part);
}

class CudaPlan final : public EnginePlan {
 public:
  explicit CudaPlan(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  const char* engine_name() const override { return "cuda"; }
  std::unique_ptr<EngineBinding> bind(const Shape& shape) const override {
    return std::make_unique<CudaBinding>(state_, shape);
  }
  std::size_t packed_weight_bytes(Pass pass) const override {
    return pass == Pass::forward ? state_->packings.bytes() : 0;
  }
  /// As the packings in it are, whose vectors and bulk copies take 16 bytes.
  std::size_t packed_weight_alignment() const override { return memory_alignment; }
  void pack_weight(Pass pass, const ConstTensor& weight, void* packed, const RunOptions& options) const override {
    if (packed_weight_bytes(pass) == 0) return;
    const ContextScope context(state_->device);
    for (const Packing& packing : state_->packings) state_->packings.pack(packing, weight, packed, options.stream);
  }

 private:
  std::shared_ptr<const State> state_;
};

const CudaBinding::Gemm& CudaBinding::gemm_for(const Access& access) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [known, gemm] : gemms_)
    if (known == access) return *gemm;
  const State& s = *state_;
  auto gemm = std::make_unique<Gemm>();
  // Workspace is measured out for the first view, of aligned tensors: others turn x where it is enough for them.
  const auto workspace = gemms_.empty() ? std::nullopt : std::optional(turned_bytes_);
  // Where there is no tile but of turned x, and not workspace for all of it, images are taken a few at a time.
  Shape part = shape_;
  ChosenTile chosen = s.tiles.choose(s.packings, part, access, workspace);
  while (!chosen.packing && part.batch > 1) {
    part.batch = (part.batch + 1) / 2;
    chosen = s.tiles.choose(s.packings, part, access, workspace);
  }
  if (chosen.packing) {
    gemm->config = chosen.tile.config, gemm->packing = chosen.packing, gemm->part = part;
    std::vector<KernelRequest> requests{forward_request(gemm->config, chosen.packing->plan.rows)};
    const int64_t rest = part.batch > 0 ? shape_.batch % part.batch : 0;
    if (gemm->config.turned)
      for (const int64_t batch : {part.batch, rest > 0 ? rest : part.batch}) {
        Shape images = part;
        images.batch = batch;
        const device::TurnParams turn =
            device::turn_params(gemm->config, forward_params(chosen.packing->plan.view, gemm->config, images));
        requests.push_back(turn_request(gemm->config, access, turn.item_slices));
      }
    const auto kernels = get_kernels(requests, s.device);
    gemm->kernel = kernels.front();
    if (gemm->config.turned) gemm->turn = kernels[1], gemm->turn_rest = kernels[2];
  }
  gemms_.emplace_back(access, std::move(gemm));
  return *gemms_.back().second;
}

Served CudaBinding::run_gemm(const Operands& o, const RunOptions& options) const {
  const State& s = *state_;
  const Gemm& gemm = gemm_for(access_of(s.geometry, *o.input, *o.output));
  if (!gemm.kernel) return s.without_tiles() == Family::direct ? run_direct(o, options) : run_generic(o, options);
  const GemmConfig& c = gemm.config;
  // Threads reach several images of one box with 32 bits, too.
  if (const int64_t apart = o.input->strides[0];
      c.images > 1 && !device::copies_x(c) && (apart < 0 || apart * c.images >= int64_t(1) << 31))
    return run_generic(o, options);
  auto workspace = aligned_up(reinterpret_cast<std::uintptr_t>(options.workspace));
  const void* packed = options.packed_weight;
  if (!packed) {
    s.packings.pack(*gemm.packing, *o.weight, reinterpret_cast<void*>(workspace), options.stream);
    packed = reinterpret_cast<const void*>(workspace), workspace += aligned_up(s.packings.bytes());
  }
  const unsigned char* const memory = static_cast<const unsigned char*>(packed);
  for (int64_t n = 0; n < shape_.batch; n += gemm.part.batch) {
    Shape part = gemm.part;
    part.batch = std::min(part.batch, shape_.batch - n);
    device::ForwardParams params =
        forward_params(gemm.packing->plan.view, c, part, image_strides(*o.input), image_strides(*o.output));
    const int64_t element = int64_t(size_of(s.layer.dtype));
    params.x = static_cast<const std::byte*>(o.input->data) + n * o.input->strides[0] * element;
    params.y = static_cast<std::byte*>(o.output->data) + n * o.output->strides[0] * element;
    params.weight = reinterpret_cast<const unsigned*>(memory + gemm.packing->offset);
    params.scales = reinterpret_cast<const float*>(memory + gemm.packing->scales);
    params.bias = o.bias ? o.bias->data : nullptr;
    if (c.turned) {
      device::TurnParams turn = device::turn_params(c, params);
      device::place_in_workspace(c, reinterpret_cast<unsigned char*>(workspace), params, turn);
      const Kernel& kernel = part.batch == gemm.part.batch ? *gemm.turn : *gemm.turn_rest;
      kernel.launch(device::launch_of(turn, s.device.multiprocessors), turn, options.stream);
    }
    if (launch_forward(*gemm.kernel, c, params, s.device, options.stream)) continue;
    notice("the driver refused to describe an input to the GPU's copy engine; a slower kernel serves");
    return run_generic(o, options);
  }
  return {Family::gemm, &c};
}

Served CudaBinding::run_direct(const Operands& o, const RunOptions& options) const {
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
  return {Family::direct};
}

Served CudaBinding::run_generic(const Operands& o, const RunOptions& options) const {
  const State& s = *state_;
  const Extents &in = shape_.input, &out = shape_.output;
  const device::GenericParams params{.x = o.input->data,
                                     .weight = o.weight->data,
                                     .bias = o.bias ? o.bias->data : nullptr,
                                     .y = o.output->data,
                                     .xs = strides_of(*o.input),
                                     .ws = strides_of(*o.weight),
                                     .ys = strides_of(*o.output),
                                     .bias_stride = o.bias ? o.bias->strides[0] : 0,
                                     .batch = shape_.batch,
                                     .in_d = in[0],
                                     .in_h = in[1],
                                     .in_w = in[2],
                                     .out_d = out[0],
                                     .out_h = out[1],
                                     .out_w = out[2]};
  generic_kernel(s)->launch(device::launch_of(params, s.geometry.out_channels(), s.device.multiprocessors), params,
                            options.stream);
  return {Family::generic};
}

Served CudaBinding::serve(Pass pass, const Operands& operands, const RunOptions& options) const {
  if (pass != Pass::forward)
    throw Unsupported(std::string(to_string(pass)) +
                      " is not implemented on CUDA devices; a plan for the CPU has it");
  const State& s = *state_;
  const ContextScope context(s.device);
  // Kernels other than the generic one count inside an image with 32 bits, and read a bias whose elements follow
  // one another.
  const bool small = fits_image(*operands.input) && fits_image(*operands.output);
  const bool follows = !operands.bias || operands.bias->strides[0] == 1;
  if (family_ == Family::gemm && small && follows) return run_gemm(operands, options);
  if (family_ == Family::direct && small && follows) return run_direct(operands, options);
  return run_generic(operands, options);
}

std::shared_ptr<const State> make_state(const Layer& layer, const DeviceProperties& device) {
  if (device.major < 8)
    throw Unsupported("device cuda:" + std::to_string(device.index) + " (" + device.name +
                      ") has compute capability " + std::to_string(device.major) + "." +
                      std::to_string(device.minor) + "; tconv needs 8.0");
  check_parameters(layer);
  return std::make_shared<State>(layer, device);
}

}  // namespace

std::unique_ptr<EnginePlan> make_plan(const Layer& layer, int index) {
  if (!find_driver())
    throw Unsupported("device cuda:" + std::to_string(index) + " cannot be used: " + why_no_driver());
  return make_plan(layer, device_properties(index));
}

std::unique_ptr<EnginePlan> make_plan(const Layer& layer, const DeviceProperties& device) {
  return std::make_unique<CudaPlan>(make_state(layer, device));
}

DenseKernel dense_kernel(const Layer& layer, const Shape& shape, const DeviceProperties& properties) {
  const CudaBinding binding(make_state(layer, properties), shape);
  const Served& served = binding.dense();
  return {name_of(served), served.tile != nullptr, served.tile && device::scales(served.tile->math)};
}

}  // namespace tconv::cuda
