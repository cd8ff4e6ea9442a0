// The C ABI: pointers and enumerations are checked, structs translated, exceptions turned into status codes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <sstream>

#include "layer/layer.hpp"
#include "tconv/tconv.h"
#include "tconv/tconv.hpp"

#ifndef TCONV_VERSION
#define TCONV_VERSION "unknown"
#endif

struct tconv_plan {
  tconv::Plan plan;
};

struct tconv_binding {
  tconv::Binding binding;
};

namespace {

using std::int64_t;
using namespace tconv;

// A fixed buffer, because the message that memory ran out must not need memory.
thread_local char last_error[1024] = "";

tconv_status fail(tconv_status status, const char* message) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", message);
  return status;
}

tconv_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return TCONV_INVALID_ARGUMENT;
    case ErrorCode::unsupported:
      return TCONV_UNSUPPORTED;
    case ErrorCode::out_of_memory:
      return TCONV_OUT_OF_MEMORY;
    case ErrorCode::device_error:
      return TCONV_DEVICE_ERROR;
    case ErrorCode::internal_error:
      break;
  }
  return TCONV_INTERNAL_ERROR;
}

/// Runs `body` and turns what it throws into a status and a message.
template <class Body>
tconv_status guarded(const Body& body) noexcept {
  try {
    body();
    return TCONV_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(TCONV_OUT_OF_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    return fail(TCONV_OUT_OF_MEMORY, "out of memory: the plan would be larger than any memory");
  } catch (const std::exception& error) {
    return fail(TCONV_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(TCONV_INTERNAL_ERROR, "an exception of unknown type was thrown");
  }
}

template <class T>
T& required(const char* name, T* pointer) {
  if (pointer == nullptr) throw InvalidArgument(std::string(name) + " must not be a null pointer");
  return *pointer;
}

/// An enumeration that came as an int: checked before it is narrowed.
template <class Enum>
Enum enumeration(const char* name, int value, Enum last, const char* allowed) {
  if (value < 0 || value > int(last))
    throw InvalidArgument(std::string(name) + " must be " + allowed + ", got " + std::to_string(value));
  return static_cast<Enum>(value);
}

DType dtype_of(const char* owner, int value) {
  if (value < 0 || value > int(DType::bf16))
    throw InvalidArgument(std::string(owner) +
                          ".dtype must be TCONV_F32, TCONV_F64, TCONV_F16 or TCONV_BF16 (0 to 3), got " +
                          std::to_string(value));
  return static_cast<DType>(value);
}

Pass pass_of(int value) {
  return enumeration("pass", value, Pass::grad_bias,
                     "TCONV_FORWARD, TCONV_GRAD_INPUT, TCONV_GRAD_WEIGHT or TCONV_GRAD_BIAS (0 to 3)");
}

Layer layer_of(const tconv_layer* given) {
  const tconv_layer& c = required("layer", given);
  const auto extents = [](const int64_t(&values)[3]) { return Extents{values[0], values[1], values[2]}; };
  return Layer{
      .dims = c.dims,
      .in_channels = c.in_channels,
      .out_channels = c.out_channels,
      .kernel = extents(c.kernel),
      .stride = extents(c.stride),
      .padding = extents(c.padding),
      .output_padding = extents(c.output_padding),
      .dilation = extents(c.dilation),
      .groups = c.groups,
      .bias = c.bias != 0,
      .dtype = dtype_of("layer", c.dtype),
      .precision =
          enumeration("layer.precision", c.precision, Precision::tf32, "TCONV_FP32 or TCONV_TF32 (0 or 1)"),
      .layout = enumeration("layer.layout", c.layout, Layout::channels_last,
                            "TCONV_CHANNELS_FIRST or TCONV_CHANNELS_LAST (0 or 1)"),
  };
}

/// `dims` entries of an array; a layer's dims are checked before its arrays are read.
Extents extents_of(const char* name, int dims, const int64_t* values) {
  required(name, values);
  Extents extents{1, 1, 1};
  std::copy_n(values, dims, extents.begin());
  return extents;
}

Tensor tensor_of(const char* name, const tconv_tensor* given) {
  const tconv_tensor& c = required(name, given);
  Tensor tensor;
  tensor.data = c.data;
  tensor.dtype = dtype_of(name, c.dtype);
  tensor.rank = c.rank;
  std::copy_n(c.sizes, max_rank, tensor.sizes.begin());
  std::copy_n(c.strides, max_rank, tensor.strides.begin());
  return tensor;
}

/// The caller's threads behind the C++ interface.
class CallerExecutor final : public Executor {
 public:
  explicit CallerExecutor(const tconv_executor* c) : c_(c) {}
  int concurrency() const noexcept override { return std::max(1, c_->concurrency(c_->object)); }
  void parallel_for(int64_t count, Task task) override {
    c_->parallel_for(c_->object, count, task.call, task.object);
  }

 private:
  const tconv_executor* c_;
};

/// RunOptions of a call, and the executor they may point to.
class Options {
 public:
  explicit Options(const tconv_run_options* c) : executor_(c != nullptr ? c->executor : nullptr) {
    if (c == nullptr) return;
    options_ = {.workspace = c->workspace,
                .workspace_bytes = c->workspace_bytes,
                .executor = nullptr,
                .packed_weight = c->packed_weight,
                .stream = c->stream};
    if (c->executor == nullptr) return;
    if (c->executor->concurrency == nullptr)
      throw InvalidArgument("options.executor.concurrency must not be a null pointer");
    if (c->executor->parallel_for == nullptr)
      throw InvalidArgument("options.executor.parallel_for must not be a null pointer");
    options_.executor = &executor_;
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  const RunOptions& get() const { return options_; }

 private:
  CallerExecutor executor_;
  RunOptions options_;
};

}  // namespace

extern "C" {

const char* tconv_version(void) {
  return TCONV_VERSION;
}

const char* tconv_last_error(void) {
  return last_error;
}

size_t tconv_layer_bytes(void) {
  return sizeof(tconv_layer);
}

size_t tconv_tensor_bytes(void) {
  return sizeof(tconv_tensor);
}

size_t tconv_run_options_bytes(void) {
  return sizeof(tconv_run_options);
}

void tconv_layer_init(tconv_layer* layer) {
  if (layer == nullptr) return;
  *layer = tconv_layer{};
  layer->dims = 1;
  layer->in_channels = layer->out_channels = layer->groups = 1;
  for (int d = 0; d < 3; ++d) layer->kernel[d] = layer->stride[d] = layer->dilation[d] = 1;
}

tconv_status tconv_layer_validate(const tconv_layer* layer) {
  return guarded([&] { validate(layer_of(layer)); });
}

tconv_status tconv_output_size(const tconv_layer* layer, const int64_t* input, int64_t* output) {
  return guarded([&] {
    const Layer l = layer_of(layer);
    validate(l);
    const Extents in = extents_of("input", l.dims, input);
    required("output", output);
    const Extents size = output_size(l, in);
    std::copy_n(size.begin(), l.dims, output);
  });
}

tconv_status tconv_output_padding_for(const tconv_layer* layer, const int64_t* input, const int64_t* output,
                                      int64_t* output_padding) {
  return guarded([&] {
    Layer l = layer_of(layer);
    l.output_padding = {0, 0, 0};
    validate(l);
    const Extents in = extents_of("input", l.dims, input);
    const Extents out = extents_of("output", l.dims, output);
    required("output_padding", output_padding);
    const Extents padding = output_padding_for(l, in, out);
    std::copy_n(padding.begin(), l.dims, output_padding);
  });
}

tconv_status tconv_plan_create(const tconv_layer* layer, int device_kind, int device_index, tconv_plan** plan) {
  return guarded([&] {
    required("plan", plan) = nullptr;
    const DeviceKind kind =
        enumeration("device_kind", device_kind, DeviceKind::cuda, "TCONV_CPU or TCONV_CUDA (0 or 1)");
    *plan = new tconv_plan{Plan(layer_of(layer), Device{.kind = kind, .index = device_index})};
  });
}

void tconv_plan_destroy(tconv_plan* plan) {
  delete plan;
}

tconv_status tconv_packed_weight_bytes(const tconv_plan* plan, int pass, size_t* bytes) {
  return guarded([&] {
    const Plan& p = required("plan", plan).plan;
    required("bytes", bytes) = p.packed_weight_bytes(pass_of(pass));
  });
}

tconv_status tconv_pack_weight(const tconv_plan* plan, int pass, const tconv_tensor* weight, void* packed,
                               const tconv_run_options* options) {
  return guarded([&] {
    const Plan& p = required("plan", plan).plan;
    p.pack_weight(pass_of(pass), tensor_of("weight", weight), packed, Options(options).get());
  });
}

tconv_status tconv_bind(const tconv_plan* plan, int64_t batch, const int64_t* input, tconv_binding** binding) {
  return guarded([&] {
    required("binding", binding) = nullptr;
    const Plan& p = required("plan", plan).plan;
    *binding = new tconv_binding{p.bind(batch, extents_of("input", p.layer().dims, input))};
  });
}

void tconv_binding_destroy(tconv_binding* binding) {
  delete binding;
}

tconv_status tconv_workspace_bytes(const tconv_binding* binding, int pass, int workers, size_t* bytes) {
  return guarded([&] {
    const Binding& b = required("binding", binding).binding;
    required("bytes", bytes) = b.workspace_bytes(pass_of(pass), workers);
  });
}

tconv_status tconv_workspace_bytes_packed(const tconv_binding* binding, int pass, int workers, size_t* bytes) {
  return guarded([&] {
    const Binding& b = required("binding", binding).binding;
    required("bytes", bytes) = b.workspace_bytes(pass_of(pass), workers, /*packed_weight=*/true);
  });
}

tconv_status tconv_forward(const tconv_binding* binding, const tconv_tensor* x, const tconv_tensor* weight,
                           const tconv_tensor* bias, const tconv_tensor* y, const tconv_run_options* options) {
  return guarded([&] {
    const Binding& b = required("binding", binding).binding;
    ConstTensor bias_tensor;
    if (bias != nullptr) bias_tensor = tensor_of("bias", bias);
    b.forward(tensor_of("x", x), tensor_of("weight", weight), bias != nullptr ? &bias_tensor : nullptr,
              tensor_of("y", y), Options(options).get());
  });
}

tconv_status tconv_grad_input(const tconv_binding* binding, const tconv_tensor* gy, const tconv_tensor* weight,
                              const tconv_tensor* gx, const tconv_run_options* options) {
  return guarded([&] {
    const Binding& b = required("binding", binding).binding;
    b.grad_input(tensor_of("gy", gy), tensor_of("weight", weight), tensor_of("gx", gx), Options(options).get());
  });
}

tconv_status tconv_grad_weight(const tconv_binding* binding, const tconv_tensor* x, const tconv_tensor* gy,
                               const tconv_tensor* gw, const tconv_run_options* options) {
  return guarded([&] {
    const Binding& b = required("binding", binding).binding;
    b.grad_weight(tensor_of("x", x), tensor_of("gy", gy), tensor_of("gw", gw), Options(options).get());
  });
}

tconv_status tconv_grad_bias(const tconv_binding* binding, const tconv_tensor* gy, const tconv_tensor* gb,
                             const tconv_run_options* options) {
  return guarded([&] {
    const Binding& b = required("binding", binding).binding;
    b.grad_bias(tensor_of("gy", gy), tensor_of("gb", gb), Options(options).get());
  });
}

tconv_status tconv_export(const tconv_layer* layer, int64_t batch, const int64_t* input, const char* name,
                          const char* constructor, char* text, size_t* bytes) {
  return guarded([&] {
    const Layer l = layer_of(layer);
    validate(l);
    ExportOptions options;
    if (name != nullptr) options.name = name;
    std::istringstream names(constructor != nullptr ? constructor : "");
    for (std::string parameter; std::getline(names, parameter, ',');) options.constructor.push_back(parameter);
    size_t& room = required("bytes", bytes);
    if (room > 0) required("text", text);
    const std::string all = export_layer(l, batch, extents_of("input", l.dims, input), options);
    if (room > 0) {
      const size_t copied = std::min(room - 1, all.size());
      std::memcpy(text, all.data(), copied);
      text[copied] = '\0';
    }
    room = all.size() + 1;
  });
}

}  // extern "C"
