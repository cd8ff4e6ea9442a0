// The tensor-core kernels on the CPU: random layers through the engine as on a GPU, with every launch compiled by
// the machine's own compiler and run fiber by fiber (emulation/emulate.hpp), against the float64 oracle.
//
// TCONV_EMULATED_LAYERS and TCONV_EMULATED_SEED ask for more layers, or others.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "cuda/engine.hpp"
#include "cuda/runtime/cache.hpp"
#include "cuda/runtime/device_sources.hpp"
#include "cuda/runtime/kernel.hpp"
#include "cuda/runtime/targets.hpp"
#include "reference/reference.hpp"
#include "support/dtype.hpp"

namespace tconv::cuda {
namespace {

using std::int64_t;
using testing_support::load_element;
using testing_support::rounded;
using testing_support::store_element;

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

/// A generated kernel as the CPU's compiler can take it.
std::string emulated_source(std::string source, const std::string& entry, int shared_bytes) {
  // The one instruction that is written out in the source.
  if (const auto begin = source.find("struct Wgmma {"); begin != std::string::npos) {
    const auto end = source.find("\n};\n", begin) + 4;
    source.replace(
        begin, end - begin,
        "using Wgmma = EmulatedWgmma<config.panel_columns ? config.panel_columns : config.rows, config.math,\n"
        "                            (config.panel_columns > 0)>;\n");
  }
  std::smatch params;
  std::regex_search(source, params, std::regex("__grid_constant__ (\\w+) params"));
  return "#include \"emulate.hpp\"\n" + source +
         "\nextern \"C\" void emulated_launch(unsigned blocks, unsigned threads, " +
         "const void* params) {\n  const auto& p = *static_cast<const tconv::device::" + params[1].str() +
         "*>(params);\n  emulation::shared_bytes = " + std::to_string(shared_bytes) +
         ";\n  for (unsigned block = 0; block < blocks; ++block)\n" +
         "    emulation::run_block(block, blocks, threads, [&] { tconv::device::" + entry + "(p); });\n}\n";
}

/// Takes launches for a device that is not here.
class Emulator : public KernelRecord {
 public:
  // Libraries stay loaded, and are known by their names: every emulator has a folder of its own.
  Emulator()
      : folder_(std::filesystem::temp_directory_path() /
                ("tconv-emulation-" + std::to_string(getpid()) + "-" + std::to_string(emulators_++))) {
    for (const DeviceSource& file : device_sources()) write(folder_ / file.name, file.text);
    // The emulation's own files stand in for those of the same name.
    std::filesystem::copy(
        TCONV_EMULATION_SOURCES, folder_,
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    std::set<std::filesystem::path> files;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder_))
      if (file.is_regular_file()) files.insert(file.path());
    for (const auto& file : files) sources_ += file.lexically_relative(folder_).string() + '\n' + read(file);
  }
  ~Emulator() override { std::filesystem::remove_all(folder_); }

  void launch(const KernelRequest& request, unsigned blocks, unsigned threads, const void* params) override {
    compiled(request)(blocks, threads, params);
  }

 private:
  using Launch = void (*)(unsigned, unsigned, const void*);

  Launch compiled(const KernelRequest& request) {
    Launch& launch = launches_[request.source];
    if (launch) return launch;
    const std::string name = (folder_ / ("kernel" + std::to_string(launches_.size()))).string();
    compile(emulated_source(request.source, request.entry, request.shared_bytes), name);
    void* const library = dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    launch = reinterpret_cast<Launch>(dlsym(library, "emulated_launch"));
    return launch;
  }

  /// Makes `name`.so, or copies it from where TCONV_EMULATION_CACHE says that other builds of the tests, whose
  /// kernels are the same, have kept it.
  void compile(const std::string& source, const std::string& name) const {
    namespace fs = std::filesystem;
    const std::string compiler = std::string(TCONV_COMPILER) + " -std=c++20 -O1 -w -shared -fPIC -I ";
    const char* const cache = std::getenv("TCONV_EMULATION_CACHE");
    const fs::path kept = cache ? fs::path(cache) / digest(compiler + sources_ + source) : fs::path();
    std::error_code missing;
    if (cache && fs::copy_file(kept, name + ".so", missing)) return;
    write(name + ".cpp", source);
    const std::string command = compiler + folder_.string() + " -o " + name + ".so " + name + ".cpp";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("the CPU's compiler refused a kernel");
    if (!cache) return;
    // Whole or not at all: other tests run beside this one.
    const fs::path whole = kept.string() + "-" + std::to_string(getpid());
    fs::create_directories(cache);
    fs::copy_file(name + ".so", whole, fs::copy_options::overwrite_existing);
    fs::rename(whole, kept);
  }

