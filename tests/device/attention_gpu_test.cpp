// Attention on a device against fp64 on the CPU: head dims, heads, lengths, layouts, masks, scores, configs.
#include <jit/attention.h>
#include <jit/device_buffer.h>

#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/attention_exact.h"
#include "tests/support/attention_plain.h"
#include "tests/support/float16.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

AttentionSpec spec_of(int head_dim, int head_dim_v = 0, DType dtype = DType::bf16) {
  return {.dtype = dtype, .head_dim = head_dim, .head_dim_v = head_dim_v};
}

class AttentionTest : public GpuTest {};

TEST_F(AttentionTest, HeadDims) {
  std::vector<AttentionSpec> specs;
  int index = 0;
  for (const int head_dim : {8, 16, 24, 32, 40, 64, 72, 80, 96, 104, 128, 136, 160, 192, 200, 224, 256}) {
    // Two of five, in one type or the other, on an emulated device.
    if (is_in_this_run(index++, 7)) specs.push_back(spec_of(head_dim));
    if (is_in_this_run(index++, 7)) specs.push_back(spec_of(head_dim, 0, DType::fp16));
  }
  for (const auto& [d, dv] :
       {std::pair(192, 128), {128, 192}, {64, 256}, {256, 64}, {8, 256}, {256, 8}, {40, 72}}) {
    if (is_in_this_run(index++, 7)) specs.push_back(spec_of(d, dv));
  }
  std::vector<KernelCase> cases;
  for (const AttentionSpec& spec : specs)
    cases.push_back({problem_of(spec, sized(2, 1), 2, sized(193, 67), sized(211, 83))});
  expect_all_right(cases);
}

TEST_F(AttentionTest, QueryHeadsShareKvHeads) {
  std::vector<KernelCase> cases;
  int index = 0;
  for (const int ratio : {2, 3, 8, 16}) {
    AttentionSpec spec = spec_of(64);
    spec.gqa_ratio = ratio;
    spec.mask = mask::causal();
    for (const int heads_kv : {1, 3}) {
      if (is_in_this_run(index++, 2)) cases.push_back({problem_of(spec, 2, heads_kv, 65, 130)});
    }
    ++index;  // the other number of heads with the next ratio
  }
  expect_all_right(cases);
}

TEST_F(AttentionTest, EveryLength) {
  std::vector<KernelCase> cases;
  int index = 0;
  for (const Mask& mask : {mask::none(), mask::causal(), mask::causal(Alignment::top_left)}) {
    AttentionSpec spec = spec_of(64);
    spec.mask = mask;
    for (const int seqlen_q : {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 300}) {
      for (const int seqlen_kv : {0, 1, 7, 31, 32, 33, 64, 65, 127, 128, 257}) {
        if (!is_in_this_run(index++, 14)) continue;
        cases.push_back({problem_of(spec, 1, 2, seqlen_q, seqlen_kv)});
      }
    }
    cases.push_back({problem_of(spec, 1, 1, 1, 5000)});
    cases.push_back({problem_of(spec, 1, 1, 2500, 3)});
  }
  expect_all_right(cases);
}

// More batch entries than a grid has blocks along z.
TEST_F(AttentionTest, BatchesBeyondOneGrid) {
  AttentionSpec spec = spec_of(8);
  spec.mask = mask::prefix_lengths();
  expect_right(problem_of(spec, 70000, 1, 2, 5), parse_config("tile_q=16 warps=1 tile_kv=16"));
}

// More tiles of queries than a grid has blocks along y.
TEST_F(AttentionTest, QueriesBeyondOneGrid) {
  AttentionSpec spec = spec_of(8);
  spec.mask = mask::causal(Alignment::top_left);
  expect_right(problem_of(spec, 1, 1, 1'100'000, 40), parse_config("tile_q=16 warps=1 tile_kv=16"));
}

TEST_F(AttentionTest, NothingToComputeTouchesNothing) {
  for (const auto& [batch, heads, seqlen_q] : {std::tuple(0, 2, 16), {2, 0, 16}, {2, 2, 0}}) {
    const AttentionRun run(problem_of(spec_of(64), batch, heads, seqlen_q, 64));
    attention(spec_of(64), {}, context())(run.arguments());
    EXPECT_TRUE(run.untouched());
  }
}

TEST_F(AttentionTest, BakedLengths) {
  AttentionSpec spec = spec_of(64);
  spec.mask = mask::causal();
  spec.seqlen_q = 100;
  spec.seqlen_kv = 333;
  expect_right(problem_of(spec, 2, 2, 100, 333));
}

