// Blocks of one multiprocessor that share its tensor memory: who waits for whom, and when nobody can go on.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

struct Sharing {
  int columns = 256;
  bool relinquishes = true, gives_back = true;
  bool first_waits = false;  ///< block 0 keeps its columns until block 1 has some
};

// out[block]: the columns that it got. in[0]: a flag that block 1 sets.
std::string kernel(const Sharing& sharing) {
  const std::string columns = std::to_string(sharing.columns);
  std::string body =
      "mov.u32 %r14, %ctaid.x;\nmul.wide.u32 %rd1, %r14, 4;\nadd.s64 %rd2, %rd61, %rd1;\n"
      "setp.eq.u32 %p5, %r60, 0;\nsetp.eq.u32 %p6, %r14, 0;\n"
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], " +
      columns + ";\n";
  if (sharing.relinquishes) body += "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
  body += "bar.sync 0;\nld.shared.b32 %r16, [place];\n@%p5 st.global.b32 [%rd2], %r16;\n";
  if (sharing.first_waits) {
    body +=
        "mov.u32 %r17, 1;\n@!%p6 bra second;\n"
        "poll:\nld.acquire.gpu.global.b32 %r18, [%rd60];\nsetp.eq.u32 %p7, %r18, 0;\n@%p7 bra poll;\nbra.uni "
        "on;\n"
        "second:\nst.release.gpu.global.b32 [%rd60], %r17;\non:\nbar.sync 0;\n";
  }
  if (sharing.gives_back) body += "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r16, " + columns + ";\n";
  return kernel_of(body, ".shared .align 4 .b32 place;\n", "sm_100a");
}

struct SharingRun {
  std::string findings;
  std::vector<std::uint32_t> places;

  SharingRun(const Sharing& sharing, unsigned blocks, std::uint64_t seed = 0, int together = 2,
             int threads = 1) {
    TestDevice device({10, 0, 'a'});
    LaunchOptions options;
    options.seed = seed;
    options.threads = threads;
    options.blocks_per_multiprocessor = together;
    const std::uint64_t flag = device.upload(std::vector<std::uint32_t>(1, 0));
    const std::uint64_t out = device.upload(std::vector<std::uint32_t>(blocks, 999));
    findings = findings_of(
        device.run(kernel(sharing), {.grid = {blocks, 1, 1}, .block = {32, 1, 1}}, options, flag, out));
    places = device.download<std::uint32_t>(out, blocks);
  }
  bool finds(const std::string& text) const { return findings.find(text) != std::string::npos; }
};

TEST(SharedColumns, BlocksHaveSomeEach) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const SharingRun run({}, 6, seed);
    EXPECT_EQ(run.findings, "");
    for (const std::uint32_t place : run.places) EXPECT_TRUE(place == 0 || place == 256) << place;
  }
  // Both at once, which nothing but the other 256 columns allows.
  const SharingRun both({.first_waits = true}, 2);
  EXPECT_EQ(both.findings, "");
  EXPECT_NE(both.places[0], both.places[1]);
}

TEST(SharedColumns, ABlockWaitsForThoseOfAnother) {
  for (const int threads : {1, 2}) {
    const SharingRun run({.columns = 512}, 6, 1, 2, threads);
    EXPECT_EQ(run.findings, "");
    EXPECT_EQ(run.places, std::vector<std::uint32_t>(6, 0));
  }
}

TEST(SharedColumns, WhoWaitsForEachOtherIsADeadlock) {
  const SharingRun run({.columns = 512, .first_waits = true}, 2);
  EXPECT_TRUE(run.finds("deadlock in")) << run.findings;
  EXPECT_TRUE(run.finds("for 512 columns of tensor memory, of which 512 are taken")) << run.findings;
  EXPECT_TRUE(run.finds("polls global memory")) << run.findings;
  // Alone on a multiprocessor each has 512.
  EXPECT_EQ(SharingRun({.columns = 512, .first_waits = true}, 2, 0, 1).findings, "");
}

TEST(SharedColumns, APermitThatIsKeptStopsOthers) {
  const SharingRun waits({.relinquishes = false, .first_waits = true}, 2);
  EXPECT_TRUE(waits.finds("deadlock in")) << waits.findings;
  EXPECT_TRUE(waits.finds("has not executed tcgen05.relinquish_alloc_permit")) << waits.findings;
  EXPECT_EQ(SharingRun({.relinquishes = false}, 6).findings, "");
}

TEST(SharedColumns, ColumnsThatAreKeptAreLost) {
  const SharingRun run({.columns = 512, .gives_back = false}, 3);
  EXPECT_TRUE(run.finds("no tcgen05.dealloc")) << run.findings;
  EXPECT_TRUE(run.finds("of which 512 are taken")) << run.findings;
}

}  // namespace
}  // namespace jit::emulator::testing
