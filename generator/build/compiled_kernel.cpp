#include <jit/compiled_kernel.h>

#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/output_file.h>

#include "generator/access.h"
#include "generator/build/image.h"
#include "generator/context_state.h"
#include "generator/json.h"
#include "generator/program/closure.h"
#include "runtime/disassembler.h"

namespace jit {
namespace {

std::string write_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code shows_when_the_file_is_written;
  std::filesystem::create_directories(path.parent_path(), shows_when_the_file_is_written);
  const OutputFile file(path.string());
  file.write({std::as_bytes(std::span(text))});
  return file.path();
}

}  // namespace

CompiledKernel::CompiledKernel(std::shared_ptr<ContextState> context, AttentionSpec spec, KernelConfig config,
                               std::shared_ptr<const KernelImage> image, std::string why,
                               std::vector<std::string> tuning_log)
    : context_(std::move(context)),
      spec_(std::move(spec)),
      config_(config),
      image_(std::move(image)),
      why_(std::move(why)),
      tuning_log_(std::move(tuning_log)) {}

Arch CompiledKernel::arch() const { return image_->target.arch; }
const std::string& CompiledKernel::name() const { return image_->program.name; }
const std::string& CompiledKernel::source() const { return image_->program.source; }
std::span<const std::byte> CompiledKernel::cubin() const { return machine_image().code; }
const ResourceUsage& CompiledKernel::resources() const { return machine_image().resources; }
int CompiledKernel::smem_bytes() const { return image_->program.smem_bytes; }
int CompiledKernel::threads() const { return image_->program.threads; }
const std::string& CompiledKernel::key() const { return image_->key; }
bool CompiledKernel::cached() const { return image_->cached; }
double CompiledKernel::compile_ms() const { return image_->compile_ms; }

// The context keeps its images for as long as it lives, and the kernel keeps the context.
const KernelImage& CompiledKernel::machine_image() const {
  if (image_->target.form == CodeForm::cubin) return *image_;
  return *build_image(*context_, image_->program, {image_->target.arch, CodeForm::cubin});
}

std::string CompiledKernel::ptx() const { return build_ptx(*context_, *image_); }

CompiledKernel::Sass CompiledKernel::sass() const {
  Disassembly disassembly = disassemble(cubin());
  return {std::move(disassembly.text), std::move(disassembly.missing)};
}

std::string CompiledKernel::report() const {
  JsonObject config;
  config.add("family", family_name(config_));
  for (const ConfigValue& value : config_values(config_)) {
    switch (value.kind) {
      case ConfigValue::Kind::number:
        config.add(value.name, value.number);
        break;
      case ConfigValue::Kind::truth:
        config.add(value.name, value.number != 0);
        break;
      case ConfigValue::Kind::word:
        config.add(value.name, value.text);
    }
  }
  const ResourceUsage& resources = this->resources();
  return JsonObject()
      .add("name", name())
      .add("spec", to_string(spec()))
      .add("arch", to_string(arch()))
      .add("key", key())
      .add("cached", cached())
      .add("compile_ms", compile_ms())
      .add("why", why_)
      .add("config", config)
      .add("threads", threads())
      .add("smem_bytes", smem_bytes())
      .add("registers", resources.registers)
      .add("spill_bytes", resources.spill_bytes())
      .add("stack_bytes", resources.stack_bytes)
      .add("barriers", resources.barriers)
      .add("cubin_bytes", cubin().size())
      .add("remarks", resources.remarks)
      .add("tuning_log", tuning_log_)
      .dump(2);
}

std::vector<std::string> CompiledKernel::dump(const std::string& folder) const {
  if (folder.empty()) {
    throw Error(ErrorCode::invalid_argument, "dump", "folder",
                "folder is empty; give the folder to write to, \".\" for the current one");
  }
  const std::filesystem::path base = folder;
  const std::span<const std::byte> code = cubin();
  std::vector<std::string> written;
  written.push_back(write_file(base / "kernel.cu", source()));
  written.push_back(write_file(base / "kernel.ptx", ptx()));
  written.push_back(
      write_file(base / "kernel.cubin", {reinterpret_cast<const char*>(code.data()), code.size()}));
  written.push_back(write_file(base / "report.json", report() + "\n"));
  std::vector<SourceFile> included = closure(image_->program, context_->templates);
  included.insert(included.end(), image_->program.headers.begin(), image_->program.headers.end());
  for (const SourceFile& file : included) {
    written.push_back(write_file(base / "templates" / file.name, file.text));
  }
  if (const Sass disassembly = sass(); !disassembly.text.empty()) {
    written.push_back(write_file(base / "kernel.sass", disassembly.text));
  }
  return written;
}

}  // namespace jit
