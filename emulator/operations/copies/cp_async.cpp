#include "operations/copies/cp_async.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "machine/decoder.h"
#include "machine/global_races.h"
#include "machine/lane_memory.h"
#include "machine/memory_access.h"

namespace jit::emulator {
namespace {

constexpr std::uint32_t largest_copy = 16;

// The copies of one instruction, for the lanes whose copies are pending.
struct Copy {
  std::uint64_t number = 0;  // in the order of issue
  std::uint32_t pc = 0;
  std::uint32_t lanes = 0;
  std::uint32_t tracked = 0;  // lanes whose copies an mbarrier tracks
  std::uint32_t group = 0;    // number of groups that the lanes had committed
  std::uint32_t bytes = 0;
  std::array<std::uint8_t, warp_lanes> source_bytes;
  SharedOffsets to;
  LaneAddresses from;

  // Reads and writes at once. `completion` gives the writes' epoch.
  void take_effect(Warp& warp, std::uint32_t which, Access completion) {
    completion.pc = pc;
    std::array<std::byte, warp_lanes * largest_copy> values;
    const GlobalMemory& memory = warp.launch().memory;
    for_each_lane(which, [&](int lane) {
      const auto index = static_cast<std::size_t>(lane);
      std::byte* const value = values.data() + index * bytes;
      const std::uint32_t count = source_bytes[index];
      if (count == largest_copy) {
        const std::byte* place = memory.written_at(from[index], largest_copy);
        if (!place) place = read_global(warp, lane, from[index], largest_copy, 1, pc);
        std::memcpy(value, place, largest_copy);
        return;
      }
      if (count != 0) std::memcpy(value, read_global(warp, lane, from[index], count, 1, pc), count);
      std::memset(value + count, 0, bytes - count);
    });
    warp.block.shared.end_store(completion, to, which, bytes, values.data());
    lanes &= ~which;
  }
};

struct Due {
  Copy* copy;
  std::uint32_t lanes;
};

class Copies final : public CpAsyncState {
 public:
  static Copies& of(Warp& warp) {
    if (!warp.cp_async) warp.cp_async = std::make_unique<Copies>();
    return static_cast<Copies&>(*warp.cp_async);
  }

  // Adds a copy for lanes with equal numbers of committed groups.
  Copy& add() {
    if (spare_.empty()) spare_.push_back(std::make_unique<Copy>());
    Copy& copy = *spare_.back();
    under_way_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    copy.number = next_number_++;
    copy.tracked = 0;
    return copy;
  }
  std::uint32_t committed(int lane) const { return committed_[static_cast<std::size_t>(lane)]; }
  /// The lanes among `lanes` that have committed `count` groups.
  std::uint32_t with_committed(std::uint32_t lanes, std::uint32_t count) const {
    std::uint32_t others = 0;
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
      others |= static_cast<std::uint32_t>(committed_[lane] != count) << lane;
    }
    return lanes & ~others;
  }
  void commit(std::uint32_t lanes) {
    for_each_lane(lanes, [&](int lane) { ++committed_[static_cast<std::size_t>(lane)]; });
  }

  // Completes the copies of `warp.exec` except those in the last `allowed` groups; without a number, all.
  void wait(Warp& warp, std::optional<std::uint32_t> allowed) {
    std::vector<Due>& due = due_;
    due.clear();
    const int first = std::countr_zero(warp.exec);
    const bool alike = with_committed(warp.exec, committed(first)) == warp.exec;
    for (const auto& copy : under_way_) {
      std::uint32_t lanes = copy->lanes & warp.exec;
      const auto is_allowed = [&](int lane) {
        return allowed && std::uint64_t{copy->group} + *allowed >= committed(lane);
      };
      if (alike) {
        if (is_allowed(first)) continue;
      } else {
        for_each_lane(lanes, [&](int lane) {
          if (is_allowed(lane)) lanes &= ~(1u << lane);
        });
      }
      if (lanes != 0) due.push_back({copy.get(), lanes});
    }
    std::uint32_t tracked = 0;
    for (const auto& [copy, lanes] : due) tracked |= copy->tracked & lanes;
    take_effect(warp, due, warp.access_by_each());
    if (tracked == 0) return;
    for_each_lane(tracked,
                  [&](int lane) { waited_times_[static_cast<std::size_t>(lane)] = warp.knowledge.time(); });
    warp.knowledge.tick();
  }

  void track(std::uint32_t lanes) {
    for (const auto& copy : under_way_) copy->tracked |= copy->lanes & lanes;
  }
  bool has(std::uint32_t lanes, std::uint64_t before) const {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [&](const auto& copy) { return copy->number < before && (copy->lanes & lanes) != 0; });
  }
  Knowledge complete(Warp& warp, std::uint32_t lanes, std::uint64_t before, const Access& completion) {
    std::vector<Due> due;
    for (const auto& copy : under_way_) {
      if (copy->number < before && (copy->lanes & lanes) != 0) {
        due.push_back({copy.get(), copy->lanes & lanes});
      }
    }
    take_effect(warp, due, completion);
    Knowledge released;
    for_each_lane(lanes, [&](int lane) {
      const std::uint32_t waited = waited_times_[static_cast<std::size_t>(lane)];
      released.past.raise(warp.agent, 1u << lane, waited);
    });
    return released;
  }
  std::uint64_t next_number() const { return next_number_; }

