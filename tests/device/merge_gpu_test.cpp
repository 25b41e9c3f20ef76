// jit::merge on a device against double precision.
#include <jit/merge.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/device_tensor.h"
#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Random partial states, and what they merge to.
struct MergeCase {
  MergeSpec spec = {};
  int batch = 0;  ///< 0: varlen
  int tokens = 5, heads = 3, states = 2;
  bool stacked = false;
  TensorLayout o_layout = {}, lse_layout = {};  ///< of each part, or of the stack
};

class MergeRun {
 public:
  explicit MergeRun(const MergeCase& problem) : problem_(problem), random_(reference::test_seed()) {
    const std::int64_t b = problem.batch, t = problem.tokens, h = problem.heads, n = problem.states,
                       d = problem.spec.head_dim_v;
    const auto o_shape = b != 0 ? std::vector<std::int64_t>{b, t, h, d} : std::vector<std::int64_t>{t, h, d};
    const auto lse_shape = b != 0 ? std::vector<std::int64_t>{b, h, t} : std::vector<std::int64_t>{h, t};
    const auto stack = [&](std::vector<std::int64_t> shape) {
      if (problem.stacked) shape.insert(shape.begin(), n);
      return shape;
    };
    for (std::int64_t i = 0; i < (problem.stacked ? 1 : n); ++i) {
      os_.emplace_back(problem.spec.dtype, stack(o_shape), problem.o_layout);
      lses_.emplace_back(DType::fp32, stack(lse_shape), problem.lse_layout);
    }
    o_.emplace_back(problem.spec.out_dtype, o_shape);
    lse_.emplace_back(DType::fp32, lse_shape);
    fill();
  }

  MergeArguments arguments() {
    parts_.clear();
    for (std::size_t i = 0; i < os_.size(); ++i) parts_.push_back({os_[i].view(), lses_[i].view()});
    return {.parts = parts_, .o = o_[0].view(), .lse = lse_[0].view()};
  }

