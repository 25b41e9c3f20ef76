// Values of 8 bits that lie along the sequence, of sequences that differ in length: arrays of lengths, ragged rows and
// pages. Behind each end, between sequences and in pages of nobody lies poison, against double precision.
#include <jit/attention.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/driver_api.h"
#include "tests/device/fp8_case.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/request_rows.h"

namespace jit::testing {
namespace {

class AlongLengthsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "v along the sequence needs sm_90a";
  }
  static KernelConfig config_of(const std::string& text) {
    return parse_config("family=forward_wgmma " + text);
  }
  // Of so many keys in each sequence, and as many queries as `queries` says.
  static AttentionCase along_case(SequenceKind keys, const std::vector<int>& used_keys, int queries) {
    const int longest = *std::max_element(used_keys.begin(), used_keys.end());
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, queries, longest);
    problem.batch = static_cast<int>(used_keys.size());
    problem.used_keys = used_keys;
    problem.spec.sequences_kv = keys;
    problem.spec.v_along_sequence = true;
    return problem;
  }
  static AttentionCase paged_case(int page_size, const std::vector<int>& used_keys, int queries) {
    AttentionCase problem = along_case(SequenceKind::paged, used_keys, queries);
    problem.spec.page_size = page_size;
    return problem;
  }
  // The same with ragged queries, of which a sequence may have none.
  static AttentionCase with_ragged_queries(AttentionCase problem, const std::vector<int>& used) {
    problem.spec.sequences_q = SequenceKind::ragged;
    problem.used_queries = used;
    problem.seqlen_q = *std::max_element(used.begin(), used.end());
    return problem;
  }
};

constexpr const char* one_panel = "tile_q=64 tile_kv=32 stages_q=2 stages_v=2 output=separate";
constexpr const char* two_panels =
    "tile_q=128 tile_kv=64 stages_q=2 stages_v=2 output=separate order=ping_pong";
constexpr const char* wide_tiles = "tile_q=64 tile_kv=192 stages_v=2 output=direct";

// Sequences end at every rest by 16, in each panel of a tile.
TEST_F(AlongLengthsTest, EndsAnywhere) {
  std::vector<int> ends;
  for (int end = 0; end < 35; ++end) ends.push_back(end);
  AttentionCase short_ones = along_case(SequenceKind::dense, ends, 3);
  short_ones.heads_kv = 1;
  AttentionCase long_ones = along_case(SequenceKind::dense, {63, 64, 65, 100, 127, 190, 200}, 20);
  expect_all_right({{short_ones, config_of(one_panel)}, {long_ones, config_of(wide_tiles)}});
}

TEST_F(AlongLengthsTest, LengthsOnTheDevice) {
  std::vector<KernelCase> cases;
  const auto add = [&](AttentionCase problem, const char* config) {
    cases.push_back({problem, config_of(config)});
  };
  AttentionCase problem = along_case(SequenceKind::dense, {70, 0, 33}, 150);
  problem.spec.mask = mask::causal();
  problem.spec.gqa_ratio = 3;
  problem.used_queries = {150, 5, 90};
  add(problem, two_panels);
  problem.layout = Layout::padded;
  problem.spec.head_dim_v = 48;
  problem.spec.mask = mask::sliding_window(40, 0);
  add(problem, one_panel);
  problem.spec.score = score::softcap(3);
  problem.spec.out_dtype = DType::fp32;
  problem.layout = Layout::bhsd;
  add(problem, "tile_q=128 tile_kv=96 stages_v=2 output=direct");
  problem.spec.mask = mask::document();
  problem.spec.sinks = true;
  problem.spec.score = {};
  problem.spec.out_dtype = {};
  add(problem, wide_tiles);
  cases.push_back({problem, {}});
  expect_some_right(cases, 2);
}

// Each begins at a multiple of 16 and is followed by rows of nobody; where boundaries say it all there is no seqused_k.
TEST_F(AlongLengthsTest, RaggedSequences) {
  std::vector<KernelCase> cases;
  const auto add = [&](AttentionCase problem, const char* config) {
    cases.push_back({problem, config_of(config)});
  };
  AttentionCase problem = along_case(SequenceKind::ragged, {70, 1, 0, 33, 129}, 20);
  add(with_ragged_queries(problem, {90, 3, 5, 33, 0}), two_panels);
  add(along_case(SequenceKind::ragged, {32, 96, 0, 16, 77}, 20), wide_tiles);
  problem.spec.mask = mask::causal();
  problem.spec.gqa_ratio = 2;
  problem.spare_rows = 5;
  add(problem, one_panel);
  problem.spec.head_dim_v = 40;
  problem.layout = Layout::padded;
  add(with_ragged_queries(problem, {70, 1, 2, 33, 129}), wide_tiles);
  problem.spec.score = score::alibi();
  add(problem, "tile_q=192 tile_kv=96 stages_v=2 output=separate order=ping_pong");
  cases.push_back({with_ragged_queries(problem, {70, 1, 2, 33, 129}), {}});
  expect_some_right(cases, 2);
}

