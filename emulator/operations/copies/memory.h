// Common code of ld, st and their relatives.
#pragma once

#include <memory>
#include <string_view>

#include "machine/decoder.h"
#include "machine/lane_memory.h"
#include "machine/shared_sync.h"

namespace jit::emulator {

/// Takes the required scope .cta, .cluster, .gpu or .sys.
Scope take_scope(Decoder& decoder);
/// The scope with this name.
Scope scope_of(std::string_view name);
/// Takes an access's ordering modifiers and its scope. `synchronizing` is "acquire" or "release".
Ordering take_ordering(Decoder& decoder, std::string_view synchronizing);

/// Takes the state space, if present.
AddressSpace take_space(Decoder& decoder);

/// Takes cache operators, eviction priorities and prefetch sizes, which have no effect here. Returns whether
/// a cache policy is the last operand.
bool take_cache_modifiers(Decoder& decoder);

/// The operand [a] of an access in `space`, which becomes `shared` when it names a shared variable.
Decoder::Address take_address(Decoder& decoder, std::size_t index, AddressSpace& space);

InstructionClass class_of(AddressSpace space);

/// The type of a destination or source register: the element type or a wider one (PTX ISA, "Operand Size
/// Exceeding Instruction-Type Size").
Type register_type(const Decoder& decoder, const ptx::Operand& operand, Type element);

/// st.async and red.async; null for other stores. In store_async.cpp.
std::unique_ptr<const Operation> decode_async_store(Decoder& decoder);
/// prefetch, prefetchu, createpolicy. In memory_hints.cpp.
std::unique_ptr<const Operation> decode_memory_hint(Decoder& decoder);

}  // namespace jit::emulator
