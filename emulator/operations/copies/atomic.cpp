// atom and red (PTX ISA, "Parallel Synchronization and Communication Instructions").
#include "operations/copies/atomic.h"

#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "machine/global_races.h"
#include "machine/memory_access.h"
#include "machine/residency.h"
#include "operations/copies/memory.h"

namespace jit::emulator {
namespace {

constexpr std::size_t largest_atomic = 16;  // .v8 of half elements, or .v4 of f32

std::uint64_t read_register(Warp& warp, Slot slot, Type type, int lane) {
  return bits(type) == 64 ? warp.r64(slot)[lane] : warp.r32(slot)[lane];
}

void write_register(Warp& warp, Slot slot, Type type, int lane, std::uint64_t value) {
  if (bits(type) == 64) {
    warp.r64(slot)[lane] = value;
  } else {
    warp.r32(slot)[lane] = static_cast<std::uint32_t>(value);
  }
}

// Atomic, since other host threads may update the same word. Returns the old value.
template <class Word>
std::uint64_t update_atomically(std::byte* place, AtomicUpdate update, std::uint64_t b, std::uint64_t c) {
  auto* const word = reinterpret_cast<Word*>(place);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, static_cast<Word>(update(old, b, c)), true,
                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return old;
}

std::uint64_t update_element(std::byte* place, std::uint32_t bytes, AtomicUpdate update, std::uint64_t b,
                             std::uint64_t c) {
  switch (bytes) {
    case 2:
      return update_atomically<std::uint16_t>(place, update, b, c);
    case 4:
      return update_atomically<std::uint32_t>(place, update, b, c);
    default:
      return update_atomically<std::uint64_t>(place, update, b, c);
  }
}

struct Atomic final : Operation {
  AddressSpace space = AddressSpace::generic;
  Ordering ordering;
  Decoder::Address address{};
  AtomicOperands operands;

  Flow execute(Warp& warp) const override {
    LaneAddresses addresses = lane_addresses(warp, address);
    SpaceMasks masks;
    if (space == AddressSpace::generic) {
      masks = split_generic(warp, warp.exec, addresses);
    } else {
      (space == AddressSpace::shared ? masks.shared : masks.global) = warp.exec;
    }
    if (const std::uint32_t other = masks.local | masks.param; other != 0) {
      warp.stop(FindingKind::illegal_instruction, std::countr_zero(other),
                "the address is neither in global nor in shared memory, where atomics work");
    }
    if (masks.global != 0) in_global(warp, masks.global, addresses);
    if (masks.shared != 0) in_shared(warp, masks.shared, addresses);
    return Flow::next;
  }

 private:
  void apply(Warp& warp, int lane, std::byte* place, AtomicUpdate update) const {
    for (std::size_t i = 0; i < operands.b.size(); ++i) {
      const std::uint64_t b = read_register(warp, operands.b[i], operands.type, lane);
      const std::uint64_t c = operands.has_c ? read_register(warp, operands.c[i], operands.type, lane) : 0;
      const std::uint32_t bytes = operands.element_bytes();
      const std::uint64_t old = update_element(place + i * bytes, bytes, update, b, c);
      if (!operands.to.empty()) write_register(warp, operands.to[i], operands.type, lane, old);
    }
  }

  void in_global(Warp& warp, std::uint32_t mask, const LaneAddresses& addresses) const {
    const std::uint32_t bytes = operands.bytes();
    bool changes = false;
    for_each_lane(mask, [&](int lane) {
      const std::uint64_t place = addresses[static_cast<std::size_t>(lane)];
      read_global(warp, lane, place, bytes, bytes);
      std::byte* const word = write_global(warp, lane, place, bytes, bytes);
      const auto update = [&] {
        std::array<std::byte, largest_atomic> before;
        std::memcpy(before.data(), word, bytes);
        apply(warp, lane, word, operands.in_global);
        changes = changes || std::memcmp(before.data(), word, bytes) != 0;
      };
      if (GlobalRaces* const races = warp.launch().races) {
        races->strong(warp, lane, place, bytes, GlobalRaces::Kind::update, ordering, update);
      } else {
        update();
      }
    });
    if (changes) {
      warp.launch().residency->note_change();
    } else {
      warp.note_poll(addresses[static_cast<std::size_t>(std::countr_zero(mask))], 0);
    }
    const std::uint64_t moved = std::uint64_t{bytes} * static_cast<std::uint64_t>(std::popcount(mask));
    warp.count().global_write_bytes += moved;
    if (!operands.to.empty()) warp.count().global_read_bytes += moved;
  }

