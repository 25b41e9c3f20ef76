// Bulk copies of contiguous bytes (PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk",
// "cp.async.bulk.prefetch").
#include <fmt/format.h>

#include "operations/copies/bulk.h"

namespace jit::emulator {
namespace {

constexpr std::uint32_t unit = 16;  // bytes, of addresses and sizes

std::uint32_t checked_size(Warp& warp, int lane, Slot slot) {
  const std::uint32_t bytes = warp.r32(slot)[lane];
  if (bytes % unit != 0) {
    warp.stop(FindingKind::misaligned, lane,
              fmt::format("a bulk copy of {} bytes: the size must be a multiple of 16", bytes));
  }
  return bytes;
}

void check_shared(Warp& warp, int lane, const SharedPlace& place, const char* which) {
  if (place.offset % unit != 0) {
    warp.stop(FindingKind::misaligned, lane,
              fmt::format("the {} of a bulk copy is byte {} of shared memory: it must be a multiple of 16",
                          which, place.offset));
  }
}

SharedPlace own_source(Warp& warp, int lane, const SharedOperand& from) {
  const SharedPlace place = from.place(warp, lane);
  check_shared(warp, lane, place, "source");
  if (place.block != &warp.block) {
    warp.stop(FindingKind::out_of_bounds, lane,
              fmt::format("the source is in block {} of the cluster; .shared::cta is the own block",
                          place.block->rank));
  }
  return place;
}

struct LoadBulk final : Operation {
  BulkTarget target;
  Decoder::Address from;
  Slot size;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const std::uint32_t bytes = checked_size(warp, lane, size);
      const auto receivers = target.receivers(warp, lane);
      check_shared(warp, lane, receivers.front().to, "destination");
      const std::uint64_t address = wide_address(warp, lane, from);
      if (bytes != 0) read_global(warp, lane, address, bytes, unit);
      warp.count().global_read_bytes += bytes;
      const Issue issue(warp, lane);
      const auto region = std::make_shared<const BulkRegion>(linear_region(address, bytes));
      for (const auto& receiver : receivers) {
        start_load(warp, lane, region, issue, receiver.to, *receiver.mbarrier);
      }
    });
    return Flow::next;
  }
};

struct StoreBulk final : Operation {
  Decoder::Address to;
  SharedOperand from;
  Slot size;
  std::optional<Reduction> reduction;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const std::uint32_t bytes = checked_size(warp, lane, size);
      const SharedPlace place = own_source(warp, lane, from);
      const std::uint64_t address = wide_address(warp, lane, to);
      check_global(warp, lane, address, bytes, unit);
      warp.count().shared_read_bytes += bytes;
      warp.count().global_write_bytes += bytes;
      bulk_state(warp).add(lane, std::make_unique<CopyToGlobal>(Issue(warp, lane), place,
                                                                linear_region(address, bytes), reduction));
    });
    return Flow::next;
  }
};

/// From shared memory to that of a block of the cluster.
class CopyInCluster final : public CopyToShared {
 public:
  CopyInCluster(const Issue& issue, const SharedPlace& from, const SharedPlace& to, Mbarrier& mbarrier,
                std::uint32_t bytes, std::optional<Reduction> reduction)
      : CopyToShared(issue, to, mbarrier, bytes), from_(from), reduction_(reduction) {}

 private:
  void move(const Access& access) override {
    const std::byte* const source = from_.block->shared.read(access, from_.offset, bytes());
    if (reduction_) {
      reduce(*reduction_, to().block->shared.update(access, to().offset, bytes()), source, bytes());
    } else {
      std::memmove(to().block->shared.end_write(access, to().offset, bytes()), source, bytes());
    }
  }

  const SharedPlace from_;
  const std::optional<Reduction> reduction_;
};

struct CopyBulkInCluster final : Operation {
  BulkTarget target;
  SharedOperand from;
  Slot size;
  std::optional<Reduction> reduction;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const std::uint32_t bytes = checked_size(warp, lane, size);
      const SharedPlace place = own_source(warp, lane, from);
      const BulkTarget::Receiver receiver = target.receivers(warp, lane).front();
      check_shared(warp, lane, receiver.to, "destination");
      warp.count().shared_read_bytes += bytes;
      warp.count().shared_write_bytes += bytes;
      // Reductions to the same bytes may run concurrently; copies may not.
      if (!reduction && bytes != 0) {
        receiver.to.block->shared.begin_write(warp.access(lane, Proxy::async), receiver.to.offset, bytes);
      }
      warp.block.cluster.async.push(std::make_unique<CopyInCluster>(Issue(warp, lane), place, receiver.to,
                                                                    *receiver.mbarrier, bytes, reduction));
    });
    return Flow::next;
  }
};

