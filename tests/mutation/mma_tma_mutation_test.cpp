// Mutations of forward_mma_tma, on an emulated sm_120a: warps that meet nowhere must wait for what they read, and keep it
// until they have; FP8 products have scales of 1.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::mma_tma_mutations {
namespace {

// A few more work tiles than blocks, of several tiles of keys.
const Subject subject = {.config = "family=forward_mma_tma tile_q=64 tile_kv=32 stages=2",
                         .mask = "none",
                         .heads = 180,
                         .seqlen_q = 20,
                         .seqlen_kv = 200};
// So few keys that the next queries come before these are multiplied.
const Subject short_keys = [] {
  Subject short_keys = subject;
  short_keys.seqlen_kv = 40;
  return short_keys;
}();
const Subject of_bytes = [] {
  Subject of_bytes = subject;
  of_bytes.dtype = DType::fp8_e4m3;
  of_bytes.heads = 2;
  return of_bytes;
}();

const std::vector<const char*> race = {"data race", "access in flight", "uninitialized", "mbarrier"};

UNMUTATED_TEST(MmaTma, IsRightUnmutated) {
  EXPECT_EQ(noticed(nullptr, subject), "");
  EXPECT_EQ(noticed(nullptr, of_bytes), "");
}

class MmaTmaMutationTest : public MutationTest {};
TEST_P(MmaTmaMutationTest, IsCaught) { expect_caught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    MmaTma, MmaTmaMutationTest,
    ::testing::Values(TemplateMutation{"NoWaitForTmaKeys", removed, race, subject, true},
                      TemplateMutation{"NoWaitForTmaValues", removed, race, subject, true},
                      TemplateMutation{"TmaKeysReleasedEarly", moved_up(3), race, subject},
                      TemplateMutation{"TmaValuesReleasedEarly", moved_up(9), race, subject},
                      TemplateMutation{"TmaQueries_Kept", removed, {"deadlock"}, subject},
                      TemplateMutation{"TmaQueries_ReleasedEarly", moved_up(1), race, short_keys},
                      TemplateMutation{"TmaKeysLeftOut", {"!keys_.is_last()", "false"}, {}, subject},
                      TemplateMutation{"ScalesOfTwo", {"0x7f7f7f7f", "0x7f7f7f80"}, {}, of_bytes},
                      TemplateMutation{"ScaleSelectors", {"{0, 0}", "{0, 4}"}, {"illegal"}, of_bytes}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::mma_tma_mutations
