// JSON for callers.
#pragma once

#include <nlohmann/json.hpp>

namespace jit::c {

/// An object keeps its members in the order in which they were added.
using Json = nlohmann::ordered_json;

/// A text that jit_text_free frees. Bytes that are no UTF-8, as paths may have them, are replaced.
char* json_text_of(const Json& json);

}  // namespace jit::c
