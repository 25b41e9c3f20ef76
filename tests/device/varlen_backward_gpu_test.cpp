// Gradients of varlen sequences on a device against fp64 on the CPU, request by request.
#include <jit/attention.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing {
namespace {

constexpr SequenceKind dense = SequenceKind::dense, varlen = SequenceKind::varlen;

// Requests without queries, without keys, without either; of one row, and of several tiles that end anywhere.
const std::vector<int> lengths_q = {0, 70, 1, 33, 0, 129};
const std::vector<int> lengths_kv = {40, 65, 130, 0, 0, 97};

VarlenBackwardCase case_of(AttentionSpec spec) {
  spec.sequences_q = spec.sequences_kv = varlen;
  return {.spec = spec,
          .heads_kv = 2,
          .q = {.lengths = lengths_q},
          .kv = {.lengths = lengths_kv},
          .seed = reference::next_seed()};
}

class VarlenBackwardTest : public GpuTest {
 protected:
  static void expect_right(const VarlenBackwardCase& problem) {
    try {
      VarlenBackwardRun run(problem);
      attention_when_called(problem.spec, context()).backward(run.arguments());
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

TEST_F(VarlenBackwardTest, MasksScoresAndHeads) {
  expect_right(case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}));
  expect_right(case_of({.head_dim = 40, .head_dim_v = 72, .score = score::softcap(3)}));
  expect_right(case_of({.dtype = DType::fp16,
                        .head_dim = 32,
                        .gqa_ratio = 3,
                        .mask = mask::sliding_window(20, 5) || mask::prefix(7)}));
  expect_right(case_of({.head_dim = 256, .head_dim_v = 8, .mask = !mask::causal(Alignment::top_left)}));
  expect_right(case_of({.head_dim = 264, .head_dim_v = 512, .gqa_ratio = 2, .mask = mask::causal()}));
}

// Rows of nobody lie before, between and behind the sequences: not read, and not written.
TEST_F(VarlenBackwardTest, RowsOfNobody) {
  for (const int alignment : {16, 2}) {
    VarlenBackwardCase problem =
        case_of({.head_dim = 24, .gqa_ratio = 2, .alignment = alignment, .mask = mask::causal()});
    problem.q.spare = {7, 0, 66, 1, 3, 2};
    problem.kv.spare = {0, 64, 5, 2, 0, 31};
    problem.q.around = 3;
    problem.kv.around = 70;
    problem.has_gaps = alignment == 2;
    expect_right(problem);
  }
}

TEST_F(VarlenBackwardTest, OneSideIsDense) {
  for (const auto& [kind_q, kind_kv] : {std::pair(varlen, dense), {dense, varlen}}) {
    VarlenBackwardCase problem = case_of({.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal()});
    problem.spec.sequences_q = kind_q;
    problem.spec.sequences_kv = kind_kv;
    // Dense ones have room for the longest.
    VarlenSide& side = kind_q == dense ? problem.q : problem.kv;
    const int most = *std::max_element(side.lengths.begin(), side.lengths.end());
    for (const int length : side.lengths) side.spare.push_back(most - length);
    expect_right(problem);
  }
}

// Both sides are dense, and arrays say how many of their rows are in use: of one side, or of both.
TEST_F(VarlenBackwardTest, RowsInUseOfDenseTensors) {
  const auto expect = [](const AttentionSpec& spec, bool of_queries, bool of_keys, bool has_gaps) {
    VarlenBackwardCase problem = {.spec = spec,
                                  .heads_kv = 2,
                                  .q = {.lengths = of_queries ? lengths_q : std::vector<int>(6, 129)},
                                  .kv = {.lengths = of_keys ? lengths_kv : std::vector<int>(6, 130)},
                                  .has_gaps = has_gaps,
                                  .seed = reference::next_seed()};
    for (VarlenSide* side : {&problem.q, &problem.kv}) {
      const int most = *std::max_element(side->lengths.begin(), side->lengths.end());
      for (const int length : side->lengths) side->spare.push_back(most + 3 - length);
    }
    if (!of_queries) problem.q.spare.clear();
    if (!of_keys) problem.kv.spare.clear();
    expect_right(problem);
  };
  expect({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, true, true, true);
  expect({.head_dim = 128, .score = score::softcap(3)}, false, true, false);
  expect({.dtype = DType::fp16, .head_dim = 136, .mask = mask::sliding_window(20, 5)}, true, true, false);
  expect({.head_dim = 40, .alignment = 2, .mask = mask::causal()}, true, false, true);
}

// More sequences than one look of a warp tells apart, and than two.
TEST_F(VarlenBackwardTest, ManySequences) {
  for (const int count : {1, 33, 1100}) {
    VarlenBackwardCase problem = case_of({.head_dim = 8, .mask = mask::causal()});
    problem.heads_kv = 1;
    problem.q.lengths.clear();
    problem.kv.lengths.clear();
    for (int b = 0; b < count; ++b) {
      problem.q.lengths.push_back(b * 7 % 4);
      problem.kv.lengths.push_back(b * 5 % 3);
    }
    problem.q.lengths.back() = 5;
    problem.kv.lengths.back() = 9;
    expect_right(problem);
  }
}

// Tiles of other sizes, so that the two kernels and the numbers between them disagree about places.
TEST_F(VarlenBackwardTest, Configs) {
  const CurrentDevice scope(0);
  VarlenBackwardRun run(case_of({.head_dim = 48, .gqa_ratio = 2, .mask = mask::causal()}));
  const std::vector<std::pair<BackwardDqMmaSync, BackwardDkvMmaSync>> configs = {
      {{.tile_q = 16, .tile_kv = 16, .warps = 1, .stages = 1},
       {.tile_q = 16, .tile_kv = 16, .warps = 1, .stages = 1}},
      {{.tile_q = 96, .tile_kv = 32, .warps = 3, .stages = 2},
       {.tile_q = 48, .tile_kv = 32, .warps = 1, .stages = 3, .separate = true}},
      {{.tile_q = 128, .tile_kv = 64, .warps = 4, .stages = 2},
       {.tile_q = 32, .tile_kv = 128, .warps = 4, .stages = 2}},
  };
  for (const auto& [dq, dkv] : configs) {
    run.poison_gradients();
    run.compute(context(), dq, dkv);
    EXPECT_EQ(run.check(), "") << to_string(KernelConfig(dq)) << ", " << to_string(KernelConfig(dkv));
  }
}

TEST_F(VarlenBackwardTest, ConfigsOfOnePass) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  int index = 0;
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 128, .gqa_ratio = 2, .mask = mask::causal()},
                                  {.head_dim = 64, .score = score::softcap(3)},
                                  {.dtype = DType::fp16,
                                  .head_dim = 48,
                                  .gqa_ratio = 3,
                                  .mask = mask::sliding_window(20, 5) || mask::prefix(7)},
                                  {.head_dim = 136, .head_dim_v = 24, .mask = mask::causal()}}) {
    VarlenBackwardCase problem = case_of(spec);
    problem.q = {.lengths = {70, 0, 5, 130}, .spare = {5, 3, 0, 1}, .around = 9};
    problem.kv = {.lengths = {300, 40, 0, 129}, .spare = {0, 7, 2, 60}, .around = 1};
    VarlenBackwardRun run(problem);
    for (const bool deterministic : {false, true}) {
      for (const bool pair : {false, true}) {
        if (pair && spec.head_dim <= 128) continue;
        if (!is_in_this_run(index++, 3)) continue;
        const BackwardWgmma config{
            .stages = spec.head_dim == 64 ? 4 : 2, .deterministic = deterministic, .pair = pair};
        run.poison_gradients();
        run.compute(context(), config);
        EXPECT_EQ(run.check(), "") << to_string(spec) << ", " << to_string(KernelConfig(config));
      }
    }
  }
}