  void finish(Warp& warp) override {
    for (const auto& copy : under_way_) {
      const std::uint32_t forgotten = copy->lanes & ~copy->tracked;
      if (forgotten == 0) continue;
      warp.launch().report_at(
          copy->pc, FindingKind::unfinished_copy, warp, std::countr_zero(forgotten),
          "the thread exits, and nothing has waited for this copy: cp.async.wait_group or "
          "cp.async.wait_all is missing behind it");
    }
  }

 private:
  void take_effect(Warp& warp, std::vector<Due>& due, const Access& completion) {
    Random& random = warp.block.cluster.random;
    for (std::size_t left = due.size(); left > 0; --left) {
      std::swap(due[random.below(static_cast<std::uint32_t>(left))], due[left - 1]);
      due[left - 1].copy->take_effect(warp, due[left - 1].lanes, completion);
    }
    std::size_t kept = 0;
    for (auto& copy : under_way_) {
      if (copy->lanes == 0) {
        spare_.push_back(std::move(copy));
      } else {
        std::swap(under_way_[kept++], copy);
      }
    }
    under_way_.resize(kept);
  }

  std::vector<std::unique_ptr<Copy>> under_way_, spare_;
  std::vector<Due> due_;
  std::array<std::uint32_t, warp_lanes> committed_ = {};
  std::uint64_t next_number_ = 0;
  // The time of each lane's last wait that completed tracked copies; 0: none.
  std::array<std::uint32_t, warp_lanes> waited_times_ = {};
};

struct AsyncCopy final : Operation {
  Decoder::Address to{}, from{};
  std::uint32_t bytes = 0;
  std::optional<Slot> source_bytes = {};
  std::optional<Decoder::PredicateSource> ignore_source = {};

  Flow execute(Warp& warp) const override {
    Copies& copies = Copies::of(warp);
    const std::array<std::uint8_t, warp_lanes> sizes = read_sizes(warp);
    for (std::uint32_t left = warp.exec; left != 0;) {
      const std::uint32_t group = copies.committed(std::countr_zero(left));
      const std::uint32_t lanes = copies.with_committed(left, group);
      left &= ~lanes;
      Copy& copy = copies.add();
      copy.lanes = lanes;
      copy.group = group;
      copy.source_bytes = sizes;
      issue(warp, copy);
    }
    return Flow::next;
  }

 private:
  // Bytes to read of each lane's source.
  std::array<std::uint8_t, warp_lanes> read_sizes(Warp& warp) const {
    std::array<std::uint8_t, warp_lanes> sizes;
    sizes.fill(static_cast<std::uint8_t>(bytes));
    if (source_bytes) {
      const std::uint32_t* const wanted = warp.r32(*source_bytes);
      for_each_lane(warp.exec, [&](int lane) {
        if (wanted[lane] > bytes) {
          warp.stop(
              FindingKind::illegal_instruction, lane,
              fmt::format("src-size is {}, it must not be above cp-size, which is {}", wanted[lane], bytes));
        }
        sizes[static_cast<std::size_t>(lane)] = static_cast<std::uint8_t>(wanted[lane]);
      });
    }
    if (ignore_source) {
      const std::uint32_t holds =
          warp.predicate(ignore_source->predicate) ^ (ignore_source->negated ? all_lanes : 0);
      for_each_lane(holds, [&](int lane) { sizes[static_cast<std::size_t>(lane)] = 0; });
    }
    return sizes;
  }

  // The race detector counts a copy's reads at its issue.
  void note_reads(Warp& warp, const Copy& copy) const {
    GlobalRaces* const races = warp.launch().races;
    if (races == nullptr) return;
    std::uint32_t whole = 0;
    for_each_lane(copy.lanes, [&](int lane) {
      const auto index = static_cast<std::size_t>(lane);
      if (copy.source_bytes[index] == bytes) {
        whole |= 1u << lane;
      } else {
        races->read(warp.access(lane), copy.from[index], copy.source_bytes[index]);
      }
    });
    if (whole != 0) races->read(warp, whole, copy.from, bytes);
  }

