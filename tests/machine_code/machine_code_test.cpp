// Machine code of the kernels of the list is as it was recorded.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/kernel_config.h>

#include "generator/kernels/families.h"
#include "runtime/compiler.h"
#include "tests/machine_code/code_digest.h"
#include "tests/machine_code/frozen_kernels.h"
#include "tests/support/seed.h"

namespace jit::machine_code {
namespace {

constexpr const char* renewal = "build/default/tests/machine_code/machine_code --renew";

// Records of this compiler; without any, the newest ones of another, of which only that nothing is spilled holds here, too.
struct Known {
  Records records;
  bool is_of_this_compiler = false;
};

Known known_records(const NvrtcLocation& compiler) {
  const Records own = read_records(records_path(compiler.version));
  if (own.compiler == compiler.identity) return {own, true};
  const std::vector<std::filesystem::path> files = records_files();
  return {files.empty() ? Records() : read_records(files.back()), false};
}

// Objections to a kernel as it is now; empty: none.
std::string objection(const Known& known, const std::string& name, const Outcome& outcome) {
  if (!outcome.error.empty()) return outcome.error;
  const auto record = known.records.kernels.find(name);
  if (record == known.records.kernels.end()) return known.is_of_this_compiler ? "there is no record" : "";
  if (known.is_of_this_compiler) return difference(record->second, outcome.record);
  const bool spills = record->second.spilled_bytes == 0 && outcome.record.spilled_bytes != 0;
  return spills ? fmt::format("spilled bytes 0 → {}", outcome.record.spilled_bytes) : "";
}

TEST(MachineCode, IsAsRecorded) {
  const Context context = machine_code_context();
  const NvrtcLocation compiler = compiler_of(context);
  const Known known = known_records(compiler);
  const std::vector<FrozenKernel> kernels = reference::some_of(frozen_kernels(), 40);
  const std::vector<Outcome> outcomes = make_all(kernels, context);
  std::string moved;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::string why = objection(known, kernels[i].name, outcomes[i]);
    if (!why.empty()) moved += fmt::format("{}: {}\n  {}\n", kernels[i].name, why, outcomes[i].origin);
  }
  if (!moved.empty()) {
    ADD_FAILURE()
        << moved
        << fmt::format("If it is meant to be so, `{}` says what else moved, and keeps it (docs/building.md)",
                       renewal);
  }
  if (!known.is_of_this_compiler) {
    GTEST_SKIP() << fmt::format(
        "this build of NVRTC {}.{} has no records, so only spills were looked at; `{}` records it",
        compiler.version.major, compiler.version.minor, renewal);
  }
}

TEST(MachineCode, RecordsAreOfTheList) {
  std::set<std::string> names;
  for (const FrozenKernel& kernel : frozen_kernels()) names.insert(kernel.name);
  ASSERT_FALSE(records_files().empty());
  for (const std::filesystem::path& file : records_files()) {
    std::set<std::string> recorded;
    for (const auto& [name, record] : read_records(file).kernels) recorded.insert(name);
    EXPECT_EQ(recorded, names) << file << "; `" << renewal << "` writes it anew";
  }
}

TEST(MachineCode, TheListNamesEveryFieldOfAConfig) {
  std::vector<std::pair<std::string_view, std::string>> configs;  // family and text
  for (const ListedKernel& kernel : listed_kernels()) {
    const std::string text = config_text(kernel);
    if (!text.empty()) configs.emplace_back(family_name(parse_config(text)), " " + text);
  }
  for_each_family([&](const auto& usual) {
    using Own = Family<std::decay_t<decltype(usual)>>;
    for (const auto& field : Own::fields()) {
      const bool is_named = std::any_of(configs.begin(), configs.end(), [&](const auto& config) {
        return config.first == Own::name &&
               config.second.find(fmt::format(" {}=", field.name)) != std::string::npos;
      });
      EXPECT_TRUE(is_named) << Own::name << ": no line of tests/machine_code/kernels.txt names "
                            << field.name;
    }
  });
}

Digest digest_of(const std::string& source, const std::vector<std::string>& options = {}) {
  const CompileRequest request{.name = "/test/kernel.cu",
                               .source = source,
                               .headers = {},
                               .arch = {8, 0, 0},
                               .options = options,
                               .kernel = ""};
  return code_digest(compile(compiler_of(machine_code_context()), request).cubin);
}

TEST(CodeDigest, IsOfInstructionsAlone) {
  const std::string plain = "extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= 1.7f; }";
  const Digest digest = digest_of(plain);
  EXPECT_EQ(digest_of("// a comment\n\n\n" + plain), digest);
  EXPECT_EQ(digest_of(plain, {"-lineinfo"}), digest);
  EXPECT_EQ(digest_of("extern \"C\" __global__ void other(float* y) { y[threadIdx.x] *= 1.7f; }"), digest);
  EXPECT_NE(digest_of("extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= 1.8f; }"), digest);
}

TEST(CodeDigest, ThatIsNoCubinIsRefused) {
  EXPECT_ANY_THROW(code_digest({}));
  const std::vector<std::byte> zeros(4096);
  EXPECT_ANY_THROW(code_digest(zeros));
}

TEST(Difference, NamesWhatMoved) {
  const Record before{.registers = 168, .dynamic_smem = 1024, .digest = "a", .config = "x"};
  Record after = before;
  EXPECT_EQ(difference(before, after), "");
  after.digest = "b";
  EXPECT_EQ(difference(before, after), "machine code alone");
  after.registers = 170;
  after.spilled_bytes = 8;
  after.config = "y";
  EXPECT_EQ(difference(before, after),
            "registers 168 → 170, spilled bytes 0 → 8, machine code; config x → y");
}

}  // namespace
}  // namespace jit::machine_code
