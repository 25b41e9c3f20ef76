// Mutations of forward_wide_wgmma: what the warpgroups hand over must come in time, and whole.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::wide_mutations {
namespace {

// A few more work tiles than blocks, of several tiles of keys. Rings have room for less than a tile.
const Subject subject = {.config = "family=forward_wide_wgmma stages_k=3",
                         .mask = "none",
                         .head_dim = 320,
                         .head_dim_v = 512,
                         .heads = 140,
                         .seqlen_q = 20,
                         .seqlen_kv = 200};
// Whose maxima move with nearly every tile.
const Subject steep = [] {
  Subject steep = subject;
  steep.amplitude = 4;
  steep.heads = 2;
  steep.seqlen_kv = 600;
  return steep;
}();

const std::vector<const char*> race = {"data race", "access in flight", "uninitialized", "mbarrier",
                                       "barrier"};

UNMUTATED_TEST(Wide, IsRightUnmutated) {
  EXPECT_EQ(noticed(nullptr, subject), "");
  EXPECT_EQ(noticed(nullptr, steep), "");
}

INSTANTIATE_TEST_SUITE_P(
    Wide, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"PanelLoadedBeforeItIsEmpty", removed, race, subject},
        TemplateMutation{"NoWaitForAPanel", removed, race, subject},
        TemplateMutation{"PanelReleasedUnderItsProduct", {"in_flight + 1", "in_flight"}, race, subject},
        TemplateMutation{"QueriesOfTheWideReleasedEarly", {"if (is_last) ", ""}, race, subject, true},
        TemplateMutation{"POverPThatIsMultiplied", removed, race, subject},
        TemplateMutation{"RescaleNotTold", {"moves ? p_rescales : 0", "0"}, {}, steep},
        TemplateMutation{"RowFactorsOfOtherRows", {"factors[r]", "factors[1 - r]"}, {}, subject},
        TemplateMutation{"PWithoutProxyFence", removed, {"proxy"}, subject},
        TemplateMutation{"PTakenBeforeItIsThere", removed, race, subject, true},
        TemplateMutation{"NoWaitForAPart", removed, race, subject, true},
        TemplateMutation{"PartReleasedUnderItsProduct", moved_up(1), race, subject},
        TemplateMutation{"PReleasedUnderTheProduct", moved_up(5), race, subject},
        TemplateMutation{"PartsOfOneWarpgroup", {"part_columns(", "0 * part_columns("}, {}, subject}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::wide_mutations
