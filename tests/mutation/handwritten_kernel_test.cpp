// A kernel written by hand, on the emulator: right as it stands, and each way of breaking it is noticed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <emulator/tensor_map.h>
#include "emulator/tests/support/ptx_run.h"
#include "runtime/compiler.h"
#include "tests/mutation/line_change.h"
#include "tests/support/attention_exact.h"
#include "tests/support/attention_plain.h"
#include "tests/support/float16.h"
#include "tests/support/fresh_folder.h"

namespace jit::testing::handwritten_kernel {
namespace {

using emulator::FindingKind;
using emulator::TensorMap;

constexpr int head_dim = 128;
constexpr unsigned smem_bytes = 5 * 128 * head_dim * 2 + 128;

std::string read_kernel() {
  return read_text(JIT_ATTENTION_SOURCE_DIR "/tests/mutation/handwritten_kernel.cu");
}

std::string compile_kernel(const std::string& source) {
  return compile_to_ptx(find_nvrtc(""), {.name = "/jit-attention/handwritten_kernel.cu",
                                         .source = source,
                                         .headers = {},
                                         .arch = parse_arch("sm_90a"),
                                         .options = {"-lineinfo"},
                                         .kernel = "handwritten_kernel"})
      .ptx;
}

struct Outcome {
  emulator::LaunchResult result;
  double cpu_seconds = 0;  ///< of the launch
  std::string failure;     ///< of the numbers; empty: right
  std::vector<std::uint16_t> o;

  std::string text() const {
    std::string all;
    for (const emulator::Finding& finding : result.findings) all += to_string(finding) + "\n";
    return all + failure;
  }
  bool has(FindingKind kind) const {
    return std::any_of(result.findings.begin(), result.findings.end(),
                       [&](const emulator::Finding& finding) { return finding.kind == kind; });
  }
};

struct Shape {
  int planes = 1;
  int seqlen_q = 128;
  int seqlen_kv = 300;
};

class HandwrittenKernelTest : public ::testing::Test {
 protected:
  /// (plane, position, column) as (batch 1, heads = planes).
  std::vector<std::uint16_t> random_tensor(int planes, int length) {
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(static_cast<std::size_t>(planes) * static_cast<std::size_t>(length) *
                                      head_dim);
    for (std::uint16_t& value : values) value = reference::from_float(DType::bf16, normal(random_));
    return values;
  }

  std::array<std::byte, 128> map_of(std::uint64_t address, int planes, int length, std::uint32_t rows) {
    TensorMap map;
    map.element = TensorMap::Element::bf16;
    map.rank = 3;
    map.address = address;
    map.dimensions = {head_dim, static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(planes)};
    map.strides = {head_dim * 2, static_cast<std::uint64_t>(length) * head_dim * 2};
    map.box = {64, rows, 1};
    map.swizzle = TensorMap::Swizzle::bytes128;
    EXPECT_EQ(validate(map).value_or(""), "");
    return encode(map);
  }

  Outcome run(const std::string& source, const Shape& shape = {}, emulator::LaunchOptions options = {}) {
    struct alignas(64) Map {
      std::array<std::byte, 128> bytes;
    };
    emulator::testing::TestDevice device({9, 0, 'a'});
    const auto q = random_tensor(shape.planes, shape.seqlen_q),
               k = random_tensor(shape.planes, shape.seqlen_kv),
               v = random_tensor(shape.planes, shape.seqlen_kv);
    const std::uint64_t o = device.upload(std::vector<std::uint16_t>(q.size(), 0xffff));
    const Map maps[] = {{map_of(device.upload(q), shape.planes, shape.seqlen_q, 128)},
                        {map_of(device.upload(k), shape.planes, shape.seqlen_kv, 128)},
                        {map_of(device.upload(v), shape.planes, shape.seqlen_kv, 128)},
                        {map_of(o, shape.planes, shape.seqlen_q, 64)}};
    const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
    const std::string ptx = compile_kernel(source);
    Outcome outcome;
    const std::clock_t begin = std::clock();
    outcome.result = device.run(
        ptx,
        {.grid = {static_cast<unsigned>(shape.seqlen_q + 127) / 128, static_cast<unsigned>(shape.planes), 1},
         .block = {384, 1, 1},
         .dynamic_smem_bytes = smem_bytes},
        options, maps[0], maps[1], maps[2], maps[3], shape.seqlen_kv, scale * 1.44269504f);
    outcome.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    outcome.o = device.download<std::uint16_t>(o, q.size());
    outcome.failure = verdict(shape, q, k, v, outcome.o, scale);
    return outcome;
  }