struct PrefetchBulk final : Operation {
  Decoder::Address from;
  Slot size;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      check_global(warp, lane, wide_address(warp, lane, from), checked_size(warp, lane, size), unit);
    });
    return Flow::next;
  }
};

Decoder::Address global_operand(Decoder& decoder, std::size_t index) {
  const Decoder::Address address = decoder.address(index);
  if (address.narrow) decoder.fail("an address in .global has 64 bits");
  return address;
}

Reduction take_reduction(Decoder& decoder, bool to_shared) {
  const std::string_view word = decoder.take_one_of({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  const bool keeps_subnormals = decoder.take("noftz");
  const Reduction reduction = {*parse_reduction(word), decoder.take_type()};
  if (!is_legal(reduction, to_shared)) {
    decoder.fail(fmt::format(".{} is not possible on .{} in .{}", word, to_string(reduction.type),
                             to_shared ? "shared::cluster" : "global"));
  }
  const bool adds_halves = reduction.op == Reduction::Operator::add &&
                           (reduction.type == Type::f16 || reduction.type == Type::bf16);
  if (keeps_subnormals != adds_halves) {
    decoder.fail(adds_halves ? "add on f16 and bf16 needs .noftz" : ".noftz is for add on f16 and bf16 only");
  }
  return reduction;
}

}  // namespace

std::unique_ptr<const Operation> decode_bulk_linear(Decoder& decoder, bool is_reduction) {
  const std::string to = decoder.take_next();
  const std::string from = decoder.take_next();
  const bool to_shared = to == "shared::cluster" || (to == "shared::cta" && from == "global");
  if (!(to_shared && from == "global" && !is_reduction) && !(to_shared && from == "shared::cta") &&
      !(to == "global" && from == "shared::cta")) {
    decoder.fail(fmt::format("bulk copies from .{} to .{} do not exist", from, to));
  }
  std::optional<Reduction> reduction;
  if (!to_shared) {
    if (!decoder.take("bulk_group")) decoder.fail("a bulk copy to .global completes by .bulk_group");
    if (decoder.has("cp_mask")) decoder.fail(".cp_mask (sm_100) is not known to the emulator");
    if (is_reduction) reduction = take_reduction(decoder, false);
    auto operation = std::make_unique<StoreBulk>();
    operation->to = global_operand(decoder, 0);
    operation->from = shared_operand(decoder, 1, false);
    operation->size = decoder.source(2, Type::u32);
    operation->reduction = reduction;
    decoder.expect_count(3 + take_cache_hint(decoder, 3));
    return operation;
  }
  if (!decoder.take("mbarrier::complete_tx::bytes")) {
    decoder.fail("a bulk copy to shared memory completes by .mbarrier::complete_tx::bytes");
  }
  BulkTarget target;
  target.own_block = to == "shared::cta";
  target.to = shared_operand(decoder, 0, false);
  target.mbarrier = shared_operand(decoder, 3, false);
  if (from == "shared::cta") {
    if (is_reduction) reduction = take_reduction(decoder, true);
    auto operation = std::make_unique<CopyBulkInCluster>();
    operation->target = target;
    operation->from = shared_operand(decoder, 1, false);
    operation->size = decoder.source(2, Type::u32);
    operation->reduction = reduction;
    decoder.expect_count(4);
    return operation;
  }
  auto operation = std::make_unique<LoadBulk>();
  std::size_t operands = 4;
  if (!target.own_block && decoder.take("multicast::cluster")) {
    target.block_mask = decoder.source(operands++, Type::u16);
  }
  operation->target = target;
  operation->from = global_operand(decoder, 1);
  operation->size = decoder.source(2, Type::u32);
  decoder.expect_count(operands + take_cache_hint(decoder, operands));
  return operation;
}

std::unique_ptr<const Operation> decode_bulk_prefetch(Decoder& decoder) {
  for (const char* word : {"L2", "global"}) {
    if (!decoder.take(word)) decoder.fail(fmt::format("lacks .{}", word));
  }
  auto operation = std::make_unique<PrefetchBulk>();
  operation->from = global_operand(decoder, 0);
  operation->size = decoder.source(1, Type::u32);
  decoder.expect_count(2 + take_cache_hint(decoder, 2));
  return operation;
}

}  // namespace jit::emulator