  /// Fresh random states: some without keys, whose o stays NaN; row 0 has none in any.
  void fill() {
    std::normal_distribution<double> normal;
    const std::int64_t rows = o_[0].count() / problem_.spec.head_dim_v;
    for (std::int64_t state = 0; state < problem_.states; ++state) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const unsigned kind = random_() % 8;
        const bool is_empty = row == 0 || kind < 2;
        lse(state).set(lse_at(state, row),
                       is_empty ? (kind % 2 == 0 ? -infinity : infinity) : 20 * normal(random_));
        for (int d = 0; d < problem_.spec.head_dim_v; ++d)
          o(state).set(o_at(state, row, d), is_empty ? std::nan("") : normal(random_));
      }
    }
    for (DeviceTensor& tensor : os_) tensor.upload();
    for (DeviceTensor& tensor : lses_) tensor.upload();
    poison();
  }

  /// NaN in o and lse again.
  void poison() {
    const std::int64_t rows = o_[0].count() / problem_.spec.head_dim_v;
    for (std::int64_t row = 0; row < rows; ++row) {
      lse_[0].set(lse_at(-1, row), std::nan(""));
      for (int d = 0; d < problem_.spec.head_dim_v; ++d) o_[0].set(o_at(-1, row, d), std::nan(""));
    }
    o_[0].upload();
    lse_[0].upload();
  }

  /// Errors of o and lse; empty: none.
  std::string check() {
    o_[0].download();
    lse_[0].download();
    const std::int64_t rows = o_[0].count() / problem_.spec.head_dim_v;
    for (std::int64_t row = 0; row < rows; ++row) {
      double largest = -infinity, sum = 0;
      for (std::int64_t state = 0; state < problem_.states; ++state)
        largest = std::max(largest, lse_of(state, row));
      for (std::int64_t state = 0; state < problem_.states; ++state)
        sum += largest == -infinity ? 0 : std::exp(lse_of(state, row) - largest);
      const double expected_lse = sum == 0 ? -infinity : largest + std::log(sum);
      const double lse = lse_[0].get(lse_at(-1, row));
      if (!(lse == expected_lse || std::abs(lse - expected_lse) <= 1e-5 * (1 + std::abs(expected_lse))))
        return fmt::format("lse of row {} is {}, should be {}", row, lse, expected_lse);
      for (int d = 0; d < problem_.spec.head_dim_v; ++d) {
        double expected = 0, magnitude = 0;
        for (std::int64_t state = 0; state < problem_.states; ++state) {
          if (lse_of(state, row) == -infinity) continue;
          const double term =
              std::exp(lse_of(state, row) - largest) / sum * o(state).get(o_at(state, row, d));
          expected += term;
          magnitude += std::abs(term);
        }
        const double rounding = problem_.spec.out_dtype == DType::bf16   ? 0x1p-8
                                : problem_.spec.out_dtype == DType::fp16 ? 0x1p-11
                                                                         : 0;
        const double got = o_[0].get(o_at(-1, row, d));
        if (!(std::abs(got - expected) <= rounding * std::abs(expected) + 1e-5 * magnitude + 1e-7))
          return fmt::format("o of row {}, column {} is {}, should be {}", row, d, got, expected);
      }
    }
    return "";
  }

  /// The memory of o and lse, as of the last download.
  std::vector<std::uint8_t> result_bytes() const { return joined(o_[0], lse_[0]); }
  std::vector<std::uint8_t> part_bytes(std::size_t part) {
    os_[part].download();
    lses_[part].download();
    return joined(os_[part], lses_[part]);
  }

 private:
  static std::vector<std::uint8_t> joined(const DeviceTensor& o, const DeviceTensor& lse) {
    std::vector<std::uint8_t> bytes = o.bytes();
    bytes.insert(bytes.end(), lse.bytes().begin(), lse.bytes().end());
    return bytes;
  }
  DeviceTensor& o(std::int64_t state) { return os_[problem_.stacked ? 0 : static_cast<std::size_t>(state)]; }
  DeviceTensor& lse(std::int64_t state) {
    return lses_[problem_.stacked ? 0 : static_cast<std::size_t>(state)];
  }
  double lse_of(std::int64_t state, std::int64_t row) {
    const double value = lse(state).get(lse_at(state, row));
    return value == infinity ? -infinity : value;
  }
  // Rows count (batch, token, head); state −1 is the result.
  std::vector<std::int64_t> o_at(std::int64_t state, std::int64_t row, std::int64_t d) const {
    const std::int64_t h = row % problem_.heads, t = row / problem_.heads % problem_.tokens;
    std::vector<std::int64_t> at = {t, h, d};
    if (problem_.batch != 0) at.insert(at.begin(), row / problem_.heads / problem_.tokens);
    if (problem_.stacked && state >= 0) at.insert(at.begin(), state);
    return at;
  }
  std::vector<std::int64_t> lse_at(std::int64_t state, std::int64_t row) const {
    const std::int64_t h = row % problem_.heads, t = row / problem_.heads % problem_.tokens;
    std::vector<std::int64_t> at = {h, t};
    if (problem_.batch != 0) at.insert(at.begin(), row / problem_.heads / problem_.tokens);
    if (problem_.stacked && state >= 0) at.insert(at.begin(), state);
    return at;
  }

  MergeCase problem_;
  std::mt19937_64 random_;
  std::vector<DeviceTensor> os_, lses_, o_, lse_;
  std::vector<PartialState> parts_;
};

class MergeTest : public GpuTest {
 protected:
  static void expect_right(const MergeCase& problem, const std::string& what) {
    MergeRun run(problem);
    merge(problem.spec, context())(run.arguments());
    EXPECT_EQ(run.check(), "") << what;
  }
};

TEST_F(MergeTest, AnyNumberOfStates) {
  const CurrentDevice current(0);
  for (const int states : {1, 2, 7, 15, 16, 17, 33}) {
    expect_right({.spec = {.head_dim_v = 64, .views = 32}, .states = states, .stacked = true},
                 fmt::format("{} stacked", states));
    expect_right({.spec = {.head_dim_v = 64, .views = 32}, .batch = 2, .states = std::min(states, 32)},
                 fmt::format("{} in a list", states));
  }
}

