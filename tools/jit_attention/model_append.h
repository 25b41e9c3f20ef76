// The steps between a model's projections and its attention, from its config.json.
#pragma once

#include <string_view>

#include <jit/append.h>

#include "config_json.h"

namespace jit::tool {

/// How the model `type` normalizes and rotates q and k, in the members of append that say so; the others are of no
/// meaning. `head_dim` is that of k.
AppendSpec append_of_model(const ConfigJson& config, std::string_view type, int head_dim);

}  // namespace jit::tool
