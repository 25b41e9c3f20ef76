// What launches count, held against what kernels promise: no bank conflicts with the swizzle, the flops of
// attention and no more, every key and value read once for each tile of queries.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jit/attention.h>
#include <jit/emulation.h>

#include "tests/support/attention_run.h"
#include "tests/support/host_functors.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using Json = nlohmann::json;

AttentionCase dense_case(int head_dim) {
  AttentionCase problem;
  problem.spec.head_dim = head_dim;
  problem.batch = 2;
  problem.heads_kv = 2;
  problem.seqlen_q = 128;
  problem.seqlen_kv = 192;
  problem.seed = 3;
  return problem;
}

ForwardMmaSync config_with(Swizzle swizzle, int matrices = 4) {
  ForwardMmaSync config;
  config.tile_q = 64;
  config.tile_kv = 32;
  config.warps = 4;
  config.stages_k = config.stages_v = 2;
  config.swizzle = swizzle;
  config.ldmatrix_matrices = matrices;
  return config;
}

LaunchTrace trace_of(const AttentionCase& problem, const KernelConfig& config) {
  const AttentionRun run(problem);
  const TraceScope trace;
  attention(problem.spec, config, Context(shared_cache_settings()))(run.arguments());
  EXPECT_EQ(run.check(64).failure, "");
  return trace.launches().at(0);
}

Json counts_of(const AttentionCase& problem, const KernelConfig& config) {
  return Json::parse(trace_of(problem, config).counts_json());
}

std::uint64_t number(const Json& counts, const char* name) { return counts.value(name, std::uint64_t{0}); }

TEST(Counts, SwizzledTilesHaveNoBankConflicts) {
  for (const int head_dim : {16, 40, 64, 80, 96, 128, 160, 192, 256}) {
    for (const int matrices : {2, 4}) {
      const Json counts = counts_of(dense_case(head_dim), config_with(Swizzle::xor_chunks, matrices));
      for (const char* kind : {"matrix_load", "async_copy"}) {
        const Json& part = counts.at("by_class").at(kind);
        EXPECT_GT(number(part, "ideal_wavefronts"), 0u) << kind;
        EXPECT_EQ(number(part, "bank_wavefronts"), number(part, "ideal_wavefronts"))
            << kind << " at head_dim " << head_dim;
      }
    }
  }
}

TEST(Counts, UnswizzledTilesHaveThem) {
  // Rows of 256 bytes: all eight rows of a matrix begin in the same bank.
  const Json part = counts_of(dense_case(128), config_with(Swizzle::none)).at("by_class").at("matrix_load");
  EXPECT_GE(number(part, "bank_wavefronts"), 7 * number(part, "ideal_wavefronts"));
}

TEST(Counts, FlopsAndBytesOfDenseAttention) {
  const AttentionCase problem = dense_case(128);
  const Json total = counts_of(problem, config_with(Swizzle::xor_chunks)).at("total");
  const std::uint64_t planes = 4, q = 128, kv = 192, d = 128, q_tiles = 2;
  EXPECT_EQ(number(total, "tensor_flops"), planes * 4 * q * kv * d);
  EXPECT_EQ(number(total, "local_bytes"), 0u);
  const std::uint64_t tiles_bytes = planes * (q * d + 2 * q_tiles * kv * d) * 2;
  EXPECT_GE(number(total, "global_read_bytes"), tiles_bytes);
  EXPECT_LT(number(total, "global_read_bytes"), tiles_bytes + 1024);
  EXPECT_EQ(number(total, "global_write_bytes"), planes * (q * d * 2 + q * 4));
}

TEST(Counts, CausalSkipsWhatItNeverSees) {
  AttentionCase problem = dense_case(64);
  problem.seqlen_q = problem.seqlen_kv = 256;
  const auto flops = [&] {
    return number(counts_of(problem, config_with(Swizzle::xor_chunks)).at("total"), "tensor_flops");
  };
  const std::uint64_t full = flops();
  problem.spec.mask = mask::causal();
  // Four tiles of 64 queries see 2, 4, 6 and 8 of 8 tiles of 32 keys.
  EXPECT_EQ(flops(), full * 20 / 32);
}

// Tiles of 64 queries of one head and 32 keys.
std::uint64_t tiles_with_kept_keys(const AttentionCase& problem) {
  const AttentionRun run(problem);
  const reference::Keep& keep = run.problem().keep;
  std::uint64_t tiles = 0;
  for (int b = 0; b < problem.batch; ++b) {
    for (int q = 0; q < problem.seqlen_q; q += 64) {
      for (int k = 0; k < problem.seqlen_kv; k += 32) {
        bool is_kept = false;
        for (int i = 0; i < 64 * 32 && !is_kept; ++i) is_kept = keep(b, 0, q + i / 32, k + i % 32);
        tiles += is_kept ? 1 : 0;
      }
    }
  }
  return tiles;
}

// Texts do, too, without a word from the user.
TEST(Counts, MasksSkipTilesOfWhichTheyKeepNothing) {
  AttentionCase problem = dense_case(64);
  problem.heads_kv = 1;
  problem.batch = 3;
  problem.seqlen_q = 256;
  problem.seqlen_kv = 320;
  const std::uint64_t all = 3 * 4 * 10;
  for (const char* config :
       {"family=forward_mma_sync tile_q=64 tile_kv=32 warps=4", "family=forward_wgmma tile_q=64 tile_kv=32",
        "family=forward_split_kv row_warps=4 key_warps=1 tile_kv=32 stages=2"}) {
    const auto flops = [&](const char* mask) {
      problem.spec.mask = parse_mask(mask, reference::mask_texts());
      return number(counts_of(problem, parse_config(config)).at("total"), "tensor_flops");
    };
    const std::uint64_t full = flops("none");
    for (const char* mask : {"draft_tree", "causal_per_request", "text(recent)", "text(recent) || prefix(40)",
                             "block_mask(64, 32)", "block_mask(128, 96)"}) {
      const std::uint64_t masked = flops(mask), kept = tiles_with_kept_keys(problem);
      EXPECT_LT(kept, all) << mask;
      EXPECT_EQ(masked, full / all * kept) << mask << ", " << config;
    }
  }
}

TEST(Counts, ListingNamesTemplateLines) {
  const LaunchTrace trace = trace_of(dense_case(64), config_with(Swizzle::xor_chunks));
  EXPECT_EQ(trace.findings(), std::vector<std::string>());
  EXPECT_NE(trace.listing().find("mma.sync.aligned.m16n8k16"), std::string::npos);
  EXPECT_NE(trace.listing().find("// ptx/mma.cuh:"), std::string::npos) << trace.listing().substr(0, 2000);
}

}  // namespace
}  // namespace jit::testing