TEST_F(AttentionTest, LayoutsAndAlignments) {
  std::vector<KernelCase> cases;
  int index = 0;
  for (const int head_dim : {40, 64, 128}) {
    for (const int alignment : {16, 8, 4, 2}) {
      // Each head dim and each alignment is in every run, and all layouts, which share kernels.
      if (!is_in_this_run(index++, 3)) continue;
      AttentionSpec spec = spec_of(head_dim, head_dim == 40 ? 24 : 0);
      spec.alignment = alignment;
      spec.gqa_ratio = 2;
      spec.mask = mask::causal();
      for (int layout = 0; layout < layout_count; ++layout) {
        const auto where = static_cast<Layout>(layout);
        if (is_in_this_run(layout, 2))
          cases.push_back({problem_of(spec, 2, 2, sized(150, 75), sized(150, 75), where)});
        if (is_in_this_run(layout + 1, 2)) cases.push_back({problem_of(spec, 2, 1, 70, 131, where)});
      }
    }
  }
  expect_all_right(cases);
}

TEST_F(AttentionTest, WithoutLse) {
  AttentionCase problem = problem_of(spec_of(128), 1, 2, 100, 100);
  problem.with_lse = false;
  expect_right(problem);
}

TEST_F(AttentionTest, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  int index = 0;
  const auto add = [&](const char* mask, const char* score) {
    if (!is_in_this_run(index++, 12)) return;
    AttentionSpec spec = spec_of(64);
    spec.gqa_ratio = 2;
    spec.mask = parse_mask(mask, masks);
    spec.score = parse_score(score, scores);
    cases.push_back({problem_of(spec, sized(2, 1), sized(2, 1), 200, 200)});
    if (device_.emulated) return;
    cases.push_back({problem_of(spec, 3, 1, 77, 310)});
    cases.push_back({problem_of(spec, 1, 2, 310, 77)});
  };
  for (const char* mask : {"causal",
                           "causal(top_left)",
                           "window(64, 0)",
                           "window(-1, 10)",
                           "window(20, -1)",
                           "window(0, 0)",
                           "window(30, 40, top_left)",
                           "window(2147483647, 2147483647)",
                           "prefix(50)",
                           "prefix(0)",
                           "prefix_lengths",
                           "causal_per_request",
                           "draft_tree",
                           "document",
                           "tree",
                           "text(stripes)",
                           "text(allowed-keys)",
                           "text(blocks)",
                           "text(by_head.and_batch)",
                           "text(ends_by_head)",
                           "text(recent)",
                           "text(band)",
                           "!causal",
                           "causal && window(40, 0)",
                           "causal || prefix(64)",
                           "causal && document",
                           "(causal || prefix_lengths) && document && text(stripes)",
                           "!document",
                           "tree && window(90, 0)",
                           "!tree",
                           "!draft_tree",
                           "draft_tree && window(70, 0)",
                           "causal_per_request && draft_tree || document",
                           "!(causal && text(blocks))",
                           "!text(band) && document",
                           "block_mask(16, 32)",
                           "block_mask(64, 64, causal)",
                           "block_mask(128, 256, document && window(70, 0))",
                           "causal && block_mask(192, 128)",
                           "!block_mask(32, 16, text(recent)) || prefix(9)",
                           "block_scores(128, 128)",
                           "block_scores(64, 96, text(stripes)) && document",
                           "prefix(30) || text(allowed-keys)",
                           "window(16, 16) || prefix(8) && causal",
                           "causal && !causal"}) {
    add(mask, "none");
  }
  for (const char* score : {"softcap(15)", "alibi", "bias", "bias(bf16)", "bias(fp16)", "text(distance)",
                            "text(temperature)", "text(offsets)", "softcap(30), alibi", "bias, softcap(5)",
                            "text(temperature), text(distance), alibi"}) {
    add("none", score);
    add("causal", score);
  }
  add("document && text(blocks)", "bias, text(offsets)");
  expect_all_right(cases);
}

TEST_F(AttentionTest, RandomExpressions) {
  reference::Random random(reference::test_seed());
  std::vector<KernelCase> cases;
  for (int i = 0; i < sized(24, 4); ++i) {
    AttentionSpec spec = spec_of(32, 0, i % 2 == 0 ? DType::bf16 : DType::fp16);
    spec.mask = reference::random_mask(random, 3);
    spec.score = reference::random_score(random);
    const int seqlen_q = reference::draw(random, 1, 300);
    cases.push_back({problem_of(spec, 2, 3, seqlen_q, reference::draw(random, 0, 300))});
  }
  expect_all_right(cases);
}

