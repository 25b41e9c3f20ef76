// wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
#include <bit>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "machine/decoder.h"
#include "operations/tensor/wgmma_pipeline.h"
#include "operations/warps/setmaxnreg.h"

namespace jit::emulator {
namespace {

struct WgmmaFence final : Operation {
  Flow execute(Warp& warp) const override {
    WgmmaPipeline::of(warp).fence(warp);
    return Flow::next;
  }
};

struct WgmmaCommit final : Operation {
  Flow execute(Warp& warp) const override {
    WgmmaPipeline::of(warp).commit(warp);
    return Flow::next;
  }
};

struct WgmmaWait final : Operation {
  std::uint64_t remaining = 0;
  Flow execute(Warp& warp) const override { return WgmmaPipeline::of(warp).wait(warp, remaining); }
};

struct WgmmaMultiply final : Operation {
  WgmmaInstruction instruction;
  std::optional<Slot> a;  ///< descriptor
  Slot b = 0;             ///< descriptor
  Decoder::PredicateSource accumulate{};

  Flow execute(Warp& warp) const override {
    const std::uint64_t a_bits = a ? descriptor(warp, *a, 'A', instruction.a_major, a_pieces()) : 0;
    const std::uint64_t b_bits = descriptor(warp, b, 'B', instruction.b_major, b_pieces());
    const std::uint32_t adds =
        accumulate.negated ? ~warp.predicate(accumulate.predicate) : warp.predicate(accumulate.predicate);
    if ((adds & warp.exec) != 0 && (adds & warp.exec) != warp.exec) {
      warp.report(FindingKind::illegal_instruction, std::countr_zero(warp.exec & ~adds),
                  fmt::format("scale-d must be the same in all threads, it is true in lanes {:#010x}", adds));
    }
    WgmmaPipeline::of(warp).issue(warp, instruction, a_bits, b_bits, (adds & warp.exec) != 0);
    // The warps of a warpgroup share their reads of B.
    InstructionCounts& count = warp.count();
    const auto columns = static_cast<unsigned>(instruction.columns);
    count.tensor_flops += std::uint64_t{2} * fragment_rows * columns * static_cast<unsigned>(instruction.k);
    count.shared_read_bytes += columns * 32 / warpgroup_warps + (a ? fragment_rows * 32 : 0);
    return Flow::next;
  }

 private:
  // 16-byte pieces in a line of the whole matrix.
  int a_pieces() const { return instruction.a_major == Major::k ? 2 : 64 / 8; }
  int b_pieces() const { return instruction.b_major == Major::k ? 2 : instruction.columns / 8; }

