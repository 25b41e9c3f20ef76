// tcgen05.mma (PTX ISA, "tcgen05.mma"): its text, and the checks at its issue.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "machine/decoder.h"
#include "operations/tcgen05/product.h"
#include "operations/tcgen05/state.h"
#include "operations/tcgen05/tensor_warp.h"
#include "operations/tensor/fragments.h"

namespace jit::emulator {
namespace {

constexpr int bytes_along_k = 32;

struct KindRow {
  std::string_view name;
  ProductKind kind;
};
constexpr KindRow kinds[] = {
    {"kind::f16", ProductKind::f16},           {"kind::tf32", ProductKind::tf32},
    {"kind::f8f6f4", ProductKind::f8f6f4},     {"kind::i8", ProductKind::i8},
    {"kind::mxf8f6f4", ProductKind::mxf8f6f4}, {"kind::mxf4", ProductKind::mxf4},
    {"kind::mxf4nvf4", ProductKind::mxf4nvf4},
};

struct Multiply final : Operation {
  ProductKind kind{};
  int blocks = 1;
  Decoder::Address d;
  std::optional<Decoder::Address> a_address;
  std::optional<Decoder::Address> a_scales, b_scales;
  int scales = 0;
  Slot a = 0, b = 0, instruction = 0;
  std::vector<Slot> disabled;
  bool is_stationary = false;
  std::optional<Slot> zeros;
  Decoder::PredicateSource accumulates{};
  int scale = 0;
  AccumulationModel model;

  Flow execute(Warp& warp) const override {
    if (!std::has_single_bit(warp.exec)) {
      warp.report(FindingKind::illegal_instruction, -1,
                  fmt::format("{} lanes issue it, so that there are as many products: one thread is enough "
                              "(elect.sync)",
                              std::popcount(warp.exec)));
    }
    check_cta_group(warp, blocks);
    for_each_lane(warp.exec, [&](int lane) { issue(warp, lane); });
    return Flow::next;
  }

 private:
  static TensorPlace place(Warp& warp, int lane, const Decoder::Address& address) {
    return TensorPlace::of(static_cast<std::uint32_t>(
        (address.narrow ? warp.r32(address.base)[lane] : warp.r64(address.base)[lane]) +
        static_cast<std::uint64_t>(address.offset)));
  }

  static std::uint64_t descriptor(Warp& warp, int lane, Slot slot, char operand, Major major, int pieces) {
    const std::uint64_t bits = warp.r64(slot)[lane];
    const std::string fault = tensor_descriptor_fault(bits, major, pieces);
    if (!fault.empty()) {
      warp.stop(FindingKind::bad_descriptor, lane,
                fmt::format("the descriptor of {}, {:#018x}: {}", operand, bits, fault));
    }
    return bits;
  }

  static int pieces(Major major, int lines, Type type) {
    return major == Major::k ? bytes_along_k / 16 : lines * element_bytes(type) / 16;
  }

  ProductOperands operands(Warp& warp, int lane) const {
    ProductOperands given;
    given.kind = kind;
    given.blocks = blocks;
    given.shape.is_stationary = is_stationary;
    const std::uint32_t bits = warp.r32(instruction)[lane];
    if (const std::string fault = given.shape.parse(bits, kind, blocks); !fault.empty()) {
      warp.stop(FindingKind::illegal_instruction, lane,
                fmt::format("the instruction descriptor {:#010x}: {}", bits, fault));
    }
    const ProductShape& shape = given.shape;
    given.k = bytes_along_k / element_bytes(shape.a) * (is_of_nibbles(kind) ? 2 : 1);
    given.scales = scales;
    if (a_scales) {
      given.a_scales = place(warp, lane, *a_scales);
      given.b_scales = place(warp, lane, *b_scales);
      check_scales(warp, lane, given);
    }
    given.d = place(warp, lane, d);
    if (a_address) {
      given.a = place(warp, lane, *a_address);
      if (shape.a_major != Major::k) {
        warp.stop(FindingKind::illegal_instruction, lane,
                  "A in tensor memory lies along k; its transpose bit is set");
      }
      if (is_stationary && shape.m != 128) {
        warp.stop(FindingKind::illegal_instruction, lane,
                  fmt::format("the emulator knows A in tensor memory with .ws and M 128, not {}", shape.m));
      }
    } else {
      given.a_descriptor =
          descriptor(warp, lane, a, 'A', shape.a_major, pieces(shape.a_major, given.rows(), shape.a));
    }
    given.b_descriptor =
        descriptor(warp, lane, b, 'B', shape.b_major, pieces(shape.b_major, shape.n / blocks, shape.b));
    const std::uint32_t adds =
        accumulates.negated ? ~warp.predicate(accumulates.predicate) : warp.predicate(accumulates.predicate);
    given.accumulates = (adds >> lane & 1) != 0;
    given.scale = scale;
    if (zeros) given.zeros = warp.r64(*zeros)[lane];
    if (const std::string fault = zero_mask_fault(given.zeros); !fault.empty()) {
      warp.stop(FindingKind::bad_descriptor, lane,
                fmt::format("the zero-column mask descriptor {:#018x}: {}", given.zeros, fault));
    }
    for (std::size_t i = 0; i < disabled.size(); ++i) given.disabled[i] = warp.r32(disabled[i])[lane];
    check_lanes(warp, lane, given);
    return given;
  }

