// The race detector, access by access, beside one that remembers everything.
#include "machine/shared_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "machine/launch.h"
#include "machine/warp.h"
#include "tests/support/ptx_run.h"

namespace jit::emulator {
namespace {

constexpr std::size_t shared_bytes = 64;

// A block of three warps that does not run: what they do is called by hand.
class SharedMemoryTest : public ::testing::Test {
 protected:
  explicit SharedMemoryTest(bool check_races = true) {
    options_.check_races = check_races;
    shape_.block = {96, 1, 1};
    shape_.dynamic_smem_bytes = shared_bytes;
    program_ = load_program(testing::kernel_of(""), {9, 0, 'a'});
    launch_ = std::make_unique<Launch>(Launch{*program_, program_->kernels.front(), shape_, parameters_,
                                              memory_, 0, options_, findings_, stopped_});
    counts_.resize(program_->kernels.front().code.size());
    restart();
  }

  void restart() {
    cluster_.reset();
    cluster_ = std::make_unique<Cluster>(*launch_, 0, std::array{0u, 0u, 0u}, 1, counts_);
    for (const auto& warp : cluster_->blocks[0]->warps) warp->exec = all_lanes;
    findings_.list.clear();
    findings_.seen.clear();
  }

  SharedMemory& shared() { return cluster_->blocks[0]->shared; }
  Warp& warp(std::size_t index) { return *cluster_->blocks[0]->warps[index]; }

  // The kinds found since the last call.
  std::set<FindingKind> found() {
    std::set<FindingKind> kinds;
    for (const Finding& finding : findings_.list) kinds.insert(finding.kind);
    last_message_ = findings_.list.empty() ? "" : findings_.list.front().message;
    findings_.list.clear();
    findings_.seen.clear();
    return kinds;
  }

  // An access by all lanes of a warp together.
  static Access whole(Warp& warp, Proxy proxy = Proxy::generic) { return warp.access_together(proxy); }
  static void order(Warp& earlier, Warp& later) {
    later.knowledge.acquire(all_lanes, earlier.knowledge.released(all_lanes));
    earlier.knowledge.tick();
  }
  // As bar.sync does for all warps.
  void barrier() {
    Knowledge all;
    for (const auto& warp : cluster_->blocks[0]->warps) warp->knowledge.release(all_lanes, all);
    for (const auto& warp : cluster_->blocks[0]->warps) {
      warp->knowledge.acquire(all_lanes, all);
      warp->knowledge.meet(all_lanes);
    }
  }
  // As bar.warp.sync of all lanes.
  static void converge(Warp& warp) { warp.knowledge.meet(all_lanes); }
  // As fence.proxy.async by all lanes.
  static void fence(Warp& warp) { warp.knowledge.fence_proxy(all_lanes); }
  void write_all() {
    shared().write(whole(warp(0)), 0, shared_bytes);
    fence(warp(0));
    barrier();
  }