  static std::uint64_t descriptor(Warp& warp, Slot slot, char operand, Major major, int pieces) {
    const int leader = std::countr_zero(warp.exec);
    const std::uint64_t bits = warp.r64(slot)[leader];
    for_each_lane(warp.exec, [&](int lane) {
      if (warp.r64(slot)[lane] == bits) return;
      warp.report(
          FindingKind::bad_descriptor, lane,
          fmt::format("the descriptor of {} must be the same in all threads, it is {:#x} here and {:#x} "
                      "in lane {}",
                      operand, warp.r64(slot)[lane], bits, leader));
    });
    const std::string fault = descriptor_fault(bits, major, pieces);
    if (!fault.empty()) {
      warp.stop(FindingKind::bad_descriptor, -1,
                fmt::format("the descriptor of {}, {:#018x}: {}", operand, bits, fault));
    }
    return bits;
  }
};

// Takes "m64n128k16" as {128, 16}.
std::pair<int, int> take_shape(Decoder& decoder) {
  for (const std::string& modifier : decoder.text().modifiers) {
    if (!modifier.starts_with("m64n") || !decoder.take(modifier)) continue;
    const char* const end = modifier.data() + modifier.size();
    int n = 0, k = 0;
    const auto after_n = std::from_chars(modifier.data() + 4, end, n);
    if (after_n.ec == std::errc() && after_n.ptr != end && *after_n.ptr == 'k') {
      const auto after_k = std::from_chars(after_n.ptr + 1, end, k);
      if (after_k.ec == std::errc() && after_k.ptr == end && n >= 8 && n <= 256 && n % 8 == 0) return {n, k};
    }
    decoder.fail(fmt::format("{} is no shape; m64nNkK with N a multiple of 8 from 8 to 256 is", modifier));
  }
  decoder.fail("lacks a shape such as m64n128k16");
}

void take_types(Decoder& decoder, WgmmaInstruction& instruction) {
  const Type d = decoder.take_type();
  const Type a = instruction.a = decoder.take_type();
  const Type b = instruction.b = decoder.take_type();
  const auto is_byte = [](Type type) { return type == Type::e4m3 || type == Type::e5m2; };
  const bool known = a == Type::f16 || a == Type::bf16 || a == Type::tf32 || is_byte(a);
  const bool pair = a == b || (is_byte(a) && is_byte(b));
  const bool has_f16_sums = a == Type::f16 || is_byte(a);
  if (!known || !pair || (d != Type::f32 && !(d == Type::f16 && has_f16_sums))) {
    decoder.fail(
        "the emulator knows products of f16, bf16 and tf32, and of e4m3 and e5m2 in any mix, with f32 "
        "accumulators, and f16 ones for f16, e4m3 and e5m2");
  }
  const int k = 32 / element_bytes(a);
  if (instruction.k != k) decoder.fail(fmt::format("products of this type have k {}", k));
  instruction.format = d == Type::f16 ? AccumulatorFormat::pairs : AccumulatorFormat::words;
  instruction.model = accumulation_model(decoder.device(), TensorUnit::wgmma, a, d, k);
}

int take_scale(Decoder& decoder, std::size_t operand) {
  const std::int64_t scale = decoder.immediate(operand);
  if (scale != 1 && scale != -1) decoder.fail(fmt::format("operand {} must be 1 or -1", operand + 1));
  return static_cast<int>(scale);
}

Major take_major(Decoder& decoder, std::size_t operand) {
  const std::int64_t transposed = decoder.immediate(operand);
  if (transposed != 0 && transposed != 1) decoder.fail(fmt::format("operand {} must be 0 or 1", operand + 1));
  return transposed == 0 ? Major::k : Major::mn;
}

std::unique_ptr<const Operation> decode_multiply(Decoder& decoder) {
  auto operation = std::make_unique<WgmmaMultiply>();
  WgmmaInstruction& instruction = operation->instruction;
  std::tie(instruction.columns, instruction.k) = take_shape(decoder);
  take_types(decoder, instruction);

  const bool from_registers = decoder.operand(1).kind == ptx::Operand::Kind::vector;
  const bool has_majors = element_bytes(instruction.a) == 2;
  decoder.expect_count(has_majors ? (from_registers ? 7 : 8) : 6);
  instruction.accumulators =
      in_out_registers(decoder, 0, accumulator_registers(instruction.format, instruction.columns));
  if (from_registers) {
    instruction.a_registers = source_registers(decoder, 1, 4);
  } else {
    operation->a = decoder.source(1, Type::b64);
  }
  operation->b = decoder.source(2, Type::b64);
  operation->accumulate = decoder.predicate_source(decoder.operand(3));
  instruction.negate = take_scale(decoder, 4) * take_scale(decoder, 5) < 0;
  if (has_majors) {
    if (!from_registers) instruction.a_major = take_major(decoder, 6);
    instruction.b_major = take_major(decoder, from_registers ? 6 : 7);
  }
  return operation;
}

std::unique_ptr<const Operation> decode_wait(Decoder& decoder) {
  decoder.expect_count(1);
  const std::int64_t remaining = decoder.immediate(0);
  if (remaining < 0) decoder.fail(fmt::format("cannot leave {} groups", remaining));
  auto operation = std::make_unique<WgmmaWait>();
  operation->remaining = static_cast<std::uint64_t>(remaining);
  return operation;
}

}  // namespace

std::unique_ptr<const Operation> decode_wgmma(Decoder& decoder) {
  if (decoder.opcode() == "setmaxnreg") return decode_setmaxnreg(decoder);
  if (decoder.opcode() != "wgmma") return nullptr;
  decoder.require_arch(9, 0, true);
  const std::string_view what = decoder.take_one_of({"mma_async", "fence", "commit_group", "wait_group"});
  decoder.take_one_of({"sync"});
  decoder.take_one_of({"aligned"});
  decoder.set_class(InstructionClass::wgmma);
  decoder.set_aligned();
  if (what == "mma_async") return decode_multiply(decoder);
  if (what == "wait_group") return decode_wait(decoder);
  decoder.expect_count(0);
  if (what == "fence") return std::make_unique<WgmmaFence>();
  return std::make_unique<WgmmaCommit>();
}

}  // namespace jit::emulator
