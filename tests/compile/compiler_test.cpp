#include "runtime/compiler.h"

#include <jit/error.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

CompileRequest request_of(const std::string& source, const std::string& arch = "sm_90a") {
  return {.name = "/jit-attention/kernel.cu",
          .source = source,
          .headers = {},
          .arch = parse_arch(arch),
          .options = {},
          .kernel = "k"};
}

const std::string tiny = R"(extern "C" __global__ void k(int* p) { *p = 1; })";

// Keeps more values alive than 24 registers hold.
const std::string spilling = R"(
extern "C" __global__ void k(float* p) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = p[i];
#pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = a[i] * a[63 - i] + a[(i * 7) % 64];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) p[i] = a[i];
})";

CompileResult compile_here(const CompileRequest& request) { return compile(find_nvrtc(""), request); }

Error failure_of(const CompileRequest& request) {
  try {
    compile_here(request);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "compiled";
  return Error(ErrorCode::io_error, "", "", "");
}

bool mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find(library) != std::string::npos;
}

TEST(Compiler, MakesACubinAndPtx) {
  const CompileResult result = compile_here(request_of(tiny));
  ASSERT_GT(result.cubin.size(), 64u);
  EXPECT_EQ(std::memcmp(result.cubin.data(), "\177ELF", 4), 0);
  EXPECT_THAT(result.ptx, HasSubstr(".entry k("));
  EXPECT_GT(result.resources.registers, 0);
  EXPECT_EQ(result.resources.spill_bytes(), 0);
  EXPECT_EQ(result.resources.stack_bytes, 0);
  EXPECT_THAT(result.resources.remarks, testing::IsEmpty());
  EXPECT_GT(result.milliseconds, 0);
}

TEST(Compiler, CompilesForEveryArchOfThisNvrtc) {
  const bool knows_all = find_nvrtc("").version >= NvrtcVersion{13, 0};
  for (Arch arch : known_archs()) {
    if (!knows_all && !(arch <= Arch{9, 0, 'a'} && arch != Arch{8, 8})) continue;
    EXPECT_FALSE(compile_here(request_of(tiny, to_string(arch))).cubin.empty()) << to_string(arch);
  }
}

TEST(Compiler, PtxAloneIsMadeForTheSameTarget) {
  EXPECT_THAT(compile_to_ptx(find_nvrtc(""), request_of(tiny)).ptx, HasSubstr(".target sm_90a"));
  EXPECT_THROW(compile_to_ptx(find_nvrtc(""), request_of("nonsense")), Error);
}

TEST(Compiler, ReportsSpills) {
  CompileRequest request = request_of(spilling);
  EXPECT_EQ(compile_here(request).resources.spill_bytes(), 0);
  request.options = {"--maxrregcount=24"};
  const ResourceUsage usage = compile_here(request).resources;
  EXPECT_GT(usage.spill_store_bytes, 0);
  EXPECT_GT(usage.spill_load_bytes, 0);
  EXPECT_GT(usage.stack_bytes, 0);
  EXPECT_THAT(usage.remarks, testing::Contains(HasSubstr("spilled")));
}

TEST(Compiler, ReportsSharedMemoryAndBarriers) {
  const ResourceUsage usage = compile_here(request_of(R"(
extern "C" __global__ void k(int* p) {
  __shared__ int s[256];
  s[threadIdx.x] = *p;
  __syncthreads();
  *p = s[*p];
})"))
                                  .resources;
  EXPECT_EQ(usage.static_smem_bytes, 1024);
  EXPECT_EQ(usage.barriers, 1);
}

TEST(Compiler, IncludesGivenHeadersAndNothingElse) {
  CompileRequest request =
      request_of("#include \"ptx/one.cuh\"\nextern \"C\" __global__ void k(int* p) { *p = one(); }");
  request.headers = {{"ptx/one.cuh", "constexpr int one() { return 1; }"}};
  EXPECT_FALSE(compile_here(request).cubin.empty());

  std::string pattern = testing::TempDir() + "/compiler-XXXXXX";
  const std::filesystem::path folder = mkdtemp(pattern.data());
  std::ofstream(folder / "local.cuh") << "constexpr int one() { return 1; }";
  request.name = folder / "kernel.cu";
  request.source = "#include \"local.cuh\"\n" + tiny;
  const Error error = failure_of(request);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(error.log(), HasSubstr("local.cuh"));
}

TEST(Compiler, UndeclaredNamesAreReportedAtTheLineOfTheUser) {
  const std::string source = R"(
#line 3 "/jit-attention/mymask"
__device__ bool keep(int q) { return q < unheard_of; }
#line 40 "/jit-attention/kernel.cu"
extern "C" __global__ void k(int* p) { *p = keep(*p); })";
  const Error error = failure_of(request_of(source));
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_THAT(error.log(), StartsWith("mymask:3: error: identifier \"unheard_of\" is undefined"));
  EXPECT_THAT(error.what(), HasSubstr("kernel.cu does not compile for sm_90a"));
  EXPECT_THAT(error.what(), HasSubstr("mymask:3: error"));
  EXPECT_EQ(error.source(), source);
  EXPECT_NE(error.native_code(), 0);
}

TEST(Compiler, SyntaxErrorsAreReportedAtTheLineOfTheUser) {
  for (const char* body :
       {"return keep(1, 2, 3); }", "return true; /* open }", "return true;", "return {{{; }"}) {
    const Error error = failure_of(
        request_of(std::string("#line 3 \"/jit-attention/mymask\"\n__device__ bool keep(int q) { ") + body +
                   "\n" + tiny));
    EXPECT_THAT(error.log(), HasSubstr("mymask:3: ")) << body;
  }
}

