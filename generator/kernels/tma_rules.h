// Rules of families that copy tiles by TMA.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/kernels/family.h"

namespace jit {

/// The architecture with TMA and wgmma.
inline constexpr Arch arch_of_tma{9, 0, 'a'};
inline constexpr std::array archs_of_wgmma{arch_of_tma};

/// Why the family `name` cannot read the rows' alignment; empty if it can.
std::string tma_rejection(const Case& problem, std::string_view name);

/// Rows of the TMA boxes that make up a tile of `tile_kv` keys; each box lies in one page.
int box_rows(const AttentionSpec& spec, int tile_kv);

/// Why box_rows() is too small; empty if it is not. `is_a_choice`: copies = cp_async is an alternative.
std::string box_rejection(const AttentionSpec& spec, int tile_kv, bool is_a_choice);

}  // namespace jit
