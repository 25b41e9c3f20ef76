// jit-attention emulate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cli_testing.h"
#include "tools/jit_attention/npy.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// out[i] = by · (in[i] + in[i + 1]) by way of shared memory, for 64 threads.
constexpr const char* neighbors = R"(
.version 9.4
.target sm_90a
.address_size 64
.visible .entry neighbors(.param .u64 in, .param .u64 out, .param .f32 by)
{
  .reg .b32 %r<4>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<4>;
  .reg .pred %p<2>;
  .shared .align 4 .b8 buffer[260];
  ld.param.u64 %rd0, [in];
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f3, [by];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd0, %rd0, %rd2;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.f32 %f0, [%rd0];
  mov.u32 %r1, buffer;
  mad.lo.u32 %r1, %r0, 4, %r1;
  st.shared.f32 [%r1], %f0;
  bar.sync 0;
  setp.eq.u32 %p0, %r0, 63;
  mov.f32 %f1, 0f00000000;
  @!%p0 ld.shared.f32 %f1, [%r1+4];
  add.f32 %f2, %f0, %f1;
  mul.f32 %f2, %f2, %f3;
  st.global.f32 [%rd1], %f2;
  ret;
}
)";

class CliEmulate : public ::testing::Test {
 protected:
  void SetUp() override {
    tool::NpyArray in{"<f4", {64}, std::vector<std::byte>(256)};
    auto* values = reinterpret_cast<float*>(in.bytes.data());
    for (int i = 0; i < 64; ++i) values[i] = static_cast<float>(i);
    tool::write_npy(OutputFile(file("in.npy")), in);
    write_text(file("kernel.ptx"), neighbors);
  }
  std::string file(const std::string& name) const { return tool_.folder / name; }

