#include "machine/global_races.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "machine/group_order.h"
#include "machine/launch.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

constexpr std::uint32_t accesses_at_once = 16;
constexpr std::uint32_t bytes_of_a_bit = GlobalShadow::page_bytes / 64;

// The last reader of every fourth quad is kept instead of the first, so that most pieces of memory have both.
bool keeps_last_reader(std::uint64_t quad) { return quad % 4 == 3; }

std::uint32_t bits_between(std::uint64_t first, std::uint64_t end) { return (1u << end) - (1u << first); }

// Dekker's pattern: two threads note their accesses, then look for the other's; at least one sees the other.
void see_others() { std::atomic_thread_fence(std::memory_order_seq_cst); }

std::uint64_t bits_of(std::uint64_t offset, std::uint64_t end) {
  const std::uint64_t first = offset / bytes_of_a_bit, count = (end - 1) / bytes_of_a_bit - first + 1;
  return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
}

Touch load(const std::atomic<std::uint32_t>& place) {
  return Touch::from(place.load(std::memory_order_acquire));
}
void store(std::atomic<std::uint32_t>& place, Touch touch) {
  place.store(touch.bits(), std::memory_order_release);
}

}  // namespace

GlobalRaces::GlobalRaces(const Launch& launch)
    : launch_(nullptr), range_(launch.memory.reach()), shadow_(range_.bytes) {
  follow(launch);
}

GlobalRaces::GlobalRaces(MemoryRange range, GroupOrder& order)
    : launch_(nullptr), range_(range), group_(&order), shadow_(range_.bytes) {}

void GlobalRaces::follow(const Launch& next) {
  launch_ = &next;
  grids_.begin(next.kernel.name, next.clusters());
}

bool GlobalRaces::can_follow(const Launch& next) const {
  const MemoryRange reach = next.memory.reach();
  return begin_ == reach.begin && range_.bytes == reach.bytes && grids_.has_numbers_for(next.clusters()) &&
         shadow_.accesses() < Touch::most_accesses / 2;
}

std::uint32_t GlobalRaces::name(const Access& access, Scope scope) {
  Cluster& cluster = access.warp->block.cluster;
  if (cluster.spare_accesses.count == 0) {
    cluster.spare_accesses = {shadow_.take_accesses(accesses_at_once), accesses_at_once};
  }
  if (cluster.spare_accesses.first == 0) return 0;
  --cluster.spare_accesses.count;
  const std::uint32_t index = cluster.spare_accesses.first++;
  shadow_.access(index) = {cluster.number,
                           access.agent,
                           access.time,
                           access.pc,
                           static_cast<std::uint8_t>(access.warp->block.rank),
                           static_cast<std::uint8_t>(access.warp->id),
                           access.strong,
                           access.proxy == Proxy::async,
                           scope};
  return index;
}

// Keeps the name of an access that a warp repeats at the same time.
std::uint32_t GlobalRaces::name_once(Warp& warp) {
  Warp::RecentAccess& recent = warp.recent_accesses[warp.pc % warp.recent_accesses.size()];
  if (recent.index == 0 || recent.pc != warp.pc || recent.time != warp.knowledge.time()) {
    recent = {warp.pc, warp.knowledge.time(), name(warp.access(std::countr_zero(warp.exec)))};
  }
  return recent.index;
}

bool GlobalRaces::is_written(std::uint64_t address, std::uint32_t bytes) {
  std::uint64_t offset = address - begin_;
  const std::uint64_t last = offset + bytes;
  while (offset < last) {
    const std::uint64_t first = offset / GlobalShadow::page_bytes * GlobalShadow::page_bytes;
    const std::uint64_t end = std::min(last, first + GlobalShadow::page_bytes);
    const std::uint64_t written = shadow_.page(offset).written.load(std::memory_order_acquire);
    if ((written & bits_of(offset - first, end - first)) != 0) return true;
    offset = end;
  }
  return false;
}

void GlobalRaces::set_written(std::uint64_t address, std::uint32_t bytes) {
  std::uint64_t offset = address - begin_;
  const std::uint64_t last = offset + bytes;
  while (offset < last) {
    const std::uint64_t first = offset / GlobalShadow::page_bytes * GlobalShadow::page_bytes;
    const std::uint64_t end = std::min(last, first + GlobalShadow::page_bytes);
    const std::uint64_t bits = bits_of(offset - first, end - first);
    std::atomic<std::uint64_t>& written = shadow_.page(offset).written;
    if ((written.load(std::memory_order_acquire) & bits) != bits) written.fetch_or(bits);
    offset = end;
  }
}