  LaunchShape shape_;
  LaunchOptions options_;
  std::shared_ptr<const Program> program_;
  std::vector<std::byte> parameters_ = std::vector<std::byte>(16);
  GlobalMemory memory_{std::size_t{1} << 20};
  Launch::Findings findings_;
  std::atomic<bool> stopped_ = false;
  std::unique_ptr<Launch> launch_;
  Counts counts_;
  std::unique_ptr<Cluster> cluster_;
  std::string last_message_;
};

using Kinds = std::set<FindingKind>;

TEST_F(SharedMemoryTest, OneThreadRacesWithNobody) {
  for (int i = 0; i < 3; ++i) {
    shared().write(warp(0).access(3), 4, 8);
    shared().read(warp(0).access(3), 4, 4);
    shared().update(warp(0).access(3), 8, 4);
  }
  EXPECT_EQ(found(), Kinds{});
}

TEST_F(SharedMemoryTest, WarpsRaceUntilTheyAreOrdered) {
  write_all();
  shared().write(warp(0).access(0), 16, 16);
  shared().read(warp(1).access(0), 20, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  EXPECT_NE(last_message_.find("warp 0 lane 0 wrote"), std::string::npos) << last_message_;
  EXPECT_NE(last_message_.find("byte 20"), std::string::npos) << last_message_;
  barrier();
  shared().read(warp(1).access(0), 20, 4);
  EXPECT_EQ(found(), Kinds{});
  shared().write(warp(2).access(0), 16, 4);
  EXPECT_EQ(found(), Kinds{}) << "other bytes than those read";
  shared().write(warp(2).access(0), 20, 1);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  EXPECT_NE(last_message_.find("warp 1 lane 0 read"), std::string::npos) << last_message_;
}

TEST_F(SharedMemoryTest, OrderReachesThroughAThirdWarp) {
  write_all();
  shared().write(warp(0).access(0), 0, 16);
  order(warp(0), warp(1));
  order(warp(1), warp(2));
  shared().read(warp(2).access(0), 0, 16);
  EXPECT_EQ(found(), Kinds{});
  // Later accesses of warp 0, after its release, are not covered.
  shared().write(warp(0).access(0), 32, 16);
  order(warp(1), warp(2));
  shared().read(warp(2).access(0), 32, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
}

TEST_F(SharedMemoryTest, LanesOfOneWarpRaceUntilTheyConverge) {
  write_all();
  shared().write(warp(0).access(1), 0, 4);
  shared().read(warp(0).access(2), 0, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  shared().write(warp(0).access(1), 8, 4);
  shared().read(whole(warp(0)), 0, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race}) << "the warp reads what one lane has just written";
  converge(warp(0));
  shared().read(warp(0).access(2), 8, 4);
  EXPECT_EQ(found(), Kinds{});
  shared().read(whole(warp(0)), 32, 16);
  shared().write(warp(0).access(2), 36, 4);
  EXPECT_EQ(found(), Kinds{}) << "what all lanes read together has been read when one goes on";
  shared().write(whole(warp(0)), 32, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  shared().read(warp(0).access(2), 36, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race}) << "what all lanes write together each writes in part";
  converge(warp(0));
  shared().read(warp(0).access(2), 36, 4);
  EXPECT_EQ(found(), Kinds{});
}

TEST_F(SharedMemoryTest, AtomicsRaceWithPlainAccessesOnly) {
  write_all();
  shared().update(warp(0).access(0), 0, 4);
  shared().update(warp(0).access(1), 0, 4);
  shared().update(warp(1).access(0), 0, 4);
  EXPECT_EQ(found(), Kinds{});
  shared().read(warp(1).access(0), 0, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  // The update by warp 0 is not forgotten over that of warp 1.
  restart();
  write_all();
  shared().update(warp(0).access(0), 0, 4);
  shared().update(warp(1).access(0), 0, 4);
  order(warp(1), warp(2));
  shared().read(warp(2).access(0), 0, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
}

TEST_F(SharedMemoryTest, TheAsyncProxyNeedsAFence) {
  write_all();
  found();
  shared().write(warp(0).access(0), 0, 16);
  converge(warp(0));
  shared().read(whole(warp(0), Proxy::async), 0, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::missing_proxy_fence});
  order(warp(0), warp(1));
  shared().read(whole(warp(1), Proxy::async), 0, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::missing_proxy_fence});
  shared().read(whole(warp(2), Proxy::async), 0, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race}) << "not even ordered";
  fence(warp(0));
  order(warp(0), warp(2));
  shared().read(whole(warp(2), Proxy::async), 0, 16);
  EXPECT_EQ(found(), Kinds{});
  barrier();
  shared().write(warp(0).access(0), 0, 4);
  converge(warp(0));
  shared().read(whole(warp(0), Proxy::async), 0, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::missing_proxy_fence}) << "the fence was before the write";
}

// wgmma and bulk stores read when they complete, and know only what lay before their issue.
TEST_F(SharedMemoryTest, AnAsyncReadFindsWritesBehindItsIssue) {
  for (const bool same_warp : {true, false}) {
    restart();
    write_all();
    const Knowledge before = warp(0).knowledge.common(all_lanes);

    Warp& writer = warp(same_warp ? 0 : 1);
    if (!same_warp) order(warp(0), warp(1));
    shared().write(writer.access(7), 36, 4);
    converge(writer);
    // The write is in the past of the completion, not of the issue.
    order(writer, warp(0));
    Access completion = whole(warp(0), Proxy::async);
    completion.knowledge = &before;
    shared().read(completion, 32, 16);
    EXPECT_EQ(found(), Kinds{FindingKind::data_race}) << same_warp;

    // A write behind the completion must know of it.
    shared().read(completion, 0, 16);
    EXPECT_EQ(found(), Kinds{});
    shared().write(warp(2).access(0), 0, 4);
    EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  }
}

TEST_F(SharedMemoryTest, ACopyInFlightMayNotBeTouched) {
  write_all();
  const Access issue = warp(0).access(5);
  shared().begin_write(issue, 8, 16);
  EXPECT_EQ(found(), Kinds{});
  shared().read(warp(0).access(5), 8, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::access_in_flight});
  EXPECT_NE(last_message_.find("warp 0 lane 5 issued"), std::string::npos) << last_message_;
  shared().write(warp(1).access(0), 20, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::access_in_flight});
  shared().update(warp(1).access(0), 16, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::access_in_flight});
  shared().begin_write(warp(1).access(0), 16, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::access_in_flight});
  shared().read(warp(0).access(5), 0, 8);
  shared().read(warp(0).access(5), 24, 8);
  EXPECT_EQ(found(), Kinds{}) << "its neighbors may";
  EXPECT_EQ(std::memcmp(shared().read(warp(0).access(5), 0, 8), "\0\0\0\0\0\0\0\0", 0), 0);

  shared().end_write(warp(0).access(5), 8, 16);
  shared().read(warp(0).access(5), 8, 16);
  EXPECT_EQ(found(), Kinds{});
  shared().read(warp(0).access(4), 8, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race}) << "only the thread that waited sees it";
}

