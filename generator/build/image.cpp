#include "generator/build/image.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/version.h>

#include "generator/build/json.h"
#include "generator/build/kernel_store.h"
#include "generator/program/closure.h"
#include "generator/program/functor_source.h"
#include "runtime/compile_log.h"
#include "runtime/compiler.h"

namespace jit {
namespace {

// Pseudo-folder of the compiler's input, so that no folder of the machine affects the result.
constexpr std::string_view program_folder = "/jit-attention/";

constexpr const char* no_fusion = "--fmad=false";

CompileRequest request_for(const KernelStore& store, const Program& program, const Target& target) {
  CompileRequest request{.name = fmt::format("{}kernel.cu", program_folder),
                         .source = program.source,
                         .headers = closure(program, store.templates),
                         .arch = target.arch,
                         .options = {},
                         .kernel = program.name};
  request.headers.insert(request.headers.end(), program.headers.begin(), program.headers.end());
  if (target.form == CodeForm::ptx) request.options.push_back("-lineinfo");
  if (!program.may_fuse) request.options.push_back(no_fusion);
  return request;
}

// The key: everything that decides the compiler's output, and nothing else.
Key key_for(const KernelStore& store, const Program& program, const Target& target,
            const std::string& compiler) {
  std::string options;
  for (const std::string& option : base_options(target.arch)) options += option + "\n";
  if (!program.may_fuse) options += std::string(no_fusion) + "\n";
  std::vector<KeyField> fields = {{"library", JIT_ATTENTION_VERSION},
                                  {"arch", to_string(target.arch)},
                                  {"form", target.form == CodeForm::ptx ? "ptx" : "cubin"},
                                  {"compiler", compiler},
                                  {"options", options},
                                  {"templates", store.closures.of(program).hex()},
                                  {"source", program.source}};
  for (const SourceFile& header : program.headers) fields.push_back({header.name, header.text});
  return Key(fields);
}

// Resource counts that ptxas reports, and their names in entries.
constexpr std::pair<const char*, int ResourceUsage::*> resource_members[] = {
    {"registers", &ResourceUsage::registers},
    {"spill_store_bytes", &ResourceUsage::spill_store_bytes},
    {"spill_load_bytes", &ResourceUsage::spill_load_bytes},
    {"stack_bytes", &ResourceUsage::stack_bytes},
    {"static_smem_bytes", &ResourceUsage::static_smem_bytes},
    {"barriers", &ResourceUsage::barriers}};

// The metadata of an entry about its kernel.
std::string metadata_of(const KernelImage& image) {
  JsonObject json;
  json.add("kernel", image.program.name)
      .add("arch", to_string(image.target.arch))
      .add("compile_ms", image.compile_ms);
  for (const auto& [name, value] : image.program.facts) json.add(name, value);
  if (image.target.form == CodeForm::cubin) {
    const ResourceUsage& resources = image.resources;
    for (const auto& [name, member] : resource_members) json.add(name, resources.*member);
    json.add("remarks", resources.remarks);
  }
  return json.dump();
}

// Whether the metadata is valid; an entry without valid metadata is a cache miss.
bool read_metadata(const std::string& text, KernelImage& image) {
  const std::optional<JsonObject> json = parse_json(text);
  if (!json || json->text("kernel") != image.program.name) return false;
  const std::optional<double> compile_ms = json->number("compile_ms");
  if (!compile_ms) return false;
  image.compile_ms = *compile_ms;
  if (image.target.form == CodeForm::ptx) return true;
  for (const auto& [name, member] : resource_members) {
    const std::optional<std::int64_t> value = json->whole(name);
    if (!value) return false;
    image.resources.*member = static_cast<int>(*value);
  }
  const std::optional<JsonObject::Texts> remarks = json->texts("remarks");
  if (remarks) image.resources.remarks = *remarks;
  return remarks.has_value();
}

bool take_entry(std::optional<Entry> entry, KernelImage& image) {
  if (!entry || !read_metadata(entry->metadata, image)) return false;
  image.code = std::move(entry->code);
  image.cached = true;
  return true;
}

// PTX without folders of this machine: NVRTC prefixes file names in line information with the current folder,
// so equal keys would have different PTX.
std::vector<std::byte> portable_ptx(std::string ptx) {
  std::error_code unknown;
  const std::string here = std::filesystem::current_path(unknown).string() + "/";
  ptx = with_plain_files(std::move(ptx), {here, program_folder});
  std::vector<std::byte> code(ptx.size());
  std::memcpy(code.data(), ptx.data(), ptx.size());
  return code;
}

// Whether a warning is about a text of the user, not a template or generated lines.
bool is_of_user(std::string_view warning, const CompileRequest& request) {
  const std::string_view file = warning.substr(0, warning.find(':'));
  const auto is_named = [&](const SourceFile& header) { return header.name == file; };
  return file != "kernel.cu" && file != generated_lines &&
         std::none_of(request.headers.begin(), request.headers.end(), is_named);
}

void compile_and_store(KernelStore& store, const Key& key, KernelImage& image) {
  const CompileRequest request = request_for(store, image.program, image.target);
  const bool to_ptx = image.target.form == CodeForm::ptx;
  CompileResult result =
      to_ptx ? compile_to_ptx(store.nvrtc_location(), request) : compile(store.nvrtc_location(), request);
  image.code = to_ptx ? portable_ptx(std::move(result.ptx)) : std::move(result.cubin);
  image.resources = std::move(result.resources);
  image.compile_ms = result.milliseconds;
  image.cached = false;
  store.disk.store(key, {.key_text = {}, .metadata = metadata_of(image), .code = image.code});
  for (const std::string& warning : result.warnings) {
    if (is_of_user(warning, request))
      store.tell_once(Event::Kind::warning, warning);
    else
      store.notify(Event::Kind::note, warning);
  }
  for (const std::string& remark : image.resources.remarks) store.notify(Event::Kind::note, remark);
  store.notify(Event::Kind::compile, image.program.name, image.compile_ms * 1e-3);
}

// Message for a kernel that may not be compiled: its key, its spec and config, and ways to provide it.
std::string offline_message(KernelStore& store, const KernelImage& image) {
  std::string made_of;
  for (const auto& [name, value] : image.program.facts) made_of += fmt::format(", {} {}", name, value);
  std::string message = fmt::format(
      "kernel {} for {} (key {}{}) is neither in the cache nor in a pack, and compiling is forbidden "
      "(JIT_ATTENTION_OFFLINE); make a pack with `jit-attention warm`, with --training where gradients are "
      "computed and --serving where caches of pages are, where compiling is allowed, and name it in "
      "JIT_ATTENTION_PACK",
      image.program.name, to_string(image.target), image.key, made_of);
  for (const std::string& sentence : store.packs.shortfalls(image.target, store.compilers_of_packs()))
    message += "; " + sentence;
  return message;
}

bool take_stored(KernelStore& store, const Key& key, KernelImage& image) {
  if (take_entry(store.disk.load(key), image)) return true;
  if (store.settings.packs.empty()) return false;
  const std::vector<std::string> compilers = store.compilers_of_packs();
  std::vector<Key> keys;
  for (const std::string& compiler : compilers)
    keys.push_back(key_for(store, image.program, image.target, compiler));
  return take_entry(store.packs.load(keys, image.target, compilers), image);
}

KernelImage make_image(KernelStore& store, const Key& key, KernelImage image) {
  if (take_stored(store, key, image)) return image;
  if (store.settings.offline)
    throw Error(ErrorCode::offline, "compile", "cache", offline_message(store, image));
  const FileLock lock = store.disk.lock(key);
  if (take_entry(store.disk.load_again(key), image)) return image;
  compile_and_store(store, key, image);
  return image;
}

}  // namespace

std::string to_string(const Target& target) {
  return to_string(target.arch) + (target.form == CodeForm::ptx ? " as PTX" : "");
}

Target native_target(const DeviceInfo& device) {
  return {native_arch(device), device.emulated ? CodeForm::ptx : CodeForm::cubin};
}

std::shared_ptr<const KernelImage> build_image(KernelStore& store, const Program& program, Target target) {
  return store.with_compiler([&] {
    const Key key = key_for(store, program, target, store.compiler_identity());
    return store.images.get(key.digest(), [&] {
      return make_image(store, key, {.program = program, .target = target, .key = key.digest().hex()});
    });
  });
}

std::shared_ptr<const KernelImage> image_at_hand(KernelStore& store, const Program& program, Target target) {
  const Key key = key_for(store, program, target, store.compiler_identity());
  if (auto known = store.images.find(key.digest())) return known;
  KernelImage image{.program = program, .target = target, .key = key.digest().hex()};
  if (!take_stored(store, key, image)) return nullptr;
  return store.images.get(key.digest(), [&] { return image; });
}

std::shared_ptr<const KernelImage> rebuild_image(KernelStore& store, const KernelImage& image) {
  return store.with_compiler([&] {
    const Key key = key_for(store, image.program, image.target, store.compiler_identity());
    store.images.erase(key.digest());
    return store.images.get(key.digest(), [&] {
      KernelImage rebuilt = image;
      rebuilt.key = key.digest().hex();
      compile_and_store(store, key, rebuilt);
      return rebuilt;
    });
  });
}

Entry entry_of(KernelStore& store, const KernelImage& image) {
  const Key key = key_for(store, image.program, image.target, store.compiler_identity());
  return {.key_text = key.text(), .metadata = metadata_of(image), .code = image.code};
}

std::string build_ptx(KernelStore& store, const KernelImage& image) {
  const CompileRequest request = request_for(store, image.program, {image.target.arch});
  return store.with_compiler([&] { return compile_to_ptx(store.nvrtc_location(), request).ptx; });
}

}  // namespace jit
