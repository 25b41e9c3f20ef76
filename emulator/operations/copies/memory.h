// Common code of ld, st and their relatives.
#pragma once

#include <memory>
#include <string_view>

#include "machine/decoder.h"
#include "machine/lane_memory.h"
#include "machine/shared_sync.h"

namespace jit::emulator {

/// Takes .cta, .cluster, .gpu or .sys, which must be there.
Scope take_scope(Decoder& decoder);
/// The scope of that name.
Scope scope_of(std::string_view name);
/// Takes the modifiers that say how an access is ordered, and its scope. `synchronizing` is "acquire" or
/// "release".
Ordering take_ordering(Decoder& decoder, std::string_view synchronizing);

/// Takes the state space, if there is one.
AddressSpace take_space(Decoder& decoder);

/// Takes cache operators, eviction priorities and prefetch sizes: advice, without effect here. Returns
/// whether a cache policy is the last operand.
bool take_cache_modifiers(Decoder& decoder);

/// The operand [a] of an access in `space`, which becomes `shared` where the name of a shared variable says
/// so.
Decoder::Address take_address(Decoder& decoder, std::size_t index, AddressSpace& space);

InstructionClass class_of(AddressSpace space);

/// A destination or source of the access' element type, or of a wider register (PTX ISA, "Operand Size
/// Exceeding Instruction-Type Size").
Type register_type(const Decoder& decoder, const ptx::Operand& operand, Type element);

/// st.async and red.async; null for other stores. In store_async.cpp.
std::unique_ptr<const Operation> decode_async_store(Decoder& decoder);
/// prefetch, prefetchu, createpolicy. In memory_hints.cpp.
std::unique_ptr<const Operation> decode_memory_hint(Decoder& decoder);

}  // namespace jit::emulator