TEST_F(SharedMemoryTest, ACopyIsCheckedAgainstWhatLiesBeforeItsIssue) {
  write_all();
  shared().read(warp(1).access(3), 4, 4);
  shared().begin_write(warp(0).access(0), 0, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  EXPECT_NE(last_message_.find("warp 1 lane 3 read"), std::string::npos) << last_message_;
}

TEST_F(SharedMemoryTest, ReadsOfWhatWasNeverWritten) {
  shared().write(warp(0).access(0), 0, 5);
  shared().read(warp(0).access(0), 0, 5);
  EXPECT_EQ(found(), Kinds{});
  shared().read(warp(0).access(0), 4, 2);
  EXPECT_EQ(found(), Kinds{FindingKind::uninitialized_shared_read});
  EXPECT_NE(last_message_.find("byte 5 was never written"), std::string::npos) << last_message_;
  shared().update(warp(0).access(0), 12, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::uninitialized_shared_read});
  shared().write(warp(0).access(0), 16, 16);
  shared().read(warp(0).access(0), 16, 16);
  EXPECT_EQ(found(), Kinds{});
}

TEST_F(SharedMemoryTest, MbarriersAreForMbarrierInstructions) {
  write_all();
  shared().set_mbarrier(24, true);
  shared().read(warp(0).access(0), 16, 8);
  EXPECT_EQ(found(), Kinds{});
  shared().read(warp(0).access(0), 20, 8);
  EXPECT_EQ(found(), Kinds{FindingKind::barrier_misuse});
  shared().write(warp(0).access(0), 24, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::barrier_misuse});
  shared().begin_write(warp(0).access(0), 16, 16);
  EXPECT_EQ(found(), Kinds{FindingKind::barrier_misuse});
  shared().end_write(warp(0).access(0), 16, 16);
  shared().set_mbarrier(24, false);
  shared().read(warp(0).access(0), 24, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::uninitialized_shared_read}) << "what the mbarrier was is no value";
  shared().set_mbarrier(shared_bytes, true);
  shared().set_mbarrier(0xfffffffcu, true);
}

TEST_F(SharedMemoryTest, OutOfBoundsEndsTheLaunch) {
  EXPECT_THROW(shared().read(warp(0).access(0), shared_bytes - 3, 4), LaunchStopped);
  EXPECT_EQ(found(), Kinds{FindingKind::out_of_bounds});
  EXPECT_NE(last_message_.find("bytes 61 to 64"), std::string::npos) << last_message_;
  EXPECT_THROW(shared().write(warp(0).access(0), 0xfffffff0u, 32), LaunchStopped);
  EXPECT_THROW(shared().update(warp(0).access(0), shared_bytes, 4), LaunchStopped);
  EXPECT_THROW(shared().begin_write(warp(0).access(0), 0, shared_bytes + 1), LaunchStopped);
}