TEST_F(MergeTest, TypesAndHeadDims) {
  const CurrentDevice current(0);
  constexpr std::array types = {DType::bf16, DType::fp16, DType::fp32};
  // With the largest alignment that dense rows of two bytes an element have.
  constexpr std::array<std::pair<int, int>, 9> head_dims = {
      {{8, 16}, {128, 16}, {1, 2}, {40, 16}, {320, 16}, {1024, 16}, {6, 4}, {72, 8}, {256, 16}}};
  std::size_t next = 0;
  for (const DType in : types) {
    for (const DType out : types) {
      const auto [d, alignment] = head_dims[next++];
      expect_right(
          {.spec = {.dtype = in, .out_dtype = out, .head_dim_v = d, .alignment = alignment}, .tokens = 3},
          fmt::format("{} to {}, head dim {}", to_string(in), to_string(out), d));
    }
  }
}

// The layout of engines: (tokens, heads) lse, heads before tokens in memory, rows apart.
TEST_F(MergeTest, Strides) {
  const CurrentDevice current(0);
  const MergeSpec spec{.dtype = DType::bf16, .head_dim_v = 64};
  expect_right({.spec = spec, .lse_layout = {.order = {1, 0}}}, "lse (tokens, heads)");
  expect_right({.spec = spec, .o_layout = {.order = {1, 0, 2}, .row_elements = 72}}, "o by heads, with gaps");
  expect_right({.spec = spec, .batch = 2, .states = 3, .lse_layout = {.order = {0, 2, 1}}},
               "lse (batch, seqlen, heads)");
  expect_right({.spec = spec,
                .states = 3,
                .stacked = true,
                .o_layout = {.order = {1, 0, 2, 3}},
                .lse_layout = {.order = {2, 1, 0}}},
               "states in the middle");
  expect_right({.spec = {.dtype = DType::bf16, .head_dim_v = 64, .alignment = 2},
                .o_layout = {.row_elements = 65, .first = 1}},
               "rows at odd elements");
}

TEST_F(MergeTest, WithoutRowsOrStates) {
  const CurrentDevice current(0);
  const MergeSpec spec{.head_dim_v = 8};
  for (const int tokens : {0, 4}) {
    MergeRun run({.spec = spec, .tokens = tokens, .states = 0, .stacked = true});
    merge(spec, context())(run.arguments());
    EXPECT_EQ(run.check(), "") << tokens << " tokens, no states";
    MergeArguments none = run.arguments();
    none.parts = {};
    merge(spec, context())(none);
    EXPECT_EQ(run.check(), "") << tokens << " tokens, no parts";
  }
  expect_right({.spec = spec, .tokens = 0}, "no tokens");
}

TEST_F(MergeTest, TheResultMayLieOverAState) {
  const CurrentDevice current(0);
  const MergeSpec spec{.dtype = DType::bf16, .head_dim_v = 64};
  MergeRun run({.spec = spec, .states = 3});
  const Merge kernel = merge(spec, context());
  kernel(run.arguments());
  ASSERT_EQ(run.check(), "");
  MergeArguments in_place = run.arguments();
  in_place.o = in_place.parts[1].o;
  in_place.lse = in_place.parts[1].lse;
  kernel(in_place);
  EXPECT_EQ(run.part_bytes(1), run.result_bytes());
}

// Two kernels for a spec of few lanes, however often and with what sizes it is asked for; another field is another kernel.
TEST_F(MergeTest, TwoKernelsForASpec) {
  const CurrentDevice current(0);
  std::mutex mutex;
  int compiled = 0;
  Settings settings;
  settings.disk_cache = false;
  const Context fresh(settings, [&](const Event& event) {
    const std::lock_guard lock(mutex);
    compiled += event.kind == Event::Kind::compile;
  });
  const MergeSpec spec{.head_dim_v = 16};
  for (const int tokens : {1, 5, 70}) {
    MergeRun run({.spec = spec, .tokens = tokens});
    merge(spec, fresh)(run.arguments());
    EXPECT_EQ(run.check(), "");
  }
  merge(spec, fresh).prepare();
  EXPECT_EQ(compiled, 2);
  EXPECT_THAT(merge(spec, fresh).source(), HasSubstr("head_dim_v = 16"));
  merge({.head_dim_v = 24}, fresh);
  EXPECT_EQ(compiled, 3);
}