// What a call is told of keys of which the second sequence begins where TMA cannot: it counts as one without keys.
class UnalignedBegin {
 public:
  explicit UnalignedBegin(const AttentionCase& problem)
      : boundaries_(0, 4 * sizeof(int)), used_(0, 3 * sizeof(int)) {
    const std::vector<int> places =
        RequestRows::ragged(problem.seqlen_kv, problem.used_keys, problem.spare_rows, 16).boundaries;
    begin = places[1] + 8;
    const int boundaries[] = {places[0], begin, places[2], places[3]};
    const int used[] = {problem.used_keys[0], 20, problem.used_keys[2]};
    boundaries_.upload(boundaries, sizeof boundaries);
    used_.upload(used, sizeof used);
  }
  AttentionArguments in(AttentionArguments arguments) const {
    arguments.cu_seqlens_k = TensorView::dense(boundaries_.data(), DType::int32, {4});
    arguments.seqused_k = TensorView::dense(used_.data(), DType::int32, {3});
    return arguments;
  }
  int begin = 0;

 private:
  DeviceBuffer boundaries_, used_;
};

TEST_F(AlongLengthsTest, SequencesThatBeginElsewhereHaveNoKeys) {
  using ::testing::HasSubstr;
  const CurrentDevice current(0);
  for (const bool ragged_queries : {false, true}) {
    AttentionCase problem = along_case(SequenceKind::ragged, {70, 0, 33}, 20);
    if (ragged_queries) problem = with_ragged_queries(problem, {9, 20, 70});
    problem.spare_rows = 40;
    problem.spec.gqa_ratio = 2;
    if (ragged_queries) problem.spec.mask = mask::causal();
    const UnalignedBegin keys(problem);
    for (const bool is_checked : {false, true}) {
      problem.spec.checked = is_checked;
      const KernelConfig config = config_of(ragged_queries ? two_panels : one_panel);
      const Attention kernel = attention(problem.spec, config, context());
      AttentionRun run(problem);
      run.poison_outputs();
      if (is_checked) {
        const Error error = error_of([&] { kernel(keys.in(run.arguments())); });
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_EQ(error.field(), "cu_seqlens_k");
        EXPECT_THAT(error.message(),
                    HasSubstr(fmt::format("element [1], of request 1, is {}; ", keys.begin)));
        EXPECT_THAT(error.message(), HasSubstr("begin each sequence that has keys at a multiple of 16"));
      } else {
        kernel(keys.in(run.arguments()));
      }
      synchronize();
      EXPECT_EQ(run.check().failure, "") << to_string(problem);
      run.poison_outputs();
      kernel(run.arguments());  // of one that is none any more
      synchronize();
      EXPECT_EQ(run.check().failure, "");
    }
  }
}

// Of dense sequences, padding on the left does so.
TEST_F(AlongLengthsTest, PaddingThatIsNoMultipleHidesAllKeys) {
  using ::testing::HasSubstr;
  const CurrentDevice current(0);
  AttentionCase problem = along_case(SequenceKind::dense, {70, 0, 33}, 20);
  const std::vector<int> pads = {0, 24, 0}, used = {70, 60, 33};
  const DeviceBuffer pad_array(0, 3 * sizeof(int)), used_array(0, 3 * sizeof(int));
  pad_array.upload(pads.data(), 3 * sizeof(int));
  used_array.upload(used.data(), 3 * sizeof(int));
  for (const bool is_checked : {false, true}) {
    problem.spec.checked = is_checked;
    const Attention kernel = attention(problem.spec, config_of(one_panel), context());
    AttentionRun run(problem);
    run.poison_outputs();
    AttentionArguments arguments = run.arguments();
    arguments.cache_leftpad = TensorView::dense(pad_array.data(), DType::int32, {3});
    arguments.seqused_k = TensorView::dense(used_array.data(), DType::int32, {3});
    if (is_checked) {
      const Error error = error_of([&] { kernel(arguments); });
      EXPECT_EQ(error.field(), "cache_leftpad");
      EXPECT_THAT(error.message(), HasSubstr("element [1], of request 1, is 24; "));
      EXPECT_THAT(error.message(), HasSubstr("pad to multiples of 16"));
    } else {
      kernel(arguments);
    }
    synchronize();
    EXPECT_EQ(run.check().failure, "") << is_checked;
  }
}

