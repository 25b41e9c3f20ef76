#include <jit/compiled_kernel.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/output_file.h>

#include "generator/build/image.h"
#include "generator/build/json.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/program/closure.h"
#include "generator/program/emit.h"
#include "runtime/disassembler.h"

namespace jit {
namespace {

namespace fs = std::filesystem;

// The templates of a kernel, and those that checked calls compile in addition, so that someone who edits a
// mask template can check that its functions agree.
std::vector<SourceFile> templates_to_edit(const Program& program, const AttentionSpec& spec,
                                          const Templates& templates) {
  std::vector<SourceFile> files = closure(program, templates);
  const auto has = [](const std::vector<SourceFile>& in, const std::string& name) {
    return std::any_of(in.begin(), in.end(), [&](const SourceFile& file) { return file.name == name; });
  };
  if (spec.mask == mask::none() || !has(templates.files, "checks/check_mask.cuh")) return files;
  for (SourceFile& file : closure(emit_mask_check(spec), templates)) {
    if (!has(files, file.name)) files.push_back(std::move(file));
  }
  return files;
}

// The files of a dump. Checks all paths before writing; removes created folders that stay empty.
class DumpFolder {
 public:
  explicit DumpFolder(fs::path base) : base_(std::move(base)) {}
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;
  ~DumpFolder() {
    std::error_code in_use;  // folders that are not empty stay
    for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) fs::remove(*folder, in_use);
  }

  void add(const std::string& name, std::string content) {
    const fs::path path = base_ / name;
    make_folder(path.parent_path(), path);
    contents_.push_back(std::move(content));
    files_.emplace_back(path.string());
  }

  /// Writes all files or none, and returns their paths.
  std::vector<std::string> write() const {
    std::vector<std::pair<OutputFile, std::span<const std::byte>>> outputs;
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      outputs.emplace_back(files_[i], std::as_bytes(std::span(contents_[i])));
      paths.push_back(files_[i].path());
    }
    write_together(outputs);
    return paths;
  }

 private:
  void make_folder(const fs::path& folder, const fs::path& path) {
    std::error_code error;
    if (folder.empty() || fs::exists(folder, error)) return;
    make_folder(folder.parent_path(), path);
    if (fs::create_directory(folder, error)) made_.push_back(folder);
    if (error)
      throw Error(ErrorCode::io_error, "write", "path",
                  fmt::format("{} cannot be written: folder {}: {}", path.string(), folder.string(),
                              error.message()));
  }

  fs::path base_;
  std::vector<fs::path> made_;  // created folders, parents first
  std::vector<OutputFile> files_;
  std::vector<std::string> contents_;
};

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

// Images are owned by the context, which the kernel keeps alive.
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
  const std::span<const std::byte> code = cubin();
  DumpFolder dump(folder);
  dump.add("kernel.cu", source());
  dump.add("kernel.ptx", ptx());
  dump.add("kernel.cubin", {reinterpret_cast<const char*>(code.data()), code.size()});
  dump.add("report.json", report() + "\n");
  std::vector<SourceFile> included = templates_to_edit(image_->program, spec_, context_->templates);
  included.insert(included.end(), image_->program.headers.begin(), image_->program.headers.end());
  for (SourceFile& file : included) dump.add("templates/" + file.name, std::move(file.text));
  if (Sass disassembly = sass(); !disassembly.text.empty())
    dump.add("kernel.sass", std::move(disassembly.text));
  return dump.write();
}

}  // namespace jit
