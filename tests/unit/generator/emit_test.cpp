#include "generator/program/emit.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/spec_table.h>

#include "cache/digest.h"
#include "generator/kernels/families.h"
#include "generator/program/templates.h"
#include "templates/base/params.cuh"
#include "tests/support/child_process.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::HasSubstr;

struct Golden {
  const char* file;
  AttentionSpec spec;
  KernelConfig config = {};
};

std::vector<Golden> goldens() {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  return {
      {"plain.cu", {}},
      {"causal_gqa.cu", {.dtype = DType::fp16, .head_dim = 64, .gqa_ratio = 4, .mask = mask::causal()}},
      {"odd_head_dims.cu",
       {.head_dim = 40, .head_dim_v = 24, .alignment = 4, .seqlen_q = 100, .seqlen_kv = 200},
       ForwardMmaSync{.tile_q = 32,
                      .tile_kv = 48,
                      .warps = 2,
                      .stages_k = 1,
                      .stages_v = 3,
                      .q_in_registers = true,
                      .rescale = Rescale::always,
                      .blocks_per_sm = 3}},
      {"forward_wgmma.cu",
       {.mask = mask::causal()},
       parse_config("family=forward_wgmma tile_q=128 tile_kv=128 stages_q=2 stages_v=2 order=ping_pong")},
      {"forward_wgmma_separate_o.cu",
       {.dtype = DType::fp16, .head_dim = 72, .head_dim_v = 24, .gqa_ratio = 2, .score = score::softcap(30)},
       parse_config("family=forward_wgmma tile_q=192 tile_kv=48 output=separate rescale=lazy")},
      {"composed.cu",
       {.mask = parse_mask("(causal || prefix_lengths) && document && !sliding_window(8, -1, top_left)"),
        .score = parse_score("softcap(30), alibi, bias(fp16)")}},
      {"user_text.cu",
       {.mask = parse_mask("text(blocks) && text(by_head.and_batch) && text(allowed-keys)", masks),
        .score = parse_score("text(distance), text(offsets)", scores)}},
  };
}

void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = std::string(JIT_ATTENTION_SOURCE_DIR) + "/tests/golden/" + file;
  if (std::getenv("JIT_ATTENTION_TEST_REGENERATE") != nullptr) testing::write_text(path, text);
  EXPECT_EQ(text, testing::read_text(path)) << file;
}

// Run with JIT_ATTENTION_TEST_REGENERATE=1 to write the golden files anew, then read the difference.
TEST(Programs, MatchesTheGoldenFiles) {
  for (const Golden& golden : goldens()) {
    const Program program = write_program(golden.spec, golden.config);
    expect_golden(golden.file, program.source);
    for (const SourceFile& header : program.headers)
      expect_golden(golden.file + ("." + header.name), header.text);
  }
}

// The products of tiles, whose operands take pages, are in a header.
TEST(Programs, AProgramIsAPage) {
  for (const Golden& golden : goldens()) {
    if (!std::holds_alternative<ForwardWgmma>(golden.config)) continue;
    const std::string source = write_program(golden.spec, golden.config).source;
    EXPECT_LE(std::count(source.begin(), source.end(), '\n'), 64) << golden.file;
  }
}

TEST(Programs, ProgramsSayWhatALaunchMustKnow) {
  reference::Random random(reference::test_seed());
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  for (int i = 0; i < 300; ++i) {
    const AttentionSpec spec = reference::random_spec(random);
    const KernelConfig config = reference::random_config(spec, limits, random);
    const Program program = write_program(spec, config);
    EXPECT_EQ(program.threads, footprint(spec, config).threads);
    EXPECT_EQ(program.smem_bytes, footprint(spec, config).smem_bytes);
    EXPECT_THAT(program.source, HasSubstr(fmt::format("{}.total == {},",
                                                      std::holds_alternative<ForwardWgmma>(config)
                                                          ? "KernelTraits<Config>::layout"
                                                          : "smem_layout<Config>()",
                                                      program.smem_bytes)));
    EXPECT_THAT(program.source,
                HasSubstr(fmt::format("sizeof(AttentionParams) == {},", sizeof(AttentionParams))));
    EXPECT_THAT(program.source, HasSubstr("\n" + program.name + "("));
    EXPECT_TRUE(std::regex_match(program.name, std::regex("[a-z][A-Za-z0-9_]{3,200}"))) << program.name;
    std::visit(
        [&]<class Config>(const Config& own) {
          for (const ConfigField<Config>& field : Family<Config>::fields()) {
            EXPECT_THAT(program.source,
                        HasSubstr(fmt::format("{} {} = {};", field.cpp_type, field.name, field.emit(own))));
          }
        },
        config);
    const std::string reference = emit_reference(spec).source;
    EXPECT_THAT(reference, HasSubstr("attention_reference<Config>"));
  }
}

