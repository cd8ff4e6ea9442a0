// tconv: transposed convolutions in 1, 2 and 3 dimensions, forward and backward.
//
// Create a plan once per layer, bind it to a shape whenever the shape changes, run it as often as
// you like, from as many threads as you like:
//
//   tconv::Layer layer{.dims = 1, .in_channels = 512, .out_channels = 256,
//                      .kernel = {16}, .stride = {8}, .padding = {4}, .bias = true};
//   tconv::Plan plan(layer);
//   tconv::Binding run = plan.bind(/*batch=*/1, /*input=*/{861});
//   std::vector<std::byte> workspace(run.workspace_bytes(tconv::Pass::forward));
//   run.forward(x, weight, &bias, y, {.workspace = workspace.data(), .workspace_bytes = workspace.size()});
//
// Tensors are views: a pointer, sizes and strides. A run allocates nothing, keeps nothing, and
// checks every argument before it writes the first element. (On a GPU the first run on views aligned
// otherwise than bind() expects, dense ones, loads or compiles a kernel. Where that must not happen
// later, run such views once before, or have `tconv compile` fill the cache.) Errors are exceptions
// derived from tconv::Error; the C ABI over the same functions is in tconv.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tconv/export.h"

namespace tconv {

// ---------------------------------------------------------------------------------------------
// Errors

enum class ErrorCode {
  invalid_argument = 1,  // an argument is wrong; the message names it, its value and what would be right
  unsupported = 2,       // the request is valid, but no engine present can serve it
  out_of_memory = 3,     // memory of the host or of the device ran out
  device_error = 4,      // the driver or the run-time compiler failed
  internal_error = 5,    // a defect of tconv
};

class TCONV_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

class TCONV_API InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message) : Error(ErrorCode::invalid_argument, message) {}
};

class TCONV_API Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& message) : Error(ErrorCode::unsupported, message) {}
};

// ---------------------------------------------------------------------------------------------
// Layers

/// One entry per spatial dimension, outermost first. A layer of `dims` dimensions uses the first
/// `dims` entries; the others are ignored.
using Extents = std::array<std::int64_t, 3>;

/// What tensors hold. f16 and bf16 are accumulated in fp32.
enum class DType : std::uint8_t { f32, f64, f16, bf16 };

/// How f32 products are formed on matrix units. `fp32` has the accuracy of fp32 arithmetic everywhere;
/// `tf32` rounds both operands to 10 mantissa bits where the engine has such units (NVIDIA GPUs).
enum class Precision : std::uint8_t { fp32, tf32 };

/// The memory order a plan is made for: N,C,spatial or N,spatial,C. Views in any other order are
/// taken too; they only run slower.
enum class Layout : std::uint8_t { channels_first, channels_last };

/// A transposed convolution, with the meaning every parameter has in torch.nn.ConvTranspose*d.
struct Layer {
  int dims = 1;
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  Extents kernel{1, 1, 1};
  Extents stride{1, 1, 1};
  Extents padding{0, 0, 0};
  Extents output_padding{0, 0, 0};
  Extents dilation{1, 1, 1};
  std::int64_t groups = 1;
  bool bias = false;
  DType dtype = DType::f32;
  Precision precision = Precision::fp32;
  Layout layout = Layout::channels_first;
};

/// Throws InvalidArgument if no input could make the layer valid.
TCONV_API void validate(const Layer& layer);

/// Spatial size of the output: (input − 1)·stride − 2·padding + dilation·(kernel − 1) + output_padding + 1.
TCONV_API Extents output_size(const Layer& layer, const Extents& input);

/// The output_padding with which `layer` turns `input` into `output`; throws if none is legal.
TCONV_API Extents output_padding_for(const Layer& layer, const Extents& input, const Extents& output);

/// Multiply-adds that touch a real input element, and the bytes that must move at least once.
struct TCONV_API Work {
  double flops = 0;  // 2 × multiply-adds of the forward pass, taps that fall outside the output included
  double bytes = 0;  // input, weight, bias and output, once each
};
TCONV_API Work work(const Layer& layer, std::int64_t batch, const Extents& input);

// ---------------------------------------------------------------------------------------------
// Tensors

constexpr int max_rank = 5;

/// A view of memory: element (i0, i1, …) is at data + Σ i·stride, strides counted in elements.
/// Activations are [batch, channels, spatial…], weights [in_channels, out_channels / groups, kernel…],
/// whatever their memory order; a bias is [out_channels].
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> strides{};
};

struct ConstTensor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> strides{};

  ConstTensor() = default;
  ConstTensor(const Tensor& t) : data(t.data), dtype(t.dtype), rank(t.rank), sizes(t.sizes), strides(t.strides) {}
};

/// A densely packed tensor. `sizes` is always in the logical order (batch, channels, spatial…).
TCONV_API Tensor dense(void* data, DType dtype, const std::vector<std::int64_t>& sizes,
                       Layout layout = Layout::channels_first);
TCONV_API ConstTensor dense(const void* data, DType dtype, const std::vector<std::int64_t>& sizes,
                            Layout layout = Layout::channels_first);

// ---------------------------------------------------------------------------------------------
// Threads

/// A reference to a function of a task index; it owns nothing.
struct Task {
  void (*call)(void* object, std::int64_t index);
  void* object;
  void operator()(std::int64_t index) const { call(object, index); }
};