TEST_F(SharedMemoryTest, LanesThatStoreToOnePlaceMustAgree) {
  std::array<std::uint32_t, 32> offsets;
  for (std::uint32_t lane = 0; lane < 32; ++lane) offsets[lane] = lane % 16 * 4;
  std::array<std::uint32_t, 32> values;
  for (std::uint32_t lane = 0; lane < 32; ++lane) values[lane] = lane % 16;
  const auto* const from = reinterpret_cast<const std::byte*>(values.data());
  shared().store(warp(0).access(0), offsets, ~0u, 4, from);
  EXPECT_EQ(found(), Kinds{});
  // Each of two lanes wrote it: a third one, and even one of them, has to be ordered behind the other.
  shared().read(warp(0).access(3), 12, 4);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  // Again the instruction, as in a loop.
  converge(warp(0));
  shared().store(warp(0).access(0), offsets, ~0u, 4, from);
  EXPECT_EQ(found(), Kinds{});
  converge(warp(0));
  values[21] = 77;
  shared().store(warp(0).access(0), offsets, ~0u, 4, from);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
  EXPECT_NE(last_message_.find("lane 5 writes another value"), std::string::npos) << last_message_;
  // Two instructions without anything between them do race, whatever they write.
  converge(warp(0));
  shared().store(warp(0).access(0), offsets, 0xffffu, 4, from);
  std::rotate(offsets.begin(), offsets.begin() + 1, offsets.begin() + 16);
  shared().store(warp(0).access(0), offsets, 0xffffu, 4, from);
  EXPECT_EQ(found(), Kinds{FindingKind::data_race});
}

TEST_F(SharedMemoryTest, LoadAndStoreMoveTheBytes) {
  std::mt19937 random(6);
  std::array<std::byte, shared_bytes> expected;
  expected.fill(std::byte{0xff});
  write_all();
  std::memset(shared().write(whole(warp(0)), 0, shared_bytes), 0xff, shared_bytes);
  for (int i = 0; i < 200; ++i) {
    converge(warp(0));
    const std::uint32_t bytes = 1u << random() % 5;
    std::array<std::uint32_t, 32> offsets{};
    std::vector<std::byte> values(32 * bytes);
    for (auto& byte : values) byte = static_cast<std::byte>(random());
    const std::uint32_t mask = static_cast<std::uint32_t>((1ull << shared_bytes / bytes) - 1) & random();
    for (std::uint32_t lane = 0; lane < 32; ++lane) offsets[lane] = lane * bytes % shared_bytes;
    shared().store(warp(0).access(0), offsets, mask, bytes, values.data());
    for_each_lane(mask, [&](int lane) {
      const auto index = static_cast<std::size_t>(lane);
      std::memcpy(expected.data() + offsets[index], values.data() + index * bytes, bytes);
    });
    converge(warp(0));
    std::vector<std::byte> back(32 * bytes);
    shared().load(warp(0).access(0), offsets, ~0u, bytes, back.data());
    for (std::size_t lane = 0; lane < 32; ++lane) {
      ASSERT_EQ(std::memcmp(back.data() + lane * bytes, expected.data() + offsets[lane], bytes), 0);
    }
  }
  EXPECT_EQ(found(), Kinds{});
}

// Knows of each thread what it has done and what it knows of every other, remembers all accesses to each byte
// and asks for each pair of them whether it is a race. Of a warp it tells four threads apart from the rest.
class Memory {
 public:
  static constexpr std::size_t warps = 3, parts = 5, threads = warps * parts;
  static constexpr std::uint32_t first_lanes = 0xf;

  Memory() {
    for (std::size_t thread = 0; thread < threads; ++thread) know(thread, thread, 1);
  }

