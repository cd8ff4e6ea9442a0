#include "cli/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "reference/reference.hpp"

namespace tconv::cli {
namespace {

using std::int64_t;

/// A sum and the sum of the magnitudes of its terms.
struct Exact {
  double value = 0;
  double magnitude = 0;

  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
};

double allowed_error(DType dtype, const Exact& exact) {
  // Units of rounding: 2^-p for p significant bits.
  const double accumulation = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  const double storage = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : accumulation;
  const double smallest = dtype == DType::f16 ? 0x1p-25 : 0x1p-126;
  return 8 * accumulation * exact.magnitude + 1.01 * storage * std::abs(exact.value) + smallest;
}

/// `where` names the element; it is asked only about a wrong one.
template <class Where>
void compare(Verdict& verdict, DType dtype, const Exact& exact, double got, const Where& where) {
  const double difference = std::abs(got - exact.value);
  ++verdict.checked;
  verdict.largest_value = std::max(verdict.largest_value, std::abs(exact.value));
  // Written so that a NaN is wrong.
  if (difference <= allowed_error(dtype, exact)) {
    verdict.largest_difference = std::max(verdict.largest_difference, difference);
  } else if (verdict.right()) {
    verdict.complaint = fmt::format("{} is {:.9g}, but should be {:.9g}", where(), got, exact.value);
  }
}

reference::Array magnitudes(reference::Array values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

reference::Array oracle(Pass pass, const LayerRun& run, bool of_magnitudes) {
  const auto operand = [&](const HostArray& array) {
    return of_magnitudes ? magnitudes(array.to_doubles()) : array.to_doubles();
  };
  const Geometry& g = run.geometry();
  const Shape& s = run.shape();
  switch (pass) {
    case Pass::forward:
      return reference::forward(g, s, operand(run.x), operand(run.w),
                                run.bias.elements() ? operand(run.bias) : reference::Array());
    case Pass::grad_input:
      return reference::grad_input(g, s, operand(run.gy), operand(run.w));
    case Pass::grad_weight:
      return reference::grad_weight(g, s, operand(run.x), operand(run.gy));
    case Pass::grad_bias:
      return reference::grad_bias(g, s, operand(run.gy));
  }
  return {};
}

/// Calls visit(at) for every point of a box, in order.
template <class Visit>
void for_each_point(const Extents& box, const Visit& visit) {
  Extents at;
  for (at[0] = 0; at[0] < box[0]; ++at[0])
    for (at[1] = 0; at[1] < box[1]; ++at[1])
      for (at[2] = 0; at[2] < box[2]; ++at[2]) visit(at);
}

bool inside(const Extents& at, const Extents& box) {
  return at[0] >= 0 && at[0] < box[0] && at[1] >= 0 && at[1] < box[1] && at[2] >= 0 && at[2] < box[2];
}

/// The output that input `i` and tap `k` meet at.
Extents meeting(const Geometry& g, const Extents& i, const Extents& k) {
  Extents o;
  for (std::size_t d = 0; d < 3; ++d) o[d] = i[d] * g.stride[d] + k[d] * g.dilation[d] - g.padding[d];
  return o;
}

/// One element of a result, from the definition. (a, b, at) is its index: channels first, then space.
Exact element(const LayerRun& run, Pass pass, int64_t a, int64_t b, const Extents& at) {
  const Geometry& g = run.geometry();
  const Shape& s = run.shape();
  Exact sum;
  switch (pass) {
    case Pass::forward: {  // y[n = a, co = b, o = at]
      const int64_t group = b / g.group_out;
      if (run.bias.elements()) sum.add(run.bias.at(b, 0, {0, 0, 0}));
      for_each_point(g.kernel, [&](const Extents& k) {
        Extents i;
        for (std::size_t d = 0; d < 3; ++d) {
          const int64_t reach = at[d] + g.padding[d] - k[d] * g.dilation[d];
          i[d] = reach >= 0 && reach % g.stride[d] == 0 ? reach / g.stride[d] : -1;
        }
        if (!inside(i, s.input)) return;
        for (int64_t ci = group * g.group_in; ci < (group + 1) * g.group_in; ++ci)
          sum.add(run.x.at(a, ci, i) * run.w.at(ci, b % g.group_out, k));
      });
      break;
    }
    case Pass::grad_input: {  // gx[n = a, ci = b, i = at]
      const int64_t group = b / g.group_in;
      for_each_point(g.kernel, [&](const Extents& k) {
        const Extents o = meeting(g, at, k);
        if (!inside(o, s.output)) return;
        for (int64_t co = 0; co < g.group_out; ++co)
          sum.add(run.gy.at(a, group * g.group_out + co, o) * run.w.at(b, co, k));
      });
      break;
    }
    case Pass::grad_weight: {  // gw[ci = a, co = b, k = at]
      const int64_t channel = a / g.group_in * g.group_out + b;
      for (int64_t n = 0; n < s.batch; ++n)
        for_each_point(s.input, [&](const Extents& i) {
          const Extents o = meeting(g, i, at);
          if (inside(o, s.output)) sum.add(run.x.at(n, a, i) * run.gy.at(n, channel, o));
        });
      break;
    }
    case Pass::grad_bias:  // gb[co = a]
      for (int64_t n = 0; n < s.batch; ++n)
        for_each_point(s.output, [&](const Extents& o) { sum.add(run.gy.at(n, a, o)); });
      break;
  }
  return sum;
}

/// The box a result's indices live in: two leading axes and space.
struct ResultBox {
  int64_t a, b;
  Extents space;
  double terms;  // of one element
};

ResultBox box_of(const LayerRun& run, Pass pass) {
  const Geometry& g = run.geometry();
  const Shape& s = run.shape();
  const auto volume = [](const Extents& e) { return double(e[0]) * double(e[1]) * double(e[2]); };
  switch (pass) {
    case Pass::forward:
      return {s.batch, g.out_channels(), s.output, double(g.group_in * g.taps())};
    case Pass::grad_input:
      return {s.batch, g.in_channels(), s.input, double(g.group_out * g.taps())};
    case Pass::grad_weight:
      return {g.in_channels(), g.group_out, g.kernel, double(s.batch) * volume(s.input)};
    case Pass::grad_bias:
      break;
  }
  return {g.out_channels(), 1, {1, 1, 1}, double(s.batch) * volume(s.output)};
}

}  // namespace

void Verdict::add(const Verdict& other) {
  checked += other.checked;
  largest_difference = std::max(largest_difference, other.largest_difference);
  largest_value = std::max(largest_value, other.largest_value);
  if (right()) complaint = other.complaint;
}

Problem reduced(const Problem& problem) {
  // The oracle does some 10^8 multiply-adds a second. The innermost size is kept longest, and odd: vector
  // loops with their ends, and more than one tile, are then part of what is checked.
  constexpr double most_multiply_adds = 1.5e7;
  Problem small = problem;
  const int dims = problem.layer.dims;
  small.batch = std::min<int64_t>(problem.batch, 2);
  for (int d = 0; d < dims; ++d)
    small.input[std::size_t(d)] = std::min<int64_t>(problem.input[std::size_t(d)], d == dims - 1 ? 131 : 7);
  const auto too_much = [&] { return work(small.layer, small.batch, small.input).flops > 2 * most_multiply_adds; };
  while (too_much()) {
    auto& innermost = small.input[std::size_t(dims - 1)];
    const auto largest = std::max_element(small.input.begin(), small.input.begin() + dims);
    Extents next = small.input;
    if (small.batch > 1 && innermost <= 67) {
      small.batch = 1;
      continue;
    }
    auto& shrunk = *largest > 7 ? next[std::size_t(dims - 1)] : next[std::size_t(largest - small.input.begin())];
    if (shrunk == 1) break;
    shrunk = (shrunk + 1) / 2;
    try {
      work(small.layer, small.batch, next);
    } catch (const Error&) {
      break;  // with less input nothing would be left of the output
    }
    small.input = next;
  }
  return small;
}

std::map<Pass, Verdict> verify_reduced(const Problem& problem, const std::vector<Pass>& passes,
                                       std::shared_ptr<Executor> executor, std::uint64_t seed) {
  const Problem small = reduced(problem);
  LayerRun run(small.layer, small.batch, small.input, passes, std::move(executor), seed);
  std::map<Pass, Verdict> verdicts;
  for (const Pass pass : passes) {
    run.run(pass);
    Verdict& verdict = verdicts[pass];
    const reference::Array values = oracle(pass, run, false), sizes = oracle(pass, run, true);
    const std::vector<double> got = run.result(pass).to_doubles();
    for (std::size_t i = 0; i < got.size(); ++i)
      compare(verdict, small.layer.dtype, {values[i], sizes[i]}, got[i],
              [&] { return fmt::format("{} element {} of a small version", to_string(pass), i); });
  }
  return verdicts;
}

Verdict spot_check(const LayerRun& run, Pass pass, std::uint64_t seed) {
  constexpr double most_terms = 2e7;
  const ResultBox box = box_of(run, pass);
  Verdict verdict;
  if (box.a == 0) return verdict;
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t size, int64_t sample) {
    if (sample == 0) return int64_t(0);
    if (sample == 1) return size - 1;
    return int64_t(random() % std::uint64_t(size));
  };
  const auto samples = int64_t(std::clamp(most_terms / std::max(box.terms, 1.0), 4.0, 200.0));
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t a = pick(box.a, sample), b = pick(box.b, sample);
    const Extents at{pick(box.space[0], sample), pick(box.space[1], sample), pick(box.space[2], sample)};
    const double got = pass == Pass::grad_bias ? run.result(pass).at_offset(a) : run.result(pass).at(a, b, at);
    compare(verdict, run.layer().dtype, element(run, pass, a, b, at), got, [&] {
      return fmt::format("{} element ({}, {}, {}, {}, {})", to_string(pass), a, b, at[0], at[1], at[2]);
    });
  }
  return verdict;
}

}  // namespace tconv::cli
