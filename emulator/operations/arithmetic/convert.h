// Common code of the conversion family.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "operations/arithmetic/numbers.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {

/// The modifiers of cvt.
struct Conversion {
  Type to{}, from{};
  std::string_view rounding = {};  ///< "rn" …, "rni" …; empty: none was written
  bool ftz = false;
  bool sat = false;
  bool relu = false;
  bool satfinite = false;

  /// To a whole number: .rni, .rzi, .rmi, .rpi.
  bool rounds_to_integer() const { return rounding.size() == 3 && rounding != "rna"; }
};

/// The rounding of "rn", "rni" etc.; nearest even for none.
Rounding to_rounding(std::string_view modifier);
/// x rounded to a whole number.
double round_to_integer(double x, Rounding rounding);
/// The format of a floating-point type, or of a pair's elements.
const Format& format_of(Type type);

/// Conversions to pairs, from pairs, and to tf32; null for other types.
std::unique_ptr<const Operation> decode_packed_conversion(Decoder& decoder, const Conversion& conversion);
/// cvt.pack.
std::unique_ptr<const Operation> decode_pack(Decoder& decoder);

}  // namespace jit::emulator
