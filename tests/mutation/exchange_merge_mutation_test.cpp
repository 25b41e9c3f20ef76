// Mutations of exchange_merge: what orders devices must be noticed when it is missing. Two ranks on two emulated devices.
#include <algorithm>
#include <string>

#include "tests/mutation/template_mutation.h"
#include "tests/support/exchange_run.h"

namespace jit::testing::exchange_merge_mutations {
namespace {

constexpr int calls = 4;

// Calls that follow each other without the host, as in a decoding loop: a rank may be ahead.
std::string noticed_of_exchange(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  std::string text;
  for (const ExchangeShare share : {ExchangeShare::heads, ExchangeShare::all}) {
    for (std::uint64_t seed = 1; seed < 12 && text.empty(); ++seed) {
      ExchangeRun run({.spec = {.head_dim_v = 64, .share = share}, .tokens = 5, .heads = 4, .timeout = 0.01},
                      seed);
      try {
        const ExchangeMerge kernel = exchange_merge(run.problem().spec, Context(templates.settings()));
        run.call_all(kernel);
        for (int call = 1; call < calls; ++call) {
          for (int rank = 0; rank < run.ranks(); ++rank) run.call(rank, kernel);
        }
        run.synchronize();
        text = run.check_all();
        for (int rank = 0; rank < run.ranks() && text.empty(); ++rank) {
          if (const auto fault = run.fault(rank)) text = fault->to_string();
        }
      } catch (const Error& error) {
        return fmt::format("{}: {}", to_string(error.code()), error.what());
      }
    }
  }
  return text;
}

// All in each run: kernels are small.
class ExchangeMergeMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(ExchangeMergeMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_exchange(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    Exchange, ExchangeMergeMutationTest,
    ::testing::Values(
        TemplateMutation{"AcquireSys_Relaxed", {"ld.acquire.sys", "ld.relaxed.sys"}, {"data race"}},
        TemplateMutation{"AcquireSys_OfOneDevice", {"ld.acquire.sys", "ld.acquire.gpu"}, {"data race"}},
        TemplateMutation{"ReleaseSys_Relaxed", {"st.release.sys", "st.relaxed.sys"}, {"data race"}},
        TemplateMutation{"ReleaseSys_OfOneDevice", {"st.release.sys", "st.release.gpu"}, {"data race"}},
        TemplateMutation{"ExchangeFlagBeforeData", removed, {"data race"}},
        TemplateMutation{"ExchangeReadsBeforeTheFlag",
                         {"__syncthreads_and(is_here)", "is_here"},
                         {"data race", "uninitialized read"}},
        TemplateMutation{"ExchangeHalf", {"(half_ * ranks", "(0 * ranks"}, {"data race"}},
        TemplateMutation{"ExchangeHalfOfFlags", {"(half_ * params_.tiles", "(0 * params_.tiles"}},
        TemplateMutation{"ExchangeAnyEpoch", {"seen == wanted", "seen != 0"}, {"data race"}},
        TemplateMutation{"ExchangeEpochStays", removed, {"data race"}},
        TemplateMutation{"ExchangeOwnRowTwice", {"source == params_.rank", "true"}},
        TemplateMutation{"ExchangeBeforeGridsInFront", {"$", "if (threadIdx.x != 0) $"}, {"data race"}}),
    ::testing::PrintToStringParamName());

UNMUTATED_TEST(Exchange, IsRightUnmutated) { EXPECT_EQ(noticed_of_exchange(nullptr), ""); }

}  // namespace
}  // namespace jit::testing::exchange_merge_mutations
