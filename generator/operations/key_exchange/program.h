// The kernel that begins a call of a key exchange.
#pragma once

#include <cstdint>
#include <memory>

#include <jit/context.h>

#include "generator/operations/operation.h"
#include "templates/key_exchange/params.cuh"

namespace jit {

Program key_exchange_program();

/// The kernel that all exchanges share, loaded on the current device. Throws the errors of compiling and
/// loading.
std::shared_ptr<const OperationState> key_exchange_kernel(const Context& context);

/// Launches the kernel for `batch` batch entries.
void begin_key_exchange(const OperationState& kernel, KeyExchangeParams& params, std::int64_t batch,
                        int device, Stream stream);

}  // namespace jit