TEST(Compiler, ErrorsOfInlinePtxAreReportedAtTheLineOfTheUser) {
  CompileRequest request = request_of(R"(
__device__ int other(int x) { return x * 3; }
#line 3 "/jit-attention/mymask"
__device__ int keep(int x) { asm volatile("bogus.op %0;" : "+r"(x)); return x; }
#line 40 "/jit-attention/kernel.cu"
extern "C" __global__ void k(int* p) { *p = other(keep(*p)); })");
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"-lineinfo"}, {"--generate-line-info"}}) {
    request.options = options;
    const Error error = failure_of(request);
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    EXPECT_THAT(error.log(), StartsWith("mymask:3: error: "));
    EXPECT_THAT(error.log(), HasSubstr("bogus"));
    EXPECT_THAT(error.log(), HasSubstr("ptxas fatal"));
  }
}

TEST(Compiler, InstructionsThatTheArchLacksAreLocatedToo) {
  const Error error = failure_of(request_of(
      "\n\nextern \"C\" __global__ void k() { asm volatile(\"wgmma.fence.sync.aligned;\"); }", "sm_80"));
  EXPECT_THAT(error.log(), StartsWith("kernel.cu:3: error: Instruction 'wgmma.fence' not supported"));
}

TEST(Compiler, AFailureWithoutAReasonStillExplainsItself) {
  const Error error = failure_of(request_of(R"(
extern "C" __global__ void k(int* p) {
  __shared__ int s[20000];
  s[threadIdx.x] = *p;
  __syncthreads();
  *p = s[*p];
})",
                                            "sm_80"));
  EXPECT_THAT(error.message(), HasSubstr("NVRTC_ERROR_COMPILATION"));
  EXPECT_THAT(error.message(), HasSubstr("sm_80"));
  EXPECT_THAT(error.message(), HasSubstr("--gpu-architecture=sm_80"));
  EXPECT_THAT(error.message(), HasSubstr("80000 bytes of static shared memory"));
}

TEST(Compiler, AnUnknownOptionIsAnErrorThatNamesIt) {
  CompileRequest request = request_of(tiny);
  request.options = {"--no-such-option"};
  EXPECT_THAT(failure_of(request).log(), HasSubstr("--no-such-option"));
}

TEST(Compiler, TwoThreadsGetTheSameCode) {
  const CompileResult expected = compile_here(request_of(spilling));
  CompileResult results[2];
  {
    std::jthread first([&] { results[0] = compile_here(request_of(spilling)); });
    std::jthread second([&] { results[1] = compile_here(request_of(spilling)); });
  }
  EXPECT_EQ(results[0].cubin, expected.cubin);
  EXPECT_EQ(results[1].cubin, expected.cubin);
}

TEST(Compiler, WorksOnAThreadWithASmallStack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  pthread_t thread;
  bool compiled = false;
  const auto body = [](void* argument) -> void* {
    *static_cast<bool*>(argument) = !compile_here(request_of(tiny)).cubin.empty();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &compiled), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(compiled);
}

TEST(Compiler, WhatIsNestedDeeplyFindsAStack) {
  const std::string nested(30000, '!');
  EXPECT_FALSE(compile_here(request_of("extern \"C\" __global__ void k(int* p) { *p = " + nested + "*p; }"))
                   .cubin.empty());
}

TEST(Compiler, LeavesTheStackLimitAlone) {
  rlimit original{};
  getrlimit(RLIMIT_STACK, &original);
  const rlimit before{std::min<rlim_t>(original.rlim_cur, 8 << 20), original.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_STACK, &before), 0);
  std::atomic<bool> done{false};
  std::atomic<int> samples{0};
  std::atomic<int> changes{0};
  {
    std::jthread observer([&] {
      while (!done) {
        rlimit now{};
        getrlimit(RLIMIT_STACK, &now);
        if (now.rlim_cur != before.rlim_cur || now.rlim_max != before.rlim_max) ++changes;
        ++samples;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    compile_here(request_of(spilling));
    done = true;
  }
  setrlimit(RLIMIT_STACK, &original);
  EXPECT_GT(samples, 10);
  EXPECT_EQ(changes, 0);
}

TEST(Compiler, AChildForkedDuringACompileDoesNotHang) {
  int refused = 0;
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::atomic<bool> stop{false};
    std::jthread compiling([&] {
      while (!stop) compile_here(request_of(spilling));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // kills a child that hangs
      int status = 0;
      try {
        compile_here(request_of(tiny));
      } catch (const Error& error) {
        status = error.message().starts_with("forked while compiling") ? 1 : 2;
      }
      _exit(status);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    waitpid(child, &status, 0);
    stop = true;
    ASSERT_TRUE(WIFEXITED(status)) << "the child hung";
    ASSERT_LT(WEXITSTATUS(status), 2);
    refused += WEXITSTATUS(status);
  }
  EXPECT_GT(refused, 0) << "no fork fell into a compile";
}

TEST(Compiler, AChildForkedWhileIdleCompiles) {
  compile_here(request_of(tiny));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(compile_here(request_of(tiny)).cubin.empty() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The exit status is one bit per thing that went wrong.
[[noreturn]] void exit_with_what_is_mapped() {
  const NvrtcLocation location = find_nvrtc("");
  int wrong = mapped("libnvrtc") ? 1 : 0;
  if (compile(location, request_of(tiny)).cubin.empty()) wrong |= 2;
  if (!mapped(std::filesystem::canonical(location.path))) wrong |= 4;
  if (mapped("libcuda.so")) wrong |= 8;
  _exit(wrong);
}

TEST(CompilerDeathTest, OpensNvrtcForTheFirstCompileAndTheDriverNever) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // runs in a process of its own
  EXPECT_EXIT(exit_with_what_is_mapped(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace jit