// The kernels of few and of many states are compiled when they come, or by prepare, and give the bits of the other one,
// which stands in for them where a stream is captured before.
TEST_F(MergeTest, FewAndManyStatesHaveKernelsOfTheirOwn) {
  const CurrentDevice current(0);
  std::mutex mutex;
  int compiled = 0;
  Settings settings;
  settings.disk_cache = false;
  const auto fresh = [&] {
    compiled = 0;
    return Context(settings, [&](const Event& event) {
      const std::lock_guard lock(mutex);
      compiled += event.kind == Event::Kind::compile;
    });
  };
  const MergeSpec spec{.dtype = DType::bf16, .head_dim_v = 64};
  MergeRun some({.spec = spec, .states = 5, .stacked = true});
  const TestStream stream;
  const Context late = fresh();
  const Merge kernel = merge(spec, late);
  kernel(some.arguments());
  EXPECT_EQ(compiled, 1);
  int expected = 1;
  for (const int states : {2, 16}) {
    MergeRun run({.spec = spec, .tokens = 9, .states = states, .stacked = true});
    const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
    EXPECT_EQ(compiled, expected);
    graph.run(stream);
    EXPECT_EQ(run.check(), "");
    const std::vector<std::uint8_t> bits = run.result_bytes();
    run.poison();
    kernel(run.arguments());
    EXPECT_EQ(compiled, ++expected);
    EXPECT_EQ(run.check(), "");
    EXPECT_EQ(run.result_bytes(), bits);
  }

  const Context early = fresh();
  merge(spec, early).prepare();
  EXPECT_EQ(compiled, 3);
}

TEST_F(MergeTest, OfflineItIsPreparedWithoutFasterKernels) {
  const FreshFolder cache;
  Settings settings;
  settings.cache_dir = cache.path();
  const CurrentDevice current(0);
  const MergeSpec spec{.dtype = DType::bf16, .head_dim_v = 24};
  merge(spec, Context(settings));
  settings.offline = true;
  const Merge kernel = merge(spec, Context(settings));
  kernel.prepare();
  MergeRun run({.spec = spec});  // of few states, which have a kernel of their own where it can be compiled
  kernel(run.arguments());
  EXPECT_EQ(run.check(), "");
}

TEST_F(MergeTest, RefusedArgumentsLaunchNothing) {
  const CurrentDevice current(0);
  const MergeSpec spec{.head_dim_v = 16};
  MergeRun run({.spec = spec});
  run.check();
  const std::vector<std::uint8_t> poison = run.result_bytes();
  MergeArguments arguments = run.arguments();
  arguments.lse.dtype = DType::bf16;
  EXPECT_EQ(error_of([&] { merge(spec, context())(arguments); }).field(), "lse");
  run.check();
  EXPECT_EQ(run.result_bytes(), poison);
  EXPECT_EQ(error_of([] { merge({.head_dim_v = -1}, context()); }).code(), ErrorCode::invalid_spec);
}

TEST_F(MergeTest, EqualInputsGiveEqualBits) {
  const CurrentDevice current(0);
  MergeRun run({.spec = {.dtype = DType::bf16, .views = 8}, .tokens = 9, .states = 7});
  const Merge kernel = merge({.dtype = DType::bf16, .views = 8}, context());
  kernel(run.arguments());
  ASSERT_EQ(run.check(), "");
  const std::vector<std::uint8_t> first = run.result_bytes();
  for (int round = 0; round < 3; ++round) {
    kernel(run.arguments());
    ASSERT_EQ(run.check(), "");
    EXPECT_EQ(run.result_bytes(), first);
  }
}

TEST_F(MergeTest, GraphsReplayOnOtherStates) {
  const CurrentDevice current(0);
  const MergeSpec spec{.dtype = DType::fp16, .out_dtype = DType::fp16, .head_dim_v = 32};
  MergeRun run({.spec = spec});
  const Merge kernel = merge(spec, context());
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
  for (int replay = 0; replay < 3; ++replay) {
    run.fill();
    graph.run(stream);
    EXPECT_EQ(run.check(), "");
  }
}

}  // namespace
}  // namespace jit::testing