TEST_F(AttentionTest, SharpAndFlatSoftmax) {
  std::vector<KernelCase> cases;
  for (const float amplitude : {0.01f, 0.5f, 4.0f, 12.0f}) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      AttentionCase problem = problem_of(spec_of(64, 0, dtype), 1, 2, 200, 600);
      problem.amplitude = amplitude;
      cases.push_back({problem});
    }
  }
  expect_all_right(cases);
}

TEST_F(AttentionTest, EveryConfigAxis) {
  std::vector<KernelConfig> configs;
  int index = 0;
  const ForwardMmaSync base{.tile_q = 64, .tile_kv = 32, .warps = 4, .stages_k = 2, .stages_v = 1};
  for (const char* change : {"tile_q=16 warps=1",   "tile_q=32 warps=1",
                             "tile_q=32 warps=2",   "tile_q=128",
                             "tile_q=128 warps=8",  "tile_q=256 warps=8",
                             "tile_q=192 warps=12", "tile_q=256 warps=16",
                             "tile_kv=16",          "tile_kv=48",
                             "tile_kv=64",          "tile_kv=80",
                             "tile_kv=96",          "tile_kv=128",
                             "q_in_registers=true", "rescale=always",
                             "rescale=lazy",        "blocks_per_sm=2",
                             "blocks_per_sm=4",     "q_in_registers=true stages_k=1 stages_v=2"}) {
    if (is_in_this_run(index++, 3)) configs.push_back(parse_config(change, base));
  }
  for (int k = 1; k <= 4; ++k) {
    for (int v = 1; v <= 4; ++v) {
      if (!is_in_this_run(3 * k + v, 4)) continue;
      ForwardMmaSync config = base;
      config.stages_k = k;
      config.stages_v = v;
      configs.push_back(config);
    }
  }
  for (const LadderStep& step : ladder()) {
    if (config_rejection(spec_of(64), step.config, device_).empty() && is_in_this_run(index++, 3))
      configs.push_back(step.config);
  }

  std::vector<AttentionSpec> specs = {spec_of(64)};
  if (!device_.emulated) specs.insert(specs.end(), {spec_of(128), spec_of(40, 24)});
  for (AttentionSpec& spec : specs) spec.mask = mask::causal() && mask::sliding_window(150);
  std::vector<KernelCase> cases;
  for (const AttentionSpec& spec : specs) {
    const AttentionCase problem = problem_of(spec, 1, sized(2, 1), sized(333, 157), sized(421, 211));
    for (const KernelConfig& config : configs) {
      if (config_rejection(spec, config, device_limits(device_)).empty()) cases.push_back({problem, config});
    }
  }
  ASSERT_GT(cases.size(), configs.size() * specs.size() * 2 / 3);
  expect_all_right(cases);
}

TEST_F(AttentionTest, RepeatedRunsAreIdentical) {
  AttentionSpec spec = spec_of(128);
  spec.mask = mask::causal();
  AttentionRun run(problem_of(spec, sized(4, 1), sized(8, 2), sized(700, 150), sized(900, 200)));
  const Attention kernel = attention(spec, {}, context());
  kernel(run.arguments());
  const std::vector<unsigned char> first = run.outputs();
  for (int i = 0; i < sized(20, 3); ++i) {
    run.poison_outputs();
    kernel(run.arguments());
    ASSERT_EQ(run.outputs(), first) << "run " << i;
  }
}

/// Three places in memory, each as far from the next: 2^31 elements and more lie between the first and the
/// last. On a GPU they are parts of one buffer of five GiB; on an emulated device, which would keep another
/// five GiB to watch it, nothing is allocated in between.
class FarPlaces {
 public:
  static constexpr int count = 3;