  inline static int emulators_ = 0;
  std::filesystem::path folder_;
  std::string sources_;  // all that kernels include
  std::map<std::string, Launch> launches_;
};

struct Case {
  Layer layer;
  int64_t batch;
  Extents input;
  std::string text;
  bool exported = false;  // one kernel for every size
  int multiprocessors = 2;
  bool backwards = false;           // the images of x: a negative stride
  double x_size = 1, x_step = 1;    // of the first half of x's channels, and how much larger the others are; where
                                    // they differ, the first ones are zeros in the second half of each row
  double w_size = 1, w_uneven = 1;  // of the weights of the first output channel, and from each to the next
  bool infinite = false;            // one number of x is
};

Case random_case(std::mt19937& rng) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (;;) {
    Case c;
    Layer& l = c.layer;
    l.dims = pick(1, 3);
    l.groups = pick(0, 4) ? 1 : 2;
    l.in_channels = l.groups * pick(9, 40), l.out_channels = l.groups * (pick(0, 3) ? pick(17, 70) : pick(3, 16));
    const bool rows64 = pick(0, 2) == 0;  // what the panel kernel takes
    const bool few = pick(0, 3) == 0;     // rows, so that positions have several inputs
    if (rows64) l.in_channels = l.groups * pick(24, 48);
    double work = double(l.in_channels);
    for (int d = 0; d < l.dims; ++d) {
      const auto at = std::size_t(d);
      l.kernel[at] = pick(1, l.dims == 1 ? 7 : 3);
      l.stride[at] = pick(0, 1) ? 1 : rows64 ? pick(2, 4) : pick(1, 7);
      l.dilation[at] = pick(0, 2) ? 1 : pick(1, 3);
      l.padding[at] = pick(0, 3);
      l.output_padding[at] = pick(0, int(std::max(l.stride[at], l.dilation[at])) - 1);
      c.input[at] = pick(1, l.dims == 1 ? 300 : l.dims == 2 ? 24 : 8);
      work *= double(c.input[at] * l.kernel[at]);
    }
    const int64_t width_stride = l.stride[std::size_t(l.dims - 1)];
    if (few) {
      l.out_channels = l.groups * pick(1, 32), l.in_channels = l.groups * pick(9, 40);
      l.kernel[std::size_t(l.dims - 1)] = pick(2, 7);
    } else if (rows64)
      l.out_channels = l.groups * 64 * pick(1, 4) / width_stride;
    work *= double(l.out_channels / l.groups);
    if (pick(0, 1)) c.input[std::size_t(l.dims - 1)] = (c.input[std::size_t(l.dims - 1)] + 7) / 8 * 8;
    c.batch = pick(1, 3);
    l.bias = pick(0, 1);
    const int mode = pick(0, 3);
    l.dtype = mode < 2 ? DType::f32 : mode == 2 ? DType::f16 : DType::bf16;
    l.precision = mode == 1 ? Precision::tf32 : Precision::fp32;
    l.layout = l.dims > 1 && pick(0, 2) == 0 ? Layout::channels_last : Layout::channels_first;
    if (l.layout == Layout::channels_last && pick(0, 2))
      l.in_channels = l.groups * 8 * pick(2, 6);  // whole vectors
    if (work * double(c.batch) > 4e6) continue;
    try {
      (void)shape_of(l, c.batch, c.input);
    } catch (const Error&) {
      continue;
    }
    const auto e = [&](const Extents& v) { return format_extents(l.dims, v); };
    c.text = std::to_string(l.dims) + "D batch " + std::to_string(c.batch) + " " + std::to_string(l.in_channels) +
             "->" + std::to_string(l.out_channels) + " groups " + std::to_string(l.groups) + " input " +
             e(c.input) + " kernel " + e(l.kernel) + " stride " + e(l.stride) + " padding " + e(l.padding) +
             " output padding " + e(l.output_padding) + " dilation " + e(l.dilation) + " " + to_string(l.dtype) +
             " " + to_string(l.precision) + " " + to_string(l.layout);
    return c;
  }
}

/// A layer of a list, with bias; what else it needs is the caller's to set.
template <class Listed>
Case case_of(const Listed& listed, std::ptrdiff_t index) {
  Case c;
  Layer& l = c.layer;
  l.dims = listed.dims, l.in_channels = listed.in, l.out_channels = listed.out, l.bias = true;
  l.dtype = listed.dtype, l.precision = listed.precision, l.layout = listed.layout;
  l.kernel = listed.kernel, l.stride = listed.stride, c.input = listed.input;
  for (std::size_t d = std::size_t(l.dims); d < 3; ++d) l.kernel[d] = l.stride[d] = c.input[d] = 1;
  c.batch = 2, c.text = "layer " + std::to_string(index);
  return c;
}

/// A tensor with room around it: what lies outside is not a number, and must stay what it was.
struct Guarded {
  static constexpr int64_t guard = 64;  // elements
  DType dtype;
  int64_t count;
  std::vector<unsigned char> bytes;
  Guarded(DType type, int64_t elements, double fill)
      : dtype(type), count(elements), bytes(std::size_t(elements + 2 * guard) * size_of(type) + 64) {
    for (int64_t i = 0; i < count + 2 * guard; ++i) store_element(dtype, base(), i, fill);
  }
  unsigned char* base() { return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64; }
  void* data(int64_t element = 0) { return base() + std::size_t(guard + element) * size_of(dtype); }
  bool intact() {
    for (int64_t i = 0; i < guard; ++i)
      if (!std::isnan(load_element(dtype, base(), i)) ||
          !std::isnan(load_element(dtype, base(), guard + count + i)))
        return false;
    return true;
  }
};

Tensor view(const Layer& layer, void* data, int64_t batch, int64_t channels, const Extents& size) {
  const auto [d, h, w] = size;
  Tensor t;
  t.data = data, t.dtype = layer.dtype, t.rank = 5, t.sizes = {batch, channels, d, h, w};
  t.strides = layer.layout == Layout::channels_last
                  ? std::array{d * h * w * channels, int64_t(1), h * w * channels, w * channels, channels}
                  : std::array{d * h * w * channels, d * h * w, h * w, w, int64_t(1)};
  // As the API passes them.
  for (std::size_t i = 2; i < 5; ++i)
    if (t.sizes[i] == 1) t.strides[i] = 1;
  return t;
}

int64_t volume(const Extents& e) {
  return e[0] * e[1] * e[2];
}

/// Calls visit(dense channels-first index, element index in the tensor) for every element.
template <class Visit>
void each(const Tensor& t, const Visit& visit) {
  int64_t dense = 0;
  for (int64_t n = 0; n < t.sizes[0]; ++n)
    for (int64_t c = 0; c < t.sizes[1]; ++c)
      for (int64_t d = 0; d < t.sizes[2]; ++d)
        for (int64_t h = 0; h < t.sizes[3]; ++h)
          for (int64_t w = 0; w < t.sizes[4]; ++w)
            visit(dense++,
                  n * t.strides[0] + c * t.strides[1] + d * t.strides[2] + h * t.strides[3] + w * t.strides[4]);
}

/// Inputs that are one position of the kernel, by its name.
int inputs_of_position(const std::string& kernel) {
  std::smatch found;
  return std::regex_search(kernel, found, std::regex("_x([248])_")) ? std::stoi(found[1]) : 1;
}

