#include "generator/operations/exchange_merge/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/operations/spec_rules.h"
#include "templates/base/row_lanes.cuh"
#include "templates/exchange_merge/params.cuh"

namespace jit {
namespace {

// Threads per block: few, so that a batch of one fills many blocks, but enough to make a flag per tile
// worthwhile.
constexpr int threads = 256;

std::string_view name_of(ExchangeShare share) {
  switch (share) {
    case ExchangeShare::heads:
      return "heads";
    case ExchangeShare::tokens:
      return "tokens";
    case ExchangeShare::all:
      break;
  }
  return "all";
}

}  // namespace

void validate(const ExchangeMergeSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::fp32, DType::bf16, DType::fp16});
  check_choice("out_dtype", spec.out_dtype, {DType::bf16, DType::fp16, DType::fp32});
  check_range("head_dim_v", spec.head_dim_v, 1, 1024);
  check_alignment(spec.alignment);
  check_range("ranks", spec.ranks, 1, max_exchange_ranks);
  check_range("share", static_cast<int>(spec.share), 0, static_cast<int>(ExchangeShare::tokens));
}

int exchange_tile_rows(const ExchangeMergeSpec& spec) {
  const int bytes = std::max(size_of(spec.dtype), size_of(spec.out_dtype));
  return threads / row_lanes(spec.head_dim_v, spec.head_dim_v, bytes).lanes;
}

// As in ExchangeBuffer.
std::size_t exchange_tile_bytes(const ExchangeMergeSpec& spec) {
  const auto ranks = static_cast<std::size_t>(spec.ranks),
             rows = static_cast<std::size_t>(exchange_tile_rows(spec));
  const auto row_bytes =
      static_cast<std::size_t>(spec.head_dim_v) * static_cast<std::size_t>(size_of(spec.dtype));
  const std::size_t pitch = (row_bytes + 15) / 16 * 16;
  return 2 * ranks * sizeof(unsigned long long) + 2 * ranks * rows * (pitch + sizeof(float));
}

Program exchange_merge_program(const ExchangeMergeSpec& spec) {
  const std::string what =
      fmt::format("{} to {} d{} align{} ranks{} {}", to_string(spec.dtype), to_string(spec.out_dtype),
                  spec.head_dim_v, spec.alignment, spec.ranks, name_of(spec.share));
  Program program;
  program.threads = threads;
  program.name = fmt::format("exchange_merge_{}_{}_d{}_n{}_{}", to_string(spec.dtype),
                             to_string(spec.out_dtype), spec.head_dim_v, spec.ranks, name_of(spec.share));
  program.facts = {{"spec", "exchange_merge " + what}};
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string& source = program.source;
  source = fmt::format(
      "// Exchange and merge of attention states: {}. Generated: change the spec, not this file.\n", what);
  source += "#include \"exchange_merge/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n";
  source += type_line("Element", spec.dtype, "of o of the partial states");
  source += type_line("OutputElement", spec.out_dtype, "of o");
  source += constant_line("int", "head_dim_v", std::to_string(spec.head_dim_v), "of o, elements");
  source += constant_line("int", "alignment", std::to_string(spec.alignment), "of every row of o, bytes");
  source += constant_line("int", "ranks", std::to_string(spec.ranks), "that exchange");
  source += constant_line("int", "threads", std::to_string(threads), "of a block");
  source += constant_line("bool", "share_heads", flag(spec.share == ExchangeShare::heads),
                          "each rank receives some");
  source += constant_line("bool", "share_tokens", flag(spec.share == ExchangeShare::tokens),
                          "each rank receives some");
  source +=
      "};\n" +
      kernel_text(program, "ExchangeMergeParams", sizeof(ExchangeMergeParams), "exchange_merge",
                  fmt::format("static_assert(ExchangeBuffer<Config::head_dim_v * "
                              "static_cast<int>(sizeof(Config::Element)), {}, Config::ranks>::tile_bytes "
                              "== {}, \"host and device disagree on the buffer\");\n",
                              exchange_tile_rows(spec), exchange_tile_bytes(spec)));
  return program;
}

}  // namespace jit
