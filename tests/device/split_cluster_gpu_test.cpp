// Requests of many lengths by forward_split_cluster: dense, varlen and in pages, each against double precision. Rows
// that are no query's must stay as they were, and what lies behind the keys of a request is not a number.
#include <jit/attention.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/device_tensor.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

/// A batch of requests. Mask and score are at most a window over the keys up to the query's own, and a soft cap.
struct Requests {
  const char* label;
  std::vector<int> queries;  ///< in use
  std::vector<int> keys;     ///< in use, behind the padding
  std::vector<int> pads = {};
  SequenceKind kind_q = SequenceKind::dense;
  SequenceKind kind_kv = SequenceKind::dense;
  int page_size = 0;
  int heads_kv = 2;
  int gqa_ratio = 4;
  int head_dim = 64;
  int head_dim_v = 64;
  bool causal = false;
  int window = 0;  ///< keys to the left; 0: all
  bool sinks = false;
  bool softcap = false;
  bool zero_padding = false;
  int rows_before = 0;  ///< of varlen rows, those in front of the first sequence

  std::size_t batch() const { return queries.size(); }
  int pad(std::size_t b) const { return pads.empty() ? 0 : pads[b]; }
  int most_queries() const { return *std::max_element(queries.begin(), queries.end()) + 1; }
  int most_keys() const {
    int most = 0;
    for (std::size_t b = 0; b < batch(); ++b) most = std::max(most, keys[b] + pad(b));
    return most + 5;
  }
  AttentionSpec spec() const {
    AttentionSpec spec{.head_dim = head_dim, .head_dim_v = head_dim_v, .gqa_ratio = gqa_ratio};
    spec.sequences_q = kind_q;
    spec.sequences_kv = kind_kv;
    spec.page_size = page_size;
    spec.sinks = sinks;
    if (window != 0) {
      spec.mask = mask::sliding_window(window, 0);
    } else if (causal) {
      spec.mask = mask::causal();
    }
    if (softcap) spec.score = score::softcap(cap);
    return spec;
  }
  static constexpr float cap = 2;
};

constexpr double sink_of_head(std::int64_t head) { return 0.5 * static_cast<double>(head) - 1; }