int asked(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

/// Counts what the kernel that a layer is run by is one of, and returns its name.
std::string check(Emulator& emulator, const Case& c, std::mt19937& rng, std::map<std::string, int>& families) {
  const Layer& layer = c.layer;
  const Geometry g = geometry_of(layer);
  const Shape s = shape_of(layer, c.batch, c.input);
  DeviceProperties device = absent_device("sm_90a", c.multiprocessors);
  device.record = &emulator, device.exported = c.exported;
  std::uniform_real_distribution<double> uniform(-1, 1);
  const int64_t x_count = s.batch * g.in_channels() * volume(s.input);
  const int64_t y_count = s.batch * g.out_channels() * volume(s.output);
  const int64_t w_count = g.in_channels() * g.group_out * g.taps();
  Guarded x(layer.dtype, x_count, NAN), w(layer.dtype, w_count, NAN), b(layer.dtype, g.out_channels(), NAN),
      y(layer.dtype, y_count, NAN);
  reference::Array x_wide(static_cast<std::size_t>(x_count)), w_wide(static_cast<std::size_t>(w_count)), b_wide;
  Tensor xt = view(layer, x.data(), s.batch, g.in_channels(), s.input);
  if (c.backwards) {
    xt.data = x.data((s.batch - 1) * xt.strides[0]);
    xt.strides[0] = -xt.strides[0];
  }
  const Tensor yt = view(layer, y.data(), s.batch, g.out_channels(), s.output);
  each(xt, [&](int64_t dense, int64_t at) {
    const int64_t channel = dense / volume(s.input) % g.in_channels();
    const bool far = c.x_step != 1 && dense % s.input[2] >= s.input[2] / 2;
    const double size = channel >= g.in_channels() / 2 ? c.x_size * c.x_step : far ? 0 : c.x_size;
    x_wide[std::size_t(dense)] = rounded(layer.dtype, uniform(rng) * size);
    if (c.infinite && dense == x_count / 2) x_wide[std::size_t(dense)] = INFINITY;
    store_element(layer.dtype, xt.data, at, x_wide[std::size_t(dense)]);
  });
  for (int64_t i = 0; i < w_count; ++i) {
    const double size = c.w_size * std::pow(c.w_uneven, double(i / g.taps() % g.group_out));
    w_wide[std::size_t(i)] = rounded(layer.dtype, uniform(rng) * size);
    store_element(layer.dtype, w.data(), i, w_wide[std::size_t(i)]);
  }
  Tensor wt = view(layer, w.data(), g.in_channels(), g.group_out, g.kernel);
  wt.strides = {g.group_out * g.taps(), g.taps(), g.kernel[1] * g.kernel[2], g.kernel[2], 1};
  Tensor bt;
  bt.data = b.data();
  if (layer.bias)
    for (int64_t i = 0; i < g.out_channels(); ++i) {
      b_wide.push_back(rounded(layer.dtype, uniform(rng)));
      store_element(layer.dtype, b.data(), i, b_wide.back());
    }

  const auto plan = make_plan(layer, device);
  const auto binding = plan->bind(s);
  // What is in it does not matter, and nothing behind it is touched.
  const std::size_t workspace_bytes = binding->workspace_bytes(Pass::forward, 1, true);
  std::vector<unsigned char> workspace(workspace_bytes + 64, 0xff);
  const ConstTensor xc = xt, wc = wt, bc = bt;
  RunOptions options;
  options.workspace = workspace.data(), options.workspace_bytes = workspace_bytes;
  binding->run(
      Pass::forward,
      {.input = &xc, .weight = &wc, .bias = layer.bias ? &bc : nullptr, .grad_output = nullptr, .output = &yt},
      options);
  EXPECT_TRUE(std::all_of(workspace.begin() + std::ptrdiff_t(workspace_bytes), workspace.end(),
                          [](unsigned char byte) { return byte == 0xff; }))
      << c.text;
  const std::string kernel = binding->kernel_name(Pass::forward);
  const std::string family =
      kernel.substr(0, kernel.find("_gemm") == std::string::npos ? kernel.size() : kernel.find("_gemm"));
  ++families[family];
  if (family == "panel" && layer.layout == Layout::channels_last) ++families["panel, channels last"];
  // Channels that fill vectors are stored so, whatever strides dimensions of size 1 have.
  if (family == "panel" && layer.layout == Layout::channels_last && g.out_channels() % 8 == 0) {
    EXPECT_NE(kernel.find(layer.dtype == DType::f32 ? "_y4" : "_y8"), std::string::npos)
        << c.text << " " << kernel;
  }
  if (family == "panel" && std::regex_search(kernel, std::regex("_b[2-4]_")))
    ++families["panel of channel blocks"];
  if (const int inputs = inputs_of_position(kernel); inputs > 1)
    ++families["panel, " + std::to_string(inputs) + " inputs a position"];
  if (family == "panel" && kernel.find("_p2") != std::string::npos) ++families["panel in parts"];
  if (kernel.find("_turned") != std::string::npos) ++families["turned panel"];
  if (kernel.find("_split") != std::string::npos) ++families["panel of shared sums"];
  if (kernel.find("_moved") != std::string::npos) ++families["panel of moved positions"];
  if (std::regex_search(kernel, std::regex("_(halves|half)_"))) ++families["panel of halves"];
  if (std::regex_search(kernel, std::regex("_rows[0-9]"))) ++families["panel of joined rows"];
  if (std::regex_search(kernel, std::regex("_runs[0-9]"))) ++families["panel of whole rows"];
  if (kernel.find("_shared") != std::string::npos) ++families["panel of shared zeros"];
  if (kernel.find("_turns") != std::string::npos) ++families["panel in turns"];
  if (kernel.find("_fills") != std::string::npos) ++families["panel that fills"];
  if (std::regex_search(kernel, std::regex("[x_][0-9]+(\\.[0-9]+){3}_")))
    ++families[family + " of several images"];

  const reference::Array want = reference::forward(g, s, x_wide, w_wide, b_wide);
  // Of each output channel by itself where their weights differ in size, and of each half of rows where x does.
  struct Sums {
    double error = 0, norm = 0;
  };
  std::vector<Sums> sums(c.w_uneven != 1 ? std::size_t(g.out_channels()) : c.x_step != 1 ? 2 : 1);
  int64_t missing = 0, infinite = 0;
  each(yt, [&](int64_t dense, int64_t at) {
    const double got = load_element(layer.dtype, y.data(), at), right = want[std::size_t(dense)];
    if (!std::isfinite(right)) {
      ++infinite;
      EXPECT_FALSE(std::isfinite(got)) << c.text << " [" << kernel << "]";
      return;
    }
    if (std::isnan(got)) {
      ++missing;
      return;
    }
    const std::size_t of = c.w_uneven != 1 ? std::size_t(dense / volume(s.output) % g.out_channels())
                           : c.x_step != 1 ? dense % s.output[2] >= s.output[2] / 2 + g.kernel[2]
                                           : 0;
    Sums& s_of = sums[of];
    s_of.error += (got - right) * (got - right), s_of.norm += right * right;
  });
  EXPECT_EQ(infinite > 0, c.infinite) << c.text;
  const double bar = layer.dtype == DType::f16            ? 1e-3
                     : layer.dtype == DType::bf16         ? 8e-3
                     : layer.precision == Precision::tf32 ? 4e-4
                                                          : 1e-6;
  EXPECT_EQ(missing, 0) << c.text << " [" << kernel << "]: outputs that were not written, or read from outside";
  for (const auto& [error, norm] : sums)
    EXPECT_LE(std::sqrt(error), bar * 1.3 * std::sqrt(norm)) << c.text << " [" << kernel << "]";
  EXPECT_TRUE(y.intact()) << c.text << " [" << kernel << "]: written outside of the output";
  return kernel;
}

TEST(Emulation, RandomLayers) {
  Emulator emulator;
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)));
  std::map<std::string, int> families;
  const int layers = asked("TCONV_EMULATED_LAYERS", 8);
  for (int i = 0; i < layers; ++i) {
    const Case c = random_case(rng);
    SCOPED_TRACE("layer " + std::to_string(i));
    // Panels are the choice for layers larger than these: five of seven layers ask for them, for one channel block
    // or for several, for x that is turned before, for products of several rows, for products in turns.
    const char* const wanted[] = {nullptr, "1", "turned", "joined", nullptr, "2", "turns"};
    if (const char* const panels = wanted[i % 7])
      setenv("TCONV_PREFER_PANELS", panels, 1);
    else
      unsetenv("TCONV_PREFER_PANELS");
    // And some for several inputs in a position, whether or not that is worth it.
    if (i % 8 == 3 || i % 8 == 6)
      setenv("TCONV_X_PHASES", i % 8 == 3 ? "2" : "4", 1);
    else
      unsetenv("TCONV_X_PHASES");
    check(emulator, c, rng, families);
    if (::testing::Test::HasFailure() && layers < 50) break;
  }
  for (const auto& [family, count] : families) std::printf("%4d layers by %s\n", count, family.c_str());
  unsetenv("TCONV_PREFER_PANELS"), unsetenv("TCONV_X_PHASES");
  EXPECT_GT(families["warpgroup"], 0);
}

