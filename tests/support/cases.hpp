// A case: one layer at one shape. How cases are described, drawn at random, run on an engine and compared
// with the oracle.
#pragma once

#include <string>
#include <vector>

#include "support/buffer.hpp"
#include "support/random.hpp"
#include "tconv/tconv.hpp"

namespace testing_support {

struct Case {
  tconv::Layer layer;
  std::int64_t batch = 1;
  tconv::Extents input{1, 1, 1};
};

/// One line from which the case can be written down again.
std::string describe(const Case& c);

/// Multiply-adds of the forward pass: what the oracle will cost.
double multiply_adds(const Case& c);

/// A valid case of at most `max_multiply_adds`: every parameter varies, channels reach past vector widths.
Case random_case(Random& random, double max_multiply_adds);

Sizes activation_sizes(const Case& c, std::int64_t channels, const tconv::Extents& spatial);
Sizes input_sizes(const Case& c);
Sizes output_sizes(const Case& c);
Sizes weight_sizes(const Case& c);

/// What a case reads. `bias` is empty for layers without.
struct Operands {
  Values x, weight, bias, gy;
};

/// What the oracle says to a pass, and per element the sum of the absolute values of its terms, which
/// rounding errors are relative to.
struct Truth {
  Values exact, magnitude;
};
Truth truth(const Case& c, tconv::Pass pass, const Operands& operands);

/// Compares elementwise; empty if right, else what is wrong. Allowed are one rounding on storing and an
/// accumulation error relative to the terms. Elements without terms must be exact.
std::string compare(const char* name, tconv::DType dtype, const Values& got, const Truth& want);

/// The results of one training step of a layer.
struct StepValues {
  Values y, gx, gw, gb;
};

/// What the operands look like in memory.
struct Orders {
  Order x, weight, gy, y, gx, gw;
};
/// All in the layer's own layout.
Orders native_orders(const tconv::Layer& layer);
/// Any mixture of orders.
Orders random_orders(Random& random);

/// The operands of a case in memory, filled at random, and the step an engine makes of them.
class Step {
 public:
  Step(const Case& c, const Orders& orders, Random& random);

  /// All four passes, each with a workspace for `workers` and poisoned outputs. Null executor: default pool.
  void run(const tconv::Binding& binding, tconv::Executor* executor = nullptr, int workers = 1);
  StepValues results() const;
  const std::vector<std::byte>& memory(tconv::Pass pass) const;

  /// Compares with the oracle; empty if everything is right, else what is wrong.
  std::string mistakes() const;

 private:
  Case case_;
  Buffer x_, weight_, bias_, gy_, y_, gx_, gw_, gb_;
};

/// Plans, binds, runs and compares one case; empty if right.
std::string check_case(const Case& c, const Orders& orders, Random& random, tconv::Executor* executor = nullptr,
                       int workers = 1);

/// Calls every task in the calling thread, from the last to the first.
class SerialExecutor final : public tconv::Executor {
 public:
  int concurrency() const noexcept override { return 1; }
  void parallel_for(std::int64_t count, tconv::Task task) override {
    for (std::int64_t i = count; i-- > 0;) task(i);
  }
};

}  // namespace testing_support