  ToolResult emulate(const std::vector<std::string>& arguments, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"emulate", file("kernel.ptx"), "--block", "64"};
    for (const std::string& argument : arguments) words.insert(words.end(), {"--arg", argument});
    words.insert(words.end(), more.begin(), more.end());
    return tool_.run(words);
  }
  // Status 2 and one sentence.
  std::string refusal(const std::vector<std::string>& arguments, const std::vector<std::string>& more = {}) {
    const ToolResult result = emulate(arguments, more);
    EXPECT_EQ(result.status, 2) << result.out << result.err;
    EXPECT_THAT(result.err, StartsWith("jit-attention: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  }
  std::string in() const { return "in:" + file("in.npy"); }
  std::string out() const { return "out:" + file("out.npy") + ":f32:64"; }
  void without(const std::string& line) {
    std::string text = neighbors;
    text.erase(text.find(line), line.size());
    write_text(file("kernel.ptx"), text);
  }

  const Tool tool_;
};

TEST_F(CliEmulate, ComputesOverFiles) {
  const ToolResult result =
      emulate({in(), out(), "f32:0.5"}, {"--counts", file("counts"), "--listing", file("list")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("neighbors: no findings in "));
  const tool::NpyArray sums = tool::read_any_npy(file("out.npy"));
  EXPECT_EQ(sums.shape, std::vector<std::int64_t>{64});
  EXPECT_EQ(reinterpret_cast<const float*>(sums.bytes.data())[10], 10.5f);
  EXPECT_THAT(read_text(file("counts")), HasSubstr("\"kernel\": \"neighbors\""));
  EXPECT_THAT(read_text(file("list")), HasSubstr("bar.sync 0;"));
}

TEST_F(CliEmulate, PrintsFindingsAndFails) {
  without("  bar.sync 0;\n");
  const ToolResult result = emulate({in(), out(), "f32:1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("data race in neighbors block (0, 0, 0) warp "));
  EXPECT_THAT(result.out, HasSubstr("PTX line "));
  const ToolResult json = emulate({in(), out(), "f32:1"}, {"--json", "--seed", "3"});
  EXPECT_EQ(json.json()["findings"][0]["kind"], "data race");
  EXPECT_THAT(json.json()["findings"][0]["ptx_line"].get<int>(), ::testing::AnyOf(22, 25));
  EXPECT_EQ(emulate({in(), out(), "f32:1"},
                    {"--allow", "data race", "--allow", "uninitialized read of shared memory"})
                .status,
            0);
}

TEST_F(CliEmulate, AnOutputIsUnwrittenUntilTheKernelWrites) {
  const ToolResult result = emulate({"out:" + file("in.npy") + ":f32:64", "null", "f32:1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("uninitialized read in neighbors"));
  EXPECT_THAT(result.out, HasSubstr("out of bounds in neighbors"));
}

TEST_F(CliEmulate, StructsAndBytesAreParameters) {
  std::string text = neighbors;
  text.replace(text.find("(.param .u64 in, .param .u64 out, .param .f32 by)"), 49,
               "(.param .align 8 .b8 all[24])");
  for (const auto& [from, to] : {std::pair{"[in]", "[all]"}, {"[out]", "[all+8]"}, {"[by]", "[all+20]"}})
    text.replace(text.find(from), std::string(from).size(), to);
  write_text(file("kernel.ptx"), text);
  EXPECT_EQ(emulate({in() + "; " + out() + "; u8:1; f32:0.5"}).status, 0);
  EXPECT_EQ(emulate({in() + ";" + out() + ";bytes:000000000000003f"}).status, 0);
  write_text(file("raw"), std::string("\0\0\0\0\0\0\0\x3f", 8));
  EXPECT_EQ(emulate({in() + "; " + out() + "; bytes:@" + file("raw")}).status, 0);
  const tool::NpyArray sums = tool::read_any_npy(file("out.npy"));
  EXPECT_EQ(reinterpret_cast<const float*>(sums.bytes.data())[10], 10.5f);
  EXPECT_THAT(refusal({in() + "; u8:1"}),
              HasSubstr("parameter all of neighbors has 24 bytes, 16 were given"));
}

TEST_F(CliEmulate, BadInputIsOneSentence) {
  EXPECT_THAT(refusal({}), HasSubstr("neighbors takes 3 parameters, 0 were given"));
  EXPECT_THAT(refusal({in(), out(), "f64:1"}),
              HasSubstr("parameter by of neighbors has 4 bytes, 8 were given"));
  EXPECT_THAT(refusal({in(), out(), "f32:one"}),
              HasSubstr("--arg f32:one: 'one' is no number that f32 holds"));
  EXPECT_THAT(refusal({in(), out(), "i8:128"}), HasSubstr("'128' is no number that i8 holds"));
  EXPECT_THAT(refusal({in(), out(), "u8:-1"}), HasSubstr("'-1' is no number that u8 holds"));
  EXPECT_THAT(refusal({in(), out(), "5"}), HasSubstr("--arg 5: it must be TYPE:NUMBER"));
  EXPECT_THAT(refusal({in(), out(), "bytes:0"}), HasSubstr("pairs of hexadecimal digits"));
  EXPECT_THAT(refusal({in(), out(), "bytes:@/nonexistent"}), HasSubstr("/nonexistent cannot be read"));
  EXPECT_THAT(refusal({"in:/nonexistent.npy", out(), "f32:1"}), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal({in(), "out:x.npy", "f32:1"}), HasSubstr("an output is out:FILE.npy:TYPE:SIZES"));
  EXPECT_THAT(refusal({in(), "out:x.npy:f32:0", "f32:1"}), HasSubstr("'0' is no list of sizes"));
  EXPECT_THAT(refusal({in(), "out:x.npy:f32:99999999,99999999", "f32:1"}),
              HasSubstr("the array is too large"));
  EXPECT_THAT(refusal({in(), "inout:" + file("in.npy"), "f32:1"}), HasSubstr("the same file in another way"));
  EXPECT_THAT(refusal({in() + ":box=8,8", out(), "f32:1"}),
              HasSubstr("box= has 2 sizes and the array (64) has 1"));
  EXPECT_THAT(refusal({in() + ":box=512", out(), "f32:1"}), HasSubstr("the tensor map over "));
  EXPECT_THAT(refusal({in() + ":swizzle=32", out(), "f32:1"}), HasSubstr("which have box="));
  EXPECT_THAT(refusal({in() + ":box=8:swizzle=5", out(), "f32:1"}),
              HasSubstr("must be 0, 32, 64 or 128 bytes"));
  EXPECT_THAT(refusal({in(), out(), "bytes:@/dev/zero"}),
              HasSubstr("/dev/zero is larger than 1048576 bytes"));
  const std::vector<std::string> right = {in(), out(), "f32:1"};
  EXPECT_THAT(refusal(right, {"--entry", "other"}),
              HasSubstr("there is no kernel other; the module has neighbors"));
  EXPECT_THAT(refusal(right, {"--grid", "0"}), HasSubstr("grid (0, 1, 1): each size must be at least 1"));
  EXPECT_THAT(refusal(right, {"--cluster", "2"}),
              HasSubstr("cluster (2, 1, 1) does not divide grid (1, 1, 1)"));
  EXPECT_THAT(refusal(right, {"--dynamic-shared", "300000"}), HasSubstr("a block can have 232448"));
  EXPECT_THAT(refusal(right, {"--arch", "sm_80"}), HasSubstr("PTX line 3: PTX for sm_90a does not run"));
  EXPECT_THAT(refusal(right, {"--arch", "volta"}), HasSubstr("\"volta\" is no architecture"));
  EXPECT_THAT(refusal(right, {"--level", "hardware"}),
              HasSubstr("--level: hardware not in {strict,silicon}"));
  EXPECT_THAT(refusal(right, {"--allow", "race"}), HasSubstr("'race' is no kind of finding"));
  without("  ret;\n}\n");
  EXPECT_THAT(refusal(right), HasSubstr("kernel.ptx: PTX line "));
}

TEST_F(CliEmulate, EndlessLoopsEnd) {
  std::string text = neighbors;
  text.replace(text.find("  bar.sync 0;\n"), 14, "AGAIN:\n  bra AGAIN;\n");
  write_text(file("kernel.ptx"), text);
  const ToolResult result = emulate({in(), out(), "f32:1"}, {"--step-limit", "100000"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("step limit in neighbors"));
}

TEST_F(CliEmulate, SeveralKernelsNeedAnEntry) {
  write_text(file("kernel.ptx"), std::string(neighbors) + ".visible .entry nothing()\n{\n  ret;\n}\n");
  EXPECT_THAT(refusal({}), HasSubstr("has 2 kernels: neighbors, nothing"));
  EXPECT_EQ(emulate({}, {"--entry", "nothing", "--grid", "2,2"}).status, 0);
}

}  // namespace
}  // namespace jit::testing