/// Layers large enough for warpgroups that share a panel: its channel blocks, or parts of its box.
TEST(Emulation, SharedPanels) {
  struct Shared {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
  };
  using enum Layout;
  const Shared layers[] = {
      {2, 24, 64, {6, 40}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first},
      {2, 48, 64, {4, 36}, {2, 3}, {1, 1}, DType::f16, Precision::fp32, channels_last},
      {2, 16, 32, {5, 33}, {3, 4}, {1, 2}, DType::f32, Precision::fp32, channels_first},
      {3, 16, 32, {2, 3, 34}, {2, 2, 3}, {1, 1, 2}, DType::bf16, Precision::fp32, channels_last},
      {2, 96, 64, {3, 32}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last},
      {2, 32, 128, {3, 35}, {2, 2}, {2, 2}, DType::f16, Precision::fp32, channels_first},
      {1, 24, 192, {150}, {3}, {1}, DType::f32, Precision::tf32, channels_first},
      {2, 16, 128, {6, 11}, {3, 3}, {1, 1}, DType::f32, Precision::fp32, channels_last},
      // Lines with rows of padding: 3, 5 and 6 phases.
      {1, 64, 48, {150}, {5}, {3}, DType::f16, Precision::fp32, channels_first},
      {2, 32, 24, {4, 40}, {3, 6}, {1, 5}, DType::f32, Precision::tf32, channels_first},
      {1, 40, 32, {100}, {9}, {6}, DType::f32, Precision::fp32, channels_first},
      {2, 32, 20, {5, 9}, {2, 7}, {2, 3}, DType::bf16, Precision::fp32, channels_first},
  };
  Emulator emulator;
  std::mt19937 rng(1);
  std::map<std::string, int> families;
  setenv("TCONV_PREFER_PANELS", "2", 1);
  for (const Shared& shared : layers) {
    Case c = case_of(shared, &shared - layers);
    for (std::size_t d = 0; d < std::size_t(shared.dims); ++d) c.layer.padding[d] = 1;
    check(emulator, c, rng, families);
  }
  unsetenv("TCONV_PREFER_PANELS");
  for (const auto& [family, count] : families) std::printf("%4d layers by %s\n", count, family.c_str());
  for (const char* const family : {"panel, channels last", "panel of channel blocks", "panel in parts"})
    EXPECT_GT(families[family], 0) << family;
}

/// Layers with types that have no taps: their outputs are the bias.
TEST(Emulation, FilledTypes) {
  struct Filled {
    int dims, in, out;
    Extents input, kernel, stride, dilation;
    DType dtype;
    Layout layout;
    const char* panels;  // that are preferred
  };
  using enum Layout;
  const Filled layers[] = {
      {2, 32, 40, {5, 19}, {3, 3}, {2, 2}, {2, 2}, DType::f16, channels_first, "joined"},
      {2, 32, 40, {5, 19}, {3, 3}, {2, 2}, {2, 2}, DType::bf16, channels_last, "1"},
      {3, 24, 20, {2, 3, 21}, {2, 2, 3}, {2, 2, 1}, {2, 4, 1}, DType::f16, channels_first, "2"},
      {2, 40, 64, {4, 13}, {2, 5}, {3, 3}, {3, 1}, DType::bf16, channels_first, "turned"},
      {2, 24, 17, {4, 9}, {2, 3}, {4, 2}, {1, 2}, DType::f16, channels_last, "1"},
  };
  Emulator emulator;
  std::mt19937 rng(1);
  std::map<std::string, int> families;
  for (const Filled& filled : layers) {
    setenv("TCONV_PREFER_PANELS", filled.panels, 1);
    Case c;
    Layer& l = c.layer;
    l.dims = filled.dims, l.in_channels = filled.in, l.out_channels = filled.out;
    l.dtype = filled.dtype, l.layout = filled.layout, l.bias = true;
    for (std::size_t d = 0; d < std::size_t(filled.dims); ++d) {
      l.kernel[d] = filled.kernel[d], l.stride[d] = filled.stride[d], l.dilation[d] = filled.dilation[d];
      l.padding[d] = 1;
    }
    c.batch = 2, c.input = filled.input;
    c.text = "filled layer " + std::to_string(&filled - layers);
    check(emulator, c, rng, families);
  }
  unsetenv("TCONV_PREFER_PANELS");
  for (const auto& [family, count] : families) std::printf("%4d layers by %s\n", count, family.c_str());
  EXPECT_EQ(families["panel that fills"], int(std::size(layers)));
}