bool GlobalRaces::is_ordered(const Doing& doing, Touch earlier) {
  const GlobalAccess& other = shadow_.access(earlier.access());
  const std::uint32_t lane = 1u << earlier.lane();
  if (other.cluster == doing.cluster) {
    if (other.agent == doing.access.agent && earlier.lane() == doing.lane) return true;
    return (doing.access.knowledge->past.lanes_at(other.agent, other.time) & lane) != 0;
  }
  const GridClock& known = doing.access.knowledge->other_clusters;
  const VectorClock* const past = known.of(other.cluster);
  if (past && (past->lanes_at(other.agent, other.time) & lane) != 0) return true;
  return has_ended(other.cluster, known);
}

bool GlobalRaces::has_ended(std::uint32_t cluster, const GridClock& known) const {
  if (group_) return group_->has_ended(cluster, known);
  return grids_.is_in_front(cluster) && grids_.has_ended(cluster, known);
}

// A grid that has ended needs no fence.
bool GlobalRaces::is_fenced(const Doing& doing, Touch write) {
  if (doing.access.proxy != Proxy::async) return true;
  const GlobalAccess& other = shadow_.access(write.access());
  if (other.async) return true;
  if (group_) {
    // Work that ended before the grid began, or that it waits for, needs no fence; a copy that ends while the
    // grid runs does.
    const GroupMember& own = group_->of(doing.cluster);
    if (group_->has_ended(other.cluster, own.before) || group_->has_ended(other.cluster, own.behind_wait) ||
        group_->has_ended(other.cluster, doing.access.knowledge->async_global))
      return true;
  } else if (has_ended(other.cluster, doing.access.knowledge->other_clusters)) {
    return true;
  }
  const VectorClock* const seen = doing.access.knowledge->async_global.of(other.cluster);
  return seen && (seen->lanes_at(other.agent, other.time) >> write.lane() & 1) != 0;
}

bool GlobalRaces::may_be_together(const Doing& doing, Touch earlier) {
  const GlobalAccess& other = shadow_.access(earlier.access());
  if (!doing.access.strong || !other.strong) return false;
  const Scope narrower = std::min(doing.scope, other.scope);
  if (narrower == Scope::sys) return true;
  if (narrower == Scope::gpu) return !group_ || group_->between(other.cluster, doing.cluster) == Scope::gpu;
  if (other.cluster != doing.cluster) return false;
  return narrower == Scope::cluster || other.rank == doing.access.warp->block.rank;
}

void GlobalRaces::note_read(std::uint64_t address, std::uint32_t bytes, std::uint32_t index, int lane) {
  const std::uint64_t offset = address - begin_;
  const std::uint64_t end = (offset + bytes) / 4;  // words that are read completely
  for (std::uint64_t word = (offset + 3) / 4; word < end && index != 0;) {
    const std::uint64_t quad = word / 4, next = std::min(quad * 4 + 4, end);
    const Touch mine(index, lane, bits_between(word % 4, next - quad * 4));
    std::atomic<std::uint32_t>& place = shadow_.page(word * 4).reads[quad % GlobalShadow::page_quads];
    const Touch old = load(place);
    if (old.is_same_thread_and_access(mine)) {
      if ((mine.bytes() & ~old.bytes()) != 0) store(place, old.of_bytes(old.bytes() | mine.bytes()));
    } else if (old.is_none() || keeps_last_reader(quad)) {
      store(place, mine);
    }
    word = next;
  }
}

void GlobalRaces::check_writes(const Doing& doing) {
  Touch fine;  // cached verdict: neighbors often have the same writer
  for_each_word(doing.address, doing.bytes,
                [&](Page& page, std::size_t i, std::uint64_t word, std::uint32_t which) {
                  const Touch write = load(page.writes[i]);
                  if (write.is_none() || write.is_same_thread_and_access(fine)) return;
                  if (write.is_moved()) {
                    Shard& shard = shard_of(word);
                    const std::lock_guard lock(shard.mutex);
                    use(doing, shard[word], word, which);
                  } else if ((write.bytes() & which) != 0) {
                    if (!is_ordered(doing, write)) {
                      report(doing, write, false, word);
                    } else if (!is_fenced(doing, write)) {
                      report_unfenced(doing, write, word);
                    } else {
                      fine = write;
                    }
                  }
                });
}

template <class Same>
void GlobalRaces::note_write(const Doing& doing, Same writes_the_same) {
  set_written(doing.address, doing.bytes);
  Touch fine;
  for_each_word(
      doing.address, doing.bytes, [&](Page& page, std::size_t i, std::uint64_t word, std::uint32_t which) {
        const Touch mine(doing.index, doing.lane, which);
        std::uint32_t bits = page.writes[i].load(std::memory_order_acquire);
        Touch old;
        do {
          old = Touch::from(bits);
          // Bytes of the word that others wrote keep their record.
          const bool is_shared = (old.bytes() & ~which) != 0 && !old.is_same_thread_and_access(mine);
          if (old.is_moved() || is_shared) {
            Shard& shard = shard_of(word);
            const std::lock_guard lock(shard.mutex);
            return use(doing, move(shard, word), word, which);
          }
          if (doing.index == 0) break;
        } while (!page.writes[i].compare_exchange_weak(bits, mine.of_bytes(old.bytes() | which).bits(),
                                                       std::memory_order_acq_rel));
        if ((old.bytes() & which) == 0 || old.is_same_thread_and_access(fine)) return;
        if (is_ordered(doing, old)) {
          fine = old;
          if (!is_fenced(doing, old)) report_unfenced(doing, old, word);
        } else if (old.access() != doing.index || !writes_the_same(old.lane(), word * 4 + begin_, which)) {
          report(doing, old, false, word);
        }
      });
}