  void in_shared(Warp& warp, std::uint32_t mask, const LaneAddresses& addresses) const {
    const std::uint32_t bytes = operands.bytes();
    for_each_block(
        warp, mask, addresses, bytes, [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
          for_each_lane(lanes, [&](int lane) {
            const std::uint32_t offset = offsets[static_cast<std::size_t>(lane)];
            block.shared.sync().read(warp, lane, offset, ordering);
            apply(warp, lane, block.shared.update(warp.access(lane), offset, bytes), operands.in_shared);
            block.shared.sync().write(warp, lane, offset, ordering, true);
          });
          const Wavefronts wavefronts = bank_wavefronts(offsets, lanes, static_cast<int>(bytes));
          warp.count().bank_wavefronts += static_cast<std::uint64_t>(wavefronts.actual);
          warp.count().ideal_wavefronts += static_cast<std::uint64_t>(wavefronts.ideal);
        });
    const std::uint64_t moved = std::uint64_t{bytes} * static_cast<std::uint64_t>(std::popcount(mask));
    warp.count().shared_write_bytes += moved;
    if (!operands.to.empty()) warp.count().shared_read_bytes += moved;
  }
};

// The elements of an operand: itself, or those in its braces.
std::vector<const ptx::Operand*> elements_of(Decoder& decoder, std::size_t index, std::size_t count) {
  const ptx::Operand& operand = decoder.operand(index);
  std::vector<const ptx::Operand*> elements;
  if (operand.kind == ptx::Operand::Kind::vector) {
    for (const ptx::Operand& element : operand.elements) elements.push_back(&element);
  } else if (operand.kind == ptx::Operand::Kind::discard) {
    elements.assign(count, &operand);
  } else {
    elements.push_back(&operand);
  }
  if (elements.size() != count) {
    decoder.fail(fmt::format("operand {} has {} registers, it needs {}", index + 1, elements.size(), count));
  }
  return elements;
}

void check_vector(Decoder& decoder, std::string_view operation, Type type, std::size_t count) {
  const bool is_half = type == Type::f16 || type == Type::bf16;
  const bool is_pair = type == Type::f16x2 || type == Type::bf16x2;
  const bool fits = type == Type::f32 ? count <= 4 && operation == "add"
                    : is_half         ? true
                                      : is_pair && count <= 4;
  if (!fits) decoder.fail(fmt::format("has no form for vectors of {} {}", count, to_string(type)));
}

}  // namespace

AtomicOperands take_atomic(Decoder& decoder, std::size_t first, bool has_result) {
  AtomicOperands operands;
  const std::string_view operation =
      decoder.take_one_of({"add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"});
  const bool keeps_subnormals = decoder.take("noftz");
  const std::string_view vector = decoder.take_any_of({"v2", "v4", "v8"});
  operands.type = decoder.take_type();
  const std::size_t count = vector.empty() ? 1 : static_cast<std::size_t>(vector[1] - '0');
  operands.in_global = find_atomic_update(operation, operands.type, false);
  operands.in_shared = find_atomic_update(operation, operands.type, true);
  if (!operands.in_global) {
    decoder.fail(fmt::format(".{} has no form for .{}", operation, to_string(operands.type)));
  }
  if (!vector.empty()) {
    check_vector(decoder, operation, operands.type, count);
    decoder.require_arch(9, 0);
  }
  const bool is_half = is_float(operands.type) && operands.type != Type::f32 && operands.type != Type::f64;
  if (is_half && !keeps_subnormals) decoder.fail("lacks .noftz");
  if (is_half && vector.empty() && operation != "add") {
    decoder.fail(fmt::format(".{} of .{} needs .v2, .v4 or .v8", operation, to_string(operands.type)));
  }
  if (!has_result && (operation == "exch" || operation == "cas")) {
    decoder.fail(fmt::format(".{} needs a destination: atom has it", operation));
  }
  operands.has_c = operation == "cas";
  for (const ptx::Operand* b : elements_of(decoder, first, count)) {
    operands.b.push_back(decoder.source(*b, operands.type));
  }
  if (operands.has_c) operands.c.push_back(decoder.source(first + 1, operands.type));
  return operands;
}

std::unique_ptr<const Operation> decode_atomic(Decoder& decoder) {
  const bool has_result = decoder.opcode() == "atom";
  if (!has_result && decoder.opcode() != "red") return nullptr;
  if (decoder.has("async")) return decode_async_store(decoder);
  auto atomic = std::make_unique<Atomic>();
  const std::string_view semantics = decoder.take_any_of({"relaxed", "acquire", "release", "acq_rel"});
  atomic->ordering = {true, semantics == "acquire" || semantics == "acq_rel",
                      semantics == "release" || semantics == "acq_rel"};
  const std::string_view scope = decoder.take_any_of({"cta", "cluster", "gpu", "sys"});
  if (!scope.empty()) atomic->ordering.scope = scope_of(scope);
  atomic->space = take_space(decoder);
  if (atomic->space == AddressSpace::param || atomic->space == AddressSpace::local) {
    decoder.fail("works in global and shared memory only");
  }
  const bool has_policy = decoder.take("L2::cache_hint");
  const std::size_t address = has_result ? 1 : 0;
  atomic->address = take_address(decoder, address, atomic->space);
  atomic->operands = take_atomic(decoder, address + 1, has_result);
  if (atomic->operands.b.size() > 1 && atomic->space != AddressSpace::global) {
    decoder.fail("the forms for vectors work in .global only");
  }
  if (has_result) {
    for (const ptx::Operand* to : elements_of(decoder, 0, atomic->operands.b.size())) {
      atomic->operands.to.push_back(decoder.destination(*to, atomic->operands.type));
    }
  }
  const std::size_t operands = address + (atomic->operands.has_c ? 3 : 2);
  decoder.expect_count(operands + (has_policy ? 1 : 0));
  if (has_policy) decoder.source(operands, Type::b64);
  decoder.set_class(InstructionClass::atomic);
  return atomic;
}

}  // namespace jit::emulator