/// Where the CPU engine's threads come from. Implement it over the pool your program already has.
class TCONV_API Executor {
 public:
  virtual ~Executor();
  /// How many tasks can run at the same time. May change between runs.
  virtual int concurrency() const noexcept = 0;
  /// Calls task(0) … task(count − 1), each exactly once, on any threads and in any order, and returns
  /// when all have returned. Tasks do not throw and do not wait for each other.
  virtual void parallel_for(std::int64_t count, Task task) = 0;
};

/// A pool with `threads` threads, the calling one included (0: TCONV_NUM_THREADS, or one per CPU this process may
/// use). Any number of threads may run plans over one pool at the same time.
TCONV_API std::shared_ptr<Executor> make_thread_pool(int threads = 0);

// ---------------------------------------------------------------------------------------------
// Plans

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
};

/// The four things a layer can compute. Each is a separate run with a workspace of its own.
enum class Pass : std::uint8_t { forward, grad_input, grad_weight, grad_bias };

/// What a run borrows from its caller. Everything in it may be null.
struct RunOptions {
  void* workspace = nullptr;            // at least workspace_bytes(pass, 1, …); any alignment
  std::size_t workspace_bytes = 0;      // more workspace lets more threads work, see workspace_bytes()
  Executor* executor = nullptr;         // null: the pool shared by all plans of the process
  const void* packed_weight = nullptr;  // from pack_weight(); null: packed in the workspace, every run
  void* stream = nullptr;               // CUDA: the stream to launch on
};

namespace detail {
struct PlanState;
struct BindingState;
}  // namespace detail

class Binding;

/// A validated layer, planned for one device. Immutable, cheap to copy, safe to share between threads.
class TCONV_API Plan {
 public:
  explicit Plan(const Layer& layer, const Device& device = {});

  const Layer& layer() const noexcept;
  const Device& device() const noexcept;

  /// Fixes batch and input size. Costs microseconds on a CPU, where nothing is compiled or tuned for a shape; on a
  /// GPU a tile is chosen, and its kernel compiled or loaded where this process has not met it.
  Binding bind(std::int64_t batch, const Extents& input) const;

  /// Weights in the order the kernels read them. Packing once saves packing in every run, as long as
  /// the weight does not change. One packing serves every shape. Passes without a weight need 0 bytes.
  /// `packed` begins at a multiple of 256 bytes on a GPU, of 8 on a CPU: cudaMalloc and operator new see to that.
  std::size_t packed_weight_bytes(Pass pass) const;
  void pack_weight(Pass pass, const ConstTensor& weight, void* packed, const RunOptions& options = {}) const;

 private:
  std::shared_ptr<const detail::PlanState> state_;
};

/// A plan bound to a shape. Immutable, cheap to copy, safe to run from many threads at once (each run
/// with a workspace of its own). One that no plan has made may only be assigned to.
class TCONV_API Binding {
 public:
  std::int64_t batch() const noexcept;
  const Extents& input_size() const noexcept;
  const Extents& output_size() const noexcept;

  /// Bytes of workspace with which `workers` threads can work. 0: as many as the default pool has. A run
  /// that is given a packed weight needs no room to pack one.
  std::size_t workspace_bytes(Pass pass, int workers = 0, bool packed_weight = false) const;

  /// y = T(x, w) + bias. `bias` may be null even where the layer has one.
  void forward(const ConstTensor& x, const ConstTensor& weight, const ConstTensor* bias, const Tensor& y,
               const RunOptions& options) const;
  /// gx = Σ w·gy, the adjoint of the forward in x.
  void grad_input(const ConstTensor& gy, const ConstTensor& weight, const Tensor& gx,
                  const RunOptions& options) const;
  /// gw = Σ x·gy, the adjoint of the forward in w. Overwrites gw.
  void grad_weight(const ConstTensor& x, const ConstTensor& gy, const Tensor& gw, const RunOptions& options) const;
  /// gb = Σ gy over batch and positions. Overwrites gb.
  void grad_bias(const ConstTensor& gy, const Tensor& gb, const RunOptions& options) const;

 private:
  friend class Plan;
  std::shared_ptr<const detail::BindingState> state_;
};

// ---------------------------------------------------------------------------------------------
// Export

struct ExportOptions {
  std::string name = "tconv_layer";        // of the compiled extension: letters, digits and _
  std::string title{};                     // the first line of the file's text: no quotes, no backslashes
  std::vector<std::string> constructor{};  // parameters of the module, by name; empty: torch.nn.ConvTranspose*d's
};

/// The layer as the text of a Python file that holds its CUDA kernels and a module `ModelNew` around them. The
/// file needs PyTorch and a CUDA toolkit, and nothing of tconv. Its kernels serve any batch and input; their tiles
/// are chosen for the ones given. Needs no GPU.
TCONV_API std::string export_layer(const Layer& layer, std::int64_t batch, const Extents& input,
                                   const ExportOptions& options = {});

// ---------------------------------------------------------------------------------------------
// What is here

struct DeviceInfo {
  Device device;
  std::string engine;   // "cpu", "cuda"
  std::string name;     // of the processor or GPU
  std::string details;  // instruction set and threads; compute capability and memory
};

/// Every device an engine was found for, and one line for each engine that is not usable, saying why.
struct SystemInfo {
  std::string version;
  std::vector<DeviceInfo> devices;
  std::vector<std::string> missing;
};
TCONV_API SystemInfo system_info();

TCONV_API const char* to_string(DType dtype) noexcept;
TCONV_API const char* to_string(Precision precision) noexcept;
TCONV_API const char* to_string(Layout layout) noexcept;
TCONV_API const char* to_string(Pass pass) noexcept;
TCONV_API std::size_t size_of(DType dtype) noexcept;

}  // namespace tconv
