// Mutations of kernels whose keys come from other devices while they compute: what orders copies and reads must be noticed when
// it is missing. Two ranks on two emulated devices.
#include <memory>
#include <string>
#include <vector>

#include "tests/mutation/template_mutation.h"
#include "tests/support/captured_graph.h"
#include "tests/support/key_exchange_run.h"

namespace jit::testing::key_exchange_mutations {
namespace {

constexpr int calls = 4, replays = 2;

// Calls that follow each other without the host: a rank may be ahead, and halves are used again, by replays at once. Rank 1 has the middle of the
// keys, so that its last tiles are not all of its own; or the end, so that rank 0 waits for none of its keys.
std::string noticed(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  std::string text;
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    for (const PlacementMode mode : {PlacementMode::zigzag, PlacementMode::contiguous}) {
      KeyExchangeRun run({.seqlen = 512, .heads_q = 1, .placement = {.mode = mode}, .timeout = 0.01}, seed,
                         context);
      try {
        const Attention kernel =
            attention(run.spec(), parse_config("family=forward_wgmma tile_q=64 tile_kv=80"), context);
        run.call_all(kernel);
        for (int rank = 0; rank < run.ranks(); ++rank) {
          for (int call = 1; call < calls; ++call) run.call(rank, kernel);
        }
        std::vector<std::unique_ptr<CapturedGraph>> graphs;
        for (int rank = 0; rank < run.ranks(); ++rank) {
          const CurrentDevice device(run.device_of(rank));
          graphs.push_back(
              std::make_unique<CapturedGraph>(run.stream(rank), [&] { run.call(rank, kernel); }));
        }
        for (int rank = 0; rank < run.ranks(); ++rank) {
          const CurrentDevice device(run.device_of(rank));
          for (int call = 0; call < replays; ++call)
            graphs[static_cast<std::size_t>(rank)]->launch(run.stream(rank));
        }
        run.synchronize();
        text = run.check_all();
        for (int rank = 0; rank < run.ranks() && text.empty(); ++rank) {
          if (const auto fault = run.exchange(rank).fault(run.stream(rank).get())) text = fault->to_string();
        }
        if (!text.empty()) return text;
      } catch (const Error& error) {
        return fmt::format("{}: {}", to_string(error.code()), error.what());
      }
    }
  }
  return text;
}

// A rank that is alone: its rows must be NaN, and the fault must tell of the other.
std::string noticed_alone(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const PlacementOptions halves{.mode = PlacementMode::chunks, .chunks = {{{128, 256}}, {{0, 128}}}};
  const Context context(templates.settings());
  KeyExchangeRun run({.seqlen = 256, .heads_q = 1, .placement = halves, .timeout = 0.01}, 1, context);
  try {
    const Attention kernel =
        attention(run.spec(), parse_config("family=forward_wgmma tile_q=64 tile_kv=64"), context);
    run.call(0, kernel);
    run.synchronize();
    for (const bool is_poisoned : run.poisoned(0)) {
      if (!is_poisoned) return "a row that waited in vain holds numbers";
    }
    if (run.noted_fault(0) != 1) return "no word tells of the fault";
    return run.exchange(0).fault(run.stream(0).get()) ? "" : "there is no fault";
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

// Gradients, beside calls of the forward pass. `is_large`: scores of which LSE is so large that origins of rows are looked for
// among all keys.
std::string noticed_in_gradients(const TemplateMutation* mutation, bool is_large,
                                 bool deterministic = false) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  std::string text;
  for (std::uint64_t seed = 1; seed < (is_large ? 3 : 5) && text.empty(); ++seed) {
    const PlacementMode mode = seed % 2 == 0 ? PlacementMode::zigzag : PlacementMode::contiguous;
    // Origins are looked for for long, on the clock, too.
    KeyExchangeRun run({.seqlen = is_large ? 256 : 512,
                        .heads_q = 1,
                        .placement = {.mode = mode},
                        .timeout = is_large ? 10 : 0.01,
                        .magnitude = is_large ? 1e6 : 1,
                        .deterministic = deterministic},
                       seed, context);
    try {
      const Attention kernel =
          attention(run.spec(), parse_config("family=forward_wgmma tile_q=64 tile_kv=80"), context);
      for (int rank = 0; rank < run.ranks(); ++rank) run.prepare_backward(rank, kernel);
      run.call_all(kernel);
      for (int rank = 0; rank < run.ranks(); ++rank) {
        for (int call = 0; call < calls; ++call) run.backward(rank, kernel);
      }
      run.synchronize();
      if (!is_large) text = run.check_all_gradients();
      for (int rank = 0; rank < run.ranks() && text.empty(); ++rank) {
        if (const auto fault = run.exchange(rank).fault(run.stream(rank).get())) text = fault->to_string();
      }
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.code()), error.what());
    }
  }
  return text;
}

