#include "generator/build/kernel_image.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <nlohmann/json.hpp>

#include "generator/context_state.h"
#include "runtime/compile_log.h"
#include "runtime/compiler.h"

namespace jit {
namespace {

// How many configs to try for one that is clean before settling for the least bad: bounds the first
// compile.
constexpr std::size_t clean_attempts = 4;

CompileRequest request_for(const ContextState& context, const Program& program, Arch arch) {
  return {.name = program_name,
          .source = program.source,
          .headers = context.templates,
          .arch = arch,
          .options = {},
          .kernel = program.kernel_name};
}

// Everything that decides what the compiler produces, and nothing else.
Key key_for(ContextState& context, const Program& program, Arch arch) {
  std::string options;
  for (const std::string& option : base_options(arch)) options += option + "\n";
  return Key{{"library", JIT_ATTENTION_VERSION},
             {"arch", to_string(arch)},
             {"compiler", context.nvrtc_location().identity},
             {"options", options},
             {"templates", context.templates_digest.hex()},
             {"source", program.source}};
}

// What an entry tells about its kernel beside the code.
std::string metadata_of(const KernelImage& image) {
  const nlohmann::json json = {{"kernel", image.program.kernel_name},
                               {"spec", to_string(image.spec)},
                               {"config", to_string(image.config)},
                               {"arch", to_string(image.arch)},
                               {"compile_ms", image.compile_ms},
                               {"registers", image.resources.registers},
                               {"spill_store_bytes", image.resources.spill_store_bytes},
                               {"spill_load_bytes", image.resources.spill_load_bytes},
                               {"stack_bytes", image.resources.stack_bytes},
                               {"static_smem_bytes", image.resources.static_smem_bytes},
                               {"barriers", image.resources.barriers},
                               {"remarks", image.resources.remarks}};
  return json.dump();
}

// False when the metadata is not ours: then the entry is a miss.
bool read_metadata(const std::string& text, KernelImage& image) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  try {
    if (json.at("kernel").get<std::string>() != image.program.kernel_name) return false;
    image.compile_ms = json.at("compile_ms").get<double>();
    image.resources = {.registers = json.at("registers"),
                       .spill_store_bytes = json.at("spill_store_bytes"),
                       .spill_load_bytes = json.at("spill_load_bytes"),
                       .stack_bytes = json.at("stack_bytes"),
                       .static_smem_bytes = json.at("static_smem_bytes"),
                       .barriers = json.at("barriers"),
                       .remarks = json.at("remarks")};
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

bool take_entry(std::optional<Entry> entry, KernelImage& image) {
  if (!entry || !read_metadata(entry->metadata, image)) return false;
  image.cubin = std::move(entry->cubin);
  image.cached = true;
  return true;
}

void compile_and_store(ContextState& context, const Key& key, KernelImage& image) {
  CompileResult result = compile(context.nvrtc_location(), request_for(context, image.program, image.arch));
  image.cubin = std::move(result.cubin);
  image.resources = std::move(result.resources);
  image.compile_ms = result.milliseconds;
  image.cached = false;
  context.disk.store(key, {.key_text = {}, .metadata = metadata_of(image), .cubin = image.cubin});
  context.notify(Event::Kind::compile, image.program.kernel_name, image.compile_ms * 1e-3);
}

KernelImage make_image(ContextState& context, const Key& key, KernelImage image) {
  if (take_entry(context.disk.load(key), image)) return image;
  if (context.settings.offline) {
    throw Error(ErrorCode::offline, "compile", "cache",
                fmt::format("kernel {} for {} (key {}) is not in the cache and compiling is forbidden "
                            "(JIT_ATTENTION_OFFLINE); compile it where that is allowed, and export the cache",
                            image.program.kernel_name, to_string(image.arch), image.key));
  }
  const FileLock lock = context.disk.lock(key);
  if (take_entry(context.disk.load_again(key), image)) return image;
  compile_and_store(context, key, image);
  return image;
}

// Configs that differ in buffering alone need the same registers, near enough: when one spills, so does the
// other.
bool need_alike_registers(const KernelConfig& a, const KernelConfig& b) {
  return a.mainloop == b.mainloop && a.overlap == b.overlap && a.p_in_registers == b.p_in_registers &&
         a.persistent == b.persistent && a.stages_q == b.stages_q && a.order == b.order &&
         a.tile_q == b.tile_q && a.tile_kv == b.tile_kv && a.warps == b.warps &&
         a.q_in_registers == b.q_in_registers && a.blocks_per_sm == b.blocks_per_sm &&
         a.direct_o == b.direct_o && a.polynomial_exp2 == b.polynomial_exp2 && a.rescale == b.rescale;
}

// What makes one unclean kernel worse than another: serialised multiplications first, then local memory.
std::pair<bool, int> cost(const KernelImage& image) {
  return {image.resources.serializes_wgmma(), image.resources.spill_bytes() + image.resources.stack_bytes};
}

}  // namespace

std::shared_ptr<const KernelImage> build_image(ContextState& context, const Program& program,
                                               const AttentionSpec& spec, const KernelConfig& config,
                                               Arch arch) {
  const Key key = key_for(context, program, arch);
  return context.images.get(key.digest(), [&] {
    KernelImage image{.program = program,
                      .spec = spec,
                      .config = config,
                      .arch = arch,
                      .cubin = {},
                      .resources = {},
                      .key = key.digest().hex()};
    return make_image(context, key, std::move(image));
  });
}

std::shared_ptr<const KernelImage> rebuild_image(ContextState& context, const KernelImage& image) {
  const Key key = key_for(context, image.program, image.arch);
  context.images.erase(key.digest());
  return context.images.get(key.digest(), [&] {
    KernelImage rebuilt = image;
    compile_and_store(context, key, rebuilt);
    return rebuilt;
  });
}

std::shared_ptr<const KernelImage> build_clean(ContextState& context, const AttentionSpec& spec,
                                               const std::vector<KernelConfig>& configs, Arch arch) {
  std::shared_ptr<const KernelImage> best;
  std::vector<KernelConfig> tried;
  for (const KernelConfig& config : configs) {
    if (tried.size() == clean_attempts) break;
    const auto is_alike = [&](const KernelConfig& other) { return need_alike_registers(config, other); };
    if (std::any_of(tried.begin(), tried.end(), is_alike)) continue;
    tried.push_back(config);
    auto image = build_image(context, emit_forward(spec, config), spec, config, arch);
    if (image->resources.is_clean()) return image;
    if (!best || cost(*image) < cost(*best)) best = std::move(image);
  }
  context.notify(Event::Kind::warning,
                 fmt::format("{} {}: no clean config was found", best->program.kernel_name,
                             best->resources.serializes_wgmma()
                                 ? "waits between its multiplications"
                                 : fmt::format("spills {} bytes", best->resources.spill_bytes())));
  return best;
}

std::string build_ptx(ContextState& context, const KernelImage& image) {
  return compile_to_ptx(context.nvrtc_location(), request_for(context, image.program, image.arch));
}

std::shared_ptr<const std::string> build_emulated_code(ContextState& context, const KernelImage& image) {
  return context.emulated_code.get(key_for(context, image.program, image.arch).digest(), [&] {
    if (context.settings.offline) {
      throw Error(
          ErrorCode::offline, "compile", "cache",
          fmt::format("an emulated device runs PTX, which caches do not keep: kernel {} would have to be "
                      "compiled, and that is forbidden (JIT_ATTENTION_OFFLINE)",
                      image.program.kernel_name));
    }
    CompileRequest request = request_for(context, image.program, image.arch);
    request.options.push_back("-lineinfo");
    std::error_code unknown;
    const std::string here = std::filesystem::current_path(unknown).string() + "/";
    return with_plain_files(compile_to_ptx(context.nvrtc_location(), request), {here, program_folder});
  });
}

}  // namespace jit