  struct Learned {
    std::array<int, threads> past = {}, async_past = {};
    void join(const Learned& other) {
      for (std::size_t i = 0; i < threads; ++i) {
        past[i] = std::max(past[i], other.past[i]);
        async_past[i] = std::max(async_past[i], other.async_past[i]);
      }
    }
  };
  Learned release(std::size_t warp, std::uint32_t lanes) {
    Learned all;
    for_each(warp, lanes, [&](std::size_t thread) { all.join(known_[thread]); });
    // Later events are not part of it.
    for_each(warp, lanes, [&](std::size_t thread) { ++known_[thread].past[thread]; });
    return all;
  }
  void acquire(std::size_t warp, std::uint32_t lanes, const Learned& learned) {
    for_each(warp, lanes, [&](std::size_t thread) { known_[thread].join(learned); });
  }
  void meet(std::size_t warp, std::uint32_t lanes) { acquire(warp, lanes, release(warp, lanes)); }
  void fence(std::size_t warp, std::uint32_t lanes) {
    for_each(warp, lanes, [&](std::size_t thread) {
      known_[thread].async_past = known_[thread].past;
      ++known_[thread].past[thread];
    });
  }

  // The kinds that the access conflicts with.
  Kinds check(const Access& access, bool writes, std::uint32_t offset, std::uint32_t bytes) {
    const auto warp = static_cast<std::size_t>(access.warp->id);
    std::vector<std::size_t> by;
    for_each(warp, access.lanes, [&](std::size_t thread) { by.push_back(thread); });
    Past now{by, {}, access.together, access.proxy == Proxy::async, access.strong, writes};
    for (const std::size_t thread : by) now.times.push_back(known_[thread].past[thread]);
    Kinds kinds;
    for (std::uint32_t byte = offset; byte < offset + bytes; ++byte) {
      for (const Past& past : past_[byte]) {
        if ((!writes && !past.writes) || (past.strong && access.strong)) continue;
        if (!is_ordered(past, by, &Learned::past)) {
          kinds.insert(FindingKind::data_race);
        } else if (past.writes && !past.async && access.proxy == Proxy::async &&
                   !is_ordered(past, by, &Learned::async_past)) {
          kinds.insert(FindingKind::missing_proxy_fence);
        }
      }
    }
    for (std::uint32_t byte = offset; byte < offset + bytes; ++byte) past_[byte].push_back(now);
    return kinds;
  }

 private:
  struct Past {
    std::vector<std::size_t> by;
    std::vector<int> times;
    bool together, async, strong, writes;
  };

  void know(std::size_t thread, std::size_t other, int time) { known_[thread].past[other] = time; }
  template <class F>
  static void for_each(std::size_t warp, std::uint32_t lanes, F f) {
    for (std::size_t part = 0; part < parts; ++part) {
      const std::uint32_t own = part + 1 == parts ? ~first_lanes : 1u << part;
      if ((lanes & own) != 0) f(warp * parts + part);
    }
  }
  // One read that all know of stands for the others, of reads by several threads together.
  bool is_ordered(const Past& past, const std::vector<std::size_t>& by,
                  std::array<int, threads> Learned::*what) const {
    const bool one_is_enough = past.together && !past.writes;
    if (one_is_enough && std::includes(past.by.begin(), past.by.end(), by.begin(), by.end())) return true;
    std::size_t known = 0;
    for (std::size_t i = 0; i < past.by.size(); ++i) {
      known += std::all_of(by.begin(), by.end(), [&](std::size_t thread) {
        return (known_[thread].*what)[past.by[i]] >= past.times[i];
      });
    }
    return one_is_enough ? known > 0 : known == past.by.size();
  }

  std::array<Learned, threads> known_;
  std::array<std::vector<Past>, shared_bytes> past_;
};