  static std::string verdict(const Shape& shape, const std::vector<std::uint16_t>& q,
                             const std::vector<std::uint16_t>& k, const std::vector<std::uint16_t>& v,
                             const std::vector<std::uint16_t>& o, float scale) {
    const auto tensor = [&](const std::vector<std::uint16_t>& values, int length) {
      return reference::HostTensor{values.data(), 0, head_dim, static_cast<std::int64_t>(length) * head_dim};
    };
    reference::Problem problem;
    problem.heads_q = shape.planes;
    problem.seqlen_q = shape.seqlen_q;
    problem.seqlen_kv = shape.seqlen_kv;
    problem.head_dim = problem.head_dim_v = head_dim;
    problem.q = tensor(q, shape.seqlen_q);
    problem.k = tensor(k, shape.seqlen_kv);
    problem.v = tensor(v, shape.seqlen_kv);
    problem.softmax_scale = scale;
    const auto rows = reference::all_rows(problem);
    const reference::Output exact = reference::attention_exact(problem, rows);
    const reference::Output plain = reference::attention_plain(problem, rows);
    std::vector<double> actual;
    for (const reference::Row& row : rows) {
      for (int d = 0; d < head_dim; ++d) {
        actual.push_back(reference::to_float(
            DType::bf16, o[static_cast<std::size_t>((row.h * shape.seqlen_q + row.q) * head_dim + d)]));
      }
    }
    const double error = reference::max_error(actual, exact.o);
    const double limit = reference::error_limit(DType::bf16, plain.o, exact.o);
    return error <= limit ? "" : fmt::format("error {:.3g}, allowed {:.3g}", error, limit);
  }

