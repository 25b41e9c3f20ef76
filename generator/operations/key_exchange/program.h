// The kernel that begins a call of an exchange of keys.
#pragma once

#include <cstdint>
#include <memory>

#include <jit/context.h>

#include "generator/operations/operation.h"
#include "templates/key_exchange/params.cuh"

namespace jit {

Program key_exchange_program();

/// The kernel that all exchanges share, loaded on the current device. Throws what compiling and loading
/// throw.
std::shared_ptr<const OperationState> key_exchange_kernel(const Context& context);

/// Launches it for so many batch entries.
void begin_key_exchange(const OperationState& kernel, KeyExchangeParams& params, std::int64_t batch,
                        int device, Stream stream);

}  // namespace jit
