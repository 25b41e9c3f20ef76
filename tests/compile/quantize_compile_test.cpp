// Registers of the quantizer: of calls without lengths nothing is spilled.
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <jit/quantize.h>

#include "generator/build/image.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/operations/quantize/program.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit {
namespace {

struct QuantizerWish {
  QuantizeSpec spec;
  Arch arch;
};

// Compiles each program for its architecture: what is spilled fails.
void expect_no_spills(const std::vector<QuantizerWish>& wishes, Program (*program_of)(const QuantizeSpec&)) {
  const Context context(testing::shared_cache_settings());
  std::vector<std::string> failures(wishes.size());
  testing::in_parallel(wishes.size(), [&](std::size_t i) {
    const auto& [spec, arch] = wishes[i];
    const Program program = program_of(spec);
    try {
      const ResourceUsage& resources =
          build_image(*Access::state(context), program, {.arch = arch})->resources;
      if (!resources.is_clean() || resources.stack_bytes != 0)
        failures[i] = fmt::format("{} on {}: {} bytes are spilled, {} of stack", program.facts.front().second,
                                  to_string(arch), resources.spill_bytes(), resources.stack_bytes);
    } catch (const Error& error) {
      failures[i] = fmt::format("{} on {}: {}\n{}", program.facts.front().second, to_string(arch),
                                error.what(), error.log());
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(QuantizeCompile, NothingIsSpilledWhereRowsAreResident) {
  std::vector<QuantizerWish> wishes;
  using enum QuantizedScales;
  for (const auto& [dtype, head_dim] : {std::pair{DType::bf16, 64},
                                        {DType::bf16, 128},
                                        {DType::bf16, 256},
                                        {DType::fp32, 64},
                                        {DType::fp32, 128}}) {
    for (const auto& [scales, value_scales] :
         {std::pair{head, head}, {token, head}, {block, channel}, {head, channel}}) {
      for (const bool rotate : {false, true}) {
        for (const bool center : {false, true}) {
          // Means of fp32 spill some bytes: they are kept only where calls ask for them.
          if (center && dtype == DType::fp32) continue;
          wishes.push_back({{.dtype = dtype,
                             .head_dim = head_dim,
                             .scales = scales,
                             .value_scales = value_scales,
                             .rotate = rotate,
                             .center_keys = center,
                             .center_values = center},
                            testing::sm_90a});
        }
      }
    }
  }
  expect_no_spills(reference::some_of(wishes, 24), resident_quantize_program);
}

TEST(QuantizeCompile, NothingIsSpilledWithoutLengths) {
  std::vector<QuantizerWish> wishes;
  for (const Arch& arch : {testing::sm_80, testing::sm_90a}) {
    for (const DType dtype : {DType::bf16, DType::fp32}) {
      for (const int head_dim : {64, 128, 256}) {
        // Other scales spill some bytes where that lets one more block run: by the assembler's choice.
        for (const QuantizedScales scales : {QuantizedScales::token, QuantizedScales::block}) {
          if (scales == QuantizedScales::block && arch == testing::sm_80) continue;
          for (const bool rotate : {false, true}) {
            for (const bool center : {false, true}) {
              wishes.push_back({{.dtype = dtype,
                                 .head_dim = head_dim,
                                 .scales = scales,
                                 .rotate = rotate,
                                 .center_keys = center,
                                 .center_values = center},
                                arch});
            }
          }
        }
      }
    }
  }
  expect_no_spills(reference::some_of(wishes, 26), quantize_program);
}

}  // namespace
}  // namespace jit