void GlobalRaces::note_write_alone(const Doing& doing) {
  note_write(doing, [](int, std::uint64_t, std::uint32_t) { return false; });
}

void GlobalRaces::check_reads(const Doing& doing) {
  Touch fine;
  const std::uint64_t offset = doing.address - begin_;
  const std::uint64_t end = (offset + doing.bytes + 3) / 4;  // words that are written at least in part
  for (std::uint64_t word = offset / 4; word < end;) {
    const std::uint64_t quad = word / 4, next = std::min(quad * 4 + 4, end);
    const std::uint32_t words = bits_between(word % 4, next - quad * 4);
    std::atomic<std::uint32_t>& place = shadow_.page(word * 4).reads[quad % GlobalShadow::page_quads];
    word = next;
    const Touch read = load(place);
    if ((read.bytes() & words) == 0) continue;
    if (!read.is_same_thread_and_access(fine)) {
      if (is_ordered(doing, read)) {
        fine = read;
      } else {
        const auto first = static_cast<std::uint64_t>(std::countr_zero(read.bytes() & words));
        report(doing, read.of_bytes(Touch::all), true, quad * 4 + first);
      }
    }
    const std::uint32_t left = read.bytes() & ~words;
    store(place, left != 0 ? read.of_bytes(left) : Touch());
  }
}

void GlobalRaces::read(Warp& warp, std::uint32_t mask, Addresses addresses, std::uint32_t bytes) {
  const std::uint32_t index = name_once(warp);
  for_each_lane(mask,
                [&](int lane) { note_read(addresses[static_cast<std::size_t>(lane)], bytes, index, lane); });
  see_others();
  std::uint64_t unwritten = ~std::uint64_t{0};  // neighbors are often in the same piece of memory
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t address = addresses[static_cast<std::size_t>(lane)];
    const std::uint64_t first = (address - begin_) / bytes_of_a_bit;
    const bool is_in_one = first == (address - begin_ + bytes - 1) / bytes_of_a_bit;
    if (is_in_one && first == unwritten) return;
    if (!is_written(address, bytes)) {
      unwritten = is_in_one ? first : unwritten;
      return;
    }
    check_writes({warp.access(lane), warp.block.cluster.number, index, lane, address, bytes, false});
  });
}

void GlobalRaces::write(Warp& warp, std::uint32_t mask, Addresses addresses, std::uint32_t bytes,
                        const std::byte* values) {
  const std::uint32_t index = name_once(warp), cluster = warp.block.cluster.number;
  const auto value_at = [&](int lane, std::uint64_t word) {
    const auto i = static_cast<std::size_t>(lane);
    return values + i * bytes + (word - addresses[i]);
  };
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t address = addresses[static_cast<std::size_t>(lane)];
    const Access access = warp.access(lane);
    note_write({access, cluster, index, lane, address, bytes, true},
               [&](int other, std::uint64_t word, std::uint32_t which) {
                 if ((mask >> other & 1) == 0 || addresses[static_cast<std::size_t>(other)] != address)
                   return false;
                 const std::uint32_t first = static_cast<std::uint32_t>(std::countr_zero(which));
                 return std::memcmp(value_at(lane, word + first), value_at(other, word + first),
                                    static_cast<std::size_t>(std::popcount(which))) == 0;
               });
  });
  see_others();
  for_each_lane(mask, [&](int lane) {
    const Access access = warp.access(lane);
    check_reads({access, cluster, index, lane, addresses[static_cast<std::size_t>(lane)], bytes, true});
  });
}

void GlobalRaces::read(const Access& access, std::uint64_t address, std::uint32_t bytes) {
  if (bytes == 0) return;
  const Doing doing{access, access.warp->block.cluster.number, name(access), lane_of(access), address, bytes,
                    false};
  note_read(address, bytes, doing.index, doing.lane);
  see_others();
  if (is_written(address, bytes)) check_writes(doing);
}

void GlobalRaces::write(const Access& access, std::uint64_t address, std::uint32_t bytes) {
  if (bytes == 0) return;
  const Doing doing{access, access.warp->block.cluster.number, name(access), lane_of(access), address, bytes,
                    true};
  note_write_alone(doing);
  see_others();
  check_reads(doing);
}

}  // namespace jit::emulator
