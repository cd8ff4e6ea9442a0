// 100,000 layer descriptions through the C ABI, many of them nonsense. Each gives a right answer or a clear
// refusal; which of the two is decided here, from the rules of the operator, not by asking the library.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>

#include "support/c_structs.hpp"
#include "support/cases.hpp"
#include "support/dtype.hpp"

namespace {

using namespace testing_support;
using std::int64_t;
using tconv::Pass;

/// A description as a caller of the C ABI might pass it.
struct Description {
  tconv_layer layer;
  int64_t batch;
  int64_t input[3];
};

// ---------------------------------------------------------------------------------------------
// Drawing

int64_t nonsense(Random& random) {
  constexpr int64_t max = std::numeric_limits<int64_t>::max();
  constexpr int64_t values[] = {-max - 1,
                                -max,
                                -2147483649,
                                -1000,
                                -2,
                                -1,
                                0,
                                1,
                                2,
                                3,
                                5,
                                17,
                                257,
                                1000,
                                65537,
                                2147483647,
                                2147483648,
                                max,
                                max,
                                max / 2,
                                int64_t(1) << 32,
                                int64_t(1) << 40,
                                int64_t(1) << 58,
                                int64_t(1) << 62};
  return random.chance(0.1) ? int64_t(random.bits()) : random.pick(values);
}

Description sensible(Random& random) {
  Description d{};
  tconv_layer& l = d.layer;
  l.dims = int(random.integer(1, 3));
  l.groups = random.chance(0.5) ? 1 : random.integer(1, 4);
  l.in_channels = l.groups * random.integer(1, 4);
  l.out_channels = l.groups * random.integer(1, 4);
  l.bias = int(random.integer(0, 1));
  l.dtype = int(random.integer(0, 3));
  l.precision = int(random.integer(0, 1));
  l.layout = int(random.integer(0, 1));
  for (int i = 0; i < 3; ++i) {
    l.kernel[i] = random.integer(1, 4);
    l.stride[i] = random.integer(1, 4);
    l.dilation[i] = random.integer(1, 3);
    l.padding[i] = random.integer(0, 3);
    l.output_padding[i] = random.integer(0, std::max(l.stride[i], l.dilation[i]) - 1);
    d.input[i] = random.integer(1, l.dims == 1 ? 12 : 5);
  }
  d.batch = random.chance(0.1) ? 0 : random.integer(1, 2);
  return d;
}

/// Huge parameters that are legal, because nothing they multiply is more than zero, or padding takes it away.
void make_extreme(Description& d, Random& random) {
  tconv_layer& l = d.layer;
  const int i = int(random.integer(0, 2));
  const int64_t far = random.integer(1, int64_t(1) << 50);
  if (random.chance(0.5)) {
    d.input[i] = 1;
    l.stride[i] = far;
  } else {
    l.kernel[i] = random.integer(1, 2);
    l.dilation[i] = far;
    l.padding[i] = l.kernel[i] == 2 ? far / 2 : 0;
    l.output_padding[i] = random.integer(0, 2);
  }
}

Description draw(Random& random) {
  Description d = sensible(random);
  const double kind = random.real();
  if (kind < 0.1) return d;
  if (kind < 0.2) {
    make_extreme(d, random);
    return d;
  }
  tconv_layer& l = d.layer;
  int64_t* const fields[] = {
      &l.in_channels,       &l.out_channels,      &l.groups,      &l.kernel[0],   &l.kernel[1],   &l.kernel[2],
      &l.stride[0],         &l.stride[1],         &l.stride[2],   &l.padding[0],  &l.padding[1],  &l.padding[2],
      &l.output_padding[0], &l.output_padding[1], &l.dilation[0], &l.dilation[1], &l.dilation[2], &d.batch,
      &d.input[0],          &d.input[1],          &d.input[2]};
  int* const enumerations[] = {&l.dims, &l.dtype, &l.precision, &l.layout, &l.bias};
  if (kind > 0.95) {
    for (int64_t* field : fields) *field = nonsense(random);
    for (int* value : enumerations) *value = int(nonsense(random));
    return d;
  }
  for (int64_t changes = random.integer(1, 3); changes > 0; --changes) {
    if (random.chance(0.1))
      *random.pick(enumerations) = int(nonsense(random));
    else
      *random.pick(fields) = nonsense(random);
  }
  return d;
}

// ---------------------------------------------------------------------------------------------
// Judging

/// `huge` may be computed or refused: it is legal, but nobody can hold it.
enum class Verdict { legal, huge, illegal };

Verdict worse(Verdict a, Verdict b) {
  return std::max(a, b);
}

constexpr long double limit = 0x1p54L;           // far below where sizes overflow, far above any memory
constexpr int64_t most_taps = int64_t(1) << 20;  // more in one kernel may be refused

Verdict judge_layer(const tconv_layer& l) {
  const auto within = [](int value, int last) { return value >= 0 && value <= last; };
  if (l.dims < 1 || !within(l.dims, 3) || !within(l.dtype, 3) || !within(l.precision, 1) || !within(l.layout, 1))
    return Verdict::illegal;
  if (l.groups < 1 || l.in_channels < 1 || l.out_channels < 1) return Verdict::illegal;
  if (l.in_channels % l.groups != 0 || l.out_channels % l.groups != 0) return Verdict::illegal;
  long double weights = (long double)(l.in_channels) * (long double)(l.out_channels / l.groups), taps = 1;
  bool huge = false;
  for (int d = 0; d < l.dims; ++d) {
    if (l.kernel[d] < 1 || l.stride[d] < 1 || l.dilation[d] < 1) return Verdict::illegal;
    if (l.padding[d] < 0 || l.output_padding[d] < 0) return Verdict::illegal;
    if (l.output_padding[d] >= std::max(l.stride[d], l.dilation[d])) return Verdict::illegal;
    huge = huge || (long double)(l.kernel[d]) * (long double)(l.dilation[d]) > limit;
    taps *= (long double)(l.kernel[d]);
  }
  huge = huge || weights * taps > limit || taps > (long double)(most_taps);
  return huge ? Verdict::huge : Verdict::legal;
}

Verdict judge_shape(const Description& d) {
  const tconv_layer& l = d.layer;
  if (judge_layer(l) == Verdict::illegal) return Verdict::illegal;
  if (d.batch < 0) return Verdict::illegal;
  long double inputs = (long double)(d.batch) * (long double)(l.in_channels);
  long double outputs = (long double)(d.batch) * (long double)(l.out_channels);
  bool huge = false;
  for (int i = 0; i < l.dims; ++i) {
    if (d.input[i] < 1) return Verdict::illegal;
    const long double reach = (long double)(d.input[i] - 1) * (long double)(l.stride[i]) +
                              (long double)(l.dilation[i]) * (long double)(l.kernel[i] - 1);
    const long double size = reach - 2 * (long double)(l.padding[i]) + (long double)(l.output_padding[i]) + 1;
    if (reach > limit || l.padding[i] > limit) {
      // Sizes near zero cannot be told apart in this arithmetic; far below zero they can.
      if (size < -limit) return Verdict::illegal;
      huge = true;
      continue;
    }
    if (size < 1) return Verdict::illegal;
    inputs *= (long double)(d.input[i]);
    outputs *= size;
  }
  return huge || inputs > limit || outputs > limit ? Verdict::huge : Verdict::legal;
}

// ---------------------------------------------------------------------------------------------
// Running

struct Counts {
  int right = 0, refused_layers = 0, refused_runs = 0;
};

/// A refusal is clear when its status is one of the caller's errors and its message says something.
::testing::AssertionResult clearly_refused(tconv_status status) {
  if (status != TCONV_INVALID_ARGUMENT && status != TCONV_UNSUPPORTED && status != TCONV_OUT_OF_MEMORY)
    return ::testing::AssertionFailure() << "status " << status << ": " << tconv_last_error();
  if (std::strlen(tconv_last_error()) < 12)
    return ::testing::AssertionFailure() << "the message says nothing: '" << tconv_last_error() << "'";
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult as_judged(Verdict verdict, tconv_status status) {
  if (status != TCONV_OK) {
    if (verdict == Verdict::legal)
      return ::testing::AssertionFailure() << "a legal description was refused: " << tconv_last_error();
    return clearly_refused(status);
  }
  if (verdict == Verdict::illegal) return ::testing::AssertionFailure() << "an illegal description was taken";
  return ::testing::AssertionSuccess();
}

struct PlanDeleter {
  void operator()(tconv_plan* plan) const { tconv_plan_destroy(plan); }
  void operator()(tconv_binding* binding) const { tconv_binding_destroy(binding); }
};
using PlanPointer = std::unique_ptr<tconv_plan, PlanDeleter>;
using BindingPointer = std::unique_ptr<tconv_binding, PlanDeleter>;

int serial_concurrency(void*) {
  return 1;
}
void serial_for(void*, int64_t count, void (*task)(void*, int64_t), void* object) {
  for (int64_t i = 0; i < count; ++i) task(object, i);
}

/// The arguments of one run: the pass's two inputs and its output, in the order of the C functions.
struct Arguments {
  const tconv_binding* binding;
  Pass pass;
  const tconv_tensor *first, *second, *bias, *output;
  const tconv_run_options* options;

  tconv_status call() const {
    switch (pass) {
      case Pass::forward:
        return tconv_forward(binding, first, second, bias, output, options);
      case Pass::grad_input:
        return tconv_grad_input(binding, first, second, output, options);
      case Pass::grad_weight:
        return tconv_grad_weight(binding, first, second, output, options);
      case Pass::grad_bias:
        return tconv_grad_bias(binding, first, output, options);
    }
    return TCONV_INTERNAL_ERROR;
  }
};

/// Makes exactly one thing about a run wrong. False where the choice does not apply.
bool spoil_tensor(tconv_tensor& t, bool output, bool empty, Random& random) {
  const int dim = int(random.integer(0, t.rank - 1));
  switch (random.integer(0, 6)) {
    case 0:
      t.rank = int(random.pick({-1, 0, 6, 1 << 30, t.rank + 1, t.rank - 1}));
      return true;
    case 1: {
      const int64_t before = t.sizes[dim];
      t.sizes[dim] = nonsense(random);
      return t.sizes[dim] != before;
    }
    case 2:
      t.dtype = int(random.pick({-1, 4, 256, t.dtype + 256, (t.dtype + 1) % 4}));
      return true;
    case 3:
      t.data = nullptr;
      return !empty;
    case 4:
      t.data = static_cast<char*>(t.data) + 1;
      return !empty;
    case 5:
      t.strides[dim] = 0;
      return output && !empty && t.sizes[dim] > 1;
    default:
      t.strides[dim] = random.pick({std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                                    int64_t(1) << 60, -(int64_t(1) << 61)});
      return !empty && t.sizes[dim] > 1;
  }
}

class Fuzz : public ::testing::Test {
 protected:
  void run_once(Random& random);
  void run_pass(const Description& d, const tconv_binding* binding, Random& random);

  Counts counts_;
};

void Fuzz::run_once(Random& random) {
  const Description d = draw(random);
  const Verdict layer_verdict = judge_layer(d.layer);
  ASSERT_TRUE(
      as_judged(layer_verdict == Verdict::huge ? Verdict::huge : layer_verdict, tconv_layer_validate(&d.layer)));
  const Verdict verdict = worse(layer_verdict, judge_shape(d));
  Description unbatched = d;
  unbatched.batch = 0;
  const Verdict size_verdict = worse(layer_verdict, judge_shape(unbatched));

  int64_t output[3] = {-7, -7, -7};
  const tconv_status sized = tconv_output_size(&d.layer, d.input, output);
  ASSERT_TRUE(as_judged(size_verdict, sized));
  if (sized != TCONV_OK) {
    ASSERT_EQ(output[0], -7) << "written in spite of the refusal";
  }

  tconv_plan* plan = nullptr;
  const tconv_status planned = tconv_plan_create(&d.layer, TCONV_CPU, 0, &plan);
  const PlanPointer plan_owner(plan);
  ASSERT_TRUE(as_judged(layer_verdict, planned));
  if (planned != TCONV_OK) {
    ++counts_.refused_layers;
    return;
  }
  tconv_binding* binding = nullptr;
  const tconv_status bound = tconv_bind(plan, d.batch, d.input, &binding);
  const BindingPointer binding_owner(binding);
  ASSERT_TRUE(as_judged(verdict, bound));
  if (bound != TCONV_OK) {
    ++counts_.refused_layers;
    return;
  }
  run_pass(d, binding, random);
}

void Fuzz::run_pass(const Description& d, const tconv_binding* binding, Random& random) {
  const Case c{.layer = cpp_layer(d.layer), .batch = d.batch, .input = {d.input[0], d.input[1], d.input[2]}};
  const auto pass = Pass(random.chance(0.4) ? 0 : random.integer(0, 3));
  const tconv::DType dtype = c.layer.dtype;
  const auto count = [](const Sizes& sizes) {
    double elements = 1;
    for (const int64_t size : sizes) elements *= double(size);
    return elements;
  };
  const Sizes x_sizes = input_sizes(c), w_sizes = weight_sizes(c), y_sizes = output_sizes(c);
  const bool forward = pass == Pass::forward;
  const Sizes& first_sizes = forward || pass == Pass::grad_weight ? x_sizes : y_sizes;
  const Sizes& second_sizes = pass == Pass::grad_weight ? y_sizes : w_sizes;
  const Sizes result_sizes = forward                     ? y_sizes
                             : pass == Pass::grad_input  ? x_sizes
                             : pass == Pass::grad_weight ? w_sizes
                                                         : Sizes{c.layer.out_channels};

  if (count(x_sizes) + count(w_sizes) + count(y_sizes) > 5e4 || multiply_adds(c) > 3e4) {
    // Too large to hold: the sizes are right, but there is no memory behind them.
    const auto hollow = [&](const Sizes& sizes) {
      tconv_tensor t{};
      t.dtype = d.layer.dtype;
      t.rank = int(sizes.size());
      std::copy(sizes.begin(), sizes.end(), t.sizes);
      std::fill_n(t.strides, sizes.size(), 1);
      return t;
    };
    const tconv_tensor first = hollow(first_sizes), second = hollow(second_sizes), result = hollow(result_sizes);
    ASSERT_TRUE(clearly_refused(Arguments{binding, pass, &first, &second, nullptr, &result, nullptr}.call()));
    ++counts_.refused_runs;
    return;
  }

  const Order input_order = random.pick({Order::channels_first, Order::channels_last, Order::strided});
  Buffer first(dtype, first_sizes, input_order, random),
      second(dtype, second_sizes, Order::channels_first, random);
  Buffer bias(dtype, {c.layer.out_channels}, Order::channels_first, random);
  Buffer result(dtype, result_sizes, random.pick({Order::channels_first, Order::channels_last, Order::strided}),
                random);
  for (Buffer* operand : {&first, &second, &bias}) operand->fill_random(random);
  result.watch();

  size_t bytes = 0;
  ASSERT_EQ(tconv_workspace_bytes(binding, int(pass), 1, &bytes), TCONV_OK) << tconv_last_error();
  ASSERT_LT(bytes, std::size_t(1) << 26) << "a tiny layer: " << describe(c) << " " << to_string(pass);
  Workspace workspace(bytes);
  const tconv_executor serial{nullptr, serial_concurrency, serial_for};
  tconv_run_options options{workspace.data(), bytes, random.chance(0.9) ? &serial : nullptr, nullptr, nullptr};
  tconv_tensor c_first = c_tensor(first), c_second = c_tensor(second), c_bias = c_tensor(bias),
               c_result = c_tensor(result);
  const bool with_bias = c.layer.bias && random.chance(0.7);
  Arguments run{binding, pass, &c_first, &c_second, with_bias ? &c_bias : nullptr, &c_result, &options};

  bool spoiled = false;
  if (random.chance(0.3)) {
    const bool reads_second = pass != Pass::grad_bias;
    switch (random.integer(0, 7)) {
      case 0:
      case 1:
        spoiled = spoil_tensor(c_result, true, result.elements() == 0, random);
        break;
      case 2:
        spoiled = spoil_tensor(c_first, false, first.elements() == 0, random);
        break;
      case 3:
        spoiled = reads_second && spoil_tensor(c_second, false, second.elements() == 0, random);
        break;
      case 4:
        spoiled = forward && with_bias && spoil_tensor(c_bias, false, false, random);
        break;
      case 5:
        (random.chance(0.5) ? run.first : run.output) = nullptr;
        spoiled = true;
        break;
      case 6:
        if (bytes > 0) options.workspace_bytes = std::size_t(random.integer(0, int64_t(bytes) - 1));
        spoiled = bytes > 0;
        break;
      default:
        run.binding = nullptr;
        spoiled = true;
    }
    if (!spoiled) {  // the choice did not apply: back to what was right
      c_first = c_tensor(first), c_second = c_tensor(second), c_bias = c_tensor(bias), c_result = c_tensor(result);
    }
  }

  const tconv_status status = run.call();
  if (spoiled) {
    ASSERT_TRUE(clearly_refused(status)) << describe(c) << " " << to_string(pass);
    ASSERT_FALSE(result.changed()) << "written in spite of the refusal";
    ++counts_.refused_runs;
    return;
  }
  ASSERT_EQ(status, TCONV_OK) << describe(c) << " " << to_string(pass) << ": " << tconv_last_error();
  Operands operands;
  (forward || pass == Pass::grad_weight ? operands.x : operands.gy) = first.values();
  (pass == Pass::grad_weight ? operands.gy : operands.weight) = second.values();
  if (forward && with_bias) operands.bias = bias.values();
  ASSERT_EQ(compare("result", dtype, result.values(), truth(c, pass, operands)), "")
      << describe(c) << " " << to_string(pass);
  ASSERT_FALSE(result.gaps_changed());
  ++counts_.right;
}

TEST_F(Fuzz, EveryDescriptionIsAnsweredOrRefused) {
  const int total = 100'000;
  for (int i = 0; i < total && !HasFatalFailure(); ++i) {
    Random random(std::uint64_t(i) + 1'000'000);
    run_once(random);
    if (HasFatalFailure()) FAIL() << "description " << i;
  }
  std::printf("%d descriptions: %d right answers, %d layers refused, %d runs refused\n", total, counts_.right,
              counts_.refused_layers, counts_.refused_runs);
  EXPECT_GT(counts_.right, total / 5);
  EXPECT_GT(counts_.refused_layers, total / 5);
  EXPECT_GT(counts_.refused_runs, total / 20);
}

}  // namespace
