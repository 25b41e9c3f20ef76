// Each way of breaking the templates is noticed: by a finding of the emulator, or by the comparison with the
// reference. What is not noticed here, a GPU might hide as well.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/attention.h>
#include <jit/device.h>

#include "generator/templates.h"
#include "tests/emulated/mutated_text.h"
#include "tests/gpu/attention_run.h"
#include "tests/unit/cache_testing.h"

namespace jit::testing {
namespace {

struct TemplateMutation {
  const char* name;
  const char* file;
  const char* from;
  const char* to;
  std::vector<const char*> caught_by;  ///< one of these kinds of findings; none: by the numbers
  int head_dim_v = 64;
};
std::ostream& operator<<(std::ostream& out, const TemplateMutation& mutation) { return out << mutation.name; }

/// A folder of templates with one text changed; gone at the end of the scope.
class MutatedTemplates {
 public:
  MutatedTemplates(const TemplateMutation* mutation) {
    for (const SourceFile& file : embedded_templates()) {
      const std::filesystem::path path = std::filesystem::path(folder_.path()) / file.name;
      std::filesystem::create_directories(path.parent_path());
      const bool changed = mutation != nullptr && file.name == mutation->file;
      std::ofstream(path) << (changed ? mutated(file.text, mutation->from, mutation->to) : file.text);
    }
  }
  std::string folder() const { return folder_.path(); }

 private:
  FreshFolder folder_;
};

AttentionCase causal_case(int head_dim_v) {
  AttentionCase problem;
  problem.spec.head_dim = 64;
  problem.spec.head_dim_v = head_dim_v;
  problem.spec.mask = mask::causal();
  problem.batch = 1;
  problem.heads_kv = 2;
  problem.seqlen_q = 150;
  problem.seqlen_kv = 212;  // a key tile ends one key behind the first query's last
  problem.seed = 5;
  return problem;
}

/// What is noticed of a run: findings as text, or what is wrong with the numbers.
std::string noticed(const TemplateMutation* mutation, const KernelConfig& config) {
  const MutatedTemplates templates(mutation);
  Settings settings;
  settings.disk_cache = false;
  settings.tuning = TuningMode::off;
  settings.templates = templates.folder();
  const Context context(settings);
  const AttentionCase problem = causal_case(mutation ? mutation->head_dim_v : 64);
  const AttentionRun run(problem);
  try {
    attention(problem.spec, config, context)(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check().failure;
}

KernelConfig two_stages() { return {.tile_q = 64, .tile_kv = 32, .warps = 4, .stages_k = 2, .stages_v = 2}; }

TEST(Template, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, two_stages()), ""); }

class TemplateMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(TemplateMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam();
  const std::string text = noticed(&mutation, two_stages());
  ASSERT_NE(text, "") << "not caught";
  if (mutation.caught_by.empty()) {
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("launch_failed")))
        << "caught by a finding, not by numbers";
    return;
  }
  EXPECT_TRUE(std::any_of(mutation.caught_by.begin(), mutation.caught_by.end(), [&](const char* kind) {
    return text.find(kind) != std::string::npos;
  })) << text;
  EXPECT_THAT(text, ::testing::HasSubstr(".cuh:")) << "the finding names no line of a template";
}

constexpr const char* forward = "attention_forward_sm80.cuh";

INSTANTIATE_TEST_SUITE_P(
    All, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForK",
                         forward,
                         "    cp_async_wait_group<Traits::pending_k>();\n",
                         "",
                         {"access in flight"}},
        TemplateMutation{"NoWaitForV",
                         forward,
                         "    cp_async_wait_group<Traits::pending_v>();\n",
                         "",
                         {"access in flight"}},
        TemplateMutation{"WaitsForTooFew",
                         forward,
                         "cp_async_wait_group<Traits::pending_k>()",
                         "cp_async_wait_group<Traits::pending_k + 1>()",
                         {"access in flight"}},
        TemplateMutation{"NoBarrierBeforeK",
                         forward,
                         "    cp_async_wait_group<Traits::pending_k>();\n    __syncthreads();\n",
                         "    cp_async_wait_group<Traits::pending_k>();\n",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierBeforeV",
                         forward,
                         "    cp_async_wait_group<Traits::pending_v>();\n    __syncthreads();\n",
                         "    cp_async_wait_group<Traits::pending_v>();\n",
                         {"data race", "access in flight"}},
        TemplateMutation{"LoadsIntoTheStageInUse",
                         forward,
                         "const int stage_v_load = (stage_v + Traits::ahead_v) % Config::stages_v;",
                         "const int stage_v_load = (stage_v + Traits::ahead_v + 1) % Config::stages_v;",
                         {"data race", "access in flight"}},
        TemplateMutation{"LaterStageThanLoaded",
                         forward,
                         "    stage_k = stage_k + 1 == Config::stages_k ? 0 : stage_k + 1;\n",
                         "",
                         {}},
        // O is wide enough to reach over V, which other warps still multiply with.
        TemplateMutation{"NoBarrierBeforeO",
                         "forward_epilogue.cuh",
                         "  cp_async_wait_group<0>();\n  __syncthreads();\n",
                         "  cp_async_wait_group<0>();\n",
                         {"data race"},
                         256},
        TemplateMutation{"NoWarpBarrierInO", "forward_epilogue.cuh", "  __syncwarp();\n", "", {"data race"}},
        TemplateMutation{
            "SwizzleOnTheWritingSideOnly",
            forward,
            "k_tile + Traits::KTile::offset((x4 ? lane / 16 * 8 : 0) + lane % 8, lane / 8 % 2)",
            "k_tile + ((x4 ? lane / 16 * 8 : 0) + lane % 8) * Traits::KTile::row_bytes + lane / 8 % 2 * 16",
            {}},
        TemplateMutation{"MaskOffByOne",
                         "masks.cuh",
                         "  __device__ bool keep(int q, int k) const { return k <= q + shift; }",
                         "  __device__ bool keep(int q, int k) const { return k < q + shift; }",
                         {}},
        TemplateMutation{"TileClassOffByOne",
                         "masks.cuh",
                         "    if (tile.k_end - 1 <= tile.q_begin + shift) return TileClass::full;",
                         "    if (tile.k_end - 2 <= tile.q_begin + shift) return TileClass::full;",
                         {}},
        TemplateMutation{"StoresPastTheLastQuery",
                         "tile_copy.cuh",
                         "if (lane_row + r >= rows || row + lane_row + r >= row_end) break;",
                         "if (lane_row + r >= rows) break;",
                         {"out of bounds"}},
        TemplateMutation{"LanesMissAShuffle",
                         "softmax.cuh",
                         "  x = fmaxf(x, __shfl_xor_sync(full_warp, x, 1));",
                         "  if (lane_id() < 16) x = fmaxf(x, __shfl_xor_sync(full_warp, x, 1));",
                         {"deadlock"}}),
    [](const ::testing::TestParamInfo<TemplateMutation>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace jit::testing