  void check_scales(Warp& warp, int lane, const ProductOperands& given) const {
    const ProductShape& shape = given.shape;
    const int step = scales == 1 ? 1 : scales;
    for (const int id : {shape.a_scale_id, shape.b_scale_id}) {
      if (id % step == 0) continue;
      warp.stop(
          FindingKind::illegal_instruction, lane,
          fmt::format("the scales of a row begin at byte {} of a word, with {} of them at a multiple of {}",
                      id, scales, step));
    }
    if (scales == 4 && shape.has_power_scales) {
      warp.stop(FindingKind::illegal_instruction, lane, "scales of 16 elements are ue4m3 (bit 23 is 0)");
    }
    if (scales != 4 && !shape.has_power_scales) {
      warp.stop(FindingKind::illegal_instruction, lane, "scales of 32 elements are ue8m0 (bit 23 is 1)");
    }
    if (given.a_scales->lane != 0 || given.b_scales->lane != 0) {
      warp.stop(FindingKind::illegal_instruction, lane,
                "scales lie in all lanes of tensor memory, from lane 0 on");
    }
  }

  static void check_lanes(Warp& warp, int lane, const ProductOperands& given) {
    const bool is_half = given.blocks == 1 && given.shape.m == 64 && !given.shape.is_stationary;
    if (given.d.lane != 0 && (!is_half || given.d.lane != 16)) {
      warp.stop(FindingKind::illegal_instruction, lane,
                fmt::format("D of M {} begins at lane 0{} of tensor memory, not at {}", given.shape.m,
                            is_half ? " or 16" : "", given.d.lane));
    }
    if (given.a && given.a->lane != given.d.lane) {
      warp.stop(FindingKind::illegal_instruction, lane,
                fmt::format("A lies in the lanes of D, which begins at lane {}, not at {}", given.d.lane,
                            given.a->lane));
    }
  }

  static void check_columns(Warp& warp, int lane, Block& block, const char* operand,
                            const TensorRegion& region) {
    const int foreign = tensor_unit(block).allocation.first_foreign(region.first, region.columns);
    if (foreign < 0) return;
    warp.stop(FindingKind::out_of_bounds, lane,
              fmt::format("{} takes columns {} to {} of tensor memory, and column {} is {}", operand,
                          region.first, region.first + region.columns - 1, foreign,
                          foreign < tensor_columns ? "not allocated" : "behind the last one"));
  }

