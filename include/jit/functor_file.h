/// @file
/// Masks and scores of your own in one text each, as the tool reads them from files and C programs pass them.
///
/// @code
/// const jit::FunctorText near = jit::parse_functor("near",
///                                                  "// constant: window = 128\n"
///                                                  "// tensor: ids int32\n"
///                                                  "return q - k < window && ids[q] == ids[k];\n"
///                                                  "// classify:\n"
///                                                  "return q_end <= k_begin ? TileClass::empty : TileClass::partial;");
/// const jit::Mask mask = jit::mask::text(near);
/// @endcode
#pragma once

#include <string>
#include <string_view>

#include <jit/functor_text.h>

namespace jit {

/// Reads a functor: the body, after comments that declare its constants (true, false, whole or real numbers) and
/// tensors. A line "// classify:" or "// derivative:" begins the text of that member. Line numbers in compile errors
/// are those of `text`. Throws Error invalid_argument for a malformed declaration.
FunctorText parse_functor(const std::string& name, std::string_view text);

}  // namespace jit