TEST_F(AlongLengthsTest, Pages) {
  std::vector<KernelCase> cases;
  const auto add = [&](AttentionCase problem, const char* config) {
    cases.push_back({problem, config_of(config)});
  };
  add(paged_case(32, {70, 0, 129}, 20), one_panel);
  AttentionCase problem = paged_case(32, {70, 1, 33, 200}, 90);
  problem.spec.mask = mask::causal();
  problem.spec.gqa_ratio = 2;
  add(problem, two_panels);  // values have a loader of their own
  problem.spec.page_size = 64;
  problem.layout = Layout::padded;
  problem.spec.head_dim_v = 48;
  add(problem, wide_tiles);
  add(with_ragged_queries(problem, {70, 1, 2, 200}), "tile_q=128 tile_kv=160 stages_v=2 output=direct");
  problem.spec.page_size = 96;
  problem.spec.mask = mask::sliding_window(40, 0);
  add(problem, "tile_q=128 tile_kv=96 stages_v=2 output=separate");
  problem.spec.page_size = 256;
  problem.spec.checked = true;
  add(problem, "tile_q=128 tile_kv=128 stages_q=2 stages_v=2 output=separate order=ping_pong");
  cases.push_back({problem, {}});
  expect_some_right(cases, 2);
}

// What values have lost, and scales of rows as they lie: of a batch entry, of ragged rows, of pages.
TEST_F(AlongLengthsTest, ScalesAndMeans) {
  std::vector<KernelCase> cases;
  for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token, ScaleKind::block}) {
    for (const SequenceKind keys : {SequenceKind::dense, SequenceKind::ragged, SequenceKind::paged}) {
      AttentionCase problem = along_case(keys, {70, 5, 129}, 40);
      AttentionSpec& spec = problem.spec;
      if (keys == SequenceKind::paged) spec.page_size = 64;
      spec.descale_per = kind;
      spec.v_mean = kind != ScaleKind::token;
      spec.gqa_ratio = 2;
      if (spec.v_mean) spec.v_descale_per = ScaleKind::channel;
      cases.push_back({problem, config_of(two_panels)});
    }
  }
  expect_some_right(cases, 3);
}

// Kinds of sequences, lengths, head dims, masks and tiles as they come.
TEST_F(AlongLengthsTest, RandomProblems) {
  std::vector<KernelCase> cases;
  std::mt19937_64 random(reference::test_seed());
  const auto any = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
  while (cases.size() < 24) {
    constexpr SequenceKind kinds[] = {SequenceKind::dense, SequenceKind::ragged, SequenceKind::paged};
    std::vector<int> keys, queries;
    for (int b = any(3); b >= 0; --b) {
      keys.push_back(any(300) / (1 + any(3)));
      queries.push_back(any(150) / (1 + any(3)));
    }
    AttentionCase problem = along_case(kinds[any(2)], keys, 1);
    AttentionSpec& spec = problem.spec;
    spec.dtype = any(1) == 0 ? DType::fp8_e4m3 : DType::fp8_e5m2;
    problem.used_queries = queries;
    problem.seqlen_q = *std::max_element(queries.begin(), queries.end());
    if (any(1) == 0) spec.sequences_q = SequenceKind::ragged;
    if (spec.sequences_kv == SequenceKind::paged) spec.page_size = 32 * (1 + any(5));
    problem.spare_rows = any(20);
    problem.layout = any(1) == 0 ? Layout::bshd : Layout::padded;
    problem.heads_kv = 1 + any(1);
    spec.gqa_ratio = 1 + any(2);
    spec.head_dim = 16 * (1 + any(4));
    spec.head_dim_v = 8 * (1 + any(9));
    const Mask masks[] = {mask::none(), mask::causal(), mask::sliding_window(50, 3),
                          mask::causal() || mask::prefix(7)};
    spec.mask = masks[any(3)];
    const int tile_q = 64 * (1 + any(1)), tile_kv = 32 * (1 + any(5));
    cases.push_back({problem, config_of(fmt::format("tile_q={} tile_kv={} stages_v=2 output=separate", tile_q,
                                                    tile_kv))});
  }
  expect_some_right(cases, 4);
}

TEST_F(AlongLengthsTest, PagesWithLeftPaddingAreRefused) {
  using ::testing::HasSubstr;
  const CurrentDevice current(0);
  const AttentionCase problem = paged_case(32, {70, 33}, 20);
  const AttentionRun run(problem);
  AttentionArguments arguments = run.arguments();
  const DeviceBuffer pads(0, 2 * sizeof(int));
  arguments.cache_leftpad = TensorView::dense(pads.data(), DType::int32, {2});
  const Error error = error_of([&] { attention_when_called(problem.spec, context())(arguments); });
  EXPECT_THAT(error.message(), HasSubstr("cache_leftpad: was given beside pages"));
  EXPECT_THAT(error.message(), HasSubstr("give v with a row for each key"));
}

}  // namespace
}  // namespace jit::testing