// Symptoms in the gradients of a single rank.
std::string noticed_in_gradients_alone(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const PlacementOptions halves{.mode = PlacementMode::chunks, .chunks = {{{128, 256}}, {{0, 128}}}};
  const Context context(templates.settings());
  KeyExchangeRun run({.seqlen = 256, .heads_q = 1, .placement = halves, .timeout = 0.01}, 1, context);
  try {
    const Attention kernel =
        attention(run.spec(), parse_config("family=forward_wgmma tile_q=64 tile_kv=64"), context);
    run.prepare_backward(0, kernel);
    run.call_all(kernel);
    run.backward(0, kernel);
    run.synchronize();
    if (!run.has_poisoned_gradients(0)) return "gradients that waited in vain hold numbers";
    return run.exchange(0).fault(run.stream(0).get()) ? "" : "there is no fault";
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

class KeyExchangeMutationTest : public ::testing::TestWithParam<TemplateMutation> {};
TEST_P(KeyExchangeMutationTest, IsCaught) { expect_caught(GetParam(), noticed(&GetParam())); }
INSTANTIATE_TEST_SUITE_P(
    Arrivals, KeyExchangeMutationTest,
    ::testing::Values(
        TemplateMutation{"AcquireSysWord_Relaxed", {"ld.acquire.sys", "ld.relaxed.sys"}, {"data race"}},
        TemplateMutation{"AcquireSysWord_OfOneDevice", {"ld.acquire.sys", "ld.acquire.gpu"}, {"data race"}},
        TemplateMutation{"KeysBeforeTheyArrive", {"arrivals_.wait(tiles.words())", "true"}, {"data race"}},
        TemplateMutation{"ArrivalOfTheTileBefore", {"piece_.words", "0"}, {"data race"}},
        TemplateMutation{"ArrivalOfAnyEpoch", {"== epoch", "!= 0"}, {"data race"}},
        TemplateMutation{"TilesOfSeveralPieces", {"piece_from($) == count_", "true"}},
        TemplateMutation{"ArrivalsUnseen", {"missing == 0 ? warp_size : $;", "warp_size;"}, {"data race"}},
        TemplateMutation{"EndsBeforeAllHaveBegun", {"arrivals_.finish();", ""}, {"data race"}, {}, true},
        TemplateMutation{"ArrivalsByTma", removed, {"proxy"}},
        TemplateMutation{"ReleaseSysWord", {"st.release.sys", "st.relaxed.sys"}, {"data race"}},
        TemplateMutation{"ExchangeOfGridsInFront", {"$", "if (threadIdx.x != 0) $"}, {"data race"}},
        TemplateMutation{"ExchangeUncounted", removed},
        TemplateMutation{"HalfInUse", {"is_half_in_use", "false"}, {"data race"}, {}, true}),
    ::testing::PrintToStringParamName());

class LonelyMutationTest : public ::testing::TestWithParam<TemplateMutation> {};
TEST_P(LonelyMutationTest, IsCaught) { expect_caught(GetParam(), noticed_alone(&GetParam())); }
INSTANTIATE_TEST_SUITE_P(Arrivals, LonelyMutationTest,
                         ::testing::Values(TemplateMutation{"PoisonUnseen", removed, {"proxy"}},
                                           TemplateMutation{"FaultUntold", removed}),
                         ::testing::PrintToStringParamName());

class ArrivingGradientMutationTest : public ::testing::TestWithParam<TemplateMutation> {};
TEST_P(ArrivingGradientMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_gradients(&GetParam(), false));
}
INSTANTIATE_TEST_SUITE_P(
    Arrivals, ArrivingGradientMutationTest,
    ::testing::Values(
        TemplateMutation{"GradientsBeforeKeysArrive", {"arrivals_.wait(words)", "true"}, {"data race"}},
        TemplateMutation{"GradientsEndBeforeAllHaveBegun", removed, {"data race"}, {}, true}),
    ::testing::PrintToStringParamName());

class ArrivingTurnMutationTest : public ::testing::TestWithParam<TemplateMutation> {};
TEST_P(ArrivingTurnMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_gradients(&GetParam(), false, true));
}
INSTANTIATE_TEST_SUITE_P(Arrivals, ArrivingTurnMutationTest,
                         ::testing::Values(TemplateMutation{"GradientsBeforeKeysArrive_InTurns",
                                                            {"arrivals_.wait(words)", "true"},
                                                            {"data race"}}),
                         ::testing::PrintToStringParamName());

class ArrivingOriginMutationTest : public ::testing::TestWithParam<TemplateMutation> {};
TEST_P(ArrivingOriginMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_gradients(&GetParam(), true));
}
INSTANTIATE_TEST_SUITE_P(Arrivals, ArrivingOriginMutationTest,
                         ::testing::Values(TemplateMutation{
                             "OriginsBeforeKeysArrive", removed, {"data race"}}),
                         ::testing::PrintToStringParamName());

class LonelyGradientMutationTest : public ::testing::TestWithParam<TemplateMutation> {};
TEST_P(LonelyGradientMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_gradients_alone(&GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Arrivals, LonelyGradientMutationTest,
                         ::testing::Values(TemplateMutation{"PoisonedKeysUnseen", removed, {"proxy"}}),
                         ::testing::PrintToStringParamName());

UNMUTATED_TEST(Arrivals, GradientsAreRightUnmutated) {
  EXPECT_EQ(noticed_in_gradients(nullptr, false), "");
  EXPECT_EQ(noticed_in_gradients(nullptr, false, true), "");
  EXPECT_EQ(noticed_in_gradients(nullptr, true), "");
  EXPECT_EQ(noticed_in_gradients_alone(nullptr), "");
}
UNMUTATED_TEST(Arrivals, AreRightUnmutated) { EXPECT_EQ(noticed(nullptr), ""); }
UNMUTATED_TEST(Arrivals, FailUnmutated) { EXPECT_EQ(noticed_alone(nullptr), ""); }

}  // namespace
}  // namespace jit::testing::key_exchange_mutations
