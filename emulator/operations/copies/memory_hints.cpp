// Instructions about caches: no effect here.
#include "operations/copies/memory.h"

#include "machine/warp.h"

namespace jit::emulator {
namespace {

struct Advice final : Operation {
  Flow execute(Warp&) const override { return Flow::next; }
};

// The value is opaque: only .L2::cache_hint reads it, as a hint.
struct CreatePolicy final : Operation {
  Slot to = 0;

  Flow execute(Warp& warp) const override {
    constexpr std::uint64_t some_policy = 0x10f0000000000000;
    for_each_lane(warp.exec, [&](int lane) { warp.r64(to)[lane] = some_policy; });
    return Flow::next;
  }
};

std::unique_ptr<const Operation> decode_prefetch(Decoder& decoder) {
  decoder.take_any_of({"global", "local", "const", "param"});
  decoder.take_one_of({"L1", "L2", "L2::evict_last", "L2::evict_normal"});
  decoder.expect_count(1);
  decoder.address(0);
  return std::make_unique<Advice>();
}

std::unique_ptr<const Operation> decode_policy(Decoder& decoder) {
  const std::string_view form = decoder.take_one_of({"range", "fractional", "cvt"});
  if (form == "cvt") {
    decoder.take_one_of({"L2"});
  } else {
    decoder.take("global");
    decoder.take_one_of({"L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"});
    decoder.take_any_of({"L2::evict_first", "L2::evict_unchanged"});
  }
  decoder.take_one_of({"b64"});
  auto policy = std::make_unique<CreatePolicy>();
  policy->to = decoder.destination(0, Type::b64);
  if (form == "range") {
    decoder.expect_count(4);
    decoder.address(1);
    decoder.source(2, Type::u32);
    decoder.source(3, Type::u32);
  } else if (form == "cvt") {
    decoder.expect_count(2);
    decoder.source(1, Type::b64);
  } else {
    decoder.expect_count(1, 2);
    if (decoder.count() == 2) decoder.source(1, Type::f32);
  }
  return policy;
}

}  // namespace

std::unique_ptr<const Operation> decode_memory_hint(Decoder& decoder) {
  const std::string_view opcode = decoder.opcode();
  std::unique_ptr<const Operation> operation;
  if ((opcode == "prefetch" && !decoder.has("tensormap")) || opcode == "prefetchu") {
    operation = decode_prefetch(decoder);
  } else if (opcode == "createpolicy") {
    operation = decode_policy(decoder);
  }
  if (operation) decoder.set_class(InstructionClass::global_memory);
  return operation;
}

}  // namespace jit::emulator
