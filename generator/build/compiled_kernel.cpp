#include <jit/compiled_kernel.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <nlohmann/json.hpp>

#include "generator/access.h"
#include "generator/build/kernel_image.h"
#include "generator/context_state.h"
#include "generator/kernels/heuristic.h"
#include "runtime/disassembler.h"

namespace jit {
namespace {

std::string write_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    throw Error(ErrorCode::io_error, "dump", "folder", fmt::format("cannot write {}", path.string()));
  }
  return path.string();
}

}  // namespace

CompiledKernel::CompiledKernel(std::shared_ptr<ContextState> context, AttentionSpec spec,
                               std::shared_ptr<const KernelImage> image, std::string why,
                               std::vector<std::string> tuning_log)
    : context_(std::move(context)),
      spec_(std::move(spec)),
      image_(std::move(image)),
      why_(std::move(why)),
      tuning_log_(std::move(tuning_log)) {}

const KernelConfig& CompiledKernel::config() const { return image_->config; }
Arch CompiledKernel::arch() const { return image_->arch; }
const std::string& CompiledKernel::name() const { return image_->program.kernel_name; }
const std::string& CompiledKernel::source() const { return image_->program.source; }
std::span<const std::byte> CompiledKernel::cubin() const { return image_->cubin; }
const ResourceUsage& CompiledKernel::resources() const { return image_->resources; }
int CompiledKernel::smem_bytes() const { return image_->program.smem_bytes; }
int CompiledKernel::threads() const { return image_->program.threads; }
const std::string& CompiledKernel::key() const { return image_->key; }
bool CompiledKernel::cached() const { return image_->cached; }
double CompiledKernel::compile_ms() const { return image_->compile_ms; }

std::string CompiledKernel::ptx() const { return build_ptx(*context_, *image_); }

CompiledKernel::Sass CompiledKernel::sass() const {
  Disassembly disassembly = disassemble(image_->cubin);
  return {std::move(disassembly.text), std::move(disassembly.missing)};
}

std::string CompiledKernel::report() const {
  nlohmann::ordered_json config;
  for (const ConfigField& field : config_fields()) {
    if (!field.applies_to(image_->config)) continue;
    if (field.cpp_type == "bool") {
      config[std::string(field.name)] = field.get(image_->config) != 0;
    } else if (field.value_names.empty()) {
      config[std::string(field.name)] = field.get(image_->config);
    } else {
      config[std::string(field.name)] = field.print(image_->config);
    }
  }
  const ResourceUsage& resources = image_->resources;
  const nlohmann::ordered_json json = {{"name", name()},
                                       {"spec", to_string(spec())},
                                       {"arch", to_string(arch())},
                                       {"key", key()},
                                       {"cached", cached()},
                                       {"compile_ms", compile_ms()},
                                       {"why", why_},
                                       {"config", config},
                                       {"threads", threads()},
                                       {"smem_bytes", smem_bytes()},
                                       {"registers", resources.registers},
                                       {"spill_bytes", resources.spill_bytes()},
                                       {"stack_bytes", resources.stack_bytes},
                                       {"barriers", resources.barriers},
                                       {"cubin_bytes", cubin().size()},
                                       {"remarks", resources.remarks},
                                       {"tuning_log", tuning_log_}};
  return json.dump(2);
}

std::vector<std::string> CompiledKernel::dump(const std::string& folder) const {
  const std::filesystem::path base = folder.empty() ? "." : folder;
  const std::span<const std::byte> code = cubin();
  std::vector<std::string> written;
  written.push_back(write_file(base / "kernel.cu", source()));
  written.push_back(write_file(base / "kernel.ptx", ptx()));
  written.push_back(
      write_file(base / "kernel.cubin", {reinterpret_cast<const char*>(code.data()), code.size()}));
  written.push_back(write_file(base / "report.json", report() + "\n"));
  for (const SourceFile& file : context_->templates) {
    written.push_back(write_file(base / "templates" / file.name, file.text));
  }
  if (const Sass disassembly = sass(); !disassembly.text.empty()) {
    written.push_back(write_file(base / "kernel.sass", disassembly.text));
  }
  return written;
}

CompiledKernel compile(const AttentionSpec& spec, Arch arch, std::optional<KernelConfig> config,
                       const Context& context) {
  validate(spec);
  if (const std::vector<Refusal> refusals = supports(spec, arch); !refusals.empty()) {
    throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field, refusals[0].to_string());
  }
  const DeviceLimits limits = device_limits(arch);
  const std::shared_ptr<ContextState>& state = Access::state(context);
  if (config) {
    if (const std::string reason = config_rejection(spec, *config, limits); !reason.empty()) {
      throw Error(ErrorCode::no_valid_config, "configure", "config", reason);
    }
    return Access::kernel(state, spec, build_image(*state, emit_forward(spec, *config), spec, *config, arch),
                          "given");
  }
  const std::vector<KernelConfig> configs = ranked_configs(spec, typical_shape(limits), limits);
  return Access::kernel(state, spec, build_clean(*state, spec, configs, arch), "heuristic, typical sizes");
}

std::vector<KernelConfig> candidate_configs(const AttentionSpec& spec, Arch arch) {
  validate(spec);
  const DeviceLimits limits = device_limits(arch);
  return ranked_configs(spec, typical_shape(limits), limits);
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config, Arch arch) {
  return config_rejection(spec, config, device_limits(arch));
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceInfo& device) {
  return config_rejection(spec, config, device_limits(device));
}

}  // namespace jit