TEST_F(SharedMemoryTest, FindsWhatOneFindsWhoRemembersEverything) {
  std::mt19937 random(7);
  std::map<FindingKind, int> seen;
  int accesses = 0;
  // A lane, some, or all.
  const auto some_lanes = [&]() -> std::uint32_t {
    const unsigned choice = random() % 4;
    if (choice < 2) return all_lanes;
    return choice == 2 ? 1u << random() % 4 : random() % 15 + 1;
  };
  for (int sequence = 0; sequence < 12000; ++sequence) {
    restart();
    Memory memory;
    const auto fence_both = [&](std::size_t by, std::uint32_t lanes) {
      warp(by).knowledge.fence_proxy(lanes);
      memory.fence(by, lanes);
    };
    const auto barrier_both = [&] {
      Memory::Learned all;
      for (std::size_t i = 0; i < Memory::warps; ++i) all.join(memory.release(i, all_lanes));
      for (std::size_t i = 0; i < Memory::warps; ++i) memory.acquire(i, all_lanes, all);
      barrier();
    };
    memory.check(whole(warp(0)), true, 0, shared_bytes);
    shared().write(whole(warp(0)), 0, shared_bytes);
    fence_both(0, all_lanes);
    barrier_both();
    // Few places, so that accesses meet; of all widths, so that cells are split and made whole again. Much is
    // ordered in some sequences, so that they get long.
    const std::uint32_t base = random() % 2 * 8;
    const unsigned share = 1 + random() % 30;
    for (int step = 0; step < 100; ++step) {
      const std::size_t by = random() % Memory::warps;
      const unsigned choice = random() % 100;
      if (choice < share) {
        const std::size_t later = random() % Memory::warps;
        const std::uint32_t from = some_lanes(), to = some_lanes();
        const Knowledge released = warp(by).knowledge.released(from);
        warp(by).knowledge.tick();
        warp(later).knowledge.acquire(to, released);
        memory.acquire(later, to, memory.release(by, from));
      } else if (choice < 2 * share) {
        const std::uint32_t lanes = some_lanes();
        warp(by).knowledge.meet(lanes);
        memory.meet(by, lanes);
      } else if (choice < 2 * share + 6) {
        fence_both(by, some_lanes());
      } else if (choice < 3 * share + 6) {
        fence_both(by, all_lanes);
        barrier_both();
      } else {
        ++accesses;
        Access access = random() % 3 == 0 ? whole(warp(by)) : warp(by).access(static_cast<int>(random() % 4));
        const std::uint32_t width = 1u << random() % 6;
        const std::uint32_t offset = (base + random() % 24) / width * width;
        const unsigned kind = random() % 16;
        Kinds expected;
        if (kind < 7) {
          if (kind == 0) access.proxy = Proxy::async;
          access.strong = kind == 1 || kind == 2;
          expected = memory.check(access, false, offset, width);
          shared().read(access, offset, width);
        } else if (kind < 12) {
          if (kind == 7) access.proxy = Proxy::async;
          expected = memory.check(access, true, offset, width);
          shared().write(access, offset, width);
        } else {
          access.strong = true;
          expected = memory.check(access, true, offset, width);
          shared().update(access, offset, width);
        }
        const Kinds kinds = found();
        if (expected.empty() != kinds.empty()) {
          FAIL() << "sequence " << sequence << " step " << step << ": " << last_message_;
        }
        // One finding for each cell: what is reported must be among what is there.
        for (const FindingKind one : kinds) {
          ASSERT_TRUE(expected.contains(one))
              << "sequence " << sequence << " step " << step << ": " << last_message_;
          ++seen[one];
        }
        if (!kinds.empty()) break;
      }
    }
  }
  EXPECT_GT(seen[FindingKind::data_race], 1000);
  EXPECT_GT(seen[FindingKind::missing_proxy_fence], 100);
  EXPECT_GT(accesses, 40000);
}

class UncheckedTest : public SharedMemoryTest {
 protected:
  UncheckedTest() : SharedMemoryTest(false) {}
};

TEST_F(UncheckedTest, LooksAtBoundsOnly) {
  shared().read(warp(0).access(0), 0, 16);
  shared().write(warp(1).access(0), 0, 16);
  shared().begin_write(warp(0).access(0), 0, 16);
  shared().read(warp(2).access(0), 0, 4);
  shared().end_write(warp(0).access(0), 0, 16);
  shared().set_mbarrier(0, true);
  shared().update(warp(2).access(0), 0, 8);
  EXPECT_EQ(found(), Kinds{});
  EXPECT_THROW(shared().read(warp(0).access(0), shared_bytes, 1), LaunchStopped);
}

}  // namespace
}  // namespace jit::emulator
