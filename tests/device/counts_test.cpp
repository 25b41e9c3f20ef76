// Counts of launches, compared with what kernels promise: no bank conflicts with the swizzle, the flops of
// attention and no more, every key and value read once for each tile of queries.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jit/attention.h>
#include <jit/device.h>
#include <jit/emulation.h>

#include "include/jit/device.h"
#include "tests/support/attention_run.h"
#include "tests/support/backward_run.h"
#include "tests/support/host_functors.h"
#include "tests/support/matmul_run.h"
#include "tests/support/seed.h"
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

ForwardMmaSync small_config() {
  ForwardMmaSync config;
  config.tile_q = 64;
  config.tile_kv = 32;
  config.warps = 4;
  config.stages_k = config.stages_v = 2;
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
    const Json counts = counts_of(dense_case(head_dim), small_config());
    for (const char* kind : {"matrix_load", "async_copy"}) {
      const Json& part = counts.at("by_class").at(kind);
      EXPECT_GT(number(part, "ideal_wavefronts"), 0u) << kind;
      EXPECT_EQ(number(part, "bank_wavefronts"), number(part, "ideal_wavefronts"))
          << kind << " at head_dim " << head_dim;
    }
  }
}

TEST(Counts, FlopsAndBytesOfDenseAttention) {
  const AttentionCase problem = dense_case(128);
  const Json total = counts_of(problem, small_config()).at("total");
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
  const auto flops = [&] { return number(counts_of(problem, small_config()).at("total"), "tensor_flops"); };
  const std::uint64_t full = flops();
  problem.spec.mask = mask::causal();
  // Four tiles of 64 queries see 2, 4, 6 and 8 of 8 tiles of 32 keys.
  EXPECT_EQ(flops(), full * 20 / 32);
}

// A text that says what a built-in mask says computes the same tiles, drops scores as cheaply, and rounds alike.
TEST(Counts, TextsAreAsCheapAsBuiltInMasksOfTheirMeaning) {
  AttentionCase problem = dense_case(64);
  problem.seqlen_q = problem.seqlen_kv = 500;
  const ForwardWgmma config =
      std::get<ForwardWgmma>(parse_config("family=forward_wgmma tile_q=128 tile_kv=64"));
  problem.spec.mask = mask::sliding_window(150, 20);
  const Json built_in = counts_of(problem, config).at("total");
  problem.spec.mask = parse_mask("text(close)", reference::mask_texts());
  const Json text = counts_of(problem, config).at("total");
  EXPECT_EQ(number(text, "tensor_flops"), number(built_in, "tensor_flops"));
  EXPECT_EQ(number(text, "global_read_bytes"), number(built_in, "global_read_bytes"));
  EXPECT_LT(static_cast<double>(number(text, "warp_instructions")),
            1.02 * static_cast<double>(number(built_in, "warp_instructions")));
}