/// Layers of so many phases along the width that a line takes all 16 rows of a warp: with and without padding of
/// it, with phases that have no taps, of rows, joined rows and flat products.
TEST(Emulation, WideStrides) {
  struct Wide {
    int dims, in, out;
    Extents input, kernel, stride, dilation;
    DType dtype;
    Precision precision;
    const char* panels;  // that are preferred
    const char* name;    // that the kernel's has
    Layout layout = Layout::channels_first;
  };
  using enum Precision;
  const Wide layers[] = {
      {1, 32, 7, {301}, {19}, {9}, {1}, DType::f16, fp32, "1", "_f16_"},
      {1, 40, 9, {120}, {20}, {10}, {1}, DType::f32, tf32, "turned", "_tf32_half_"},
      {1, 48, 4, {200}, {32}, {16}, {1}, DType::bf16, fp32, "turns", "_turns"},
      {1, 96, 20, {150}, {23}, {13}, {1}, DType::f32, fp32, "1", "_fp32_halves_"},
      {2, 32, 3, {9, 14}, {5, 14}, {4, 14}, {1, 1}, DType::f32, tf32, "joined", "_rows"},
      {2, 64, 3, {4, 9}, {12, 12}, {12, 12}, {1, 1}, DType::f16, fp32, "1", "_flat_"},
      {2, 64, 5, {5, 40}, {3, 9}, {2, 11}, {2, 1}, DType::f16, fp32, "1", "_f16_"},
      {1, 40, 5, {100}, {16}, {17}, {1}, DType::f32, tf32, "loaders", "_l2_"},
  };
  Emulator emulator;
  std::mt19937 rng(1);
  std::map<std::string, int> families;
  int count = 0;
  for (const Wide& wide : layers) {
    setenv("TCONV_PREFER_PANELS", wide.panels, 1);
    setenv("TCONV_PREFER_HALVES", "1", 1);
    Case c = case_of(wide, &wide - layers);
    for (std::size_t d = 0; d < std::size_t(wide.dims); ++d)
      c.layer.dilation[d] = wide.dilation[d], c.layer.padding[d] = 3;
    const std::string kernel = check(emulator, c, rng, families);
    EXPECT_NE(kernel.find(wide.name), std::string::npos) << c.text << ": " << kernel;
    EXPECT_EQ(families["panel"], ++count) << c.text << ": " << kernel;
  }
  unsetenv("TCONV_PREFER_PANELS"), unsetenv("TCONV_PREFER_HALVES");
}

/// Layers whose products cover several rows of positions, and layers whose warpgroups multiply in turns.
TEST(Emulation, JoinedRowsAndTurns) {
  struct Joined {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    const char* wanted;
  };
  using enum Layout;
  const Joined layers[] = {
      {2, 24, 64, {7, 40}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first, "joined"},
      {3, 32, 48, {3, 5, 33}, {3, 2, 3}, {1, 1, 1}, DType::f16, Precision::fp32, channels_first, "joined"},
      {2, 32, 24, {8, 39}, {3, 4}, {2, 2}, DType::bf16, Precision::fp32, channels_first, "joined"},
      {2, 48, 64, {6, 36}, {2, 3}, {1, 1}, DType::f16, Precision::fp32, channels_last, "joined"},
      {2, 16, 32, {6, 37}, {3, 4}, {1, 3}, DType::f32, Precision::fp32, channels_first, "joined"},
      {3, 16, 32, {2, 6, 34}, {2, 2, 3}, {1, 2, 2}, DType::f32, Precision::tf32, channels_last, "joined"},
      {2, 16, 20, {6, 130}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_first, "joined"},
      {2, 24, 64, {7, 40}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_first, "turns"},
      {1, 32, 128, {700}, {3}, {1}, DType::f16, Precision::fp32, channels_first, "turns"},
      {2, 16, 48, {9, 66}, {3, 3}, {2, 2}, DType::f32, Precision::fp32, channels_first, "turns"},
      {2, 32, 64, {12, 70}, {3, 3}, {3, 3}, DType::bf16, Precision::fp32, channels_last, "turns"},
  };
  Emulator emulator;
  std::mt19937 rng(3);
  std::map<std::string, int> families;
  for (const Joined& joined : layers) {
    setenv("TCONV_PREFER_PANELS", joined.wanted, 1);
    Case c = case_of(joined, &joined - layers);
    for (std::size_t d = 0; d < std::size_t(joined.dims); ++d) c.layer.padding[d] = 1;
    check(emulator, c, rng, families);
  }
  unsetenv("TCONV_PREFER_PANELS");
  for (const auto& [family, count] : families) std::printf("%4d layers by %s\n", count, family.c_str());
  EXPECT_GT(families["panel of joined rows"], 4);
  EXPECT_GT(families["panel in turns"], 2);
}

/// Layers that have several rows of outputs in one run: of even and odd length, with phases along the width, of
/// which some are padding, with positions that begin before a row and end behind it.
TEST(Emulation, RunsOfWholeRows) {
  struct Whole {
    int dims, in, out;
    Extents input, kernel, stride, padding;
    DType dtype;
    Precision precision;
    const char* inputs;  // of a position
    Layout layout = Layout::channels_first;
  };
  const Whole layers[] = {
      {2, 24, 64, {7, 40}, {3, 3}, {1, 1}, {1, 1}, DType::f32, Precision::tf32, "1"},
      {3, 32, 48, {3, 5, 33}, {3, 3, 3}, {1, 1, 1}, {1, 1, 0}, DType::f16, Precision::fp32, "1"},
      {2, 16, 20, {9, 31}, {3, 4}, {1, 1}, {0, 1}, DType::bf16, Precision::fp32, "1"},
      {2, 32, 40, {5, 37}, {5, 7}, {1, 1}, {2, 5}, DType::f32, Precision::fp32, "1"},
      {2, 32, 24, {6, 36}, {3, 4}, {1, 2}, {0, 1}, DType::f16, Precision::fp32, "1"},
      {2, 24, 16, {6, 33}, {2, 5}, {1, 3}, {1, 2}, DType::f32, Precision::tf32, "1"},
      {2, 16, 24, {8, 67}, {3, 3}, {1, 1}, {0, 0}, DType::f32, Precision::tf32, "2"},
      {3, 16, 16, {2, 7, 70}, {2, 3, 5}, {2, 1, 1}, {0, 1, 1}, DType::f16, Precision::fp32, "4"},
      // Flat products, whose runs are whole slices.
      {2, 32, 64, {1, 1}, {4, 4}, {1, 1}, {0, 0}, DType::f16, Precision::fp32, "1"},
      {2, 32, 40, {7, 5}, {3, 3}, {1, 1}, {1, 1}, DType::f32, Precision::tf32, "1"},
      {3, 16, 24, {3, 5, 7}, {2, 3, 3}, {1, 1, 1}, {0, 1, 0}, DType::bf16, Precision::fp32, "1"},
      {2, 24, 16, {3, 8}, {3, 2}, {1, 2}, {1, 0}, DType::f16, Precision::fp32, "1"},
      // Kernel = stride: phases along the height are rows that follow one another.
      {2, 32, 40, {7, 7}, {2, 2}, {2, 2}, {0, 0}, DType::f16, Precision::fp32, "1"},
      {2, 32, 24, {9, 37}, {2, 2}, {2, 2}, {0, 0}, DType::f32, Precision::tf32, "1"},
      {3, 32, 16, {3, 5, 9}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, DType::f32, Precision::tf32, "1"},
      {3, 32, 20, {2, 7, 33}, {1, 2, 2}, {2, 2, 2}, {0, 0, 0}, DType::bf16, Precision::fp32, "1"},
      {2, 48, 18, {6, 19}, {4, 2}, {4, 2}, {4, 0}, DType::f16, Precision::fp32, "1"},
      {2, 24, 30, {5, 34}, {2, 3}, {2, 1}, {0, 1}, DType::f32, Precision::fp32, "1"},
  };
  Emulator emulator;
  std::mt19937 rng(5);
  std::map<std::string, int> families;
  int flat = 0;
  setenv("TCONV_PREFER_PANELS", "runs", 1);
  for (const Whole& whole : layers) {
    setenv("TCONV_X_PHASES", whole.inputs, 1);
    Case c = case_of(whole, &whole - layers);
    c.layer.padding = whole.padding;
    flat += check(emulator, c, rng, families).find("_flat_") != std::string::npos;
  }
  unsetenv("TCONV_X_PHASES");
  unsetenv("TCONV_PREFER_PANELS");
  EXPECT_EQ(families["panel of whole rows"], 18);
  EXPECT_GE(flat, 3);
}

