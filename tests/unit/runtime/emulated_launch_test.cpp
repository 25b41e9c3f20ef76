// The emulated driver: loading PTX, launching, what launches find and count.
#include <numeric>
#include <thread>

#include <jit/device.h>
#include <jit/emulation.h>
#include <nlohmann/json.hpp>

#include "runtime/module.h"
#include "tests/support/emulated_driver_testing.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EmulatedLaunches : public EmulatedDriverTest {};

// `dynamic(p, n)` stores n to word n of its dynamic shared memory, reads it back and stores it to p;
// `count(p)` adds one to a variable of the module and stores the sum; `blocks(p)` stores the number of blocks
// of a cluster.
std::string other_kernels(const std::string& target) {
  return ".version 8.0\n.target " + target + R"(
.address_size 64
.global .align 4 .u32 counter = 41;
.extern .shared .align 16 .b8 words[];
.visible .entry dynamic(.param .u64 p, .param .u32 n) {
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  .shared .align 4 .b8 fixed[1024];
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, words;
  shl.b32 %r3, %r1, 2;
  add.s32 %r4, %r2, %r3;
  st.shared.u32 [fixed], %r1;
  st.shared.u32 [%r4], %r1;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%rd1], %r5;
  ret;
}
.visible .entry count(.param .u64 p)
.maxntid 64, 1, 1
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [counter];
  add.s32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  st.global.u32 [%rd1], %r2;
  ret;
}
)" + (target != "sm_90a" ? "" : R"(
.visible .entry blocks(.param .u64 p) {
  .reg .pred %q;
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %cluster_nctaid.x;
  mov.u32 %r2, %ctaid.x;
  setp.eq.u32 %q, %r2, 0;
  @%q st.global.u32 [%rd1], %r1;
  ret;
}
)");
}

