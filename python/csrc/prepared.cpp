#include "prepared.hpp"

#include <atomic>

#include "lru_cache.hpp"

namespace tconv::pytorch {
namespace {

using std::int64_t;
using Integers = std::vector<int64_t>;

constexpr std::size_t max_plans = 512;
constexpr std::size_t max_bindings = 2048;

/// Writes keys. Every list is preceded by its length, so that no two calls share a key.
class KeyWriter {
 public:
  KeyWriter& add(int64_t value) {
    key_.add(value);
    return *this;
  }

  template <class List>
  KeyWriter& add_list(const List& list) {
    add(static_cast<int64_t>(list.size()));
    for (const int64_t value : list) add(value);
    return *this;
  }

  /// All the checks look at: where a tensor lives, what it holds and how large it is.
  KeyWriter& add_tensor(const TorchTensor& tensor) {
    int32_t dtype = 0, device_type = 0, device_index = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device_type));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &device_index));
    add(dtype).add(device_type).add(device_index);
    return add_list(tensor.sizes());
  }

  const IntegerKey& key() const { return key_; }

 private:
  IntegerKey key_;
};

Device device_of(const TorchTensor& tensor) {
  if (tensor.is_cuda()) return {.kind = DeviceKind::cuda, .index = tensor.get_device()};
  return {.kind = DeviceKind::cpu, .index = 0};
}

std::shared_ptr<const NumberedPlan> plan_for(const Layer& layer, const Device& device) {
  // Never destroyed: threads may still run plans while the process ends.
  static auto& plans = *new LruCache<std::shared_ptr<const NumberedPlan>>(max_plans);
  static std::atomic<int64_t> next_number{0};
  KeyWriter writer;
  writer.add(layer.dims).add(layer.in_channels).add(layer.out_channels).add(layer.groups).add(layer.bias);
  writer.add(int64_t(layer.dtype)).add(int64_t(layer.precision)).add(int64_t(layer.layout));
  writer.add(int64_t(device.kind)).add(device.index);
  writer.add_list(layer.kernel);
  writer.add_list(layer.stride);
  writer.add_list(layer.padding);
  writer.add_list(layer.output_padding);
  writer.add_list(layer.dilation);
  return plans.get(writer.key(), [&] {
    return std::make_shared<const NumberedPlan>(
        NumberedPlan{.plan = Plan(layer, device), .number = next_number++});
  });
}

/// Plans and binds a problem that has been checked. A refusal that leaves PyTorch's operator to use is written
/// down, so that the next call does not try again.
void plan_and_bind(Prepared& prepared, const Device& device) {
  try {
    prepared.plan = plan_for(prepared.problem.layer, device);
    prepared.binding = prepared.plan->plan.bind(prepared.problem.batch, prepared.problem.input);
  } catch (const Error& error) {
    if (device.kind != DeviceKind::cuda || !leaves_pytorch(error)) throw;
    prepared.refusal = error.what();
  }
}

template <class MakeProblem>
std::shared_ptr<const Prepared> prepare(const KeyWriter& writer, const TorchTensor& first, Precision precision,
                                        const MakeProblem& make_problem) {
  static auto& bindings = *new LruCache<std::shared_ptr<const Prepared>>(max_bindings);
  return bindings.get(writer.key(), [&] {
    auto prepared = std::make_shared<Prepared>();
    prepared->problem = make_problem();
    prepared->problem.layer.precision = precision;
    if (!prepared->problem.is_empty()) plan_and_bind(*prepared, device_of(first));
    return prepared;
  });
}

/// What the keys of all operators begin with. The layout a plan is made for follows the activation's.
KeyWriter key_of(Pass pass, const TorchTensor& activation, const TorchTensor& other, const Integers& geometry,
                 int64_t groups, Precision precision) {
  KeyWriter writer;
  writer.add(int64_t(pass)).add(int64_t(precision)).add(groups).add(is_channels_last(activation));
  writer.add_list(geometry).add_tensor(activation).add_tensor(other);
  return writer;
}

}  // namespace

bool leaves_pytorch(const Error& error) {
  return error.code() == ErrorCode::unsupported || error.code() == ErrorCode::device_error;
}

std::shared_ptr<const Prepared> prepare_forward(const TorchTensor& input, const TorchTensor& weight,
                                                const std::optional<TorchTensor>& bias, const Integers& geometry,
                                                int64_t groups, Precision precision) {
  KeyWriter writer = key_of(Pass::forward, input, weight, geometry, groups, precision);
  if (bias) writer.add_tensor(*bias);
  return prepare(writer, input, precision, [&] { return forward_problem(input, weight, bias, geometry, groups); });
}

std::shared_ptr<const Prepared> prepare_grad_input(const TorchTensor& grad_output, const TorchTensor& weight,
                                                   const Integers& geometry, int64_t groups, Precision precision) {
  const KeyWriter writer = key_of(Pass::grad_input, grad_output, weight, geometry, groups, precision);
  return prepare(writer, grad_output, precision,
                 [&] { return grad_input_problem(grad_output, weight, geometry, groups); });
}

std::shared_ptr<const Prepared> prepare_grad_weight(const TorchTensor& input, const TorchTensor& grad_output,
                                                    const Integers& kernel_size, const Integers& geometry,
                                                    int64_t groups, Precision precision) {
  KeyWriter writer = key_of(Pass::grad_weight, input, grad_output, geometry, groups, precision);
  writer.add_list(kernel_size);
  return prepare(writer, input, precision,
                 [&] { return grad_weight_problem(input, grad_output, kernel_size, geometry, groups); });
}

}  // namespace tconv::pytorch