/// Layers whose x is turned for many channel blocks.
TEST(Emulation, TurnedPanels) {
  struct Turned {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch, groups;
  };
  using enum Layout;
  const Turned layers[] = {
      {2, 244, 256, {4, 5}, {2, 2}, {2, 2}, DType::f32, Precision::tf32, channels_first, 3, 1},  // an octet of
                                                                                                 // zeros
      {2, 64, 128, {4, 4}, {4, 4}, {2, 2}, DType::f16, Precision::fp32, channels_first, 5, 1},
      {1, 40, 64, {32}, {8}, {4}, DType::f32, Precision::fp32, channels_first, 3, 1},
      {1, 32, 128, {200}, {4}, {2}, DType::bf16, Precision::fp32, channels_first, 2, 1},
      {2, 32, 256, {5, 7}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last, 2, 1},
      {3, 136, 64, {2, 3, 4}, {2, 2, 2}, {2, 2, 2}, DType::f32, Precision::tf32, channels_first, 2, 1},
      {2, 36, 256, {9, 40}, {1, 3}, {1, 1}, DType::f32, Precision::fp32, channels_last, 1, 2},
      {3, 16, 256, {3, 5, 70}, {1, 2, 2}, {1, 1, 1}, DType::f16, Precision::fp32, channels_first, 1, 1},
      // Images whose halo is zeros that they share: of one input, and in three dimensions.
      {2, 32, 256, {1, 1}, {4, 4}, {1, 1}, DType::f16, Precision::fp32, channels_first, 20, 1},
      {2, 32, 256, {2, 3}, {5, 4}, {1, 1}, DType::f32, Precision::tf32, channels_last, 7, 1},
      {3, 32, 128, {2, 2, 3}, {3, 4, 4}, {1, 2, 2}, DType::f32, Precision::fp32, channels_first, 5, 1},
      {1, 32, 256, {9}, {7}, {2}, DType::bf16, Precision::fp32, channels_first, 9, 1},
  };
  Emulator emulator;
  std::mt19937 rng(1);
  std::map<std::string, int> families;
  setenv("TCONV_PREFER_PANELS", "turned", 1);
  for (const Turned& turned : layers) {
    Case c = case_of(turned, &turned - layers);
    Layer& l = c.layer;
    l.groups = turned.groups, l.in_channels *= turned.groups, l.out_channels *= turned.groups;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) l.padding[d] = l.kernel[d] > 1;
    c.batch = turned.batch;
    check(emulator, c, rng, families);
  }
  unsetenv("TCONV_PREFER_PANELS");
  for (const auto& [family, count] : families) std::printf("%4d layers by %s\n", count, family.c_str());
  EXPECT_EQ(families["turned panel"], 12);
  EXPECT_GE(families["panel of shared zeros"], 5);
}

/// Few positions and many channels: tiles that share sums, of equally many chunks and not.
TEST(Emulation, TilesThatShareSums) {
  struct Split {
    int dims, in, out;
    Extents input, kernel, stride;
    DType dtype;
    Precision precision;
    Layout layout;
    int64_t batch;
  };
  using enum Layout;
  const Split layers[] = {
      {2, 128, 64, {4, 4}, {4, 4}, {2, 2}, DType::f32, Precision::tf32, channels_first, 1},
      {2, 160, 40, {3, 5}, {3, 3}, {1, 1}, DType::f16, Precision::fp32, channels_first, 2},
      {1, 200, 70, {40}, {5}, {2}, DType::bf16, Precision::fp32, channels_first, 1},
      {3, 96, 64, {2, 2, 3}, {2, 3, 3}, {1, 1, 1}, DType::f32, Precision::fp32, channels_first, 1},
      {2, 192, 64, {4, 5}, {3, 3}, {1, 1}, DType::f32, Precision::tf32, channels_last, 2},
      {2, 144, 128, {6, 6}, {2, 2}, {2, 2}, DType::f16, Precision::fp32, channels_last, 1},
      // Channels that are no vectors: nothing is staged.
      {2, 96, 121, {9, 10}, {3, 3}, {1, 1}, DType::f32, Precision::fp32, channels_last, 1},
      {1, 64, 79, {120}, {6}, {2}, DType::f32, Precision::tf32, channels_last, 1},
  };
  Emulator emulator;
  std::mt19937 rng(7);
  std::map<std::string, int> families;
  setenv("TCONV_PREFER_PANELS", "split", 1);
  for (const Split& split : layers) {
    Case c = case_of(split, &split - layers);
    for (std::size_t d = 0; d < std::size_t(c.layer.dims); ++d) c.layer.padding[d] = c.layer.kernel[d] > 2;
    c.batch = split.batch, c.multiprocessors = 40;
    check(emulator, c, rng, families);
    EXPECT_EQ(families["panel of shared sums"], &split - layers + 1) << c.text;
  }
  unsetenv("TCONV_PREFER_PANELS");
}