TEST(Programs, IncludesTemplatesAndItsHeadersOnly) {
  std::set<std::string> names;
  for (const SourceFile& file : embedded_templates()) names.insert(file.name);
  const std::regex include("#\\s*include\\s*(\\S+)");
  std::vector<Program> programs = {emit_random_fill(DType::bf16), emit_random_fill(DType::fp16)};
  for (const Golden& golden : goldens()) {
    programs.push_back(write_program(golden.spec, golden.config));
    programs.push_back(emit_reference(golden.spec));
  }
  for (const Program& program : programs) {
    std::set<std::string> known = names;
    for (const SourceFile& header : program.headers) EXPECT_TRUE(known.insert(header.name).second);
    const std::string& source = program.source;
    std::set<std::string> included;
    for (std::sregex_iterator it(source.begin(), source.end(), include), end; it != end; ++it) {
      const std::string target = (*it)[1];
      EXPECT_TRUE(known.count(target.substr(1, target.size() - 2))) << target;
      EXPECT_TRUE(included.insert(target).second) << target << " twice";
    }
    const bool has_intervals = source.find("IntervalMask") != std::string::npos;
    const bool has_parts = source.find("kept_bits") != std::string::npos;
    const bool has_mask = source.find("is_whole<") != std::string::npos;
    EXPECT_EQ(included.size(), 1 + program.headers.size() + has_intervals + has_parts + has_mask);
  }
}

TEST(Programs, EveryFieldOfSpecAndConfigChangesTheSource) {
  std::set<std::string> sources;
  EXPECT_TRUE(sources.insert(write_program({}, {}).source).second);
  for (const SpecField& field : spec_fields()) {
    for (const AttentionSpec& spec : field.samples()) {
      EXPECT_EQ(sources.insert(write_program(spec, {}).source).second, field.is_baked) << field.name;
    }
  }
  for_each_family([&]<class Config>(const Config& base) {
    for (const ConfigField<Config>& field : Family<Config>::fields()) {
      Config config = base;
      field.set(config, field.sample);
      EXPECT_TRUE(sources.insert(write_program({}, config).source).second) << field.name;
    }
    if (KernelConfig(base) != KernelConfig{}) {
      EXPECT_TRUE(sources.insert(write_program({}, base).source).second);
    }
  });
}

// Constants reach the kernel to the last bit, and no value breaks the program's text.
TEST(Programs, ConstantsAreExact) {
  const auto source_with = [](FunctorConstant value) {
    AttentionSpec spec;
    spec.mask = mask::text({.name = "t", .body = "return true;", .constants = {{"c", value}}});
    return write_program(spec, {}).source;
  };
  EXPECT_THAT(source_with(true), HasSubstr("bool c = true;"));
  EXPECT_THAT(source_with(std::int64_t{-5}), HasSubstr("int c = -5;"));
  EXPECT_THAT(source_with(std::int64_t{1} << 40),
              HasSubstr("long long c = static_cast<long long>(1099511627776ull);"));
  EXPECT_THAT(source_with(std::numeric_limits<std::int64_t>::min()), HasSubstr("9223372036854775808ull"));
  EXPECT_THAT(source_with(0.1), HasSubstr("float c = 0x1.99999ap-4f;"));
  EXPECT_THAT(source_with(std::numeric_limits<double>::infinity()), HasSubstr("0x7f800000"));
  EXPECT_THAT(source_with(-std::numeric_limits<double>::infinity()), HasSubstr("0xff800000"));
  EXPECT_THAT(source_with(std::numeric_limits<double>::quiet_NaN()), HasSubstr("0x7fffffff"));
}

/// A locale that writes 1.000,5.
struct Decimals : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

// Not a test by itself: the child of the next one. Prints a digest of a thousand programs.
TEST(EmitDeterminism, DISABLED_PrintsADigest) {
  std::setlocale(LC_ALL, "");
  if (std::getenv("JIT_ATTENTION_TEST_DECIMALS") != nullptr)
    std::locale::global(std::locale(std::locale::classic(), new Decimals));
  reference::Random random(reference::test_seed());
  Digester digester;
  for (int i = 0; i < 1000; ++i) {
    const AttentionSpec spec = reference::random_spec(random);
    const KernelConfig config =
        reference::random_config(spec, device_limits(known_archs()[random() % known_archs().size()]), random);
    const Program program = write_program(spec, config);
    digester.add(program.source).add(program.name).add(emit_reference(spec).source);
  }
  std::printf("digest %s\n", digester.finish().hex().c_str());
}

std::string digest_of_child(const std::string& environment, const std::string& folder) {
  const testing::ChildResult child = testing::run_child(
      "EmitDeterminism.DISABLED_PrintsADigest",
      fmt::format("{} JIT_ATTENTION_TEST_SEED={}", environment, reference::test_seed()), folder);
  EXPECT_EQ(child.status, 0) << child.output;
  std::smatch match;
  return std::regex_search(child.output, match, std::regex("digest ([0-9a-f]{32})")) ? match[1].str() : "";
}

TEST(EmitDeterminism, ProgramsAreTheSameInEveryProcess) {
  const testing::FreshFolder home;
  const std::string here = digest_of_child("LANG=C TZ=UTC", "/");
  const std::string there =
      digest_of_child(fmt::format("HOME='{}' LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 TZ=Asia/Tokyo USER=somebody "
                                  "JIT_ATTENTION_TEST_DECIMALS=1",
                                  home.path()),
                      home.path());
  EXPECT_EQ(here.size(), 32u);
  EXPECT_EQ(here, there);
}

}  // namespace
}  // namespace jit
