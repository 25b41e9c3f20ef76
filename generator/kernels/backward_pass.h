// Shared by the two-pass backward families by mma.sync.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "generator/kernels/family.h"
#include "generator/program/emit.h"

namespace jit {

/// The names of a pass.
struct BackwardPassText {
  std::string_view folder;     ///< of its templates, and its namespace
  std::string_view function;   ///< device function that the kernel calls
  std::string_view gradients;  ///< gradients that it computes
};

/// Registers by which the compiler's use may exceed the estimate, which neglects addresses: up to 48 for
/// heads of 160 to 256 columns, 9 for 64.
int backward_register_doubt(const AttentionSpec& spec);

/// The program of a pass: `tiles` is the kernel name's suffix, `config_lines` declare the fields.
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