DeviceTensor integers(const std::vector<int>& values) {
  DeviceTensor tensor(DType::int32, {static_cast<std::int64_t>(values.size())});
  tensor.fill([&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  tensor.upload();
  return tensor;
}

/// The tensors of a call, and what must come out.
class Call {
 public:
  explicit Call(const Requests& requests)
      : r_(requests),
        random_(static_cast<unsigned>(reference::test_seed())),
        begins_q_(begins(r_.queries)),
        begins_k_(begins(r_.keys)),
        q_(DType::bf16, rows_q(r_.head_dim)),
        k_(DType::bf16, rows_kv(r_.head_dim)),
        v_(DType::bf16, rows_kv(r_.head_dim_v)),
        o_(DType::bf16, rows_q(r_.head_dim_v)),
        lse_(DType::fp32, r_.kind_q == SequenceKind::varlen
                              ? std::vector<std::int64_t>{heads_q(), begins_q_.back()}
                              : std::vector<std::int64_t>{batch(), heads_q(), r_.most_queries()}),
        used_q_(integers(r_.queries)),
        used_k_(integers(totals())),
        pads_(integers(r_.pads.empty() ? std::vector<int>(r_.batch(), 0) : r_.pads)),
        cu_q_(integers(begins_q_)),
        cu_k_(integers(begins_k_)),
        table_(DType::int32, {batch(), pages_of_request()}),
        sinks_(DType::fp32, {heads_q()}) {
    std::vector<int> pages(static_cast<std::size_t>(batch() * pages_of_request()));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random_);
    table_.fill([&](std::int64_t i) { return pages[static_cast<std::size_t>(i)]; });
    sinks_.fill(sink_of_head);
    for (std::size_t b = 0; b < r_.batch(); ++b) {
      for (int row = 0; row < r_.queries[b]; ++row) {
        for (std::int64_t h = 0; h < heads_q(); ++h) set_row(q_, at_q(b, row), h, r_.head_dim);
      }
      for (int key = 0; key < r_.keys[b]; ++key) {
        for (int h = 0; h < r_.heads_kv; ++h) {
          set_row(k_, at_kv(b, key), h, r_.head_dim);
          set_row(v_, at_kv(b, key), h, r_.head_dim_v);
        }
      }
    }
    for (const DeviceTensor* tensor : {&q_, &k_, &v_, &table_, &sinks_}) tensor->upload();
  }

  AttentionArguments arguments() const {
    AttentionArguments a{.q = q_.view(), .k = k_.view(), .v = v_.view(), .o = o_.view(), .lse = lse_.view()};
    a.zero_padding = r_.zero_padding;
    if (r_.kind_q == SequenceKind::varlen) a.cu_seqlens_q = cu_q_.view();
    a.seqused_q = used_q_.view();
    a.seqused_k = used_k_.view();
    if (r_.kind_kv == SequenceKind::varlen) a.cu_seqlens_k = cu_k_.view();
    if (r_.kind_kv == SequenceKind::paged) a.page_table = table_.view();
    if (!r_.pads.empty()) a.cache_leftpad = pads_.view();
    if (r_.sinks) a.sinks = sinks_.view();
    return a;
  }

  void poison() {
    for (DeviceTensor* tensor : {&o_, &lse_}) {
      tensor->poison();
      tensor->upload();
    }
  }
  /// All of o and LSE, as they are now.
  std::vector<std::uint8_t> outputs() {
    std::vector<std::uint8_t> all;
    for (DeviceTensor* tensor : {&o_, &lse_}) {
      tensor->download();
      all.insert(all.end(), tensor->bytes().begin(), tensor->bytes().end());
    }
    return all;
  }
  /// Looks at what `outputs` has brought.
  void check() {
    std::vector<char> is_query(static_cast<std::size_t>(o_.count() / (heads_q() * r_.head_dim_v)), 0);
    for (std::size_t b = 0; b < r_.batch(); ++b) {
      for (int row = 0; row < r_.queries[b]; ++row) {
        is_query[flat_row(b, row)] = 1;
        for (std::int64_t h = 0; h < heads_q(); ++h) check_row(b, row, h);
      }
    }
    const std::int64_t row_elements = heads_q() * r_.head_dim_v;
    for (std::int64_t i = 0; i < o_.count(); ++i) {
      if (is_query[static_cast<std::size_t>(i / row_elements)] != 0) continue;
      const double value = o_.get(o_.index(i));
      ASSERT_TRUE(r_.zero_padding ? value == 0 : std::isnan(value)) << "a row that is no query's: " << value;
    }
  }

 private:
  std::int64_t batch() const { return static_cast<std::int64_t>(r_.batch()); }
  std::int64_t heads_q() const { return std::int64_t{r_.heads_kv} * r_.gqa_ratio; }
  std::int64_t pages_of_request() const {
    const int size = std::max(1, r_.page_size);
    return (r_.most_keys() + size - 1) / size;
  }
  // The first rows of varlen sequences, with unused rows before the first one and behind each.
  std::vector<int> begins(const std::vector<int>& lengths) const {
    std::vector<int> begins = {r_.rows_before};
    for (std::size_t b = 0; b < lengths.size(); ++b)
      begins.push_back(begins.back() + lengths[b] + (&lengths == &r_.keys ? r_.pad(b) : 0) + 2);
    return begins;
  }
  std::vector<int> totals() const {
    std::vector<int> totals;
    for (std::size_t b = 0; b < r_.batch(); ++b) totals.push_back(r_.keys[b] + r_.pad(b));
    return totals;
  }
  std::vector<std::int64_t> rows_q(int columns) const {
    if (r_.kind_q == SequenceKind::varlen) return {begins_q_.back(), heads_q(), columns};
    return {batch(), r_.most_queries(), heads_q(), columns};
  }
  std::vector<std::int64_t> rows_kv(int columns) const {
    if (r_.kind_kv == SequenceKind::varlen) return {begins_k_.back(), r_.heads_kv, columns};
    if (r_.kind_kv == SequenceKind::paged)
      return {batch() * pages_of_request(), r_.page_size, r_.heads_kv, columns};
    return {batch(), r_.most_keys(), r_.heads_kv, columns};
  }
  std::vector<std::int64_t> at_q(std::size_t b, int row) const {
    if (r_.kind_q == SequenceKind::varlen) return {begins_q_[b] + row};
    return {static_cast<std::int64_t>(b), row};
  }
  std::size_t flat_row(std::size_t b, int row) const {
    return r_.kind_q == SequenceKind::varlen
               ? static_cast<std::size_t>(begins_q_[b] + row)
               : b * static_cast<std::size_t>(r_.most_queries()) + static_cast<std::size_t>(row);
  }
  std::vector<std::int64_t> at_kv(std::size_t b, int key) const {
    const int row = key + r_.pad(b);
    if (r_.kind_kv == SequenceKind::varlen) return {begins_k_[b] + row};
    if (r_.kind_kv == SequenceKind::dense) return {static_cast<std::int64_t>(b), row};
    return {static_cast<std::int64_t>(table_.get({static_cast<std::int64_t>(b), row / r_.page_size})),
            row % r_.page_size};
  }
  static std::vector<std::int64_t> element(std::vector<std::int64_t> row, std::int64_t head, int column) {
    row.push_back(head);
    row.push_back(column);
    return row;
  }
  void set_row(DeviceTensor& tensor, const std::vector<std::int64_t>& row, std::int64_t head, int columns) {
    std::uniform_real_distribution<double> number(-1, 1);
    for (int d = 0; d < columns; ++d) tensor.set(element(row, head, d), number(random_));
  }

  void check_row(std::size_t b, int row, std::int64_t h) {
    const std::int64_t kv_head = h / r_.gqa_ratio;
    const int own = row + r_.keys[b] - r_.queries[b];
    std::vector<double> scores(static_cast<std::size_t>(r_.keys[b]), -INFINITY);
    double max = r_.sinks ? sink_of_head(h) : -INFINITY;
    for (int key = 0; key < r_.keys[b]; ++key) {
      if ((r_.causal || r_.window != 0) && key > own) continue;
      if (r_.window != 0 && key < own - r_.window) continue;
      double dot = 0;
      for (int d = 0; d < r_.head_dim; ++d)
        dot += q_.get(element(at_q(b, row), h, d)) * k_.get(element(at_kv(b, key), kv_head, d));
      dot /= std::sqrt(r_.head_dim);
      if (r_.softcap) dot = Requests::cap * std::tanh(dot / Requests::cap);
      scores[static_cast<std::size_t>(key)] = dot;
      max = std::max(max, dot);
    }
    double sum = r_.sinks ? std::exp(sink_of_head(h) - max) : 0;
    for (const double score : scores) sum += std::isinf(score) ? 0 : std::exp(score - max);
    const auto at = [&](const DeviceTensor& lse) {
      return r_.kind_q == SequenceKind::varlen ? lse.get({h, begins_q_[b] + row})
                                               : lse.get({static_cast<std::int64_t>(b), h, row});
    };
    const std::string where = fmt::format("request {} query {} head {}", b, row, h);
    if (sum == 0) {
      ASSERT_EQ(at(lse_), -INFINITY) << where;
    } else {
      ASSERT_NEAR(at(lse_), max + std::log(sum), 1e-3) << where;
    }
    for (int d = 0; d < r_.head_dim_v; ++d) {
      double expected = 0;
      for (int key = 0; key < r_.keys[b]; ++key) {
        const double score = scores[static_cast<std::size_t>(key)];
        if (!std::isinf(score))
          expected += std::exp(score - max) / sum * v_.get(element(at_kv(b, key), kv_head, d));
      }
      ASSERT_NEAR(o_.get(element(at_q(b, row), h, d)), expected, 0.01) << where << " column " << d;
    }
  }

  const Requests& r_;
  std::mt19937 random_;
  std::vector<int> begins_q_, begins_k_;
  DeviceTensor q_, k_, v_, o_, lse_;
  DeviceTensor used_q_, used_k_, pads_, cu_q_, cu_k_, table_, sinks_;
};

const std::vector<Requests>& all_requests() {
  constexpr SequenceKind varlen = SequenceKind::varlen, paged = SequenceKind::paged;
  static const std::vector<Requests> all = {
      {.label = "DenseOfAllLengths", .queries = {1, 1, 1, 1, 1}, .keys = {0, 1, 17, 1023, 300}},
      {.label = "OneHead", .queries = {1, 1}, .keys = {500, 33}, .gqa_ratio = 1, .head_dim_v = 128},
      {.label = "SevenHeadsAndSinks",
       .queries = {1, 2},
       .keys = {130, 0},
       .gqa_ratio = 7,
       .head_dim = 128,
       .head_dim_v = 128,
       .sinks = true},
      {.label = "PagesOfSixteen",
       .queries = {1, 1, 1},
       .keys = {1023, 17, 0},
       .kind_kv = paged,
       .page_size = 16,
       .gqa_ratio = 8,
       .head_dim = 128,
       .head_dim_v = 128},
      {.label = "PagesOfOneRow",
       .queries = {1, 1},
       .keys = {700, 40},
       .kind_kv = paged,
       .page_size = 1,
       .head_dim_v = 96,  // so that rows of values lie apart in another way than those of keys
       .softcap = true},
      {.label = "PagesBehindPadding",
       .queries = {1, 3},
       .keys = {200, 90},
       .pads = {5, 77},
       .kind_kv = paged,
       .page_size = 64,
       .causal = true},
      {.label = "LargeHeadDim",
       .queries = {2},
       .keys = {150},
       .kind_kv = paged,
       .page_size = 24,
       .heads_kv = 1,
       .head_dim = 256,
       .head_dim_v = 256},
      {.label = "VarlenInVarlen",
       .queries = {1, 0, 5, 9, 1},
       .keys = {64, 20, 5, 300, 0},
       .kind_q = varlen,
       .kind_kv = varlen,
       .causal = true},
      {.label = "VarlenOverPages",
       .queries = {1, 1, 0, 4, 1},
       .keys = {257, 1, 50, 129, 31},
       .kind_q = varlen,
       .kind_kv = paged,
       .page_size = 16,
       .sinks = true,
       .zero_padding = true},
      {.label = "VarlenBehindRowsOfNobody",  // several tiles of them
       .queries = {3, 1, 20},
       .keys = {64, 20, 150},
       .kind_q = varlen,
       .kind_kv = varlen,
       .causal = true,
       .rows_before = 21},
      {.label = "Windows",
       .queries = {6, 2},
       .keys = {400, 31},
       .kind_kv = paged,
       .page_size = 16,
       .window = 50},
      {.label = "ManyClusters",
       .queries = std::vector<int>(20, 1),
       .keys = {1, 40, 80, 120, 160, 3, 5, 7, 9, 11, 300, 2, 4, 6, 8, 10, 12, 14, 16, 0},
       .heads_kv = 4,
       .gqa_ratio = 2},
      {.label = "MorePagesThanAWarpLooksUpAtOnce",
       .queries = {1, 1},
       .keys = {9000, 100},
       .pads = {48, 16},
       .kind_kv = paged,
       .page_size = 32,
       .heads_kv = 1}};
  return all;
}

class SplitClusterTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "needs sm_90a";
  }
};

