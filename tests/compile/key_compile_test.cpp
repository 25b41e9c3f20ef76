// Keys: the inputs that change them, and that equal keys stand for equal code.
#include <unistd.h>

#include <cstring>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/spec_table.h>

#include "generator/build/image.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/program/templates.h"
#include "generator/tuning/tuning_record.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/child_process.h"
#include "tests/support/seed.h"

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
  EXPECT_EQ(error.code(), ErrorCode::offline) << error.message();
  std::smatch match;
  const std::string message = error.message();
  return std::regex_search(message, match, std::regex("key ([0-9a-f]{32})")) ? match[1].str() : "";
}

TEST(Key, IsTheOneThatTheErrorNames) {
  EXPECT_EQ(testing::compile_small(Context(private_settings())).key(),
            key_of(testing::small_spec(), testing::small_config()));
}

/// One that the config's family serves.
AttentionSpec spec_for(const KernelConfig& config) {
  if (std::holds_alternative<ForwardMlaWgmma>(config))
    return {.head_dim = 192, .head_dim_v = 128, .values_in_keys = true};
  if (std::holds_alternative<ForwardWideWgmma>(config) ||
      std::holds_alternative<BackwardDqWideWgmma>(config) ||
      std::holds_alternative<BackwardDkvWideWgmma>(config))
    return {.head_dim = 264};
  return {};
}

/// One that it runs on.
Arch arch_for(const KernelConfig& config) {
  if (std::holds_alternative<ForwardMmaTma>(config)) return {12, 0, 'a'};
  if (std::holds_alternative<ForwardTcgen05>(config) || std::holds_alternative<BackwardTcgen05>(config))
    return {10, 0, 'a'};
  return testing::sm_90a;
}

TEST(Key, EveryInputChangesIt) {
  std::set<std::string> keys = {key_of({}, {})};
  EXPECT_EQ(keys.begin()->size(), 32u);
  for (const SpecField& field : spec_fields()) {
    for (const AttentionSpec& spec : field.samples()) {
      const KernelConfig config =
          has_fp8_queries(spec)
              ? KernelConfig(ForwardWgmma{.output = OutputPlace::direct, .converter_warps = 2})
          : spec.running_lse ? KernelConfig(ForwardWgmma{.output = OutputPlace::direct})
          : spec.split_keys != 0 || spec.key_arrivals ? KernelConfig(ForwardWgmma{.tile_kv = 128})
          : is_plain(spec)                            ? KernelConfig()
                                                      : ForwardSplitKv{};
      EXPECT_EQ(keys.insert(key_of(spec, config)).second, field.is_baked)
          << field.name << " " << to_string(spec);
    }
  }
  for_each_family([&]<class Config>(const Config& base) {
    AttentionSpec spec = spec_for(base);
    if (spec == AttentionSpec{})
      spec.head_dim = 48;  // that all samples fit but those of varlen requests and of fp8
    const AttentionSpec varlen{.head_dim = 48, .sequences_q = SequenceKind::varlen};
    const AttentionSpec dropout{.head_dim = 48, .dropout = true};
    const AttentionSpec wide{.head_dim = 192};
    AttentionSpec listed{.head_dim = 576, .head_dim_v = 512, .gqa_ratio = 128};
    listed.values_in_keys = listed.list_slots = true;
    listed.kv_dtype = DType::latent_656;
    listed.sequences_q = SequenceKind::varlen;
    listed.sequences_kv = SequenceKind::paged;
    listed.page_size = 64;
    listed.list_block = 1;
    const AttentionSpec fp8{.dtype = DType::fp8_e4m3, .head_dim = 48};
    const AttentionSpec fp8_cache{.head_dim = 48, .kv_dtype = DType::fp8_e4m3};
    for (const ConfigField<Config>& field : Family<Config>::fields()) {
      Config config = base;
      field.set(config, field.sample);
      const bool is_of_fp8 = field.name == "promote_every";
      const bool is_of_lists = field.name == "pair" && std::is_same_v<Config, ForwardMlaWgmma>;
      const bool is_of_cache = field.name == "stages_stored" || field.name == "converter_warps" ||
                               field.name == "upcast_ahead" || field.name == "warp_rows";
      if constexpr (std::is_same_v<Config, ForwardMlaWgmma>) {
        if (is_of_lists) config.copies = Copies::cp_async;
      }
      if constexpr (std::is_same_v<Config, ForwardWgmma>) {
        if (is_of_fp8) config.output = OutputPlace::direct;
        if (is_of_fp8) config.converter_warps = 2;
        if (field.name == "stages_stored") config.converter_warps = 2;
        if (field.name == "converter_warps") config.stages_stored = 1;
      }
      const AttentionSpec& own = field.name == "requests"             ? varlen
                                 : is_of_lists                        ? listed
                                 : field.name == "pair"               ? wide
                                 : field.name == "dropout_mask_ahead" ? dropout
                                 : is_of_cache                        ? fp8_cache
                                 : is_of_fp8                          ? fp8
                                                                      : spec;
      EXPECT_TRUE(keys.insert(key_of(own, config, arch_for(base))).second) << to_string(KernelConfig(config));
    }
    EXPECT_TRUE(keys.insert(key_of(spec, base, arch_for(base))).second) << Family<Config>::name;
  });
  for (const Arch& arch : known_archs()) {
    if (arch == testing::sm_90a) continue;
    EXPECT_TRUE(keys.insert(key_of({.head_dim = 32}, testing::small_config(), arch)).second)
        << to_string(arch);
  }
}

