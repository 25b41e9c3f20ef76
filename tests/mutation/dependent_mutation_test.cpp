// Kernels that may begin before the grids in front of them have ended: a wait that is needed is noticed when it is not
// there.
#include <numeric>

#include "tests/mutation/backward_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::dependent_mutations {
namespace {

// Several steps of each of two heads that share keys.
BackwardCase gradients_of(int head_dim) {
  return {.spec = {.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()},
          .seqlen_q = 200,
          .seqlen_kv = 150,
          .seed = 5};
}

// Two calls: before the first one's last kernel the stream's memory is set, which waits for all in front.
std::string noticed_of_calls(const TemplateMutation* mutation, const BackwardCase& problem,
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
  BackwardCase problem = gradients_of(72);
  problem.seqlen_q = 300;  // tiles of which no query sees a key: the kernel in front clears their sums
  return noticed_of_calls(mutation, problem, BackwardWgmma{.stages = 2, .deterministic = true});
}
// The kernel in front leaves which queries see which keys.
std::string of_documents(const TemplateMutation* mutation) {
  BackwardCase problem = gradients_of(64);
  problem.spec.mask = mask::document();
  return noticed_of_calls(mutation, problem, BackwardWgmma{.stages = 2});
}
std::string drawn_ahead(const TemplateMutation* mutation) {
  BackwardCase problem = gradients_of(64);
  problem.spec.dropout = true;
  problem.dropout_p = 0.25f;
  return noticed_of_calls(mutation, problem, BackwardWgmma{.draw_ahead = true});
}

// Two calls of two grids, of requests of few queries and of many. The second call's queries are the first one's outputs,
// and its requests have few queries.
std::string mixed(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice current(0);
  constexpr int head_dim = 64, heads = 2;
  const std::vector<int> lengths = {200, 1, 65, 64, 0, 110, 63, 3};
  std::vector<int> begins(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
  std::array<DeviceTensor, 4> rows = {DeviceTensor(DType::bf16, {begins.back(), heads, head_dim}),
                                      DeviceTensor(DType::bf16, {begins.back(), heads, head_dim}),
                                      DeviceTensor(DType::bf16, {begins.back(), heads, head_dim}),
                                      DeviceTensor(DType::bf16, {begins.back(), heads, head_dim})};
  for (DeviceTensor& tensor : rows) {
    tensor.fill([](std::int64_t i) { return static_cast<double>(i % 17 - 8) / 8; });
    tensor.upload();
  }
  DeviceTensor boundaries(DType::int32, {static_cast<std::int64_t>(begins.size())});
  boundaries.fill([&](std::int64_t i) { return begins[static_cast<std::size_t>(i)]; });
  boundaries.upload();
  DeviceTensor of_few(DType::int32, {static_cast<std::int64_t>(begins.size())});
  of_few.fill([&](std::int64_t i) { return std::min(64 * static_cast<int>(i), begins.back()); });
  of_few.upload();
  AttentionArguments arguments = {.q = rows[0].view(),
                                  .k = rows[1].view(),
                                  .v = rows[2].view(),
                                  .o = rows[3].view(),
                                  .cu_seqlens_q = boundaries.view(),
                                  .cu_seqlens_k = boundaries.view()};
  const AttentionSpec spec = {.head_dim = head_dim,
                              .sequences_q = SequenceKind::ragged,
                              .sequences_kv = SequenceKind::ragged,
                              .mask = mask::causal()};
  try {
    const Attention kernel = attention(spec, {}, context);
    kernel(arguments);
    arguments.cu_seqlens_q = arguments.cu_seqlens_k = of_few.view();
    std::swap(arguments.q, arguments.o);
    kernel(arguments);
    const std::string config = to_string(kernel.kernel(arguments).config());
    if (config.find("few_queries") == std::string::npos) return "one grid alone: " + config;
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return disorder(context, nullptr);
}

using Noticed = std::string (*)(const TemplateMutation*);

TEST(DependentGrids, AreRightUnmutated) {
  for (const Noticed noticed : reference::some_of<Noticed>(
           {by_adders, by_consumer, by_roles, in_turn, of_documents, drawn_ahead, mixed}, 3))
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

constexpr const char* loader = "backward_wgmma/loader.cuh";
constexpr const char* found = "not behind a griddepcontrol.wait";
// Where a kernel has one wait, it may not be launched without.
constexpr const char* refused = "has no griddepcontrol.wait";

INSTANTIATE_TEST_SUITE_P(
    DependentGrids, DependentMutationTest,
    ::testing::Values(
        DependentMutation{
            {"LoaderBesideAdders", loader, "  griddepcontrol_wait();  // for", "  // for", {found}},
            by_adders},
        DependentMutation{{"LoaderInTurn", loader, "  griddepcontrol_wait();  // for", "  // for", {found}},
                          in_turn},
        DependentMutation{
            {"LoaderBesideTheConsumer", loader, "  griddepcontrol_wait();  // for", "  // for", {found}},
            by_consumer},
        DependentMutation{
            {"LoaderBesideRoles", loader, "  griddepcontrol_wait();  // for", "  // for", {found}}, by_roles},
        DependentMutation{{"LoaderOfRanges",
                           loader,
                           "    griddepcontrol_wait();\n    const QueryRanges",
                           "    const QueryRanges",
                           {found}},
                          of_documents},
        DependentMutation{
            {"Prepare", "backward_wgmma/prepare.cuh", "  griddepcontrol_wait();\n", "", {refused}},
            by_adders},
        DependentMutation{
            {"CountTurns", "backward_wgmma/count_turns.cuh", "  griddepcontrol_wait();\n", "", {found}},
            in_turn},
        DependentMutation{
            {"FewQueries", "forward_split_wgmma/kernel.cuh", "  griddepcontrol_wait();\n", "", {refused}},
            mixed},
        DependentMutation{{"ManyQueries",
                           "forward_wgmma/kernel.cuh",
                           "  if constexpr (Config::dependent_launch) griddepcontrol_wait();\n",
                           "",
                           {refused}},
                          mixed}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::dependent_mutations