TEST_F(EmulatedLaunches, ComputesOverTheGrid) {
  std::vector<std::uint32_t> values(6 * 96);
  std::iota(values.begin(), values.end(), 7u);
  const CUdeviceptr data = upload(values);
  const CUlibrary library = load(two_kernels());
  EXPECT_EQ(launch(kernel_of(library, "add"), {.grid = 6, .block = 96}, data, 1000u), CUDA_SUCCESS);
  for (std::uint32_t& value : values) value += 1000;
  EXPECT_EQ(download(data, values.size()), values);
  EXPECT_EQ(api().cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, ThroughModules) {
  const Module module(two_kernels());
  const Kernel kernel = module.kernel("put");
  kernel.force_load(0);
  const KernelFacts facts = kernel.facts(0);
  EXPECT_GE(facts.registers, 3);
  EXPECT_LT(facts.registers, 32);
  EXPECT_EQ(facts.local_bytes, 0);
  EXPECT_EQ(facts.static_smem_bytes, 0);
  EXPECT_EQ(facts.max_threads, 1024);
  EXPECT_EQ(kernel.blocks_per_sm(0, 1024, 0), 2);
  EXPECT_EQ(kernel.blocks_per_sm(0, 32, 0), 32);
  EXPECT_EQ(kernel.blocks_per_sm(0, 32, 100 * 1024), 2);
  EXPECT_EQ(kernel.blocks_per_sm(0, 2048, 0), 0);
  EXPECT_EQ(kernel.blocks_per_sm(1, 32, 100 * 1024), 1);
  EXPECT_EQ(kernel.resident_clusters(0, 2, 1024, 0), device_info(0).sm_count);
  EXPECT_EQ(kernel.handle(), module.kernel("put").handle());
  const Error absent = error_of([&] { module.kernel("absent"); });
  EXPECT_EQ(absent.native_code(), CUDA_ERROR_NOT_FOUND);
  EXPECT_THAT(absent.message(), HasSubstr("no kernel named absent"));
}

TEST_F(EmulatedLaunches, PtxThatCannotRunIsRefusedWithItsLine) {
  const auto refuse = [](const std::string& ptx) { return error_of([&] { Module{ptx}; }); };
  const Error garbled =
      refuse(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { nonsense %r1; ret; }");
  EXPECT_EQ(garbled.code(), ErrorCode::load_failed);
  EXPECT_EQ(garbled.native_code(), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(garbled.message(), HasSubstr("PTX line 4"));
  EXPECT_THAT(garbled.message(), HasSubstr("nonsense"));
  EXPECT_EQ(refuse("").native_code(), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(refuse("hello").native_code(), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(refuse(two_kernels("sm_100")).native_code(), CUDA_ERROR_INVALID_PTX);
  CUlibrary library = nullptr;
  const char elf[] =
      "\x7f"
      "ELF and what follows";
  expect_failure(api().cuLibraryLoadData(&library, elf, nullptr, nullptr, 0, nullptr, nullptr, 0),
                 CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code");
}

// Code for one device of two: loading works, running it on the other does not.
TEST_F(EmulatedLaunches, CodeForAnotherArchitecture) {
  const Module module(other_kernels("sm_90a"));
  const Kernel kernel = module.kernel("count");
  kernel.force_load(0);
  const Error error = error_of([&] { kernel.force_load(1); });
  EXPECT_EQ(error.native_code(), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(error.message(), HasSubstr("sm_90a"));
}

TEST_F(EmulatedLaunches, VariablesBelongToLibraryAndDevice) {
  const CUdeviceptr here = upload({0});
  {
    const Module module(other_kernels("sm_80")), twin(other_kernels("sm_80"));
    const CUkernel kernel = module.kernel("count").handle();
    EXPECT_EQ(launch(kernel, {.block = 1}, here), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel, {.block = 1}, here), CUDA_SUCCESS);
    EXPECT_THAT(download(here, 1), ElementsAre(43));
    EXPECT_EQ(launch(twin.kernel("count").handle(), {.block = 1}, here), CUDA_SUCCESS);
    EXPECT_THAT(download(here, 1), ElementsAre(42));
    push(1);
    const CUdeviceptr there = upload({0});
    EXPECT_EQ(launch(kernel, {.block = 1}, there), CUDA_SUCCESS);
    EXPECT_THAT(download(there, 1), ElementsAre(42));
    EXPECT_EQ(api().cuMemFree(there), CUDA_SUCCESS);
  }
  EXPECT_EQ(api().cuMemFree(here), CUDA_SUCCESS);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(api().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, total) << "unloading frees the variables";
}

TEST_F(EmulatedLaunches, IllegalLaunchesAreRefusedInWords) {
  const Module module(other_kernels("sm_90a"));
  const CUdeviceptr data = upload({0, 0});
  const CUkernel dynamic = module.kernel("dynamic").handle(), count = module.kernel("count").handle();
  expect_failure(launch(count, {.block = 65}, data), CUDA_ERROR_INVALID_VALUE, "64");
  expect_failure(launch(dynamic, {.block = 2048}, data, 0u), CUDA_ERROR_INVALID_VALUE, "1024");
  expect_failure(launch(dynamic, {.grid = 0}, data, 0u), CUDA_ERROR_INVALID_VALUE, "grid");
  expect_failure(api().cuLaunchKernelEx(nullptr, reinterpret_cast<CUfunction>(count), nullptr, nullptr),
                 CUDA_ERROR_INVALID_VALUE, "config is null");
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
      config.blockDimZ = 1;
  expect_failure(api().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(count), nullptr, nullptr),
                 CUDA_ERROR_INVALID_VALUE, "kernelParams is null");
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, DynamicSharedMemoryNeedsTheAttribute) {
  const Module module(other_kernels("sm_90a"));
  const Kernel kernel = module.kernel("dynamic");
  const CUdeviceptr data = upload({0});
  const int most = smem_per_block_optin({9, 0, 'a'}) - 1024;  // the kernel has 1024 bytes of its own
  EXPECT_EQ(kernel.facts(0).static_smem_bytes, 1024);
  int limit = 0;
  const auto read_limit = [&] {
    return api().cuKernelGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      kernel.handle(), 0);
  };
  EXPECT_EQ(read_limit(), CUDA_SUCCESS);
  EXPECT_EQ(limit, 47 * 1024);
  const auto run = [&](int bytes) {
    return launch(kernel.handle(), {.block = 1, .smem = static_cast<unsigned>(bytes)}, data,
                  static_cast<unsigned>(bytes) / 4 - 1);
  };
  EXPECT_EQ(run(47 * 1024), CUDA_SUCCESS);
  expect_failure(run(47 * 1024 + 4), CUDA_ERROR_INVALID_VALUE, "MAX_DYNAMIC_SHARED_SIZE_BYTES");
  kernel.set_dynamic_smem(0, most);
  EXPECT_EQ(read_limit(), CUDA_SUCCESS);
  EXPECT_EQ(limit, most);
  EXPECT_EQ(run(most), CUDA_SUCCESS);
  EXPECT_THAT(download(data, 1), ElementsAre(static_cast<unsigned>(most) / 4 - 1));
  for (const int bytes : {most + 1, -1}) {
    const Error error = error_of([&] { kernel.set_dynamic_smem(0, bytes); });
    EXPECT_EQ(error.native_code(), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(error.message(), HasSubstr(std::to_string(most)));
  }
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

// A kernel whose wait comes behind what it does.
std::string with_late_wait() {
  std::string late = other_kernels("sm_90a");
  late.insert(late.find("  ret;", late.find(".entry blocks")), "  griddepcontrol.wait;\n");
  return late;
}

CUlaunchAttribute overlapping() {
  CUlaunchAttribute overlap{};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  return overlap;
}

TEST_F(EmulatedLaunches, NoGridIsInFrontBehindAWaitForIt) {
  const Module module(with_late_wait());
  const CUkernel blocks = module.kernel("blocks").handle();
  const CUdeviceptr data = upload({0});
  CUstream blocking = nullptr, other = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(api().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api().cuEventCreate(&event, 0), CUDA_SUCCESS);
  const auto plain = [&](CUstream own) {
    EXPECT_EQ(launch(blocks, {.block = 1, .stream = own}, data), CUDA_SUCCESS);
  };
  const auto dependent = [&](CUstream own) {
    return launch(blocks, {.block = 1, .stream = own, .attributes = {overlapping()}}, data);
  };
  for (CUstream own : {CUstream{nullptr}, blocking, other}) {
    plain(own);
    expect_failure(dependent(own), CUDA_ERROR_LAUNCH_FAILED, "griddepcontrol.wait");
    plain(own);
    EXPECT_EQ(api().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(dependent(own), CUDA_SUCCESS) << "the context was waited for";
    plain(own);
    EXPECT_EQ(api().cuEventRecord(event, own), CUDA_SUCCESS);
    EXPECT_EQ(api().cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(dependent(own), CUDA_SUCCESS) << "an event behind the grid was waited for";
    const CUdeviceptr given_back = upload({0});
    plain(own);
    EXPECT_EQ(api().cuMemFree(given_back), CUDA_SUCCESS);
    EXPECT_EQ(dependent(own), CUDA_SUCCESS) << "memory was given back";
  }
  for (const auto& [first, between] : {std::pair(CUstream{nullptr}, blocking), {blocking, nullptr}}) {
    const CUdeviceptr elsewhere = upload({0});
    plain(first);
    EXPECT_EQ(launch(blocks, {.block = 1, .stream = between}, elsewhere), CUDA_SUCCESS);
    EXPECT_EQ(dependent(first), CUDA_SUCCESS) << "the default stream and blocking ones wait for each other";
  }
  plain(other);
  plain(nullptr);
  expect_failure(dependent(other), CUDA_ERROR_LAUNCH_FAILED, "griddepcontrol.wait");
}

TEST_F(EmulatedLaunches, ADependentLaunchIsHeldAgainstTheGridInFront) {
  const Module module(with_late_wait());
  const CUkernel blocks = module.kernel("blocks").handle();
  const CUdeviceptr data = upload({0});
  CUstream stream = nullptr, other = nullptr;
  for (CUstream* const made : {&stream, &other})
    ASSERT_EQ(api().cuStreamCreate(made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const auto plain = [&] { EXPECT_EQ(launch(blocks, {.block = 1, .stream = stream}, data), CUDA_SUCCESS); };
  const auto dependent = [&](CUstream own) {
    return launch(blocks, {.block = 1, .stream = own, .attributes = {overlapping()}}, data);
  };
  const char* const found = "griddepcontrol.wait";
  plain();
  expect_failure(dependent(stream), CUDA_ERROR_LAUNCH_FAILED, found);
  plain();
  EXPECT_EQ(dependent(other), CUDA_SUCCESS);
  expect_failure(dependent(other), CUDA_ERROR_LAUNCH_FAILED, found);
  plain();
  EXPECT_EQ(api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(dependent(stream), CUDA_SUCCESS);
  plain();
  EXPECT_EQ(api().cuMemsetD32Async(data, 0, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(dependent(stream), CUDA_SUCCESS);

  // In a graph the launches of it are in front.
  for (const int launches : {1, 2}) {
    ASSERT_EQ(api().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    for (int i = 0; i < launches; ++i) EXPECT_EQ(dependent(stream), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    ASSERT_EQ(api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) {
      const CUresult result = api().cuGraphLaunch(executable, stream);
      if (launches == 1) {
        EXPECT_EQ(result, CUDA_SUCCESS);
      } else {
        expect_failure(result, CUDA_ERROR_LAUNCH_FAILED, found);
      }
    }
    EXPECT_EQ(api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  for (const CUstream made : {stream, other}) EXPECT_EQ(api().cuStreamDestroy(made), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, AttributesOfLaunches) {
  std::string waiting = other_kernels("sm_90a");
  waiting.insert(waiting.find("  ld.param", waiting.find(".entry blocks")), "  griddepcontrol.wait;\n");
  const Module module(waiting), hasty(other_kernels("sm_90a")), plain(two_kernels());
  const CUdeviceptr data = upload({0});
  CUlaunchAttribute cluster{}, overlap{}, together{}, unknown{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  together.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  together.value.cooperative = 1;
  unknown.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  const CUkernel blocks = module.kernel("blocks").handle();
  EXPECT_EQ(launch(blocks, {.grid = 4, .block = 1, .attributes = {overlap, cluster}}, data), CUDA_SUCCESS);
  EXPECT_THAT(download(data, 1), ElementsAre(2));
  EXPECT_EQ(launch(blocks, {.grid = 4, .block = 1}, data), CUDA_SUCCESS);
  EXPECT_THAT(download(data, 1), ElementsAre(1));
  EXPECT_EQ(launch(hasty.kernel("blocks").handle(), {.grid = 4, .block = 1}, data), CUDA_SUCCESS);
  expect_failure(
      launch(hasty.kernel("blocks").handle(), {.grid = 4, .block = 1, .attributes = {overlap}}, data),
      CUDA_ERROR_INVALID_VALUE, "blocks may start before the grid in front of it has ended");
  expect_failure(launch(blocks, {.grid = 3, .block = 1, .attributes = {cluster}}, data),
                 CUDA_ERROR_INVALID_VALUE, "does not divide");
  expect_failure(launch(blocks, {.attributes = {unknown}}, data), CUDA_ERROR_NOT_SUPPORTED,
                 "launch attribute 10");
  EXPECT_EQ(launch(blocks, {.grid = 4, .block = 1, .attributes = {together, overlap}}, data), CUDA_SUCCESS);
  expect_failure(launch(blocks, {.grid = 1 << 16, .block = 1, .attributes = {together}}, data),
                 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "65536 blocks");
  push(1);
  expect_failure(launch(plain.kernel("put").handle(), {.grid = 2, .attributes = {cluster}}, data, 1u),
                 CUDA_ERROR_NOT_SUPPORTED, "sm_80 has no clusters");
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, WhatIsFoundFailsTheLaunchAndNothingElse) {
  const Module module(two_kernels());
  const CUkernel add = module.kernel("add").handle(), put = module.kernel("put").handle();
  const CUdeviceptr fresh = allocate(128);
  expect_failure(launch(add, {}, fresh, 1u), CUDA_ERROR_LAUNCH_FAILED, "uninitialized read");
  EXPECT_THAT(text_of(CUDA_ERROR_LAUNCH_FAILED), HasSubstr("add"));
  EXPECT_EQ(launch(put, {}, fresh, 9u), CUDA_SUCCESS);
  EXPECT_THAT(download(fresh, 32), Each(9u));
  expect_failure(launch(put, {.block = 33}, fresh, 1u), CUDA_ERROR_LAUNCH_FAILED, "out of bounds");
  expect_failure(launch(put, {}, CUdeviceptr{0}, 1u), CUDA_ERROR_LAUNCH_FAILED, "out of bounds");
  expect_failure(launch(put, {}, fresh + 2, 1u), CUDA_ERROR_LAUNCH_FAILED, "misaligned");
  push(1);
  expect_failure(launch(put, {}, fresh, 1u), CUDA_ERROR_LAUNCH_FAILED, "out of bounds");  // of another device
  EXPECT_EQ(api().cuMemFree(fresh), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, TracesTellWhatWasDone) {
  const Module module(two_kernels());
  const CUkernel add = module.kernel("add").handle(), put = module.kernel("put").handle();
  const CUdeviceptr data = allocate(256);
  const TraceScope outer;
  EXPECT_EQ(launch(put, {.grid = 2}, data, 1u), CUDA_SUCCESS);
  {
    const TraceScope inner;
    EXPECT_EQ(launch(add, {}, data, 1u), CUDA_SUCCESS);
    EXPECT_EQ(launch(put, {}, data + 1, 1u), CUDA_ERROR_LAUNCH_FAILED);
    std::jthread([&] {
      push(0);
      EXPECT_EQ(launch(add, {}, data, 1u), CUDA_SUCCESS);
    }).join();
    ASSERT_EQ(inner.launches().size(), 2u);
    EXPECT_EQ(inner.launches()[0].kernel(), "add");
    EXPECT_THAT(inner.launches()[0].findings(), ElementsAre());
    EXPECT_THAT(inner.launches()[1].findings(), ElementsAre(HasSubstr("misaligned")));
  }
  EXPECT_EQ(launch(add, {}, data, 1u), CUDA_SUCCESS);
  ASSERT_EQ(outer.launches().size(), 4u);
  const LaunchTrace& first = outer.launches()[0];
  EXPECT_EQ(first.kernel(), "put");
  EXPECT_EQ(first.warp_instructions(), 2u * 11);  // of two warps
  EXPECT_GT(first.seconds(), 0);
  EXPECT_TRUE(nlohmann::json::parse(first.counts_json()).is_object());
  EXPECT_THAT(first.listing(), HasSubstr("st.global.u32 [%rd3], %r7;"));
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, AScopeInterruptsAKernelWithoutEnd) {
  const Module module(R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry endless() {
again:
  bra again;
}
)");
  const CUkernel endless = module.kernel("endless").handle();
  int outer_questions = 0, inner_questions = 0;
  const InterruptScope outer([&] { return ++outer_questions == 3; });
  {
    const InterruptScope inner([&] { return ++inner_questions == 2; });
    expect_failure(launch(endless, {}), CUDA_ERROR_LAUNCH_FAILED, "endless was interrupted after");
    EXPECT_EQ(inner_questions, 2);
    EXPECT_EQ(outer_questions, 1);
  }
  expect_failure(launch(endless, {}), CUDA_ERROR_LAUNCH_FAILED, "endless was interrupted after");
  EXPECT_EQ(inner_questions, 2);
  // The device goes on.
  const Module other(two_kernels());
  const CUdeviceptr data = allocate(256);
  EXPECT_EQ(launch(other.kernel("put").handle(), {.grid = 2}, data, 1u), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(EmulatedLaunches, ThreadsLaunchAtOnce) {
  constexpr unsigned count = 8;
  const Module module(two_kernels());
  const CUkernel add = module.kernel("add").handle();
  const CUdeviceptr data = upload(std::vector<std::uint32_t>(32 * count, 0));
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        push(0);
        CUstream stream = nullptr;
        EXPECT_EQ(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        for (int round = 0; round < 50; ++round) {
          EXPECT_EQ(launch(add, {.stream = stream}, data + 128 * i, i), CUDA_SUCCESS);
        }
        EXPECT_EQ(api().cuStreamDestroy(stream), CUDA_SUCCESS);
      });
    }
  }
  const std::vector<std::uint32_t> values = download(data, 32 * count);
  for (unsigned i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i / 32 * 50);
  EXPECT_EQ(api().cuMemFree(data), CUDA_SUCCESS);
}

}  // namespace
}  // namespace jit::testing
