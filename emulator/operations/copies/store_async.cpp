// st.async and red.async on shared memory of the cluster, which complete on an mbarrier (PTX ISA, "Data
// Movement and Conversion Instructions: st.async", "red.async").
#include <bit>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "operations/copies/atomic.h"
#include "operations/copies/bulk.h"
#include "operations/copies/memory.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {
namespace {

// Both use the generic proxy, unlike bulk copies.
Access in_generic_proxy(Access access) {
  access.proxy = Proxy::generic;
  return access;
}

class LateStore final : public CopyToShared {
 public:
  LateStore(Issue issue, SharedPlace to, Mbarrier& mbarrier, std::vector<std::byte> value)
      : CopyToShared(std::move(issue), to, mbarrier, static_cast<std::uint32_t>(value.size())),
        value_(std::move(value)) {}

 private:
  void move(const Access& access) override {
    std::memcpy(to().block->shared.end_write(in_generic_proxy(access), to().offset, bytes()), value_.data(),
                value_.size());
  }

  const std::vector<std::byte> value_;
};

class LateUpdate final : public CopyToShared {
 public:
  LateUpdate(Issue issue, SharedPlace to, Mbarrier& mbarrier, std::uint32_t bytes, AtomicUpdate update,
             std::uint64_t value)
      : CopyToShared(std::move(issue), to, mbarrier, bytes), update_(update), value_(value) {}

 private:
  void move(const Access& access) override {
    std::byte* const place = to().block->shared.update(in_generic_proxy(access), to().offset, bytes());
    std::uint64_t word = 0;
    std::memcpy(&word, place, bytes());
    word = update_(word, value_, 0);
    std::memcpy(place, &word, bytes());
  }

  const AtomicUpdate update_;
  const std::uint64_t value_;
};

struct AsyncStore final : Operation {
  SharedOperand to;
  SharedOperand mbarrier;
  std::uint32_t element_bytes = 4;
  std::vector<Slot> from;
  AtomicUpdate update = nullptr;  // of red.async

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) { start(warp, lane); });
    warp.count().shared_write_bytes += static_cast<std::uint64_t>(std::popcount(warp.exec)) * bytes();
    return Flow::next;
  }

 private:
  std::uint32_t bytes() const { return element_bytes * static_cast<std::uint32_t>(from.size()); }

  void start(Warp& warp, int lane) const {
    const SharedPlace place = to.place(warp, lane);
    const SharedPlace signal = mbarrier.place(warp, lane);
    require_aligned(warp, lane, place.offset, bytes());
    if (place.block != signal.block) {
      warp.stop(FindingKind::barrier_misuse, lane,
                fmt::format("the bytes go to block {} of the cluster, their mbarrier is in block {}; both "
                            "must be in one block",
                            place.block->rank, signal.block->rank));
    }
    Mbarrier& completes_on = use_mbarrier(warp, lane, signal, "completes on");
    std::vector<std::byte> value(bytes());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const void* const element = element_bytes == 8 ? static_cast<const void*>(warp.r64(from[i]) + lane)
                                                     : static_cast<const void*>(warp.r32(from[i]) + lane);
      std::memcpy(value.data() + i * element_bytes, element, element_bytes);
    }
    if (!update) {
      place.block->shared.begin_write(warp.access(lane), place.offset, bytes());
      warp.block.cluster.async.push(
          std::make_unique<LateStore>(Issue(warp, lane), place, completes_on, std::move(value)));
      return;
    }
    std::uint64_t operand = 0;
    std::memcpy(&operand, value.data(), value.size());
    warp.block.cluster.async.push(
        std::make_unique<LateUpdate>(Issue(warp, lane), place, completes_on, bytes(), update, operand));
  }
};

void take_values(Decoder& decoder, AsyncStore& store) {
  const std::string_view vector = decoder.take_any_of({"v2", "v4"});
  const std::size_t count = vector.empty() ? 1 : static_cast<std::size_t>(vector[1] - '0');
  const Type type = decoder.take_type();
  if (bits(type) != 32 && bits(type) != 64) {
    decoder.fail(fmt::format(".{} is no type of 32 or 64 bits", to_string(type)));
  }
  store.element_bytes = static_cast<std::uint32_t>(bits(type)) / 8;
  const ptx::Operand& value = decoder.operand(1);
  const bool is_vector = value.kind == ptx::Operand::Kind::vector;
  if ((is_vector ? value.elements.size() : 1) != count) {
    decoder.fail(fmt::format("{} values are needed", count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    store.from.push_back(decoder.source(is_vector ? value.elements[i] : value, type));
  }
  if (store.element_bytes * count > 16) decoder.fail("16 bytes are the most");
}

}  // namespace

std::unique_ptr<const Operation> decode_async_store(Decoder& decoder) {
  decoder.take_one_of({"async"});
  decoder.require_arch(9, 0);
  const bool is_update = decoder.opcode() == "red";
  if (is_update) {
    decoder.take_one_of({"relaxed"});
    decoder.take_one_of({"cluster"});
  } else {
    decoder.take("weak");
  }
  if (decoder.has("global")) {
    decoder.fail("the forms on .global are of sm_100 and not known to the emulator");
  }
  const bool is_generic = !decoder.take("shared::cluster");
  decoder.take_one_of({"mbarrier::complete_tx::bytes"});
  decoder.expect_count(3);
  auto store = std::make_unique<AsyncStore>();
  store->to = shared_operand(decoder, 0, is_generic);
  store->mbarrier = shared_operand(decoder, 2, is_generic);
  if (is_update) {
    const AtomicOperands operands = take_atomic(decoder, 1, false);
    const bool is_integer = !is_float(operands.type) && bits(operands.type) >= 32;
    if (operands.has_c || operands.b.size() != 1 || !is_integer) {
      decoder.fail("takes one integer, and no .cas");
    }
    store->update = operands.in_shared;
    store->from = operands.b;
    store->element_bytes = operands.element_bytes();
  } else {
    take_values(decoder, *store);
  }
  decoder.set_class(InstructionClass::async_copy);
  return store;
}

}  // namespace jit::emulator