  std::mt19937 random_{20261121};
};

TEST_F(HandwrittenKernelTest, IsRightForEverySeedAndShape) {
  const std::string source = read_kernel();
  for (const Shape& shape : {Shape{1, 128, 128}, Shape{2, 200, 300}, Shape{1, 64, 1}, Shape{1, 128, 640}}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Outcome outcome = run(source, shape, {.seed = seed});
      EXPECT_EQ(outcome.text(), "") << shape.planes << " " << shape.seqlen_q << " " << shape.seqlen_kv;
    }
  }
}

TEST_F(HandwrittenKernelTest, ResultsDoNotDependOnTheSeed) {
  const std::string source = read_kernel();
  const std::vector<std::uint16_t> first = run(source, {1, 128, 500}, {.seed = 1}).o;
  random_.seed(20261121);
  EXPECT_EQ(first, run(source, {1, 128, 500}, {.seed = 2}).o);
}

// The emulator is meant for tests: 128 queries × 128 keys × head_dim 128 within 50 ms of one core.
TEST_F(HandwrittenKernelTest, OneTileStepIsFast) {
  const std::string source = read_kernel();
  const double one = run(source, {1, 128, 128}, {.threads = 1}).cpu_seconds;
  const Outcome many = run(source, {1, 128, 128 * 17}, {.threads = 1});
  const double step_ms = (many.cpu_seconds - one) / 16 * 1e3;
  std::printf("sm_90a tile step 128 x 128 x 128: %.2f ms, %.2f M warp instructions per second\n", step_ms,
              static_cast<double>(many.result.warp_instructions) / many.cpu_seconds * 1e-6);
  RecordProperty("tile_step_ms", fmt::format("{:.2f}", step_ms));
  EXPECT_LT(step_ms, 50);
}

struct Mutation {
  const char* name;  ///< of the anchor in the kernel, or `Anchor_Variant`
  LineChange change;
  std::vector<FindingKind> caught_by;  ///< one of them; none: by the numbers
  int seqlen_kv = 500;
};
std::ostream& operator<<(std::ostream& out, const Mutation& mutation) { return out << mutation.name; }

class HandwrittenKernelMutationTest : public HandwrittenKernelTest,
                                      public ::testing::WithParamInterface<Mutation> {};

TEST_P(HandwrittenKernelMutationTest, IsCaught) {
  const Mutation& mutation = GetParam();
  const std::string kernel = read_kernel();
  const Anchor anchor = anchor_of(mutation.name, anchors_in("handwritten_kernel.cu", kernel));
  const Outcome outcome = run(with_changed_line(kernel, anchor.line, mutation.change),
                              {1, 128, mutation.seqlen_kv}, {.step_limit = 20'000'000});
  const auto& kinds = mutation.caught_by;
  if (kinds.empty()) {
    EXPECT_NE(outcome.failure, "") << "not caught";
  } else {
    EXPECT_TRUE(std::any_of(kinds.begin(), kinds.end(), [&](FindingKind kind) { return outcome.has(kind); }))
        << outcome.text();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, HandwrittenKernelMutationTest,
    ::testing::Values(
        Mutation{"ProducerWaits_ForTheOtherPhase", {" ^ 1", ""}, {FindingKind::deadlock}},
        Mutation{"ProducerWaits_Never",
                 removed,
                 {FindingKind::access_in_flight, FindingKind::data_race, FindingKind::barrier_misuse}},
        Mutation{"ConsumerWaits_ForTheOtherPhase",
                 {"parity", "parity ^ 1"},
                 {FindingKind::access_in_flight, FindingKind::uninitialized_shared_read}},
        Mutation{"ConsumerWaits_Never",
                 removed,
                 {FindingKind::access_in_flight, FindingKind::uninitialized_shared_read}},
        Mutation{"ExpectsBytes_TooFew",
                 {"tile_bytes", "tile_bytes / 2"},
                 {FindingKind::wrong_transaction_count, FindingKind::barrier_misuse,
                  FindingKind::access_in_flight}},
        Mutation{"ExpectsBytes_TooMany",
                 {"tile_bytes", "tile_bytes + 16"},
                 {FindingKind::wrong_transaction_count}},
        Mutation{"ArrivesAtEmpty_Never", removed, {FindingKind::deadlock}},
        Mutation{"ArrivesAtEmpty_ByAllLanes",
                 {"if ($) ", ""},
                 {FindingKind::deadlock, FindingKind::access_in_flight, FindingKind::data_race}},
        Mutation{"NoWgmmaWait", removed, {FindingKind::access_in_flight}},
        Mutation{"NoProxyFence", removed, {FindingKind::missing_proxy_fence}},
        Mutation{"NoNamedBarrier", removed, {FindingKind::data_race, FindingKind::missing_proxy_fence}},
        Mutation{"NoStoreWait", removed, {FindingKind::unfinished_copy}},
        Mutation{"NoBarrierAfterInit", removed, {FindingKind::data_race, FindingKind::barrier_misuse}},
        Mutation{"MaskOffByOne", {"<", "<="}, {}, 3}, Mutation{"DescriptorOfTheWrongStep", {"2 * ", ""}, {}},
        Mutation{"SwizzleOnOneSide", {"((($) ^ (row % 8))", "($"}, {}}),
    [](const ::testing::TestParamInfo<Mutation>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace jit::testing::handwritten_kernel
