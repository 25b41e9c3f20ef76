#include <jit/settings.h>

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/error.h>

#include "runtime/environment.h"

namespace jit {
namespace {

class SettingsTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static void clear() {
    for (const SettingDoc& doc : setting_docs()) unsetenv(doc.name.c_str());
  }
};

TEST_F(SettingsTest, DefaultsWithoutVariables) {
  const Settings settings = settings_from_environment();
  EXPECT_EQ(settings.cache_dir, "");
  EXPECT_EQ(settings.cache_max_bytes, 1073741824u);
  EXPECT_TRUE(settings.readonly_caches.empty());
  EXPECT_TRUE(settings.packs.empty());
  EXPECT_TRUE(settings.disk_cache);
  EXPECT_FALSE(settings.offline);
  EXPECT_EQ(settings.tuning, TuningMode::first_run);
  EXPECT_EQ(settings.tuning_seconds, 10);
  EXPECT_EQ(settings.templates, "");
  EXPECT_EQ(settings.nvrtc, "");
  EXPECT_EQ(device_settings_from_environment().device, "cuda");
  EXPECT_EQ(device_settings_from_environment().emulator_seed, 0u);
  EXPECT_EQ(device_settings_from_environment().emulator_step_limit, 1099511627776u);
}

TEST_F(SettingsTest, EmptyVariablesMeanDefaults) {
  for (const SettingDoc& doc : setting_docs()) set(doc.name, "");
  EXPECT_EQ(settings_from_environment().cache_max_bytes, 1073741824u);
  EXPECT_TRUE(settings_from_environment().disk_cache);
}

TEST_F(SettingsTest, ReadsEveryVariable) {
  set("JIT_ATTENTION_CACHE_DIR", "/var/cache/kernels");
  set("JIT_ATTENTION_CACHE_MAX_BYTES", "4096");
  set("JIT_ATTENTION_READONLY_CACHES", "/opt/a::/opt/b:");
  set("JIT_ATTENTION_PACK", "/opt/llama.pack:/opt/gemma.pack");
  set("JIT_ATTENTION_NO_DISK_CACHE", "1");
  set("JIT_ATTENTION_OFFLINE", "1");
  set("JIT_ATTENTION_TUNING", "exhaustive");
  set("JIT_ATTENTION_TUNING_SECONDS", "2.5");
  set("JIT_ATTENTION_TEMPLATES", "/src/templates");
  set("JIT_ATTENTION_NVRTC", "/opt/cuda/lib64");
  set("JIT_ATTENTION_DEVICE", "emulated:sm_90a,sm_80");
  set("JIT_ATTENTION_EMULATOR_SEED", "18446744073709551615");
  set("JIT_ATTENTION_EMULATOR_STEP_LIMIT", "5000");
  const Settings settings = settings_from_environment();
  EXPECT_EQ(settings.cache_dir, "/var/cache/kernels");
  EXPECT_EQ(settings.cache_max_bytes, 4096u);
  EXPECT_THAT(settings.readonly_caches, testing::ElementsAre("/opt/a", "/opt/b"));
  EXPECT_THAT(settings.packs, testing::ElementsAre("/opt/llama.pack", "/opt/gemma.pack"));
  EXPECT_FALSE(settings.disk_cache);
  EXPECT_TRUE(settings.offline);
  EXPECT_EQ(settings.tuning, TuningMode::exhaustive);
  EXPECT_EQ(settings.tuning_seconds, 2.5);
  EXPECT_EQ(settings.templates, "/src/templates");
  EXPECT_EQ(settings.nvrtc, "/opt/cuda/lib64");
  EXPECT_EQ(device_settings_from_environment().device, "emulated:sm_90a,sm_80");
  EXPECT_EQ(device_settings_from_environment().emulator_seed, 18446744073709551615u);
  EXPECT_EQ(device_settings_from_environment().emulator_step_limit, 5000u);
}

TEST_F(SettingsTest, EveryTuningModeHasItsName) {
  for (TuningMode mode :
       {TuningMode::off, TuningMode::recorded, TuningMode::first_run, TuningMode::exhaustive}) {
    set("JIT_ATTENTION_TUNING", std::string(to_string(mode)));
    EXPECT_EQ(settings_from_environment().tuning, mode);
  }
}

TEST_F(SettingsTest, MalformedValuesAreNamed) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> malformed = {
      {"JIT_ATTENTION_CACHE_DIR", {"cache", "./cache", "~/cache"}},
      {"JIT_ATTENTION_CACHE_MAX_BYTES", {"-1", "1G", "1.5", "x", " 1", "99999999999999999999999"}},
      {"JIT_ATTENTION_READONLY_CACHES", {"a", "/a:b", "b:/a"}},
      {"JIT_ATTENTION_PACK", {"a.pack", "/a.pack:b.pack"}},
      {"JIT_ATTENTION_NO_DISK_CACHE", {"yes", "2", "true", "01"}},
      {"JIT_ATTENTION_OFFLINE", {"no", "on", "-1"}},
      {"JIT_ATTENTION_TUNING", {"on", "Off", "first-run", "first_run "}},
      {"JIT_ATTENTION_TUNING_SECONDS", {"0", "-3", "ten", "inf", "nan", "1s", "1e999"}},
      {"JIT_ATTENTION_TEMPLATES", {"templates"}},
      {"JIT_ATTENTION_NVRTC", {"libnvrtc.so.13"}},
      {"JIT_ATTENTION_DEVICE", {"gpu", "cuda:0", "emulated", "emulated:sm_1", "emulated:sm_80,"}},
      {"JIT_ATTENTION_EMULATOR_SEED", {"-1", "0x10", "seed", "18446744073709551616"}},
      {"JIT_ATTENTION_EMULATOR_STEP_LIMIT", {"0", "-1", "1e9", "none"}},
  };
  EXPECT_EQ(malformed.size(), setting_docs().size()) << "every variable has values that it refuses";
  for (const auto& [name, values] : malformed) {
    for (const std::string& value : values) {
      set(name, value);
      try {
        settings_from_environment();
        ADD_FAILURE() << name << "=" << value;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_EQ(error.field(), name);
        EXPECT_THAT(error.message(), testing::HasSubstr(name));
        EXPECT_THAT(error.message(), testing::HasSubstr('"' + value + '"'));
        EXPECT_THAT(error.message(), testing::HasSubstr("accepted: "));
      }
    }
    unsetenv(name.c_str());
  }
}

TEST_F(SettingsTest, TheTableDocumentsEachVariable) {
  for (const SettingDoc& doc : setting_docs()) {
    EXPECT_TRUE(doc.name.starts_with("JIT_ATTENTION_"));
    EXPECT_TRUE(doc.doc.ends_with(".")) << doc.name;
  }
}

TEST(SplitPaths, SkipsEmptyParts) {
  EXPECT_THAT(split_paths(""), testing::IsEmpty());
  EXPECT_THAT(split_paths(":"), testing::IsEmpty());
  EXPECT_THAT(split_paths("/a"), testing::ElementsAre("/a"));
  EXPECT_THAT(split_paths(":/a::b"), testing::ElementsAre("/a", "b"));
}

}  // namespace
}  // namespace jit
