// The common part of the backward families in two passes by mma.sync.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "generator/kernels/family.h"
#include "generator/program/emit.h"

namespace jit {

/// One of the passes.
struct BackwardPassText {
  std::string_view folder;     ///< of its templates, and their namespace
  std::string_view function;   ///< that the kernel calls
  std::string_view gradients;  ///< that it computes
};

/// How many registers more than estimated the assembler may take. Wide rows have more addresses than estimates count: 160
/// to 256 columns took up to 48 more, 64 columns 9.
int backward_register_doubt(const AttentionSpec& spec);

/// Its program, but for the config: `tiles` name the config, `config_lines` have its fields.
Program backward_pass_program(const BackwardPassText& pass, const AttentionSpec& spec, const Footprint& needs,
                              std::string_view tiles, std::string_view config_lines);

template <class Config>
Program backward_pass_program(const BackwardPassText& pass, const AttentionSpec& spec, const Config& config) {
  return backward_pass_program(
      pass, spec, Family<Config>::footprint(spec, config),
      fmt::format("q{}kv{}w{}s{}", config.tile_q, config.tile_kv, config.warps, config.stages),
      config_lines(Family<Config>::fields(), config));
}

}  // namespace jit
