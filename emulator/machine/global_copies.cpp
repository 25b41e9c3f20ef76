// Race detection for copies and value operations of a device group's queues: each is an agent of its own at
// time 1.
#include <algorithm>
#include <limits>

#include "machine/global_races.h"
#include "machine/group_order.h"

namespace jit::emulator {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 30;  // that one call notes

}  // namespace

std::uint32_t GlobalRaces::name(const Copy& copy, bool strong) {
  const std::uint32_t index = shadow_.take_accesses(1);
  if (index != 0) {
    shadow_.access(index) = {
        .cluster = copy.member.first_cluster(), .time = 1, .strong = strong, .scope = Scope::sys};
  }
  return index;
}

void GlobalRaces::read(const Copy& copy, std::uint64_t address, std::size_t bytes) {
  const Knowledge known{{}, {}, copy.known, {}};
  const Access access{.time = 1, .lanes = 1, .together = false, .knowledge = &known};
  const std::uint32_t index = name(copy, false);
  while (bytes > 0) {
    const auto count = static_cast<std::uint32_t>(std::min(bytes, most_bytes));
    note_read(address, count, index, 0);
    if (is_written(address, count)) {
      check_writes({access, copy.member.first_cluster(), index, 0, address, count, false, Scope::sys, &copy});
    }
    address += count;
    bytes -= count;
  }
}

void GlobalRaces::write(const Copy& copy, std::uint64_t address, std::size_t bytes) {
  const Knowledge known{{}, {}, copy.known, {}};
  const Access access{.time = 1, .lanes = 1, .together = false, .knowledge = &known};
  const std::uint32_t index = name(copy, false);
  while (bytes > 0) {
    const auto count = static_cast<std::uint32_t>(std::min(bytes, most_bytes));
    const Doing doing{access, copy.member.first_cluster(), index, 0, address, count, true, Scope::sys, &copy};
    note_write_alone(doing);
    check_reads(doing);
    address += count;
    bytes -= count;
  }
}

void GlobalRaces::write_value(const Copy& copy, std::uint64_t address) {
  const Knowledge known{{}, {}, copy.known, {}};
  const Access access{.time = 1, .lanes = 1, .together = false, .knowledge = &known, .strong = true};
  const std::uint32_t cluster = copy.member.first_cluster();
  const Doing doing{access, cluster, name(copy, true), 0, address, 4, true, Scope::sys, &copy};
  set_written(address, 4);
  for_each_word(address, 4, [&](Page&, std::size_t, std::uint64_t place, std::uint32_t which) {
    Shard& shard = shard_of(place);
    const std::lock_guard lock(shard.mutex);
    GlobalWord& word = move(shard, place);
    use(doing, word, place, which);
    word.releases.clear();
    word.releases.push_back({Scope::sys, cluster, 0, copy.member.device, false, copy.known, {}});
  });
}

GridClock GlobalRaces::acquired(const Copy& copy, std::uint64_t address) {
  GridClock learned;
  const Knowledge known{{}, {}, copy.known, {}};
  const Access access{.time = 1, .lanes = 1, .together = false, .knowledge = &known, .strong = true};
  const std::uint32_t cluster = copy.member.first_cluster();
  const Doing doing{access, cluster, name(copy, true), 0, address, 4, false, Scope::sys, &copy};
  for_each_word(address, 4, [&](Page&, std::size_t, std::uint64_t place, std::uint32_t which) {
    Shard& shard = shard_of(place);
    const std::lock_guard lock(shard.mutex);
    GlobalWord& word = move(shard, place);
    use(doing, word, place, which);
    for (const GlobalWord::Release& release : word.releases) {
      if (release.scope == Scope::sys || release.device == copy.member.device) learned.join(release.past);
    }
  });
  return learned;
}

}  // namespace jit::emulator
