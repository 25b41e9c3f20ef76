// ld, ldu and st (PTX ISA, "Data Movement and Conversion Instructions").
#include "operations/copies/memory.h"

#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "operations/tensor/transpose.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

constexpr std::size_t largest_access = 32;

// Moves one element of each lane of `warp.exec` between a register and a buffer with `stride` bytes per lane.
using Scatter = void (*)(Warp& warp, Slot to, const std::byte* from, std::size_t stride);
using Gather = void (*)(Warp& warp, Slot from, std::byte* to, std::size_t stride);

// `Memory` is signed when the register is sign-extended; `mask` gives the bits that it keeps.
template <class Memory, class Register, Register mask>
void scatter(Warp& warp, Slot slot, const std::byte* from, std::size_t stride) {
  Register* const to = lanes<Register>(warp, slot);
  const auto move = [&](int lane) {
    Memory value;
    std::memcpy(&value, from + static_cast<std::size_t>(lane) * stride, sizeof(Memory));
    to[lane] = static_cast<Register>(value) & mask;
  };
  if (warp.whole()) {
    for (int lane = 0; lane < warp_lanes; ++lane) move(lane);
  } else {
    for_each_lane(warp.exec, move);
  }
}

template <class Memory, class Register>
void gather(Warp& warp, Slot slot, std::byte* to, std::size_t stride) {
  const Register* const from = lanes<Register>(warp, slot);
  const auto move = [&](int lane) {
    const auto value = static_cast<Memory>(from[lane]);
    std::memcpy(to + static_cast<std::size_t>(lane) * stride, &value, sizeof(Memory));
  };
  if (warp.whole()) {
    for (int lane = 0; lane < warp_lanes; ++lane) move(lane);
  } else {
    for_each_lane(warp.exec, move);
  }
}

template <class Memory>
Scatter scatter_to(int register_bits) {
  switch (register_bits) {
    case 64:
      return scatter<Memory, std::uint64_t, ~std::uint64_t{0}>;
    case 16:
      return scatter<Memory, std::uint32_t, 0xffffu>;
    default:
      return scatter<Memory, std::uint32_t, ~0u>;
  }
}

Scatter pick_scatter(Type element, int register_bits) {
  const bool fills_sign = is_signed(element) && !is_float(element);
  switch (bits(element)) {
    case 8:
      return fills_sign ? scatter_to<std::int8_t>(register_bits) : scatter_to<std::uint8_t>(register_bits);
    case 16:
      return fills_sign ? scatter_to<std::int16_t>(register_bits) : scatter_to<std::uint16_t>(register_bits);
    case 32:
      return fills_sign ? scatter_to<std::int32_t>(register_bits) : scatter_to<std::uint32_t>(register_bits);
    default:
      return scatter_to<std::uint64_t>(64);
  }
}

template <class Memory>
Gather gather_from(bool wide) {
  return wide ? gather<Memory, std::uint64_t> : gather<Memory, std::uint32_t>;
}

Gather pick_gather(Type element, bool wide) {
  switch (bits(element)) {
    case 8:
      return gather_from<std::uint8_t>(wide);
    case 16:
      return gather_from<std::uint16_t>(wide);
    case 32:
      return gather_from<std::uint32_t>(wide);
    default:
      return gather_from<std::uint64_t>(true);
  }
}

// Four registers of 32 bits, the most common vector.
void scatter_4(Warp& warp, const std::array<Slot, 4>& slots, const std::byte* from) {
  for (std::size_t lane = 0; lane < warp_lanes; lane += 4) {
    std::array<std::uint32_t, 16> columns;
    transpose_4x4(from + lane * 16, 16, reinterpret_cast<std::byte*>(columns.data()), 16);
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(warp.r32(slots[i]) + lane, columns.data() + 4 * i, 16);
  }
}

void gather_4(Warp& warp, const std::array<Slot, 4>& slots, std::byte* to) {
  for (std::size_t lane = 0; lane < warp_lanes; lane += 4) {
    std::array<std::uint32_t, 16> rows;
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(rows.data() + 4 * i, warp.r32(slots[i]) + lane, 16);
    transpose_4x4(reinterpret_cast<const std::byte*>(rows.data()), 16, to + lane * 16, 16);
  }
}

// The slots, when all elements are 32-bit registers of four; else empty.
template <class Element>
std::optional<std::array<Slot, 4>> four_registers(const LaneAccess& access,
                                                  const std::vector<Element>& elements) {
  std::array<Slot, 4> slots = {};
  if (access.element_bytes != 4 || elements.size() != slots.size()) return {};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (elements[i].wide) return {};
    slots[i] = elements[i].slot;
  }
  return slots;
}

