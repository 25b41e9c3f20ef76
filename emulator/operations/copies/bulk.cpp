#include "operations/copies/bulk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "machine/global_races.h"
#include "operations/barriers/mbarrier_wait.h"

namespace jit::emulator {
namespace {

/// A copy from global memory.
class LoadRegion final : public CopyToShared {
 public:
  LoadRegion(const Issue& issue, const SharedPlace& to, Mbarrier& mbarrier,
             std::shared_ptr<const BulkRegion> region)
      : CopyToShared(issue, to, mbarrier, region->bytes), region_(std::move(region)) {}

 private:
  void move(const Access& access) override {
    std::byte* const image = to().block->shared.end_write(access, to().offset, bytes());
    const Launch& launch = issue().warp.launch();
    if (launch.races) {
      for (const BulkRun& run : region_->runs) launch.races->read(access, run.address, run.bytes);
    }
    gather(*region_, launch.memory, to().offset, image);
  }

  const std::shared_ptr<const BulkRegion> region_;
};

}  // namespace

Issue::Issue(Warp& issuer, int issuing_lane)
    : warp(issuer),
      pc(issuer.pc),
      lane(issuing_lane),
      before(std::make_shared<const Knowledge>(issuer.knowledge.released(1u << issuing_lane))) {
  issuer.knowledge.tick();
}

Access Issue::access(Agent agent, std::uint32_t time, std::uint32_t lanes) const {
  return {&warp, pc, agent, time, lanes, true, Proxy::async, before.get()};
}

void Issue::report(FindingKind kind, std::string message) const {
  warp.launch().report_at(pc, kind, warp, lane, std::move(message));
}

CopyToShared::CopyToShared(Issue issue, SharedPlace to, Mbarrier& mbarrier, std::uint32_t bytes)
    : issue_(std::move(issue)), to_(to), mbarrier_(mbarrier), bytes_(bytes) {}

void CopyToShared::complete() {
  if (has_ended(*to_.block)) {
    issue_.report(
        FindingKind::unfinished_copy,
        fmt::format("block {} of the cluster exits before {} bytes of this copy have come to byte {} of its "
                    "shared memory: nobody waited for the mbarrier",
                    to_.block->rank, bytes_, to_.offset));
  } else if (!mbarrier_.is_valid()) {
    issue_.report(FindingKind::barrier_misuse,
                  mbarrier_.name() + " was invalidated before this copy completed on it");
  }
  if (bytes_ != 0) move(issue_.access(mbarrier_.agent(), mbarrier_.write_time()));
  if (mbarrier_.is_valid()) {
    report_fault(issue_.pc, issue_.warp, issue_.lane, mbarrier_.complete_transaction(bytes_));
  }
}

std::string CopyToShared::describe() const {
  return fmt::format("a bulk copy of {} bytes by warp {} to byte {} of shared memory, on {}", bytes_,
                     issue_.warp.id, to_.offset, mbarrier_.name());
}

void start_load(Warp& warp, int lane, const std::shared_ptr<const BulkRegion>& region, const Issue& issue,
                const SharedPlace& to, Mbarrier& mbarrier) {
  if (region->bytes != 0) {
    to.block->shared.begin_write(warp.access(lane, Proxy::async), to.offset, region->bytes);
  }
  warp.count().shared_write_bytes += region->bytes;
  warp.block.cluster.async.push(std::make_unique<LoadRegion>(issue, to, mbarrier, region));
}

CopyToGlobal::CopyToGlobal(Issue issue, SharedPlace from, BulkRegion region,
                           std::optional<Reduction> reduction)
    : issue_(std::move(issue)), from_(from), region_(std::move(region)), reduction_(reduction) {}

void CopyToGlobal::read(Agent agent, std::uint32_t time) {
  is_read_ = true;
  if (region_.bytes == 0) return;
  const Access access = issue_.access(agent, time, 1u << issue_.lane);
  taken_ = unswizzle(region_, from_.offset, [&](std::uint32_t at, std::uint32_t bytes) {
    return from_.block->shared.read(access, from_.offset + at, bytes);
  });
}

void CopyToGlobal::write(Agent agent, std::uint32_t time) {
  GlobalMemory& memory = issue_.warp.launch().memory;
  GlobalRaces* const races = issue_.warp.launch().races;
  const std::byte* from = taken_.data();
  const Access access = issue_.access(agent, time, 1u << issue_.lane);
  for (const BulkRun& run : region_.runs) {
    std::byte* const to = memory.at(run.address, run.bytes);
    if (races && reduction_) races->update(access, run.address, run.bytes);
    if (races && !reduction_) races->write(access, run.address, run.bytes);
    if (!reduction_) {
      std::memcpy(to, from, run.bytes);
    } else {
      if (!memory.is_written(run.address, run.bytes)) {
        issue_.report(
            FindingKind::uninitialized_read,
            fmt::format("reduces into {} bytes of global memory at {:#x} that were not all written before",
                        run.bytes, run.address));
      }
      reduce(*reduction_, to, from, run.bytes);
    }
    memory.mark_written(run.address, run.bytes);
    from += run.bytes;
  }
}

std::vector<BulkTarget::Receiver> BulkTarget::receivers(Warp& warp, int lane) const {
  const auto completes_on = [&](const SharedPlace& at) {
    Mbarrier& found = use_mbarrier(warp, lane, at, "lets a copy complete on");
    if (warp.launch().options.check_races && found.is_init_visible(warp, lane) &&
        !found.is_init_visible_to_copies(warp, lane)) {
      warp.report(FindingKind::missing_proxy_fence, lane,
                  fmt::format("lets a copy complete on {}, whose mbarrier.init the async proxy sees only "
                              "behind a fence.mbarrier_init by the thread that executed it",
                              found.name()));
    }
    return &found;
  };
  const SharedPlace place = to.place(warp, lane);
  const SharedPlace signal = mbarrier.place(warp, lane);
  if (own_block && place.block != &warp.block) {
    warp.stop(FindingKind::out_of_bounds, lane,
              fmt::format("the destination is in block {} of the cluster; .shared::cta is the own block",
                          place.block->rank));
  }
  if (!block_mask) {
    const bool is_near =
        is_of_pair ? signal.block->rank / 2 == place.block->rank / 2 : signal.block == place.block;
    if (!is_near) {
      warp.stop(
          FindingKind::barrier_misuse, lane,
          fmt::format(
              "the destination is in block {} of the cluster and the mbarrier in block {}: both must be "
              "in the same{}",
              place.block->rank, signal.block->rank, is_of_pair ? " pair" : ""));
    }
    return {{place, completes_on(signal)}};
  }
  const auto& blocks = warp.block.cluster.blocks;
  const std::uint32_t mask = warp.r32(*block_mask)[lane] & 0xffffu;
  if (mask == 0 || mask >> blocks.size() != 0) {
    warp.stop(
        FindingKind::illegal_instruction, lane,
        fmt::format(
            "the block mask {:#06x} of .multicast::cluster must name some of the cluster's {} blocks and "
            "no others",
            mask, blocks.size()));
  }
  std::vector<Receiver> receivers;
  for_each_lane(mask, [&](int rank) {
    Block* const block = blocks[static_cast<std::size_t>(rank)].get();
    Block* const signaled =
        is_of_pair ? blocks[static_cast<std::size_t>(rank & ~1) | (signal.block->rank & 1u)].get() : block;
    receivers.push_back({{block, place.offset}, completes_on({signaled, signal.offset})});
  });
  return receivers;
}

std::size_t take_cache_hint(Decoder& decoder, std::size_t operand_index) {
  if (!decoder.take("L2::cache_hint")) return 0;
  decoder.source(operand_index, Type::b64);
  return 1;
}

std::unique_ptr<const Operation> decode_bulk(Decoder& decoder) {
  if (decoder.opcode() == "tensormap") {
    decoder.fail("the emulator does not change tensor maps on the device; encode another one on the host");
  }
  if (decoder.opcode() == "prefetch" && decoder.has("tensormap")) return decode_prefetch_tensormap(decoder);
  if (decoder.opcode() != "cp" || !decoder.has("bulk")) return nullptr;
  decoder.require_arch(9, 0);
  decoder.set_class(InstructionClass::async_copy);
  decoder.take("async");
  decoder.take("bulk");
  if (decoder.take("commit_group")) return decode_bulk_commit(decoder);
  if (decoder.take("wait_group")) return decode_bulk_wait(decoder);
  if (decoder.take("prefetch")) {
    return decoder.take("tensor") ? decode_bulk_tensor_prefetch(decoder) : decode_bulk_prefetch(decoder);
  }
  const bool is_reduction = decoder.take("reduce");
  return decoder.take("tensor") ? decode_bulk_tensor(decoder, is_reduction)
                                : decode_bulk_linear(decoder, is_reduction);
}

}  // namespace jit::emulator