TEST_F(SplitClusterTest, RequestsOfAllLengths) {
  const CurrentDevice current(0);
  const std::vector<const char*> configs = {
      "cluster=8 block_warps=2 tile_kv=16 stages=2", "cluster=16 block_warps=4 tile_kv=16 stages=2",
      "cluster=4 block_warps=2 tile_kv=32 stages=3", "cluster=2 block_warps=8 tile_kv=16 stages=2"};
  const TestStream stream;
  int index = 0;
  for (const Requests& requests : all_requests()) {
    const char* const text = configs[static_cast<std::size_t>(index) % configs.size()];
    if (!is_in_this_run(index++, 4)) continue;
    SCOPED_TRACE(requests.label);
    Call call(requests);
    const Attention kernel = attention(
        requests.spec(), parse_config(fmt::format("family=forward_split_cluster {}", text)), context());
    std::vector<std::uint8_t> first;
    for (int launch = 0; launch < sized(50, 2); ++launch) {
      call.poison();
      kernel(call.arguments(), stream.get());
      stream.synchronize();
      const std::vector<std::uint8_t> now = call.outputs();
      if (launch == 0) {
        call.check();
        first = now;
      }
      ASSERT_EQ(now, first) << "launch " << launch;
    }
  }
}

// Keys and values of 8 bits with a scale for each head, under queries of 16 bits and of 8.
TEST_F(SplitClusterTest, KeysOfEightBits) {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp8_e4m3}) {
    AttentionCase problem{.batch = 2, .heads_kv = 2, .seqlen_q = 3, .seqlen_kv = 170};
    problem.spec.dtype = dtype;
    problem.spec.head_dim = 64;
    problem.spec.gqa_ratio = 3;
    if (dtype != DType::fp8_e4m3) problem.spec.kv_dtype = DType::fp8_e4m3;
    problem.seed = reference::test_seed();
    cases.push_back(
        {problem, parse_config("family=forward_split_cluster cluster=4 block_warps=2 tile_kv=32 stages=2")});
  }
  expect_all_right(cases);
}

}  // namespace
}  // namespace jit::testing
