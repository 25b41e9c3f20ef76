// What a key depends on, and that equal keys stand for equal code.
#include <unistd.h>

#include <cstring>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <jit/spec_table.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/program/templates.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/child_process.h"

namespace jit {
namespace {

using testing::FreshFolder;
using testing::private_settings;

/// The key of a kernel without compiling it: an offline context names the key that it misses.
std::string key_of(const AttentionSpec& spec, const KernelConfig& config, Arch arch = testing::sm_90a,
                   const std::string& templates = "") {
  Settings settings = private_settings();
  settings.offline = true;
  settings.templates = templates;
  const Context context(settings);
  const Error error = testing::error_of([&] { compile(spec, arch, config, context); });
  EXPECT_EQ(error.code(), ErrorCode::offline);
  std::smatch match;
  const std::string message = error.message();
  return std::regex_search(message, match, std::regex("key ([0-9a-f]{32})")) ? match[1].str() : "";
}

TEST(Key, IsTheOneThatTheErrorNames) {
  EXPECT_EQ(testing::compile_small(Context(private_settings())).key(),
            key_of(testing::small_spec(), testing::small_config()));
}

TEST(Key, EveryInputChangesIt) {
  std::set<std::string> keys = {key_of({}, {})};
  EXPECT_EQ(keys.begin()->size(), 32u);
  for (const SpecField& field : spec_fields()) {
    for (const AttentionSpec& spec : field.samples()) {
      EXPECT_EQ(keys.insert(key_of(spec, {})).second, field.is_baked) << field.name << " " << to_string(spec);
    }
  }
  const std::map<std::string_view, const char*> changes = {{"tile_q", "64"},
                                                           {"tile_kv", "32"},
                                                           {"warps", "1"},
                                                           {"stages_k", "1"},
                                                           {"stages_v", "2"},
                                                           {"swizzle", "none"},
                                                           {"ldmatrix_matrices", "2"},
                                                           {"q_in_registers", "true"},
                                                           {"rescale", "always"},
                                                           {"blocks_per_sm", "2"},
                                                           {"stages_q", "2"},
                                                           {"p_in_registers", "false"},
                                                           {"separate_o", "true"},
                                                           {"overlap", "false"},
                                                           {"order", "softmax_lock"},
                                                           {"persistent", "false"},
                                                           {"polynomial_exp2", "2"},
                                                           {"direct_o", "true"},
                                                           {"dependent_launch", "true"}};
  for (const char* base :
       {"mainloop=mma_sync tile_q=32 warps=2 tile_kv=48", "mainloop=wgmma tile_q=128 tile_kv=48"}) {
    for (const ConfigField& field : config_fields()) {
      if (field.name == "mainloop" || !field.applies_to(parse_config(base))) continue;
      const KernelConfig config =
          parse_config(fmt::format("{} {}={}", base, field.name, changes.at(field.name)));
      EXPECT_TRUE(keys.insert(key_of({.head_dim = 64}, config)).second) << base << " " << field.name;
    }
    EXPECT_TRUE(keys.insert(key_of({.head_dim = 64}, parse_config(base))).second) << base;
  }
  for (const Arch& arch : known_archs()) {
    if (arch == testing::sm_90a) continue;
    EXPECT_TRUE(keys.insert(key_of({.head_dim = 32}, testing::small_config(), arch)).second)
        << to_string(arch);
  }
}

TEST(Key, EveryTemplateChangesIt) {
  const FreshFolder folder;
  std::filesystem::copy(std::string(JIT_ATTENTION_SOURCE_DIR) + "/templates", folder.path(),
                        std::filesystem::copy_options::recursive);
  const std::string original = key_of({}, {}, testing::sm_90a, folder.path());
  EXPECT_EQ(original, key_of({}, {})) << "the same text from a folder is the same kernel";
  std::set<std::string> keys = {original};
  for (const SourceFile& file : embedded_templates()) {
    if (file.name.ends_with(".h")) continue;  // the library's own
    testing::write_text(folder / file.name, file.text + "\n");
    EXPECT_TRUE(keys.insert(key_of({}, {}, testing::sm_90a, folder.path())).second) << file.name;
    testing::write_text(folder / file.name, file.text);
  }
  EXPECT_EQ(key_of({}, {}, testing::sm_90a, folder.path()), original);
}

// The child's part: the key of one kernel, and the sections of its code.
TEST(Key, DISABLED_PrintsKeyAndCode) {
  const CompiledKernel kernel = testing::compile_small(Context(private_settings()));
  std::printf("key %s\n", kernel.key().c_str());
  const std::string path = std::getenv("JIT_ATTENTION_TEST_OUTPUT");
  testing::write_text(path, {reinterpret_cast<const char*>(kernel.cubin().data()), kernel.cubin().size()});
}

/// Contents of every section of an ELF file by name and index. The assembler's note of the tool itself, which
/// may carry the time, is left out.
std::map<std::string, std::string> elf_sections(const std::string& elf) {
  const auto read = [&]<class T>(std::size_t offset, T) {
    T value{};
    if (offset + sizeof(T) <= elf.size()) std::memcpy(&value, elf.data() + offset, sizeof(T));
    return static_cast<std::size_t>(value);
  };
  constexpr std::size_t header_size = 64;
  const std::size_t headers = read(40, std::uint64_t{}), count = read(60, std::uint16_t{}),
                    names = read(62, std::uint16_t{});
  const auto field = [&](std::size_t section, std::size_t offset) {
    return read(headers + section * header_size + offset, std::uint64_t{});
  };
  std::map<std::string, std::string> sections;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t name = read(headers + i * header_size, std::uint32_t{});
    const bool has_no_bytes = read(headers + i * header_size + 4, std::uint32_t{}) == 8;  // SHT_NOBITS
    const std::string label = elf.c_str() + field(names, 24) + name;
    if (label == ".note.nv.tkinfo") continue;
    sections[fmt::format("{} {}", i, label)] = has_no_bytes ? "" : elf.substr(field(i, 24), field(i, 32));
  }
  return sections;
}

std::string text_of(const CompiledKernel& kernel) {
  return {reinterpret_cast<const char*>(kernel.cubin().data()), kernel.cubin().size()};
}

// Another process, home, folder, time zone and user; other threads at the same time: the same code.
TEST(Key, EqualKeysStandForEqualCode) {
  const FreshFolder folder;
  std::vector<std::string> cubins(4), keys(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const CompiledKernel kernel = testing::compile_small(Context(private_settings()));
        cubins[i] = text_of(kernel);
        keys[i] = kernel.key();
      });
    }
  }
  for (std::size_t i = 2; i < 4; ++i) {
    const std::string output = folder / std::to_string(i);
    const testing::ChildResult child = testing::run_child(
        "Key.DISABLED_PrintsKeyAndCode",
        fmt::format(
            "JIT_ATTENTION_TEST_OUTPUT='{}' {}", output,
            i == 2 ? ""
                   : fmt::format("HOME='{}' LANG=C TZ=Asia/Tokyo USER=somebody TMPDIR=/tmp", folder.path())),
        i == 2 ? "/" : folder.path());
    ASSERT_EQ(child.status, 0) << child.output;
    std::smatch match;
    ASSERT_TRUE(std::regex_search(child.output, match, std::regex("key ([0-9a-f]{32})")));
    keys[i] = match[1];
    cubins[i] = testing::read_text(output);
  }
  const std::map<std::string, std::string> sections = elf_sections(cubins[0]);
  EXPECT_GT(sections.size(), 5u);
  std::size_t code_bytes = 0;
  for (const auto& [name, bytes] : sections)
    code_bytes += name.find(".text.") == std::string::npos ? 0 : bytes.size();
  EXPECT_GT(code_bytes, 1000u);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(keys[i], keys[0]);
    EXPECT_TRUE(elf_sections(cubins[i]) == sections) << "compile " << i;
  }
}

}  // namespace
}  // namespace jit