// A kernel's key depends on the templates that its program includes, and on no others. A run
// looks at two of the families.
TEST(Key, ChangesWithTheTemplatesOfItsFamilyAlone) {
  const FreshFolder folder;
  std::filesystem::copy(std::string(JIT_ATTENTION_SOURCE_DIR) + "/templates", folder.path(),
                        std::filesystem::copy_options::recursive);
  const std::map<std::string, KernelConfig> families = {
      {"forward_mla_wgmma/", ForwardMlaWgmma{}},         {"forward_mma_sync/", ForwardMmaSync{}},
      {"forward_split_cluster/", ForwardSplitCluster{}}, {"forward_split_kv/", ForwardSplitKv{}},
      {"forward_split_wgmma/", ForwardSplitWgmma{}},     {"forward_wgmma/", ForwardWgmma{}}};
  // Files beside those that all families share, which only some families include.
  const std::set<std::string> of_some = {"base/gradient_params.cuh",
                                         "base/philox.cuh",
                                         "base/divisor.cuh",
                                         "base/upper_product.cuh",
                                         "base/varlen_tiles.cuh",
                                         "base/rotary.cuh",
                                         "base/row_lanes.cuh",
                                         "base/row_norm.cuh",
                                         "base/row_pieces.cuh",
                                         "base/bit_words.cuh",
                                         "base/touch_lines.cuh",
                                         "base/warp_sum.cuh",
                                         "problem/block_mask.cuh",
                                         "problem/block_scores.cuh",
                                         "problem/dual.cuh",
                                         "problem/entry_sequences.cuh",
                                         "problem/exact.cuh",
                                         "problem/gradients.cuh",
                                         "problem/interval.cuh",
                                         "problem/interval_mask.cuh",
                                         "problem/key_memory.cuh",
                                         "problem/key_lists.cuh",
                                         "problem/kv_tiles.cuh",
                                         "problem/outputs.cuh",
                                         "problem/latent_rows.cuh",
                                         "problem/own_derivatives.cuh",
                                         "problem/paged_kv.cuh",
                                         "problem/positioned_memory.cuh",
                                         "problem/positions.cuh",
                                         "problem/query_tiles.cuh",
                                         "problem/row_mask.cuh",
                                         "problem/row_range_mask.cuh",
                                         "problem/score_mask.cuh",
                                         "problem/tensor_reads.cuh",
                                         "problem/spread_words.cuh",
                                         "problem/text_parts.cuh",
                                         "problem/variable_sequences.cuh",
                                         "problem/whole_functor.cuh",
                                         "problem/zero_padding.cuh"};
  std::uint64_t index = 0;
  for (const auto& [family, config] : families) {
    if (!reference::is_in_this_run(index++, 6)) continue;
    const AttentionSpec spec = spec_for(config);
    const std::string original = key_of(spec, config, testing::sm_90a, folder.path());
    EXPECT_EQ(original, key_of(spec, config)) << "the same text from a folder is the same kernel";
    std::set<std::string> keys = {original}, kept;
    for (const SourceFile& file : embedded_templates()) {
      if (file.name.ends_with(".h")) continue;  // the library's own
      testing::write_text(folder / file.name, file.text + "\n");
      if (!keys.insert(key_of(spec, config, testing::sm_90a, folder.path())).second) kept.insert(file.name);
      testing::write_text(folder / file.name, file.text);
    }
    EXPECT_EQ(key_of(spec, config, testing::sm_90a, folder.path()), original);
    for (const SourceFile& file : embedded_templates()) {
      const std::string place = file.name.substr(0, file.name.find('/') + 1);
      if (place == "checks/" || (families.contains(place) && place != family)) {
        EXPECT_TRUE(kept.contains(file.name)) << file.name << " is none of " << family;
      } else if (place == family || place == "base/" || place == "problem/") {
        EXPECT_TRUE(of_some.contains(file.name) || !kept.contains(file.name))
            << family << " includes " << file.name;
      }
    }
  }
}

