// Compares the emulator with silicon: outputs recorded on a real GPU, compared with what the
// emulator makes of the same config and inputs. With JIT_ATTENTION_TEST_RECORD=FILE and
// JIT_ATTENTION_DEVICE=cuda the test writes the recording instead.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jit/attention.h>
#include <jit/device.h>

#include "cache/digest.h"
#include "tests/support/attention_run.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

struct SiliconCase {
  AttentionCase problem;
  KernelConfig config;
};

/// One of each kind of thing that a kernel can be made of; small, because the outputs are kept in the tree.
std::vector<SiliconCase> silicon_cases() {
  const auto problem = [](int head_dim, int head_dim_v, DType dtype, Mask mask, Score score) {
    AttentionCase result;
    result.spec.head_dim = head_dim;
    result.spec.head_dim_v = head_dim_v;
    result.spec.dtype = dtype;
    result.spec.mask = std::move(mask);
    result.spec.score = std::move(score);
    result.batch = 1;
    result.heads_kv = 1;
    result.seqlen_q = 100;
    result.seqlen_kv = 203;
    result.seed = 20261121;
    return result;
  };
  const auto config = [](int tile_q, int tile_kv, int warps, int stages, bool q_in_registers,
                         Rescale rescale) {
    ForwardMmaSync result;
    result.tile_q = tile_q;
    result.tile_kv = tile_kv;
    result.warps = warps;
    result.stages_k = result.stages_v = stages;
    result.q_in_registers = q_in_registers;
    result.rescale = rescale;
    return result;
  };
  const Score plain = {};
  return {
      {problem(64, 64, DType::bf16, {}, plain), config(64, 32, 4, 2, true, Rescale::lazy)},
      {problem(64, 64, DType::fp16, {}, plain), config(64, 64, 4, 1, false, Rescale::always)},
      {problem(128, 128, DType::bf16, mask::causal(), plain), config(64, 48, 4, 2, false, Rescale::lazy)},
      {problem(128, 128, DType::fp16, mask::causal(), score::softcap(15)),
       config(32, 32, 2, 2, true, Rescale::always)},
      {problem(40, 72, DType::bf16, mask::sliding_window(50, 7), plain),
       config(48, 32, 3, 3, false, Rescale::lazy)},
      {problem(96, 96, DType::bf16, mask::causal(), score::alibi()),
       config(64, 64, 4, 2, false, Rescale::lazy)},
      {problem(256, 256, DType::bf16, {}, plain), config(64, 16, 4, 2, false, Rescale::lazy)},
      {problem(192, 128, DType::fp16, mask::causal(), plain), config(64, 32, 4, 1, false, Rescale::lazy)},
  };
}

struct Result {
  std::string inputs;                  ///< digest
  std::vector<std::uint16_t> outputs;  ///< all 16-bit words of the output arena; LSE is left out
};

Result compute(const SiliconCase& wanted) {
  AttentionCase problem = wanted.problem;
  problem.with_lse = false;
  const AttentionRun run(problem);
  attention(problem.spec, wanted.config, Context(shared_cache_settings()))(run.arguments());
  EXPECT_EQ(run.check(64).failure, "") << to_string(problem);
  const std::vector<unsigned char> bytes = run.outputs();
  Result result;
  result.inputs = digest(std::as_bytes(std::span(run.inputs()))).hex();
  result.outputs.resize(bytes.size() / 2);
  std::memcpy(result.outputs.data(), bytes.data(), result.outputs.size() * 2);
  return result;
}

const std::string recording = JIT_ATTENTION_SOURCE_DIR "/tests/device/recordings/attention.bin";

// A digest of 32 digits, the number of words, the words; for each case.
void write(const std::string& path, const std::vector<Result>& results) {
  std::ofstream file(path, std::ios::binary);
  for (const Result& result : results) {
    const auto count = static_cast<std::uint64_t>(result.outputs.size());
    file.write(result.inputs.data(), 32);
    file.write(reinterpret_cast<const char*>(&count), sizeof(count));
    file.write(reinterpret_cast<const char*>(result.outputs.data()), static_cast<std::streamsize>(count * 2));
  }
  ASSERT_TRUE(file.good()) << path;
}

std::vector<Result> read(const std::string& path, std::size_t cases) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Result> results(cases);
  for (Result& result : results) {
    std::uint64_t count = 0;
    result.inputs.resize(32);
    file.read(result.inputs.data(), 32);
    file.read(reinterpret_cast<char*>(&count), sizeof(count));
    if (!file || count > (1u << 24)) break;
    result.outputs.resize(count);
    file.read(reinterpret_cast<char*>(result.outputs.data()), static_cast<std::streamsize>(count * 2));
  }
  return results;
}

// Distance of two 16-bit floats in steps from one number to the next, across zero.
int ulps(std::uint16_t a, std::uint16_t b) {
  const auto place = [](std::uint16_t bits) {
    return bits & 0x8000 ? -static_cast<int>(bits & 0x7fff) : static_cast<int>(bits);
  };
  return std::abs(place(a) - place(b));
}

TEST(Silicon, OutputsAgree) {
  const std::vector<SiliconCase> cases = silicon_cases();
  if (const char* path = std::getenv("JIT_ATTENTION_TEST_RECORD"); path != nullptr && *path != 0) {
    ASSERT_FALSE(device_info(0).emulated) << "only a real GPU is worth recording";
    std::vector<Result> results;
    for (const SiliconCase& one : cases) results.push_back(compute(one));
    return write(path, results);
  }
  const std::vector<Result> recorded = read(recording, cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Result result = compute(cases[i]);
    const std::string name = to_string(cases[i].problem) + ", config " + to_string(cases[i].config);
    ASSERT_EQ(result.inputs, recorded[i].inputs) << "other inputs than were recorded: " << name;
    ASSERT_EQ(result.outputs.size(), recorded[i].outputs.size()) << name;
    std::size_t total = 0, equal = 0, close = 0;
    int worst = 0;
    for (std::size_t k = 0; k < result.outputs.size(); ++k) {
      constexpr std::uint16_t poison = 0xffff;  // around the output, on both sides
      if (result.outputs[k] == poison && recorded[i].outputs[k] == poison) continue;
      const int distance = ulps(result.outputs[k], recorded[i].outputs[k]);
      ++total;
      equal += distance == 0;
      close += distance <= 1;
      worst = std::max(worst, distance);
    }
    const auto percent = [&](std::size_t count) {
      return 100 * static_cast<double>(count) / static_cast<double>(total);
    };
    std::printf("%s: %.4f %% equal, %.4f %% within 1 ulp, worst %d ulp\n", name.c_str(), percent(equal),
                percent(close), worst);
    EXPECT_GE(percent(close), 99.9) << name;
  }
}

}  // namespace
}  // namespace jit::testing