struct Load final : Operation {
  struct Element {
    Slot slot;
    bool wide;
    Scatter scatter;
  };
  Decoder::Address address{};
  LaneAccess access;
  std::vector<Element> elements;
  std::optional<std::array<Slot, 4>> four;

  Flow execute(Warp& warp) const override {
    alignas(64) std::array<std::byte, warp_lanes * largest_access> buffer;
    load_lanes(warp, access, lane_addresses(warp, address), buffer.data());
    const std::byte* from = buffer.data();
    if (four && warp.whole()) {
      scatter_4(warp, *four, from);
      return Flow::next;
    }
    for (const Element& element : elements) {
      element.scatter(warp, element.slot, from, access.bytes);
      from += access.element_bytes;
    }
    return Flow::next;
  }
};

struct Store final : Operation {
  struct Element {
    Slot slot;
    bool wide;
    Gather gather;
  };
  Decoder::Address address{};
  LaneAccess access;
  std::vector<Element> elements;
  std::optional<std::array<Slot, 4>> four;

  Flow execute(Warp& warp) const override {
    alignas(64) std::array<std::byte, warp_lanes * largest_access> buffer;
    if (four && warp.whole()) {
      gather_4(warp, *four, buffer.data());
    } else {
      std::byte* to = buffer.data();
      for (const Element& element : elements) {
        element.gather(warp, element.slot, to, access.bytes);
        to += access.element_bytes;
      }
    }
    store_lanes(warp, access, lane_addresses(warp, address), buffer.data());
    return Flow::next;
  }
};

// Takes .v2, .v4, .v8 and the type.
Type take_element(Decoder& decoder, LaneAccess& access, std::size_t& count) {
  const std::string_view vector = decoder.take_any_of({"v2", "v4", "v8"});
  count = vector.empty() ? 1 : static_cast<std::size_t>(vector[1] - '0');
  const Type element = decoder.take_type();
  if (element == Type::pred || bits(element) > 64) {
    decoder.fail(fmt::format("elements of type .{} are not known to the emulator", to_string(element)));
  }
  access.element_bytes = static_cast<std::uint32_t>(bits(element)) / 8;
  access.bytes = access.element_bytes * static_cast<std::uint32_t>(count);
  if (access.bytes > largest_access) {
    decoder.fail(fmt::format("{} bytes for each thread, {} are the most", access.bytes, largest_access));
  }
  if (access.bytes > 16) decoder.require_arch(10, 0);
  return element;
}

// The registers of the operand: itself, or those in braces.
std::vector<const ptx::Operand*> take_registers(Decoder& decoder, std::size_t index, std::size_t count) {
  const ptx::Operand& operand = decoder.operand(index);
  std::vector<const ptx::Operand*> registers;
  if (operand.kind == ptx::Operand::Kind::vector) {
    for (const ptx::Operand& element : operand.elements) registers.push_back(&element);
  } else {
    registers.push_back(&operand);
  }
  if (registers.size() != count) {
    decoder.fail(fmt::format("{} registers where {} are moved", registers.size(), count));
  }
  return registers;
}

std::unique_ptr<const Operation> decode_load(Decoder& decoder) {
  auto load = std::make_unique<Load>();
  load->access.ordering = take_ordering(decoder, "acquire");
  load->access.space = take_space(decoder);
  decoder.take("nc");
  decoder.take("unified");
  const bool has_policy = take_cache_modifiers(decoder);
  std::size_t count = 0;
  const Type element = take_element(decoder, load->access, count);
  decoder.expect_count(has_policy ? 3 : 2);
  load->address = take_address(decoder, 1, load->access.space);
  for (const ptx::Operand* to : take_registers(decoder, 0, count)) {
    const Type type = register_type(decoder, *to, element);
    load->elements.push_back(
        {decoder.destination(*to, type), bits(type) == 64, pick_scatter(element, bits(type))});
  }
  load->four = four_registers(load->access, load->elements);
  if (has_policy) decoder.source(2, Type::b64);
  decoder.set_class(class_of(load->access.space));
  return load;
}

