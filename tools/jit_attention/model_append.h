// Operations between a model's projections and its attention, from its config.json.
#pragma once

#include <string_view>

#include <jit/append.h>

#include "config_json.h"

namespace jit::tool {

/// The normalization and rotation of q and k by model `type`, in append's fields for them; other fields are
/// unset. `head_dim` is k's.
AppendSpec append_of_model(const ConfigJson& config, std::string_view type, int head_dim);

}  // namespace jit::tool
