// Kernels and the caches: contexts, processes, damage, offline.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <span>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/entry.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/child_process.h"

namespace jit {
namespace {

using testing::compile_small;
using testing::Events;
using testing::FreshFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::private_settings;
using ::testing::SizeIs;

std::string entry_path(const std::string& folder, const CompiledKernel& kernel) {
  return fmt::format("{}/v1/{}/{}.bin", folder, kernel.key().substr(0, 2), kernel.key());
}

TEST(KernelCache, OneContextCompilesOnce) {
  Events events;
  const Context context(private_settings(), events.observer());
  const CompiledKernel first = compile_small(context), second = compile_small(context);
  EXPECT_THAT(events.messages(Event::Kind::compile), SizeIs(1));
  EXPECT_EQ(first.cubin().data(), second.cubin().data());
  EXPECT_GT(first.compile_ms(), 0);
}

TEST(KernelCache, ThreadsOfOneContextCompileOnce) {
  Events events;
  const Context context(private_settings(), events.observer());
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { compile_small(context); });
  threads.clear();
  EXPECT_THAT(events.messages(Event::Kind::compile), SizeIs(1));
}

TEST(KernelCache, AnotherContextLoadsWhatTheFirstStored) {
  const FreshFolder folder;
  const CompiledKernel first = compile_small(Context(private_settings(folder.path())));
  EXPECT_FALSE(first.cached());
  Events events;
  const CompiledKernel second = compile_small(Context(private_settings(folder.path()), events.observer()));
  EXPECT_TRUE(second.cached());
  EXPECT_THAT(events.messages(Event::Kind::compile), IsEmpty());
  EXPECT_EQ(second.key(), first.key());
  EXPECT_EQ(second.name(), first.name());
  EXPECT_EQ(second.resources(), first.resources());
  EXPECT_EQ(second.compile_ms(), first.compile_ms());
  EXPECT_TRUE(std::ranges::equal(second.cubin(), first.cubin()));
}

TEST(KernelCache, ADamagedEntryIsCompiledAnewWithOneWarning) {
  const FreshFolder folder;
  const CompiledKernel first = compile_small(Context(private_settings(folder.path())));
  const std::string path = entry_path(folder.path(), first);
  const std::string good = testing::read_text(path);
  ASSERT_GT(good.size(), first.cubin().size());
  for (const std::size_t place : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 0x20);
    testing::write_text(path, bad);
    Events events;
    const CompiledKernel again = compile_small(Context(private_settings(folder.path()), events.observer()));
    EXPECT_FALSE(again.cached()) << place;
    EXPECT_THAT(events.messages(Event::Kind::warning), SizeIs(1)) << place;
    EXPECT_THAT(events.messages(Event::Kind::compile), SizeIs(1)) << place;
    EXPECT_TRUE(compile_small(Context(private_settings(folder.path()))).cached())
        << "the entry was not replaced";
  }
}

// Another version of the library may have told other things of its kernels.
TEST(KernelCache, AnEntryThatTellsTooLittleIsAMiss) {
  const FreshFolder folder;
  const CompiledKernel first = compile_small(Context(private_settings(folder.path())));
  const std::string path = entry_path(folder.path(), first);
  const std::string text = testing::read_text(path);
  const std::optional<Entry> entry = decode(std::as_bytes(std::span(text)));
  ASSERT_TRUE(entry);
  for (const char* metadata : {"", "{}", "[]", "{\"kernel\": \"other\"}", "{\"kernel\": 3}"}) {
    const std::vector<std::byte> other = encode(entry->key_text, metadata, entry->code);
    testing::write_text(path, {reinterpret_cast<const char*>(other.data()), other.size()});
    Events events;
    const CompiledKernel again = compile_small(Context(private_settings(folder.path()), events.observer()));
    EXPECT_FALSE(again.cached()) << metadata;
    EXPECT_EQ(again.resources(), first.resources());
    EXPECT_THAT(events.messages(Event::Kind::warning), IsEmpty());
  }
  EXPECT_TRUE(compile_small(Context(private_settings(folder.path()))).cached());
}

TEST(KernelCache, OfflineNamesWhatIsMissing) {
  const FreshFolder folder;
  Settings settings = private_settings(folder.path());
  settings.offline = true;
  const Context offline(settings);
  const Error error = testing::error_of([&] { compile_small(offline); });
  EXPECT_EQ(error.code(), ErrorCode::offline);
  const CompiledKernel kernel = compile_small(Context(private_settings(folder.path())));
  EXPECT_THAT(error.message(), HasSubstr(kernel.key()));
  EXPECT_THAT(error.message(), HasSubstr(kernel.name()));
  EXPECT_THAT(error.message(), HasSubstr("JIT_ATTENTION_OFFLINE"));
  EXPECT_TRUE(compile_small(offline).cached()) << "a miss is not remembered";
}