  void issue(Warp& warp, Copy& copy) const {
    copy.pc = warp.pc;
    copy.bytes = bytes;
    copy.from = lane_addresses(warp, from);
    InstructionCounts& count = warp.count();
    const GlobalMemory& memory = warp.launch().memory;
    for_each_lane(copy.lanes, [&](int lane) {
      const auto index = static_cast<std::size_t>(lane);
      const std::uint32_t size = copy.source_bytes[index];
      count.global_read_bytes += size;
      if (!is_aligned(copy.from[index], bytes)) require_aligned(warp, lane, copy.from[index], bytes);
      if (size == 0 || memory.at(copy.from[index], size)) return;
      check_global(warp, lane, copy.from[index], size, 1);
    });
    note_reads(warp, copy);
    for_each_block(warp, copy.lanes, lane_addresses(warp, to), bytes,
                   [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
                     if (&block != &warp.block) {
                       warp.stop(FindingKind::out_of_bounds, std::countr_zero(lanes),
                                 "cp.async writes to shared memory of another block of the cluster, and can "
                                 "only write to its own");
                     }
                     copy.to = offsets;
                     block.shared.begin_store(warp.access_by_each(), offsets, lanes, bytes);
                   });
    const Wavefronts wavefronts = bank_wavefronts(copy.to, copy.lanes, static_cast<int>(bytes));
    count.bank_wavefronts += static_cast<std::uint64_t>(wavefronts.actual);
    count.ideal_wavefronts += static_cast<std::uint64_t>(wavefronts.ideal);
    count.shared_write_bytes += static_cast<std::uint64_t>(std::popcount(copy.lanes)) * bytes;
  }
};

struct CommitGroup final : Operation {
  Flow execute(Warp& warp) const override {
    Copies::of(warp).commit(warp.exec);
    return Flow::next;
  }
};

struct WaitGroup final : Operation {
  std::optional<std::uint32_t> allowed = {};  // groups that may stay pending; nothing: wait_all

  Flow execute(Warp& warp) const override {
    Copies& copies = Copies::of(warp);
    // PTX ISA, "cp.async.wait_all": commits first.
    if (!allowed) copies.commit(warp.exec);
    copies.wait(warp, allowed);
    return Flow::next;
  }
};

std::unique_ptr<const Operation> decode_copy(Decoder& decoder) {
  auto copy = std::make_unique<AsyncCopy>();
  const bool only_l2 = decoder.take_one_of({"ca", "cg"}) == "cg";
  decoder.take_one_of({"shared", "shared::cta"});
  decoder.take_one_of({"global"});
  const bool has_policy = decoder.take("L2::cache_hint");
  decoder.take_any_of({"L2::64B", "L2::128B", "L2::256B"});
  decoder.expect_count(has_policy ? 4 : 3, has_policy ? 5 : 4);
  copy->to = decoder.address(0);
  copy->from = decoder.address(1);
  if (copy->from.narrow) decoder.fail("an address in .global needs 64 bits");
  const std::int64_t bytes = decoder.immediate(2);
  if (bytes != 16 && (only_l2 || (bytes != 4 && bytes != 8))) {
    decoder.fail(fmt::format("cp-size is {}, it must be {}", bytes, only_l2 ? "16" : "4, 8 or 16"));
  }
  copy->bytes = static_cast<std::uint32_t>(bytes);
  std::size_t next = 3;
  if (decoder.count() > (has_policy ? 4u : 3u)) {
    if (decoder.register_bits(decoder.operand(next)) == 1) {
      copy->ignore_source = decoder.predicate_source(decoder.operand(next));
    } else {
      copy->source_bytes = decoder.source(next, Type::u32);
    }
    ++next;
  }
  if (has_policy) decoder.source(next, Type::b64);
  return copy;
}

std::unique_ptr<const Operation> decode_wait(Decoder& decoder) {
  auto wait = std::make_unique<WaitGroup>();
  if (decoder.take("wait_all")) {
    decoder.expect_count(0);
    return wait;
  }
  decoder.take_one_of({"wait_group"});
  decoder.expect_count(1);
  const std::int64_t allowed = decoder.immediate(0);
  if (allowed < 0 || allowed > std::numeric_limits<std::int32_t>::max()) {
    decoder.fail(fmt::format("{} groups; 0 or more may be under way", allowed));
  }
  wait->allowed = static_cast<std::uint32_t>(allowed);
  return wait;
}

}  // namespace

bool TrackedCopies::empty() const { return !Copies::of(*warp_).has(lanes_, before_); }

Knowledge TrackedCopies::complete(const Access& completion) const {
  return Copies::of(*warp_).complete(*warp_, lanes_, before_, completion);
}

TrackedCopies track_copies(Warp& warp, std::uint32_t lanes) {
  Copies& copies = Copies::of(warp);
  copies.track(lanes);
  return {warp, lanes, copies.next_number()};
}

std::unique_ptr<const Operation> decode_cp_async(Decoder& decoder) {
  if (decoder.opcode() != "cp" || decoder.has("bulk") || decoder.has("mbarrier") || decoder.has("reduce")) {
    return nullptr;
  }
  decoder.take_one_of({"async"});
  decoder.set_class(InstructionClass::async_copy);
  if (decoder.take("commit_group")) {
    decoder.expect_count(0);
    return std::make_unique<CommitGroup>();
  }
  if (decoder.has("wait_all") || decoder.has("wait_group")) return decode_wait(decoder);
  return decode_copy(decoder);
}

}  // namespace jit::emulator
