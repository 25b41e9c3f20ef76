// Kernels that may begin before the grids in front of them have ended: a wait that is needed is noticed when it is not
// there.
#include <numeric>

#include "tests/mutation/backward_mutation.h"
#include "tests/support/captured_graph.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::dependent_mutations {
namespace {

// Several steps of each of two heads that share keys.
AttentionCase gradients_of(int head_dim) {
  return {.spec = {.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()},
          .seqlen_q = 200,
          .seqlen_kv = 150,
          .seed = 5};
}

// Two calls: before the first one's last kernel the stream's memory is set, which waits for all in front.
std::string noticed_of_calls(const TemplateMutation* mutation, const AttentionCase& problem,
                             const BackwardWgmma& config) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  BackwardRun run(problem);
  try {
    for (int call = 0; call < 2; ++call) run.compute(context, config);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  const std::string failure = run.check();
  return failure.empty() ? disorder(context, nullptr) : failure;
}

// With warps that add to dQ; with a consumer that has it; with consumers that have roles.
std::string by_adders(const TemplateMutation* mutation) {
  return noticed_of_calls(mutation, gradients_of(72), BackwardWgmma{.stages = 2});
}
std::string by_consumer(const TemplateMutation* mutation) {
  return noticed_of_calls(mutation, gradients_of(64), BackwardWgmma{.stages = 2});
}
std::string by_roles(const TemplateMutation* mutation) {
  return noticed_of_calls(mutation, gradients_of(136), BackwardWgmma{});
}
std::string in_turn(const TemplateMutation* mutation) {
  AttentionCase problem = gradients_of(72);
  problem.seqlen_q = 300;  // tiles of which no query sees a key: the kernel in front clears their sums
  return noticed_of_calls(mutation, problem, BackwardWgmma{.stages = 2, .deterministic = true});
}
// The kernel in front leaves which queries see which keys.
std::string of_documents(const TemplateMutation* mutation) {
  AttentionCase problem = gradients_of(64);
  problem.spec.mask = mask::document();
  return noticed_of_calls(mutation, problem, BackwardWgmma{.stages = 2});
}
std::string drawn_ahead(const TemplateMutation* mutation) {
  AttentionCase problem = gradients_of(64);
  problem.spec.dropout = true;
  problem.dropout_p = 0.25f;
  return noticed_of_calls(mutation, problem, BackwardWgmma{.dropout_mask_ahead = true});
}

// Three grids side by side, of requests of few queries and, in between, of many. Their queries are what a dense call in front
// of them writes. Both calls are captured: else the host clears where faults of lengths go to, which is behind all grids.
std::string side_by_side(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice current(0);
  constexpr int head_dim = 64, heads = 2;
  const std::vector<int> lengths = {200, 1, 65, 64, 0, 110, 63, 3};
  std::vector<int> begins(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
  const std::int64_t rows = begins.back();
  const auto filled = [&] {
    DeviceTensor tensor(DType::bf16, {rows, heads, head_dim});
    tensor.fill([](std::int64_t i) { return static_cast<double>(i % 17 - 8) / 8; });
    tensor.upload();
    return tensor;
  };
  const DeviceTensor q = filled(), k = filled(), v = filled(), o = filled();
  DeviceTensor boundaries(DType::int32, {static_cast<std::int64_t>(begins.size())});
  boundaries.fill([&](std::int64_t i) { return begins[static_cast<std::size_t>(i)]; });
  boundaries.upload();
  const auto dense = [&](const DeviceTensor& tensor) {
    return TensorView::bshd(tensor.view().data, DType::bf16, {1, rows, heads, head_dim});
  };
  const AttentionSpec spec = {.head_dim = head_dim,
                              .sequences_q = SequenceKind::varlen,
                              .sequences_kv = SequenceKind::varlen,
                              .mask = mask::causal()};
  const AttentionArguments arguments = {.q = q.view(),
                                        .k = k.view(),
                                        .v = v.view(),
                                        .o = o.view(),
                                        .cu_seqlens_q = boundaries.view(),
                                        .cu_seqlens_k = boundaries.view()};
  try {
    const Attention in_front = attention({.head_dim = head_dim}, {}, context);
    const Attention kernel = attention(spec, {}, context);
    kernel.prepare(arguments);
    const AttentionArguments first = {.q = dense(k), .k = dense(k), .v = dense(v), .o = dense(q)};
    in_front.prepare(first);
    const TestStream stream;
    const CapturedGraph graph(stream, [&] {
      in_front(first, stream.get());
      kernel(arguments, stream.get());
    });
    graph.run(stream);
    const std::string config = to_string(kernel.kernel(arguments).config());
    if (config.find("few_queries") == std::string::npos) return "one grid alone: " + config;
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return disorder(context, nullptr);
}

using Noticed = std::string (*)(const TemplateMutation*);

UNMUTATED_TEST(DependentGrids, AreRightUnmutated) {
  for (const Noticed noticed : reference::some_of<Noticed>(
           {by_adders, by_consumer, by_roles, in_turn, of_documents, drawn_ahead, side_by_side}, 3))
    EXPECT_EQ(noticed(nullptr), "");
}

struct DependentMutation {
  TemplateMutation mutation;
  Noticed noticed;
};
std::ostream& operator<<(std::ostream& out, const DependentMutation& mutation) {
  return out << mutation.mutation;
}

class DependentMutationTest : public MutationTestOf<DependentMutation> {};

TEST_P(DependentMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam().mutation;
  EXPECT_THAT(GetParam().noticed(&mutation), ::testing::HasSubstr(mutation.caught_by.front()));
}

constexpr const char* found = "not behind a griddepcontrol.wait";
// Where a kernel has one wait, it may not be launched without.
constexpr const char* refused = "has no griddepcontrol.wait";
// So there the wait stays in the program, and no thread gets to it.
constexpr LineChange passed_by = {"griddepcontrol_wait();", "if (round > 1000) griddepcontrol_wait();"};

INSTANTIATE_TEST_SUITE_P(
    DependentGrids, DependentMutationTest,
    ::testing::Values(DependentMutation{{"ProducerDoesNotWait_AtAll", removed, {refused}}, by_adders},
                      DependentMutation{{"ProducerDoesNotWait_BesideAdders", passed_by, {found}}, by_adders},
                      DependentMutation{{"ProducerDoesNotWait_InTurn", passed_by, {found}}, in_turn},
                      DependentMutation{{"ProducerDoesNotWait_BesideTheConsumer", passed_by, {found}},
                                        by_consumer},
                      DependentMutation{{"ProducerDoesNotWait_BesideRoles", passed_by, {found}}, by_roles},
                      DependentMutation{{"ProducerDoesNotWait_OfDrops", passed_by, {found}}, drawn_ahead},
                      DependentMutation{{"ProducerOfRanges", removed, {found}}, of_documents},
                      DependentMutation{{"Prepare", removed, {refused}}, by_adders},
                      DependentMutation{{"CountTurns", removed, {found}}, in_turn},
                      DependentMutation{{"SplitDoesNotWait", removed, {found}}, side_by_side},
                      DependentMutation{{"EndsBeforeGridsInFront", removed, {refused}}, side_by_side}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::dependent_mutations