TEST(KernelCache, AReadOnlyLayerServes) {
  const FreshFolder layer, folder;
  compile_small(Context(private_settings(layer.path())));
  Settings settings = private_settings(folder.path());
  settings.readonly_caches = {layer.path()};
  settings.offline = true;
  EXPECT_TRUE(compile_small(Context(settings)).cached());
}

TEST(KernelCache, TheTemplatesFolderIsWhatCompiles) {
  const FreshFolder templates, cache;
  std::filesystem::copy(std::string(JIT_ATTENTION_SOURCE_DIR) + "/templates", templates.path(),
                        std::filesystem::copy_options::recursive);
  const CompiledKernel embedded = compile_small(Context(private_settings(cache.path())));
  Settings settings = private_settings(cache.path());
  settings.templates = templates.path();
  EXPECT_TRUE(compile_small(Context(settings)).cached()) << "equal text, equal kernel";
  testing::write_text(templates / "steps/softmax.cuh", "#error \"the folder's softmax\"\n");
  const Context changed(settings);
  EXPECT_THAT(testing::error_of([&] { compile_small(changed); }).log(), HasSubstr("the folder's softmax"));
}

// The child's part: compiles with the default context, which the environment describes.
TEST(KernelCache, DISABLED_CompilesAndTells) {
  const CompiledKernel kernel = compile_small(default_context());
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  std::printf("%s, %s\n", kernel.cached() ? "cached" : "compiled",
              text.find("libnvrtc") == std::string::npos ? "without nvrtc" : "with nvrtc");
}

testing::ChildResult child_with_cache(const std::string& folder) {
  return testing::run_child("KernelCache.DISABLED_CompilesAndTells",
                            fmt::format("JIT_ATTENTION_CACHE_DIR='{}'", folder));
}

TEST(KernelCache, AWarmProcessNeverOpensNvrtc) {
  const FreshFolder folder;
  EXPECT_THAT(child_with_cache(folder.path()).output, HasSubstr("compiled, with nvrtc"));
  EXPECT_THAT(child_with_cache(folder.path()).output, HasSubstr("cached, without nvrtc"));
}

// Keys name the compiler that is used: what the second process finds is of the one that opens, too.
TEST(KernelCache, AnNvrtcThatCannotBeOpenedIsPassedOver) {
  const FreshFolder folder;
  std::filesystem::create_directories(folder / "cuda/lib64");
  for (const char* name : {"libnvrtc.so.13", "libnvrtc-builtins.so.13.0"})
    testing::write_text(folder / (std::string("cuda/lib64/") + name), "no library");
  for (const char* expected : {"compiled, with nvrtc", "cached, with nvrtc"}) {
    const testing::ChildResult child = testing::run_child(
        "KernelCache.DISABLED_CompilesAndTells",
        fmt::format("CUDA_HOME='{}' JIT_ATTENTION_CACHE_DIR='{}'", folder / "cuda", folder / "cache"));
    EXPECT_THAT(child.output, HasSubstr(expected));
  }
}

TEST(KernelCache, EightProcessesCompileOnce) {
  const FreshFolder folder;
  std::vector<std::string> outputs(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& output : outputs)
      threads.emplace_back([&] { output = child_with_cache(folder.path()).output; });
  }
  int compiled = 0, cached = 0;
  for (const std::string& output : outputs) {
    compiled += output.find("compiled, ") != std::string::npos;
    cached += output.find("cached, without nvrtc") != std::string::npos;
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(cached, 7);
}

TEST(CompiledKernel, CanBeRead) {
  const FreshFolder folder;
  const CompiledKernel kernel = compile_small(Context(private_settings()));
  EXPECT_EQ(kernel.why(), "given");
  EXPECT_EQ(kernel.arch(), testing::sm_90a);
  EXPECT_EQ(kernel.threads(), 32);
  EXPECT_THAT(kernel.ptx(), HasSubstr(".entry " + kernel.name()));
  const CompiledKernel::Sass sass = kernel.sass();
  EXPECT_NE(sass.text.empty(), sass.missing.empty());
  for (const std::string& file : kernel.dump(folder / "out"))
    EXPECT_GT(std::filesystem::file_size(file), 0u) << file;
  EXPECT_EQ(testing::read_text(folder / "out/kernel.cu"), kernel.source());
  EXPECT_TRUE(std::filesystem::exists(folder / "out/templates/ptx/mma.cuh"));
  testing::write_text(folder / "file", "");
  EXPECT_EQ(testing::error_of([&] { kernel.dump(folder / "file/below"); }).code(), ErrorCode::io_error);
  EXPECT_EQ(testing::error_of([&] { kernel.dump(""); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace jit
