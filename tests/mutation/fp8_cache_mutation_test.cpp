// Mutations of the warpgroup that makes numbers of 16 bits of keys and values of 8: what it reads must have come, and what
// it writes must be read, and left alone, in time.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
namespace {

// More tiles than blocks have at once.
const Subject stored = {
    .config = "family=forward_split_wgmma tile_rows=64 tile_kv=32 stages=1 stages_stored=2",
    .mask = "none",
    .head_dim = 16,
    .head_dim_v = 16,
    .kv_dtype = DType::fp8_e4m3,
    .heads = 40,
    .seqlen_q = 1,
    .seqlen_kv = 300};

TEST(Fp8Cache, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, stored), ""); }

class Fp8CacheMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(Fp8CacheMutationTest, IsCaught) { expect_caught(GetParam()); }

constexpr const char* convert_keys = "steps/convert_keys.cuh";
constexpr const char* load_keys = "forward_split_wgmma/load_keys.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8Cache, Fp8CacheMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NoProxyFence", convert_keys, "    fence_proxy_async_shared();\n", "", {"proxy"}, stored},
        TemplateMutation{"WrittenWhileItIsRead",
                         convert_keys,
                         "    rings_.k.wait_empty();\n",
                         "",
                         {"data race", "access in flight", "barrier"},
                         stored},
        TemplateMutation{"ReadBeforeItHasCome",
                         convert_keys,
                         "    stored_.v.wait_full();\n",
                         "",
                         {"access in flight", "data race", "uninitialized"},
                         stored},
        TemplateMutation{"ConvertersWithoutEnd",
                         load_keys,
                         "    if constexpr (Traits::converts) note_of_keys(key_note_end);\n",
                         "",
                         {"deadlock"},
                         stored}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