  void issue(Warp& warp, int lane) const {
    const ProductOperands given = operands(warp, lane);
    std::vector<Block*> both = {&warp.block};
    if (blocks == 2) {
      both.push_back(&peer_of(warp));
      if (warp.block.rank % 2 != 0) {
        warp.report(FindingKind::illegal_instruction, lane,
                    "the leader of a pair, the block of even rank, issues its products");
      }
    }
    TensorWarp& own = TensorWarp::of(warp);
    TensorWarp::Products& products = own.products(warp, lane);
    ++products.issued;
    const TensorAccess access = own.product_access(warp, lane);
    const TensorRegion sums = given.d_region();
    for (Block* const block : both) {
      check_columns(warp, lane, *block, "D", sums);
      TensorMemory& memory = tensor_unit(*block).memory;
      if (given.a) {
        check_columns(warp, lane, *block, "A", given.a_region());
        memory.note_read(access, given.a_region());
        // tf32 words may be sums.
        if (bits(given.shape.a) < 32) memory.expect_no_sums(access, given.a_region());
      }
      if (given.a_scales) {
        check_columns(warp, lane, *block, "the scales of A", given.a_scale_region());
        check_columns(warp, lane, *block, "the scales of B", given.b_scale_region());
        for (const TensorRegion& region : {given.a_scale_region(), given.b_scale_region()}) {
          memory.note_read(access, region);
          memory.expect_no_sums(access, region);
        }
      }
      if (given.accumulates) memory.note_read(access, sums);
      memory.begin_write(access, sums);
    }
    InstructionCounts& count = warp.count();
    const auto m = static_cast<std::uint64_t>(given.shape.m), n = static_cast<std::uint64_t>(given.shape.n);
    count.tensor_flops += 2 * m * n * static_cast<std::uint64_t>(given.k);
    count.shared_read_bytes += (given.a ? n : m + n) * bytes_along_k;
    AccumulationModel sums_model = model;
    sums_model.group = given.k;
    sums_model.result =
        given.shape.d == Type::f16 ? AccumulationModel::Result::f16 : AccumulationModel::Result::f32;
    tensor_unit(warp.block)
        .pipe.issue(std::make_unique<TensorProduct>(Issue(warp, lane), products.agent, products.issued, given,
                                                    std::move(both), sums_model));
  }
};

// Takes .block_scale, the number of scales per row along k, and the elements of each.
int take_scales(Decoder& decoder, ProductKind kind) {
  decoder.take_one_of({"block_scale"});
  const std::string_view named =
      decoder.take_any_of({"scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32"});
  const int elements = is_of_nibbles(kind) ? 64 : 32;
  int scales = elements / 32;
  if (named == "block16") scales = elements / 16;
  if (named.starts_with("scale_vec")) scales = named[named.size() - 2] - '0';
  const bool is_legal = kind == ProductKind::mxf4nvf4 ? scales == 2 || scales == 4 : scales == elements / 32;
  if (!is_legal) decoder.fail(fmt::format("a row has {} scales along k, which this kind has not", scales));
  return scales;
}

// Hints about what the unit keeps of A, or with .ws of B, without effect on results.
void take_collector(Decoder& decoder, bool is_stationary) {
  if (!is_stationary) {
    decoder.take_any_of(
        {"collector::a::fill", "collector::a::use", "collector::a::lastuse", "collector::a::discard"});
    return;
  }
  for (const char* const buffer : {"b0", "b1", "b2", "b3"}) {
    for (const char* const use : {"fill", "use", "lastuse", "discard"}) {
      if (decoder.take(fmt::format("collector::{}::{}", buffer, use))) return;
    }
  }
}

// Takes the optional last operand: with .ws the zero columns of B, else the exponent of D · 2^−scale.
void take_last(Decoder& decoder, std::size_t index, Multiply& operation) {
  if (operation.is_stationary) {
    operation.zeros = decoder.source(index, Type::b64);
    return;
  }
  const std::int64_t scale = decoder.immediate(index);
  if (scale < 0 || scale > 15 || operation.kind > ProductKind::tf32) {
    decoder.fail("scale-input-d is 0 to 15, of .kind::f16 and ::tf32");
  }
  operation.scale = static_cast<int>(scale);
}

}  // namespace

std::unique_ptr<const Operation> decode_tensor_mma(Decoder& decoder) {
  auto operation = std::make_unique<Multiply>();
  decoder.set_class(InstructionClass::matrix);
  for (const char* variant : {"sp", "ashift"}) {
    if (decoder.has(variant)) decoder.fail(fmt::format(".{} is not known to the emulator", variant));
  }
  operation->is_stationary = decoder.take("ws");
  operation->blocks = take_cta_group(decoder);
  if (operation->is_stationary && operation->blocks == 2) decoder.fail(".ws goes with .cta_group::1");
  const std::string_view name = decoder.take_one_of({"kind::f16", "kind::tf32", "kind::f8f6f4", "kind::i8",
                                                     "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"});
  operation->kind = std::find_if(std::begin(kinds), std::end(kinds), [&](const KindRow& row) {
                      return row.name == name;
                    })->kind;
  if (operation->kind == ProductKind::i8 && (decoder.target().minor != 0 || decoder.target().suffix != 'a')) {
    decoder.fail(".kind::i8 needs .target sm_100a");
  }
  const bool is_scaled = is_block_scaled(operation->kind);
  if (is_scaled && operation->is_stationary) decoder.fail(fmt::format(".ws does not go with .{}", name));
  if (is_scaled) operation->scales = take_scales(decoder, operation->kind);
  operation->model = {.group = bytes_along_k, .fraction_bits = 25};
  take_collector(decoder, operation->is_stationary);
  operation->d = decoder.address(0);
  if (decoder.operand(1).kind == ptx::Operand::Kind::address) {
    operation->a_address = decoder.address(1);
  } else {
    operation->a = decoder.source(1, Type::b64);
  }
  operation->b = decoder.source(2, Type::b64);
  operation->instruction = decoder.source(3, Type::b32);
  std::size_t next = 4;
  if (is_scaled) {
    operation->a_scales = decoder.address(next++);
    operation->b_scales = decoder.address(next++);
  } else if (!operation->is_stationary && decoder.operand(next).kind == ptx::Operand::Kind::vector) {
    operation->disabled = source_registers(decoder, next++, static_cast<std::size_t>(4 * operation->blocks));
  }
  operation->accumulates = decoder.predicate_source(decoder.operand(next++));
  if (decoder.count() > next) take_last(decoder, next++, *operation);
  decoder.expect_count(next);
  return operation;
}

}  // namespace jit::emulator
