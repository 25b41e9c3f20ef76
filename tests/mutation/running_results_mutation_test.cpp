// Mutations of results over several calls, each of other keys: each must be noticed.
#include <utility>

#include <jit/outputs.h>

#include "tests/mutation/template_mutation.h"
#include "tests/support/attention_run.h"

namespace jit::testing::running_results_mutations {
namespace {

struct RunningMutation {
  TemplateMutation mutation;
  int head_dim;
  KernelConfig config;
};
std::ostream& operator<<(std::ostream& out, const RunningMutation& subject) {
  return out << subject.mutation;
}

// Keys [begin, end) of a view of keys.
TensorView keys(TensorView view, std::int64_t begin, std::int64_t end) {
  view.data = static_cast<char*>(view.data) + begin * view.strides[1] * size_of(view.dtype);
  view.shape[1] = end - begin;
  return view;
}

// Faults of the results of two calls that have a part of the keys each.
std::string noticed_of(const TemplateMutation* mutation, int head_dim, const KernelConfig& config) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  constexpr int seqlen_kv = 150, first = 70;
  AttentionCase problem = {.spec = {.head_dim = head_dim, .out_dtype = DType::fp32},
                           .batch = 2,
                           .heads_kv = 2,
                           .seqlen_q = 77,
                           .seqlen_kv = seqlen_kv};
  problem.seed = 7;
  AttentionRun run(problem);
  run.poison_outputs();
  const CurrentDevice scope(0);
  AttentionSpec spec = problem.spec;
  spec.running_lse = true;
  AttentionArguments call = run.arguments();
  call.running_lse = std::exchange(call.lse, {});
  const TensorView k = call.k, v = call.v;
  try {
    clear_output(call.running_lse);
    const auto kernel = attention(spec, config, context);
    for (const auto& [begin, end] : {std::pair{0, first}, {first, seqlen_kv}}) {
      call.k = keys(k, begin, end);
      call.v = keys(v, begin, end);
      kernel(call);
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check().failure;
}

constexpr ForwardWgmma wgmma{.tile_q = 64, .tile_kv = 64, .output = OutputPlace::direct};

class RunningMutationTest : public MutationTestOf<RunningMutation> {};

TEST_P(RunningMutationTest, IsCaught) {
  const auto& [mutation, head_dim, config] = GetParam();
  expect_caught(mutation, noticed_of(&mutation, head_dim, config));
}

TEST(RunningResults, AreRightUnmutated) {
  EXPECT_EQ(noticed_of(nullptr, 64, wgmma), "");
  EXPECT_EQ(noticed_of(nullptr, 128, wgmma), "");
}

INSTANTIATE_TEST_SUITE_P(Running, RunningMutationTest,
                         ::testing::Values(RunningMutation{{"StateOfOneLane",
                                                            {"Layout::reduce(of_lane, max_nan)", "of_lane"}},
                                                           64,
                                                           wgmma},
                                           RunningMutation{{"AllOfTheCallsKeys", removed}, 64, wgmma}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::running_results_mutations
