// Mutations of the warpgroup that makes numbers of 16 bits of keys and values of 8: what it reads must have come, and what
// it writes must be read, and left alone, in time.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
namespace {

// A few more units than blocks, of several tiles.
const Subject stored = {
    .config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=1 stages_stored=2",
    .kv_dtype = DType::fp8_e4m3,
    .heads = 140,
    .seqlen_q = 5,
    .seqlen_kv = 300};

TEST(Fp8Cache, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, stored), ""); }

class Fp8CacheMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(Fp8CacheMutationTest, IsCaught) { expect_caught(GetParam()); }

constexpr const char* convert_keys = "forward_split_wgmma/convert_keys.cuh";
constexpr const char* key_scales = "forward_split_wgmma/key_scales.cuh";
constexpr const char* load_keys = "forward_split_wgmma/load_keys.cuh";
constexpr const char* rings = "forward_split_wgmma/rings.cuh";

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
        TemplateMutation{"HandedOverByOneWarp",
                         rings,
                         "Traits::converts ? Traits::converter_warps : 1",
                         "1",
                         {"data race", "barrier", "proxy"},
                         stored},
        TemplateMutation{"ConvertersWithoutEnd",
                         load_keys,
                         "    if constexpr (Traits::converts) note_of_keys(key_note_end);\n",
                         "",
                         {"deadlock"},
                         stored},
        TemplateMutation{"ScalesOfKeysLeftOut", key_scales, "is_of_exponents ? k : 1.0f", "1.0f", {}, stored},
        TemplateMutation{"ScalesOfValuesLeftOut", key_scales, "value *= v_;", "value *= 1;", {}, stored}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
