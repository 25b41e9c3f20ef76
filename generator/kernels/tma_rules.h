// Rules of families that copy tiles by TMA.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/kernels/family.h"

namespace jit {

/// The architecture whose TMA and wgmma they are written for.
inline constexpr Arch arch_of_tma{9, 0, 'a'};
inline constexpr std::array archs_of_wgmma{arch_of_tma};

/// Why the family `name` has nothing for the rows' alignment; empty: it has.
std::string tma_rejection(const Case& problem, std::string_view name);

/// Rows of the boxes in which a tile of so many keys is copied: each lies in one page.
int box_rows(const AttentionSpec& spec, int tile_kv);

/// Why these are too few; empty: they are not. `is_a_choice`: the config might have copies = cp_async instead.
std::string box_rejection(const AttentionSpec& spec, int tile_kv, bool is_a_choice);

}  // namespace jit
