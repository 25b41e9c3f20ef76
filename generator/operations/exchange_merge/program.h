// The program of an exchange and merge, and the size of its buffers.
#pragma once

#include <cstddef>

#include <jit/exchange_merge.h>

#include "generator/program/program.h"

namespace jit {

/// Rows per tile, as in the kernel.
int exchange_tile_rows(const ExchangeMergeSpec& spec);

/// Bytes of a buffer per tile of its capacity, after the header.
std::size_t exchange_tile_bytes(const ExchangeMergeSpec& spec);

/// Requires: validate(spec) passes.
Program exchange_merge_program(const ExchangeMergeSpec& spec);

}  // namespace jit