  FarPlaces(const DeviceInfo& device, std::size_t bytes) {
    constexpr std::size_t piece = std::size_t{64} << 20;
    if (!device.emulated) {
      buffers_.emplace_back(0, least_bytes * (count - 1) + bytes);
      step_ = static_cast<std::int64_t>(least_bytes / 2);
      return;
    }
    for (int i = 0; i < count; ++i) {
      // Freed memory is not given out again before the rest of the memory was.
      for (std::size_t skipped = 0; i > 0 && skipped < least_bytes; skipped += piece) DeviceBuffer(0, piece);
      buffers_.emplace_back(0, bytes);
    }
    step_ = static_cast<std::int64_t>(buffers_[1].address() - buffers_[0].address()) / 2;
    if (step_ < static_cast<std::int64_t>(least_bytes / 2) ||
        static_cast<std::int64_t>(buffers_[2].address() - buffers_[1].address()) / 2 != step_) {
      throw Error(ErrorCode::driver_error, "driver", "memory", "memory is too small for places far apart");
    }
  }

  /// Elements of two bytes from one to the next.
  std::int64_t step() const { return step_; }
  char* first() const { return static_cast<char*>(buffers_[0].data()); }
  void upload(int place, const void* from, std::size_t bytes) const {
    const auto [buffer, offset] = find(place);
    buffer->upload(from, bytes, offset);
  }
  void download(int place, void* to, std::size_t bytes, std::size_t from) const {
    const auto [buffer, offset] = find(place);
    buffer->download(to, bytes, offset + from);
  }

 private:
  static constexpr std::size_t least_bytes = 2 * ((std::size_t{1} << 30) + 72);

  std::pair<const DeviceBuffer*, std::size_t> find(int place) const {
    if (buffers_.size() > 1) return {&buffers_[static_cast<std::size_t>(place)], 0};
    return {&buffers_[0], static_cast<std::size_t>(place) * least_bytes};
  }

  std::vector<DeviceBuffer> buffers_;
  std::int64_t step_ = 0;
};

// Three positions, heads or batch entries that lie more than 2^31 elements apart.
TEST_F(AttentionTest, OffsetsBeyond32Bits) {
  constexpr int head_dim = 64, count = FarPlaces::count;
  std::optional<FarPlaces> places;
  try {
    places.emplace(device_, 4 * head_dim * 2);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const std::int64_t far = places->step();
  reference::Random random(reference::test_seed());
  for (const int far_dimension : {0, 1, 2}) {
    // q, k, v and o of one far index lie side by side.
    std::vector<std::uint16_t> host(4 * count * head_dim);
    for (std::uint16_t& bits : host)
      bits =
          reference::from_float(DType::bf16, static_cast<float>(reference::draw(random, -100, 100)) * 0.02f);
    for (int i = 0; i < count; ++i)
      places->upload(i, &host[static_cast<std::size_t>(4 * i * head_dim)], 4 * head_dim * 2);
    const auto view = [&](int slot) {
      TensorView tensor =
          TensorView::bshd(places->first() + slot * head_dim * 2, DType::bf16, {.head_dim = head_dim});
      tensor.shape[far_dimension] = count;
      tensor.strides[far_dimension] = far;
      return tensor;
    };
    const AttentionArguments arguments{.q = view(0), .k = view(1), .v = view(2), .o = view(3)};
    attention(spec_of(head_dim), {}, context())(arguments);

    reference::Problem problem{.head_dim = head_dim, .head_dim_v = head_dim};
    (far_dimension == 0 ? problem.batch : far_dimension == 2 ? problem.heads_q : problem.seqlen_q) = count;
    if (far_dimension == 1) problem.seqlen_kv = count;
    problem.softmax_scale = spec_of(head_dim).scale();
    const auto host_view = [&](int slot) {
      constexpr std::int64_t step = 4 * head_dim;
      return reference::HostTensor{&host[static_cast<std::size_t>(slot * head_dim)], step, step, step};
    };
    problem.q = host_view(0);
    problem.k = host_view(1);
    problem.v = host_view(2);
    const std::vector<reference::Row> rows = reference::all_rows(problem);
    ASSERT_EQ(rows.size(), std::size_t{count});
    const reference::Output exact = reference::attention_exact(problem, rows);
    const reference::Output plain = reference::attention_plain(problem, rows);
    std::vector<double> actual;
    for (int i = 0; i < count; ++i) {
      std::vector<std::uint16_t> row(head_dim);
      places->download(i, row.data(), row.size() * 2, 2 * 3 * head_dim);
      for (const std::uint16_t bits : row) actual.push_back(reference::to_float(DType::bf16, bits));
    }
    EXPECT_LE(reference::max_error(actual, exact.o), reference::error_limit(DType::bf16, plain.o, exact.o))
        << "dimension " << far_dimension;
  }
}

}  // namespace
}  // namespace jit::testing