/// Halves that are scaled: numbers of any size, output channels of different sizes, channels of x of different
/// sizes, and one infinity, which must not be felt where it is not read.
void check_scaled_halves(Precision precision) {
  struct Halves {
    int dims, in, out;
    Extents input, kernel, stride;
    Layout layout;
    const char* wanted;
    double x_size, w_size, w_uneven;
    bool infinite;
    int inputs;  // of a position
    double x_step = 1;
  };
  using enum Layout;
  const Halves layers[] = {
      {2, 24, 64, {6, 40}, {3, 3}, {1, 1}, channels_first, "1", 1, 1, 1, false, 1},
      {2, 32, 64, {5, 41}, {3, 3}, {1, 1}, channels_first, "joined", 1e30, 1e-25, 0.5, false, 1},
      {1, 128, 64, {301}, {8}, {2}, channels_first, "turns", 1e-32, 1e30, 1, true, 1},
      {2, 48, 32, {4, 36}, {3, 4}, {1, 2}, channels_last, "1", 3e-39, 1e20, 2, false, 1},
      {3, 32, 64, {3, 4, 20}, {2, 3, 3}, {1, 1, 1}, channels_last, "2", 1, 1e-3, 0.7, true, 1},
      {2, 96, 64, {5, 6}, {4, 4}, {2, 2}, channels_first, "turned", 1e-20, 1e-10, 1, true, 1},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "turned", 1e20, 1e-30, 0.5, false, 1},
      {2, 64, 256, {4, 7}, {3, 3}, {1, 1}, channels_last, "turned", 1, 1, 0.8, true, 1},
      {2, 32, 32, {4, 120}, {3, 3}, {1, 1}, channels_first, "1", 1, 1e-38, 1, false, 2},
      {2, 64, 16, {3, 64}, {2, 5}, {1, 1}, channels_last, "1", 1e-3, 1, 3, false, 4},
      // Products near the smallest and the largest numbers.
      {2, 32, 64, {5, 41}, {3, 3}, {1, 1}, channels_first, "1", 1e-19, 1e-18, 1, false, 1},
      {2, 32, 64, {5, 41}, {3, 3}, {1, 1}, channels_first, "joined", 1e36, 1, 0.9, false, 1},
      {1, 128, 64, {100}, {4}, {1}, channels_first, "1", 1e17, 1e19, 1, false, 1},
      // Scales that change from chunk to chunk, to larger numbers and to smaller ones.
      {1, 64, 64, {200}, {5}, {1}, channels_first, "1", 1e-3, 1, 1, false, 1, 1e6},
      {1, 64, 64, {200}, {5}, {1}, channels_first, "1", 1e3, 1, 1, false, 1, 1e-5},
      {2, 64, 64, {5, 64}, {3, 3}, {1, 1}, channels_last, "2", 1e-12, 1, 1, false, 1, 1e9},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "turned", 1e-8, 1, 1, false, 1, 1e10},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "turned", 1e8, 1, 1, false, 1, 1e-10},
      {1, 128, 64, {64}, {8}, {4}, channels_first, "split", 1e8, 1, 1, false, 1, 1e-10},
  };
  Emulator emulator;
  std::mt19937 rng(5);
  setenv("TCONV_PREFER_HALVES", "1", 1);
  std::map<std::string, int> families;
  int count = 0;
  for (const Halves& halves : layers) {
    Case c;
    Layer& l = c.layer;
    l.precision = precision;
    l.dims = halves.dims, l.in_channels = halves.in, l.out_channels = halves.out, l.layout = halves.layout;
    l.kernel = halves.kernel, l.stride = halves.stride, c.input = halves.input;
    for (std::size_t d = 0; d < std::size_t(l.dims); ++d) l.padding[d] = 1;
    for (std::size_t d = std::size_t(l.dims); d < 3; ++d) l.kernel[d] = l.stride[d] = c.input[d] = 1;
    c.batch = 2,
    c.text = "layer " + std::to_string(&halves - layers) + (l.precision == Precision::tf32 ? " TF32" : "");
    c.x_step = halves.x_step, c.x_size = halves.x_size, c.w_size = halves.w_size, c.w_uneven = halves.w_uneven,
    c.infinite = halves.infinite;
    setenv("TCONV_PREFER_PANELS", halves.wanted, 1);
    setenv("TCONV_X_PHASES", std::to_string(halves.inputs).c_str(), 1);
    if (halves.wanted == std::string_view("split")) c.multiprocessors = 40;
    check(emulator, c, rng, families);
    EXPECT_EQ(families["panel of halves"], ++count) << c.text;
  }
  unsetenv("TCONV_PREFER_HALVES"), unsetenv("TCONV_PREFER_PANELS"), unsetenv("TCONV_X_PHASES");
  EXPECT_EQ(families["turned panel"], 6);
}

TEST(Emulation, ScaledHalvesOfSplitFp32) {
  check_scaled_halves(Precision::fp32);
}
TEST(Emulation, ScaledHalvesOfRoundedTf32) {
  check_scaled_halves(Precision::tf32);
}

/// Kernels reach the images of one box with offsets that must not be negative: such views take the generic kernel.
TEST(Emulation, ImagesOfOneBoxInReverseOrder) {
  Emulator emulator;
  std::mt19937 rng(1);
  std::map<std::string, int> families;
  Case c;
  Layer& l = c.layer;
  l.dims = 2, l.out_channels = 64, l.kernel = {2, 2}, l.precision = Precision::tf32;
  c.batch = 5, c.input = {3, 3}, c.backwards = true;
  setenv("TCONV_PREFER_PANELS", "1", 1);
  l.in_channels = 32, c.text = "panels";
  check(emulator, c, rng, families);
  l.in_channels = 30, l.layout = Layout::channels_last, c.text = "channels that are no vectors: no panels";
  c.exported = true;
  check(emulator, c, rng, families);
  unsetenv("TCONV_PREFER_PANELS");
  for (const char* const family : {"warpgroup of several images", "panel of several images"})
    EXPECT_GT(families[family], 0) << family;
}