std::unique_ptr<const Operation> decode_store(Decoder& decoder) {
  auto store = std::make_unique<Store>();
  store->access.ordering = take_ordering(decoder, "release");
  store->access.space = take_space(decoder);
  if (store->access.space == AddressSpace::param) {
    decoder.fail("the parameters of a kernel cannot be written");
  }
  const bool has_policy = take_cache_modifiers(decoder);
  std::size_t count = 0;
  const Type element = take_element(decoder, store->access, count);
  decoder.expect_count(has_policy ? 3 : 2);
  store->address = take_address(decoder, 0, store->access.space);
  for (const ptx::Operand* from : take_registers(decoder, 1, count)) {
    const Type type = register_type(decoder, *from, element);
    const bool wide = bits(type) == 64;
    store->elements.push_back({decoder.source(*from, type), wide, pick_gather(element, wide)});
  }
  store->four = four_registers(store->access, store->elements);
  if (has_policy) decoder.source(2, Type::b64);
  decoder.set_class(class_of(store->access.space));
  return store;
}

}  // namespace

Scope take_scope(Decoder& decoder) { return scope_of(decoder.take_one_of({"cta", "cluster", "gpu", "sys"})); }

Scope scope_of(std::string_view name) {
  if (name == "cta") return Scope::cta;
  if (name == "cluster") return Scope::cluster;
  return name == "gpu" ? Scope::gpu : Scope::sys;
}

Ordering take_ordering(Decoder& decoder, std::string_view synchronizing) {
  Ordering ordering;
  const bool is_mapped = decoder.take("mmio");
  const std::string_view kind = decoder.take_any_of({"weak", "volatile", "relaxed", synchronizing});
  ordering.strong = !kind.empty() && kind != "weak";
  if (kind == synchronizing) (synchronizing == "acquire" ? ordering.acquires : ordering.releases) = true;
  if (is_mapped && kind != "relaxed") decoder.fail("lacks .relaxed");
  if (is_mapped && (decoder.has("v2") || decoder.has("v4"))) decoder.fail(".mmio has no form for vectors");
  if (kind == "volatile") ordering.scope = Scope::sys;
  if (kind == "relaxed" || kind == synchronizing) ordering.scope = take_scope(decoder);
  return ordering;
}

AddressSpace take_space(Decoder& decoder) {
  if (!decoder.take_any_of({"shared", "shared::cta", "shared::cluster"}).empty()) return AddressSpace::shared;
  // .const variables are in global memory.
  if (!decoder.take_any_of({"global", "const"}).empty()) return AddressSpace::global;
  if (!decoder.take_any_of({"param", "param::entry"}).empty()) return AddressSpace::param;
  return decoder.take("local") ? AddressSpace::local : AddressSpace::generic;
}

bool take_cache_modifiers(Decoder& decoder) {
  decoder.take_any_of({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  decoder.take_any_of(
      {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
  decoder.take_any_of({"L2::evict_normal", "L2::evict_first", "L2::evict_last"});
  decoder.take_any_of({"L2::64B", "L2::128B", "L2::256B"});
  return decoder.take("L2::cache_hint");
}

Decoder::Address take_address(Decoder& decoder, std::size_t index, AddressSpace& space) {
  const Decoder::Address address = decoder.address(index);
  if (address.narrow && space != AddressSpace::shared) {
    ptx::Operand base;
    base.name = decoder.operand(index).name;
    const bool is_register = decoder.register_bits(base) != 0;
    if (is_register || space != AddressSpace::generic) {
      decoder.fail(fmt::format("{} is no address of this space, which needs 64 bits", base.name));
    }
    space = AddressSpace::shared;
  }
  return address;
}

InstructionClass class_of(AddressSpace space) {
  switch (space) {
    case AddressSpace::shared:
      return InstructionClass::shared_memory;
    case AddressSpace::local:
      return InstructionClass::local_memory;
    case AddressSpace::param:
      return InstructionClass::param_memory;
    case AddressSpace::global:
    case AddressSpace::generic:
      break;
  }
  return InstructionClass::global_memory;
}

Type register_type(const Decoder& decoder, const ptx::Operand& operand, Type element) {
  const int width = decoder.register_bits(operand);
  if (width == 0 || width == bits(element)) return element;
  if (width < bits(element)) {
    decoder.fail(fmt::format("{} has {} bits, an element has {}", operand.name, width, bits(element)));
  }
  return width == 64 ? Type::b64 : width == 32 ? Type::b32 : Type::b16;
}

std::unique_ptr<const Operation> decode_memory(Decoder& decoder) {
  const std::string_view opcode = decoder.opcode();
  if (opcode == "ld" || opcode == "ldu") return decode_load(decoder);
  if (opcode == "st") return decoder.has("async") ? decode_async_store(decoder) : decode_store(decoder);
  return decode_memory_hint(decoder);
}

}  // namespace jit::emulator