// Half a copy of the templates serves the kernels that it suffices for.
TEST(Key, AFolderMayLackWhatNoProgramIncludes) {
  const FreshFolder folder;
  std::filesystem::copy(std::string(JIT_ATTENTION_SOURCE_DIR) + "/templates", folder.path(),
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder / "forward_wgmma");
  EXPECT_EQ(key_of({}, {}, testing::sm_90a, folder.path()), key_of({}, {}));
  std::filesystem::remove(folder / "ptx/mma.cuh");
  Settings settings = private_settings();
  settings.templates = folder.path();
  const Context context(settings);
  const Error error = testing::error_of([&] { testing::compile_small(context); });
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.message(), ::testing::HasSubstr(folder.path() + " lacks ptx/mma.cuh, which "));
}

// Emulated devices run another image of the same program; no folder of the machine leaks into it.
TEST(Key, PtxHasAKeyOfItsOwnAndIsTheSameInEveryFolder) {
  const FreshFolder folder;
  const Program program = write_program(testing::small_spec(), testing::small_config());
  const auto build = [&](CodeForm form) {
    const Context context(private_settings());
    return build_image(*Access::state(context), program, {testing::sm_90a, form});
  };
  const auto here = build(CodeForm::ptx);
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto there = build(CodeForm::ptx);
  std::filesystem::current_path(before);
  EXPECT_TRUE(here->code == there->code);
  EXPECT_EQ(here->key, there->key);
  EXPECT_NE(here->key, build(CodeForm::cubin)->key);
  const std::string text(reinterpret_cast<const char*>(here->code.data()), here->code.size());
  EXPECT_THAT(text, ::testing::HasSubstr("\t.loc\t"));
  EXPECT_THAT(text, ::testing::HasSubstr("\"forward_mma_sync/kernel.cuh\""));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr(before)));
}

// A record of kernels that were measured against one another depends on the templates of all of them.
TEST(TuningEnvironment, ChangesWithTheTemplatesOfTheKernelsThatCompete) {
  const FreshFolder folder;
  std::filesystem::copy(std::string(JIT_ATTENTION_SOURCE_DIR) + "/templates", folder.path(),
                        std::filesystem::copy_options::recursive);
  const DeviceInfo a100{
      .name = "A100", .arch = {8, 0, 0}, .smem_per_block_optin = 166912, .smem_per_sm = 167936},
      h200{.name = "H200", .arch = {9, 0, 0}, .smem_per_block_optin = 232448, .smem_per_sm = 233472};
  const auto environment_of = [](const Context& context, const TuningProblem& problem) {
    return tuning_environment(*Access::state(context), problem, false).digest().hex();
  };
  const auto environments = [&] {
    Settings settings = private_settings();
    settings.templates = folder.path();
    const Context context(settings);
    std::vector<std::string> keys;
    for (const auto& [device, tma] : {std::pair(a100, true), {h200, false}, {h200, true}})
      keys.push_back(environment_of(context, ForwardProblem({}, device, {.tma = tma})));
    for (const DeviceInfo& device : {a100, h200})
      keys.push_back(
          environment_of(context, BackwardProblem({}, device, {.pass = Pass::backward}, {}, false)));
    return keys;
  };
  const std::vector<std::string> before = environments();
  const auto changed = [&](const std::string& file) {
    const std::string text = testing::read_text(folder / file);
    testing::write_text(folder / file, text + "// a comment\n");
    const std::vector<std::string> after = environments();
    testing::write_text(folder / file, text);
    std::vector<bool> differ;
    for (std::size_t i = 0; i < before.size(); ++i) differ.push_back(before[i] != after[i]);
    return differ;
  };
  // Forward on an A100, on an H200 without TMA and with it, then backward on both.
  using Differ = std::vector<bool>;
  EXPECT_EQ(changed("forward_wgmma/consumer.cuh"), (Differ{false, false, true, false, false}));
  EXPECT_EQ(changed("forward_mma_sync/kernel.cuh"), (Differ{true, true, true, false, false}));
  EXPECT_EQ(changed("steps/softmax.cuh"), (Differ{true, true, true, false, false}));
  EXPECT_EQ(changed("backward_wgmma/products.cuh"), (Differ{false, false, false, false, true}));
  EXPECT_EQ(changed("backward_dkv_mma_sync/kernel.cuh"), (Differ{false, false, false, true, true}));
  EXPECT_EQ(changed("checks/random_fill.cuh"), (Differ{false, false, false, false, false}));
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