TEST_F(VarlenBackwardTest, RepeatedRunsAreBitIdentical) {
  const VarlenBackwardCase problem =
      case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal(), .score = score::softcap(10)});
  VarlenBackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  std::vector<std::uint8_t> first;
  for (int i = 0; i < sized(20, 2); ++i) {
    run.poison_gradients();
    attention.backward(run.arguments(true));
    if (i == 0) first = run.gradients();
    EXPECT_EQ(run.gradients(), first);
  }
}

// A spec that asks for it is told what is wrong with its arrays.
TEST_F(VarlenBackwardTest, CheckedCallsNameTheArray) {
  const CurrentDevice scope(0);
  VarlenBackwardCase problem = case_of({.head_dim = 8, .checked = true});
  VarlenBackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  attention.backward(run.arguments());
  EXPECT_EQ(run.check(), "");
  BackwardArguments arguments = run.arguments();
  const std::vector<int> wild(lengths_kv.size() + 1, -1);
  const DeviceBuffer memory(0, wild.size() * sizeof(int));
  memory.upload(wild.data(), memory.size());
  arguments.cu_seqlens_k.data = memory.data();
  const Error error = error_of([&] { attention.backward(arguments); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error.field(), "cu_seqlens_k");
}

// Arrays are read when the work runs, not when it is put on the stream: a graph that was captured for some lengths
// serves others.
TEST_F(VarlenBackwardTest, AGraphServesOtherLengths) {
  const CurrentDevice scope(0);
  const VarlenBackwardCase problem = case_of({.head_dim = 64, .mask = mask::causal()});
  VarlenBackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  attention.prepare_backward(run.arguments());
  const BackwardArguments arguments = run.arguments();
  std::vector<int> wanted(lengths_q.size() + 1);
  check(driver().cuMemcpyDtoH(wanted.data(), reinterpret_cast<CUdeviceptr>(arguments.cu_seqlens_q.data),
                              wanted.size() * sizeof(int)),
        "cuMemcpyDtoH");
  const std::vector<int> others(wanted.size(), wanted.back());  // nobody has a query but for those behind
  const auto set = [&](const std::vector<int>& boundaries) {
    check(driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(arguments.cu_seqlens_q.data), boundaries.data(),
                                boundaries.size() * sizeof(int)),
          "cuMemcpyHtoD");
  };
  set(others);
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { attention.backward(arguments, stream.get()); });
  set(wanted);
  graph.run(stream);
  EXPECT_EQ(run.check(), "");
}

}  // namespace
}  // namespace jit::testing
