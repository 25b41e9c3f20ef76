// JSON results for callers.
#pragma once

#include <nlohmann/json.hpp>

namespace jit::c {

/// Objects keep the order of their members.
using Json = nlohmann::ordered_json;

/// A text, to be freed by jit_text_free. Invalid UTF-8, as in paths, is replaced.
char* json_text_of(const Json& json);

}  // namespace jit::c
