#include "generator/operations/score_keys/program.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/operations/spec_rules.h"
#include "generator/program/wgmma_source.h"
#include "templates/score_keys/params.cuh"

namespace jit {

void validate(const ScoreKeysSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::fp8_e4m3, DType::bf16, DType::fp16});
  constexpr std::array heads = {8, 16, 32, 64, 128};
  if (std::ranges::find(heads, spec.heads) == heads.end()) {
    const auto above = std::ranges::find_if(heads, [&](int served) { return served > spec.heads; });
    refuse_spec("heads", std::to_string(spec.heads),
                "must be 8, 16, 32, 64 or 128: give others with weights of 0",
                std::to_string(above == heads.end() ? heads.back() : *above));
  }
  if (spec.head_dim != 64 && spec.head_dim != 128)
    refuse_spec("head_dim", std::to_string(spec.head_dim), "must be 64 or 128",
                spec.head_dim < 64 ? "64" : "128");
  const int page = spec.page_size;
  if (page != 0 && page != 8 && page != 16 && page != 32 && (page < 0 || page % 64 != 0 || page > 65536))
    refuse_spec("page_size", std::to_string(page), "must be 8, 16, 32 or a multiple of 64 up to 65536, or 0",
                "64");
}

Program score_keys_program(const ScoreKeysSpec& spec) {
  const std::string what = fmt::format("{} h{} d{}{}{}{}", to_string(spec.dtype), spec.heads, spec.head_dim,
                                       spec.page_size > 0 ? fmt::format(" page{}", spec.page_size) : "",
                                       spec.k_scale ? " k_scale" : "", spec.block_max ? " block_max" : "");
  Program program;
  program.threads = score_keys_threads;
  program.blocks_per_sm = 1;
  program.smem_bytes = score_keys_smem(spec.head_dim, size_of(spec.dtype)).total;
  program.name = fmt::format("score_keys_{}_h{}_d{}", to_string(spec.dtype), spec.heads, spec.head_dim);
  program.facts = {{"spec", "score_keys " + what}};
  program.headers = {wgmma_products_file(wgmma_function(
      "wgmma_scores", "D = A B: 64 keys, rows of q.",
      {.dtype = spec.dtype, .n = score_keys_columns, .steps = spec.head_dim / facts(spec.dtype).mma_k}))};
  std::string& source = program.source;
  source = fmt::format("// Scores of keys: {}. Generated: change the spec, not this file.\n", what);
  source += "#include \"score_keys/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace jit;\n\n";
  source += "struct Config : WgmmaProducts {\n";
  source += type_line("Element", spec.dtype, "of q and k");
  source += constant_line("int", "heads", std::to_string(spec.heads), "of q");
  source += constant_line("int", "head_dim", std::to_string(spec.head_dim), "of q and k");
  source += constant_line("int", "page_size", std::to_string(spec.page_size),
                          "of k; 0: keys lie one behind another");
  source += constant_line("bool", "has_scales", spec.k_scale ? "true" : "false", "keys have scales");
  source += constant_line("bool", "block_max", spec.block_max ? "true" : "false",
                          "the largest scores of blocks of keys are written, too");
  source += "};\n" +
            kernel_text(program, "ScoreKeysParams", sizeof(ScoreKeysParams), "score_keys",
                        fmt::format("static_assert(ScoreKeysTraits<Config>::layout.total == {}, \"host and "
                                    "device disagree on shared memory\");\n",
                                    program.smem_bytes));
  return program;
}

}  // namespace jit
