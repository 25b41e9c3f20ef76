// The emulator against silicon: every micro-kernel gives what was recorded on a GPU.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <emulator/module.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "micro_kernels/comparison.h"
#include "micro_kernels/recording.h"
#include "ptx/syntax.h"
#include "tests/conformance/emulator_run.h"
#include "tests/conformance/families/families.h"

namespace {

using namespace jit::conformance;

const std::filesystem::path recordings = JIT_EMULATOR_SOURCE_DIR "/tests/conformance/recordings";
const std::filesystem::path corpus = JIT_EMULATOR_SOURCE_DIR "/tests/fuzz/corpus/ptx";
constexpr const char* how_to_record =
    "record it on an H200: conformance_recorder emulator/tests/conformance/recordings";

const std::vector<Family>& families() {
  static const std::vector<Family> all = all_families();
  return all;
}

class Conformance : public testing::TestWithParam<std::size_t> {
 protected:
  const Family& family() const { return families().at(GetParam()); }
  Recordings recorded() const { return read_recordings(recordings / (family().name + ".bin")); }
};

TEST_P(Conformance, EmulatorDoesWhatSiliconDid) {
  const Recordings all = recorded();
  for (const MicroKernel& kernel : family().kernels) {
    const auto found = all.find(kernel.name);
    if (found == all.end() || !is_of(found->second, kernel)) {
      ADD_FAILURE() << kernel.name << " has no recording of what it is now; " << how_to_record;
      continue;
    }
    const EmulatorResult result = run_on_emulator(kernel, 1);
    if (!result.error.empty()) {
      ADD_FAILURE() << kernel.name << ": " << result.error;
      continue;
    }
    for (const std::string& finding : result.findings) ADD_FAILURE() << kernel.name << ": " << finding;
    const Mismatches mismatches = compare(kernel, found->second.output, result.output);
    EXPECT_EQ(mismatches.count, 0u) << fmt::format("{}: {} of {} elements differ, by at most {} ulp\n{}",
                                                   kernel.name, mismatches.count, mismatches.of,
                                                   mismatches.largest_ulps, mismatches.first);
  }
}

TEST_P(Conformance, EveryRecordingHasItsKernel) {
  std::set<std::string> names;
  for (const MicroKernel& kernel : family().kernels) names.insert(kernel.name);
  for (const auto& [name, recording] : recorded()) EXPECT_TRUE(names.contains(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Families, Conformance, testing::Range(std::size_t{0}, families().size()),
                         [](const auto& info) { return families().at(info.param).name; });

// Which opcodes the emulator knows: a bare one fails for another reason than that it is unknown.
bool is_known(const std::string& opcode) {
  const std::string ptx = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry micro()\n{\n  " +
                          opcode + ";\n  ret;\n}\n";
  try {
    const jit::emulator::Module module(ptx, {9, 0, 'a'});
    return true;
  } catch (const jit::emulator::PtxError& error) {
    return std::string(error.what()).find("does not know this instruction") == std::string::npos;
  }
}

void add_opcodes(const std::string& ptx, std::set<std::string>& opcodes) {
  for (const auto& function : jit::emulator::ptx::parse(ptx).functions) {
    for (const auto& instruction : function.body) opcodes.insert(instruction.opcode);
  }
}

// An opcode earns its place by a recording of what silicon makes of it, or by what NVRTC writes for CUDA C++.
TEST(Coverage, EveryOpcodeThatIsKnownIsOfTheCorpus) {
  // PTX ISA 9.0, "Instruction Set"; without those of sm_100.
  std::istringstream isa(
      "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt "
      "brx call "
      "clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence fma fns "
      "getctarank "
      "griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier "
      "membar min mma "
      "mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red "
      "redux rem ret "
      "rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix "
      "sub subc "
      "suld suq sured sust szext tanh tensormap testp tex tld4 trap txq vabsdiff vadd vmad vmax vmin vote "
      "vset vshl vshr "
      "vsub wgmma wmma xor");
  // Refused with advice of its own.
  const std::set<std::string> refused = {"tensormap"};
  std::set<std::string> covered;
  for (const Family& family : families()) {
    for (const MicroKernel& kernel : family.kernels) add_opcodes(kernel.ptx, covered);
  }
  // __trap and __brkpt leave nothing behind that could be recorded.
  for (const char* name : {"traps.ptx"}) {
    std::ifstream file(corpus / name);
    add_opcodes({std::istreambuf_iterator<char>(file), {}}, covered);
  }
  int known = 0;
  for (std::string opcode; isa >> opcode;) {
    if (!is_known(opcode) || refused.contains(opcode)) continue;
    ++known;
    EXPECT_TRUE(covered.contains(opcode)) << opcode << " is decoded, and no PTX of the corpus has it";
  }
  EXPECT_GE(known, 75) << "the list of opcodes is not read";
}

}  // namespace