/// Layers of few rows, whose positions are several inputs.
TEST(Emulation, PositionsOfSeveralInputs) {
  struct Few {
    int inputs;  // of a position
    int dims, in, out, groups;
    Extents input, kernel, stride, padding, dilation;
    DType dtype;
    Precision precision;
    Layout layout;
  };
  using enum Layout;
  const Few layers[] = {
      // Rows cut into boxes, and flat ones; of even and odd length.
      {2, 2, 16, 32, 1, {3, 250}, {2, 3}, {1, 1}, {0, 0}, {1, 1}, DType::f32, Precision::tf32, channels_first},
      {2, 2, 24, 32, 1, {4, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::f16, Precision::fp32, channels_first},
      {4, 2, 16, 16, 1, {3, 501}, {2, 7}, {1, 1}, {1, 3}, {1, 1}, DType::bf16, Precision::fp32, channels_first},
      {4, 1, 40, 16, 1, {1003}, {5}, {1}, {2}, {1}, DType::f32, Precision::fp32, channels_first},
      {8, 1, 32, 8, 1, {900}, {7}, {1}, {0}, {1}, DType::f32, Precision::tf32, channels_first},
      {8, 2, 32, 4, 1, {7, 40}, {3, 7}, {1, 1}, {0, 5}, {1, 1}, DType::f16, Precision::fp32, channels_first},
      // Strided, with phases that are not even in number, and dilated, with phases that have no taps.
      {4, 2, 32, 3, 1, {16, 16}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, DType::f32, Precision::tf32, channels_first},
      {2, 2, 56, 1, 1, {5, 30}, {9, 9}, {4, 4}, {4, 4}, {1, 1}, DType::f32, Precision::fp32, channels_first},
      {2, 1, 32, 6, 1, {333}, {9}, {3}, {4}, {1}, DType::f16, Precision::fp32, channels_first},
      {4, 1, 48, 16, 1, {400}, {7}, {1}, {6}, {2}, DType::f16, Precision::fp32, channels_first},
      {4, 1, 48, 16, 1, {130}, {5}, {2}, {3}, {2}, DType::f32, Precision::tf32, channels_first},
      {8, 1, 32, 8, 1, {300}, {6}, {1}, {4}, {3}, DType::f32, Precision::fp32, channels_first},
      // Three dimensions, groups, channels last.
      {4,
       3,
       16,
       16,
       1,
       {3, 4, 30},
       {2, 3, 7},
       {1, 1, 1},
       {1, 1, 3},
       {1, 1, 1},
       DType::f32,
       Precision::tf32,
       channels_first},
      {2,
       3,
       32,
       24,
       2,
       {2, 3, 65},
       {2, 2, 4},
       {1, 2, 1},
       {0, 1, 2},
       {1, 1, 1},
       DType::bf16,
       Precision::fp32,
       channels_first},
      {4, 2, 64, 32, 2, {4, 33}, {2, 5}, {1, 1}, {0, 1}, {1, 1}, DType::f32, Precision::fp32, channels_last},
      {2, 2, 32, 32, 1, {3, 300}, {2, 3}, {1, 1}, {1, 1}, {1, 1}, DType::f16, Precision::fp32, channels_last},
      {8, 2, 16, 8, 1, {5, 70}, {3, 5}, {1, 1}, {1, 2}, {1, 1}, DType::f32, Precision::tf32, channels_last},
      {4,
       3,
       64,
       3,
       1,
       {3, 3, 12},
       {2, 2, 4},
       {1, 2, 2},
       {0, 1, 1},
       {1, 1, 1},
       DType::bf16,
       Precision::fp32,
       channels_last},
      {8, 2, 32, 8, 1, {4, 40}, {2, 5}, {1, 2}, {0, 1}, {1, 2}, DType::f16, Precision::fp32, channels_last},
  };
  Emulator emulator;
  std::mt19937 rng(1);
  for (const Few& few : layers) {
    Case c = case_of(few, &few - layers);
    c.layer.groups = few.groups;
    for (std::size_t d = 0; d < std::size_t(few.dims); ++d)
      c.layer.padding[d] = few.padding[d], c.layer.dilation[d] = few.dilation[d];
    std::map<std::string, int> families;
    setenv("TCONV_X_PHASES", std::to_string(few.inputs).c_str(), 1);
    const bool turned = (&few - layers) % 3 == 1;
    setenv("TCONV_PREFER_PANELS", turned ? "turned" : "1", 1);
    check(emulator, c, rng, families);
    EXPECT_EQ(families["panel, " + std::to_string(few.inputs) + " inputs a position"], 1) << c.text;
    EXPECT_EQ(families["turned panel"], turned) << c.text;
  }
  unsetenv("TCONV_X_PHASES"), unsetenv("TCONV_PREFER_PANELS");
}

/// The packed weight as numbers, those that are not zero in order.
std::vector<double> numbers_in(DType dtype, const void* packed, int64_t words) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < words * 4 / int64_t(size_of(dtype)); ++i)
    if (const double value = load_element(dtype, packed, i); value != 0) numbers.push_back(value);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// Once for each input of a position.
TEST(Emulation, APackedWeightHoldsEveryWeightOnceAndEveryWordIsWritten) {
  Emulator emulator;
  std::mt19937 rng(unsigned(asked("TCONV_EMULATED_SEED", 1)) + 100);
  for (int round = 0; round < asked("TCONV_EMULATED_LAYERS", 8); ++round) {
    const Case c = random_case(rng);
    SCOPED_TRACE(c.text);
    DeviceProperties device = absent_device(round % 2 ? "sm_90a" : "sm_86", 2);
    device.record = &emulator, device.exported = true;  // then weights are packed in one way
    // A position of several inputs has a row for each of them.
    const int inputs = round % 4 == 3 ? 2 : 1;
    setenv("TCONV_X_PHASES", std::to_string(inputs).c_str(), 1);
    setenv("TCONV_NO_HALVES", "1", 1);  // where heads are not the weights themselves
    const auto plan = make_plan(c.layer, device);
    const Geometry g = geometry_of(c.layer);
    // Numbers every dtype holds, and no word of two parts has a second; elements lie `apart`, taps slowest at
    // times.
    const int64_t count = g.in_channels() * g.group_out * g.taps(), apart = 1 + round % 3;
    Guarded w(c.layer.dtype, count * apart, NAN);
    const auto binding = plan->bind(shape_of(c.layer, c.batch, c.input));
    const int times = inputs_of_position(binding->kernel_name(Pass::forward));
    EXPECT_TRUE(times == inputs || times == 1);
    std::vector<double> want;
    for (int64_t i = 0; i < count; ++i) {
      want.insert(want.end(), std::size_t(times), double(1 + i % 255));
      store_element(c.layer.dtype, w.data(), i * apart, want.back());
    }
    std::sort(want.begin(), want.end());
    ConstTensor wt;
    wt.data = w.data(), wt.dtype = c.layer.dtype, wt.rank = 5;
    wt.sizes = {g.in_channels(), g.group_out, g.kernel[0], g.kernel[1], g.kernel[2]};
    int64_t stride = apart;
    const int fastest_last[] = {4, 3, 2, 1, 0}, fastest_out[] = {1, 0, 4, 3, 2};
    for (const int d : round % 4 < 2 ? fastest_last : fastest_out)
      wt.strides[std::size_t(d)] = stride, stride *= wt.sizes[std::size_t(d)];

    const auto words = int64_t(plan->packed_weight_bytes(Pass::forward) / 4);
    Guarded packed(DType::f32, words, NAN);
    plan->pack_weight(Pass::forward, wt, packed.data(), {});
    EXPECT_TRUE(packed.intact()) << "written outside of the packed weight";
    EXPECT_EQ(numbers_in(c.layer.dtype, packed.data(), words), want);
  }
  unsetenv("TCONV_X_PHASES"), unsetenv("TCONV_NO_HALVES");
}

}  // namespace
}  // namespace tconv::cuda
