#include "generator/operations/list_mass/program.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/operations/spec_rules.h"
#include "templates/list_mass/params.cuh"

namespace jit {
namespace {

constexpr int most_columns = 576, most_heads = 1 << 20;

// The largest tile that fits on every GPU, of as many rows as there are.
ListMassTile tile_of(const ListMassSpec& spec) {
  constexpr int most_bytes = 99 * 1024;
  ListMassTile tile{.rows = spec.heads > 32 ? 64 : spec.heads > 16 ? 32 : 16, .keys = 64};
  while (list_mass_smem(spec.head_dim, tile).total > most_bytes) tile.keys /= 2;
  return tile;
}

}  // namespace

void validate(const ListMassSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::bf16, DType::fp16});
  if (spec.head_dim < 8 || spec.head_dim > most_columns || spec.head_dim % 8 != 0)
    refuse_spec("head_dim", std::to_string(spec.head_dim),
                fmt::format("must be a multiple of 8 from 8 to {}", most_columns),
                std::to_string(std::clamp((spec.head_dim + 7) / 8 * 8, 8, most_columns)));
  check_range("heads", spec.heads, 1, most_heads);
}

Program list_mass_program(const ListMassSpec& spec) {
  const ListMassTile tile = tile_of(spec);
  const std::string what = fmt::format("{} h{} d{}", to_string(spec.dtype), spec.heads, spec.head_dim);
  Program program;
  program.threads = list_mass_threads;
  program.smem_bytes = list_mass_smem(spec.head_dim, tile).total;
  program.name = fmt::format("list_mass_{}_h{}_d{}", to_string(spec.dtype), spec.heads, spec.head_dim);
  program.facts = {{"spec", "list_mass " + what}};
  std::string& source = program.source;
  source = fmt::format("// Masses of listed keys: {}. Generated: change the spec, not this file.\n", what);
  source += "#include \"list_mass/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n";
  source += type_line("Element", spec.dtype, "of q and k");
  source += constant_line("int", "heads", std::to_string(spec.heads), "of q for each head of k");
  source += constant_line("int", "head_dim", std::to_string(spec.head_dim), "of q and k");
  source += constant_line("int", "tile_q", std::to_string(tile.rows), "heads of a step");
  source += constant_line("int", "tile_kv", std::to_string(tile.keys), "keys of a step");
  source += "};\n" + kernel_text(program, "ListMassParams", sizeof(ListMassParams), "list_mass");
  return program;
}

}  // namespace jit
