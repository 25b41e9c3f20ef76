#include "runtime/disassembler.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Tools are looked for in a fresh folder; a toolkit in the default place of this machine and wheels of its system are not
// hidden.
class DisassemblerTest : public testing::Test {
 protected:
  DisassemblerTest() {
    std::string pattern = testing::TempDir() + "/disassembler-XXXXXX";
    root_ = mkdtemp(pattern.data());
    fs::create_directories(root_ / "bin");
    fs::create_directories(root_ / "tmp");
    for (const char* name : {"PATH", "CUDA_HOME", "CUDA_PATH", "TMPDIR", "HOME", "VIRTUAL_ENV"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value ? value : "");
    }
    setenv("PATH", (root_ / "bin").c_str(), 1);
    setenv("CUDA_HOME", root_.c_str(), 1);
    setenv("TMPDIR", (root_ / "tmp").c_str(), 1);
    setenv("HOME", (root_ / "home").c_str(), 1);
    setenv("VIRTUAL_ENV", (root_ / "venv").c_str(), 1);
    unsetenv("CUDA_PATH");
    has_others_ = !finds_no_tool(disassemble(std::span<const std::byte>()));
  }
  static bool finds_no_tool(const Disassembly& disassembly) {
    return disassembly.missing.find("neither nvdisasm nor cuobjdump") != std::string::npos;
  }
  ~DisassemblerTest() override {
    for (const auto& [name, value] : before_) value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
    fs::remove_all(root_);
  }

  void add_tool(const std::string& name, const std::string& script, const fs::path& folder = "bin") const {
    const fs::path path = root_ / folder / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0700);
  }

  fs::path root_;
  bool has_others_ = false;  // tools that are not hidden
  std::vector<std::pair<const char*, std::string>> before_;
};

Disassembly disassemble_text(std::string_view text) { return disassemble(std::as_bytes(std::span(text))); }

TEST_F(DisassemblerTest, GivesWhatTheToolWrites) {
  add_tool("nvdisasm", "read line < \"$2\"; echo \"$1 $line\"; /bin/ls -l \"$2\"");
  const Disassembly disassembly = disassemble_text("cubin bytes\n");
  EXPECT_THAT(disassembly.text, HasSubstr("--print-code cubin bytes"));
  EXPECT_THAT(disassembly.text, HasSubstr("-rw-------"));
  EXPECT_EQ(disassembly.tool, root_ / "bin/nvdisasm");
  EXPECT_EQ(disassembly.missing, "");
  EXPECT_TRUE(fs::is_empty(root_ / "tmp")) << "the temporary file is gone";
}

TEST_F(DisassemblerTest, FallsBackToTheSecondTool) {
  add_tool("cuobjdump", "echo sass");
  if (!has_others_) {
    EXPECT_EQ(disassemble_text("x").text, "sass\n");
  }
  add_tool("nvdisasm", "echo broken; exit 3");
  const Disassembly disassembly = disassemble_text("not a cubin");
  EXPECT_EQ(disassembly.text, "sass\n");
  EXPECT_EQ(disassembly.tool, root_ / "bin/cuobjdump");
  EXPECT_EQ(disassembly.missing, "");
}

TEST_F(DisassemblerTest, FindsToolsInWheels) {
  if (has_others_) GTEST_SKIP() << "tools of this machine may come first";
  const fs::path packages = "venv/lib/python3.11/site-packages";
  for (const char* wheel : {"triton/backends/nvidia/bin", "nvidia/cuda_nvcc/bin", "nvidia/cu13/bin"}) {
    add_tool("nvdisasm", "echo sass", packages / wheel);
    const Disassembly disassembly = disassemble_text("x");
    EXPECT_EQ(disassembly.text, "sass\n");
    EXPECT_EQ(disassembly.tool, root_ / packages / wheel / "nvdisasm") << "each comes before those above";
  }
  add_tool("nvdisasm", "echo theirs");
  EXPECT_EQ(disassemble_text("x").text, "theirs\n") << "PATH comes first";
}

TEST_F(DisassemblerTest, TellsWhyNoToolWorked) {
  add_tool("nvdisasm", "echo bad file >&2; exit 1");
  add_tool("cuobjdump", "kill -9 $$");
  const Disassembly disassembly = disassemble_text("not a cubin");
  EXPECT_EQ(disassembly.text, "");
  EXPECT_EQ(disassembly.tool, "");
  EXPECT_THAT(disassembly.missing, HasSubstr("bad file"));
  EXPECT_THAT(disassembly.missing, HasSubstr("cuobjdump failed"));
  EXPECT_TRUE(fs::is_empty(root_ / "tmp"));
}

TEST_F(DisassemblerTest, TellsWhatIsMissing) {
  if (has_others_) GTEST_SKIP() << "tools are installed where they cannot be hidden";
  const Disassembly disassembly = disassemble_text("x");
  EXPECT_EQ(disassembly.text, "");
  EXPECT_THAT(disassembly.missing, HasSubstr("neither nvdisasm nor cuobjdump"));
  EXPECT_THAT(disassembly.missing, HasSubstr((root_ / "bin").string()));
  EXPECT_THAT(disassembly.missing, HasSubstr("pip install nvidia-cuda-nvdisasm"));
}

}  // namespace
}  // namespace jit
