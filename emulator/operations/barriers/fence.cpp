// fence and membar (PTX ISA, "Parallel Synchronization and Communication Instructions: membar/fence").
#include "machine/decoder.h"
#include "machine/warp.h"
#include "operations/barriers/mbarrier.h"
#include "operations/copies/memory.h"

namespace jit::emulator {
namespace {

// A fence of the generic proxy: turns later relaxed writes into releases and earlier relaxed reads into
// acquires.
struct Fence final : Operation {
  Scope scope;
  explicit Fence(Scope s) : scope(s) {}

  Flow execute(Warp& warp) const override {
    warp.block.shared.sync().fence(warp, scope);
    return Flow::next;
  }
};

// fence.proxy.async: the async proxy sees each thread's past.
struct AsyncProxyFence final : Operation {
  bool is_of_shared, is_of_global;
  AsyncProxyFence(bool of_shared, bool of_global) : is_of_shared(of_shared), is_of_global(of_global) {}

  Flow execute(Warp& warp) const override {
    if (is_of_shared) warp.knowledge.fence_proxy(warp.exec);
    if (is_of_global) warp.knowledge.fence_global_proxy(warp.exec, warp.block.cluster.number);
    return Flow::next;
  }
};

// fence.mbarrier_init.
struct MbarrierInitFence final : Operation {
  Flow execute(Warp& warp) const override {
    warp.block.mbarriers->publish_inits(warp);
    warp.knowledge.tick();
    return Flow::next;
  }
};

// Fences without effect here: aliases, tensor maps.
struct OtherFence final : Operation {
  Flow execute(Warp&) const override { return Flow::next; }
};

std::unique_ptr<const Operation> decode_proxy(Decoder& decoder) {
  const std::string_view proxy =
      decoder.take_one_of({"async", "async::generic", "async.global", "alias", "tensormap::generic"});
  if (proxy == "async") {
    if (decoder.take("global")) return std::make_unique<AsyncProxyFence>(false, true);
    const bool is_of_shared = !decoder.take_any_of({"shared::cta", "shared::cluster"}).empty();
    return std::make_unique<AsyncProxyFence>(true, !is_of_shared);
  }
  if (proxy == "async::generic") {
    decoder.take_one_of({"acquire", "release"});
    decoder.take_one_of({"sync_restrict::shared::cluster", "sync_restrict::shared::cta"});
    take_scope(decoder);
    return std::make_unique<AsyncProxyFence>(true, false);
  }
  if (proxy == "tensormap::generic" && decoder.take_one_of({"acquire", "release"}) == "acquire") {
    take_scope(decoder);
    decoder.expect_count(2);
    decoder.address(0);
    if (decoder.immediate(1) != 128) decoder.fail("the size of a tensor map is 128");
  } else if (proxy == "tensormap::generic") {
    take_scope(decoder);
  }
  return std::make_unique<OtherFence>();
}

}  // namespace

std::unique_ptr<const Operation> decode_fence(Decoder& decoder) {
  if (decoder.opcode() != "fence" && decoder.opcode() != "membar") return nullptr;
  decoder.set_class(InstructionClass::barrier);
  if (decoder.take("proxy")) return decode_proxy(decoder);
  decoder.expect_count(0);
  if (decoder.opcode() == "membar") {
    const std::string_view level = decoder.take_one_of({"cta", "gl", "sys"});
    return std::make_unique<Fence>(level == "cta" ? Scope::cta : level == "gl" ? Scope::gpu : Scope::sys);
  }
  if (decoder.take("mbarrier_init")) {
    decoder.take_one_of({"release"});
    decoder.take_one_of({"cluster"});
    return std::make_unique<MbarrierInitFence>();
  }
  decoder.take_any_of({"sc", "acq_rel", "acquire", "release"});
  decoder.take_any_of({"sync_restrict::shared::cluster", "sync_restrict::shared::cta"});
  return std::make_unique<Fence>(take_scope(decoder));
}

}  // namespace jit::emulator
