// Addresses of state spaces and of other blocks (PTX ISA, "Data Movement and Conversion Instructions: cvta,
// isspacep, mapa, getctarank"; "Generic Addressing").
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "machine/address_space.h"
#include "operations/copies/move.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

// Start of a state space's window in generic addresses.
std::optional<U64> take_window(Decoder& decoder) {
  static const std::unordered_map<std::string_view, U64> windows = {
      {"global", 0},
      {"const", 0},
      {"shared", shared_window},
      {"shared::cta", shared_window},
      {"shared::cluster", shared_window},
      {"local", local_window},
      {"param", param_window},
      {"param::entry", param_window},
  };
  const std::string_view space = decoder.take_any_of(
      {"global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry"});
  if (space.empty()) return {};
  return windows.at(space);
}

Result decode_cvta(Decoder& decoder) {
  const bool from_generic = decoder.take("to");
  const std::optional<U64> window = take_window(decoder);
  if (!window) decoder.fail("lacks a state space");
  const std::string_view size = decoder.take_one_of({"u64", "u32"});
  if (size != "u64") decoder.fail("generic addresses have 64 bits: .u64");
  return lanewise<U64(U64)>(
      decoder, [add = from_generic ? 0 - *window : *window](U64 address) { return address + add; });
}

// The cluster rank in a .shared address.
unsigned rank_of(U32 shared_address) { return shared_address >> shared_rank_shift; }

struct IsInSpace final : Operation {
  enum class Space { global, shared_cta, shared_cluster, local, param };
  Space space{};
  Slot from = 0;
  Predicate to = 0;

  Flow execute(Warp& warp) const override {
    U32 mask = 0;
    for_each_lane(warp.exec, [&](int lane) { mask |= U32{contains(warp, warp.r64(from)[lane])} << lane; });
    warp.set_predicate(to, mask);
    return Flow::next;
  }

 private:
  bool contains(const Warp& warp, U64 address) const {
    const bool is_shared = in_window(address, shared_window);
    switch (space) {
      case Space::global:
        return !is_shared && !in_window(address, local_window) && !in_window(address, param_window);
      case Space::shared_cta:
        return is_shared && rank_of(static_cast<U32>(address)) == warp.block.rank;
      case Space::shared_cluster:
        return is_shared;
      case Space::local:
        return in_window(address, local_window);
      case Space::param:
        return in_window(address, param_window);
    }
    return false;
  }
};

Result decode_isspacep(Decoder& decoder) {
  static const std::unordered_map<std::string_view, IsInSpace::Space> spaces = {
      {"global", IsInSpace::Space::global},
      {"shared", IsInSpace::Space::shared_cta},
      {"shared::cta", IsInSpace::Space::shared_cta},
      {"shared::cluster", IsInSpace::Space::shared_cluster},
      {"local", IsInSpace::Space::local},
      {"param", IsInSpace::Space::param},
      {"param::entry", IsInSpace::Space::param},
  };
  if (decoder.has("const")) {
    decoder.fail("constant variables lie among the global ones here and cannot be told from them");
  }
  decoder.expect_count(2);
  auto test = std::make_unique<IsInSpace>();
  test->space = spaces.at(decoder.take_one_of(
      {"global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry"}));
  test->to = decoder.predicate_destination(decoder.operand(0));
  test->from = decoder.source(1, Type::u64);
  return test;
}

// Operand of mapa and getctarank: a 32- or 64-bit address of .shared::cluster, or a generic one.
struct ClusterAddress {
  bool is_generic = true;
  bool is_wide = true;
  Slot from = 0;

  // In .shared.
  U32 read(Warp& warp, int lane) const {
    const U64 address = is_wide ? warp.r64(from)[lane] : warp.r32(from)[lane];
    if (is_generic && !in_window(address, shared_window)) {
      warp.stop(FindingKind::illegal_instruction, lane,
                fmt::format("{:#x} is no address of shared memory", address));
    }
    return static_cast<U32>(address);
  }
};

ClusterAddress take_cluster_address(Decoder& decoder) {
  decoder.require_arch(9, 0);
  ClusterAddress address;
  address.is_generic = !decoder.take("shared::cluster");
  address.is_wide = decoder.take_one_of({"u32", "u64"}) == "u64";
  if (address.is_generic && !address.is_wide) decoder.fail("generic addresses have 64 bits: .u64");
  address.from = decoder.source(1, address.is_wide ? Type::u64 : Type::u32);
  return address;
}

struct MapToBlock final : Operation {
  ClusterAddress address;
  Slot rank = 0, to = 0;

  Flow execute(Warp& warp) const override {
    const std::size_t blocks = warp.block.cluster.blocks.size();
    for_each_lane(warp.exec, [&](int lane) {
      const U32 here = address.read(warp, lane);
      const U32 target = warp.r32(rank)[lane];
      if (target >= blocks) {
        warp.stop(FindingKind::illegal_instruction, lane,
                  fmt::format("block {} is not one of the {} of the cluster", target, blocks));
      }
      const U32 mapped = (here & shared_offset_mask) | target << shared_rank_shift;
      if (address.is_wide) {
        warp.r64(to)[lane] = address.is_generic ? shared_window + mapped : mapped;
      } else {
        warp.r32(to)[lane] = mapped;
      }
    });
    return Flow::next;
  }
};

Result decode_mapa(Decoder& decoder) {
  decoder.expect_count(3);
  auto map = std::make_unique<MapToBlock>();
  map->address = take_cluster_address(decoder);
  map->rank = decoder.source(2, Type::u32);
  map->to = decoder.destination(0, map->address.is_wide ? Type::u64 : Type::u32);
  return map;
}

struct GetRank final : Operation {
  ClusterAddress address;
  Slot to = 0;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) { warp.r32(to)[lane] = rank_of(address.read(warp, lane)); });
    return Flow::next;
  }
};

Result decode_getctarank(Decoder& decoder) {
  decoder.expect_count(2);
  auto get = std::make_unique<GetRank>();
  get->address = take_cluster_address(decoder);
  get->to = decoder.destination(0, Type::u32);
  return get;
}

}  // namespace

std::unique_ptr<const Operation> decode_address(Decoder& decoder) {
  static const std::unordered_map<std::string_view, Result (*)(Decoder&)> by_opcode = {
      {"cvta", decode_cvta},
      {"isspacep", decode_isspacep},
      {"mapa", decode_mapa},
      {"getctarank", decode_getctarank},
  };
  const auto found = by_opcode.find(decoder.opcode());
  return found == by_opcode.end() ? nullptr : found->second(decoder);
}

}  // namespace jit::emulator