// Tiles of so many queries of one head and so many keys.
std::uint64_t tiles_with_kept_keys(const AttentionCase& problem, const reference::Keep& keep, int tile_q,
                                   int tile_kv) {
  std::uint64_t tiles = 0;
  for (int b = 0; b < problem.batch; ++b) {
    for (int q = 0; q < problem.seqlen_q; q += tile_q) {
      for (int k = 0; k < problem.seqlen_kv; k += tile_kv) {
        bool is_kept = false;
        for (int i = 0; i < tile_q * tile_kv && !is_kept; ++i)
          is_kept = keep(b, 0, q + i / tile_kv, k + i % tile_kv);
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
  std::uint64_t index = 0;
  for (const char* config :
       {"family=forward_mma_sync tile_q=64 tile_kv=32 warps=4", "family=forward_wgmma tile_q=64 tile_kv=32",
        "family=forward_split_kv row_warps=4 key_warps=1 tile_kv=32 stages=2"}) {
    const auto flops = [&](const char* mask) {
      problem.spec.mask = parse_mask(mask, reference::mask_texts());
      return number(counts_of(problem, parse_config(config)).at("total"), "tensor_flops");
    };
    const std::uint64_t full = flops("none");
    ++index;  // other masks with the next config
    for (const char* mask : {"draft_tree", "causal_per_request", "text(recent)", "text(recent) || prefix(40)",
                             "tree", "block_mask(64, 32)", "block_mask(128, 96)"}) {
      if (!reference::is_in_this_run(index++, 6)) continue;
      const std::uint64_t masked = flops(mask);
      const AttentionRun run(problem);
      const std::uint64_t kept = tiles_with_kept_keys(problem, run.problem().keep, 64, 32);
      EXPECT_LT(kept, all) << mask;
      EXPECT_EQ(masked, full / all * kept) << mask << ", " << config;
    }
  }
}

// A score that is −inf there is the mask that drops the same, to the bit, whether its text is followed or not. A
// sixth of the pairs in each run.
TEST(Counts, ScoresSkipTilesThatTheyMakeInfinite) {
  struct Meaning {
    const char* drops;
    const char* before = "";  // of the chain
  };
  const std::string loop = "for (int i = 0; i < 1; ++i) {}\n";
  AttentionCase problem = dense_case(64);
  problem.heads_kv = 1;
  problem.spec.gqa_ratio = 2;
  problem.seqlen_q = 256;
  problem.seqlen_kv = 320;
  std::uint64_t index = 0;
  for (const char* config :
       {"family=forward_mma_sync tile_q=64 tile_kv=32 warps=4", "family=forward_wgmma tile_q=64 tile_kv=32",
        "family=forward_split_kv row_warps=4 key_warps=1 tile_kv=64 stages=2",
        "family=forward_split_wgmma tile_kv=64"}) {
    ++index;  // another score first with the next config
    for (const Meaning& meaning :
         {Meaning{"k > q + 64 || k < 70 || q < 64"}, Meaning{"h % 2 == 0 ? k < 140 : k < 70"},
          Meaning{"k < q || q > 200", "softcap(20)"}}) {
      if (!reference::is_in_this_run(index++, 6)) continue;
      SCOPED_TRACE(fmt::format("{}, {}", meaning.drops, config));
      const std::string drops = meaning.drops;
      const bool may_halve = std::string(config).find("forward_wgmma") != std::string::npos;
      const bool may_split = std::string(config).find("split") != std::string::npos;
      problem.spec.split_keys = may_split ? 64 : 0;
      const auto result = [&](const std::string& mask, const std::string& body) {
        const Score before = parse_score(meaning.before[0] == 0 ? "none" : meaning.before);
        problem.spec.score = before.then(score::text({.name = "s", .body = body}));
        problem.spec.mask =
            mask.empty() ? mask::prefix(300) : mask::prefix(300) && mask::text({.name = "m", .body = mask});
        AttentionCase random_case = problem;
        random_case.spec.mask = Mask(), random_case.spec.score = Score();  // the functors read nothing
        const AttentionRun run(random_case);
        const TraceScope trace;
        attention(problem.spec, parse_config(config), Context(shared_cache_settings()))(run.arguments());
        std::uint64_t flops = 0;
        for (const LaunchTrace& launch : trace.launches())
          flops += number(Json::parse(launch.counts_json()).at("total"), "tensor_flops");
        return std::pair(flops, run.outputs());
      };
      const auto masked = result("return !(" + drops + ");", "return score;");
      const auto scored = result("", "return (" + drops + ") ? -INFINITY : score;");
      const auto unskipped = result("", loop + "return (" + drops + ") ? -INFINITY : score;");
      // forward_wgmma leaves out halves of tiles, too, where the mask itself is a range of keys.
      EXPECT_LE(scored.first, masked.first);
      if (!may_halve) {
        EXPECT_EQ(scored.first, masked.first);
      }
      EXPECT_LT(scored.first, unskipped.first);
      EXPECT_TRUE(scored.second == masked.second);
      EXPECT_TRUE(scored.second == unskipped.second);
    }
  }
}

TEST(Counts, BackwardSkipsThemToo) {
  const CurrentDevice scope(0);
  const std::string drops = "k > q + 30 || k < q - 10";
  AttentionCase problem{.spec = {.head_dim = 64, .gqa_ratio = 2}, .batch = 1, .heads_kv = 1};
  problem.seqlen_q = 200;
  problem.seqlen_kv = 200;
  problem.score = [](double s, int, int, int q, int k) {
    return k > q + 30 || k < q - 10 ? -std::numeric_limits<double>::infinity() : 3 * std::tanh(s / 3);
  };
  const Score capped = score::softcap(3);
  for (const bool one_pass : {false, true}) {
    if (!reference::is_in_this_run(one_pass ? 1 : 0, 2)) continue;
    const auto flops = [&](const Mask& mask, const Score& score) {
      problem.spec.mask = mask;
      problem.spec.score = capped.then(score);
      BackwardRun run(problem);
      const TraceScope trace;
      const Context context(shared_cache_settings());
      if (one_pass) {
        run.compute(context, BackwardWgmma{});
      } else {
        run.compute(context, BackwardDqMmaSync{}, BackwardDkvMmaSync{});
      }
      std::uint64_t sum = 0;
      for (const LaunchTrace& launch : trace.launches())
        sum += number(Json::parse(launch.counts_json()).at("total"), "tensor_flops");
      EXPECT_EQ(run.check(), "");
      return std::pair(sum, run.gradients());
    };
    const auto masked =
        flops(mask::sliding_window(10, 30), score::text({.name = "s", .body = "return score;"}));
    const auto scored = flops(
        Mask(), score::text({.name = "s", .body = "if (" + drops + ") return -INFINITY;\nreturn score;"}));
    const auto unskipped = flops(Mask(), score::text({.name = "s",
                                                      .body = "for (int i = 0; i < 1; ++i) {}\nif (" + drops +
                                                              ") return -INFINITY;\nreturn score;"}));
    EXPECT_EQ(scored.first, masked.first) << one_pass;
    EXPECT_LT(scored.first, unskipped.first) << one_pass;
    if (!one_pass) {  // the other adds in any order
      EXPECT_TRUE(scored.second == masked.second);
    }
  }
}

TEST(Counts, ListingNamesTemplateLines) {
  const LaunchTrace trace = trace_of(dense_case(64), small_config());
  EXPECT_EQ(trace.findings(), std::vector<std::string>());
  EXPECT_NE(trace.listing().find("mma.sync.aligned.m16n8k16"), std::string::npos);
  EXPECT_NE(trace.listing().find("// ptx/mma.cuh:"), std::string::npos) << trace.listing().substr(0, 2000);
}

// The first launch of a step, which its product is.
Json counts_of_step(const std::string& step, int m, int n, int k) {
  MatmulRun run({.step = step, .m = m, .n = n, .k = k, .splits = 2}, 5);
  const TraceScope trace;
  matmul_kernel(step, Context(shared_cache_settings()))(run.arguments());
  EXPECT_EQ(run.check(), "") << step;
  return Json::parse(trace.launches().at(0).counts_json());
}

// Wavefronts of shared memory beside those that would do: 1 without bank conflicts.
double ways(const Json& part) {
  return static_cast<double>(number(part, "bank_wavefronts")) /
         static_cast<double>(number(part, "ideal_wavefronts"));
}

// The figures of docs/tutorial/ on the ladder.
TEST(Counts, TheSwizzleTakesTheBankConflictsOfTheMatrixProduct) {
  const Json word_by_word = counts_of_step("tensor_cores", 128, 128, 192);
  int lines = 0;
  for (const Json& line : word_by_word.at("by_line")) {
    if (!line.at("file").get<std::string>().ends_with("shared_words.cuh")) continue;
    EXPECT_EQ(ways(line), 8) << line;
    ++lines;
  }
  EXPECT_GE(lines, 1);
  EXPECT_GT(ways(word_by_word.at("total")), 4);
  for (const char* step : {"smem_tiles", "ldmatrix", "cp_async", "double_buffer", "split_k"})
    EXPECT_EQ(ways(counts_of_step(step, 128, 128, 192).at("total")), 1) << step;
}

TEST(Counts, EachStepOfTheMatrixProductTakesFewerInstructions) {
  std::uint64_t before = ~std::uint64_t{0};
  for (const char* step : {"smem_tiles", "tensor_cores", "ldmatrix", "cp_async"}) {
    const std::uint64_t instructions =
        number(counts_of_step(step, 128, 128, 128).at("total"), "warp_instructions");
    EXPECT_LT(instructions, before) << step;
    before = instructions;
  }
}

TEST(Counts, FlopsAndBytesOfTheMatrixProduct) {
  const std::uint64_t m = 256, n = 128, k = 256;
  for (const char* step : {"tensor_cores", "ldmatrix", "cp_async", "double_buffer", "split_k"}) {
    const Json total = counts_of_step(step, m, n, k).at("total");
    EXPECT_EQ(number(total, "tensor_flops"), 2 * m * n * k) << step;
    // Two tiles of C, each with 128 rows of A and of B.
    EXPECT_EQ(number(total, "global_read_bytes"), 2 * (128 + 128) * k * 2) << step;
    EXPECT_EQ(number(total, "local_bytes"), 0u) << step;
  }
}

}  // namespace
}  // namespace jit::testing
