#include <emulator/module.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "machine/kernel.h"

namespace jit::emulator {

Function::Function(std::shared_ptr<const Program> program, const Kernel& kernel)
    : program_(std::move(program)), kernel_(&kernel) {}

const std::string& Function::name() const { return kernel_->name; }
const std::vector<Parameter>& Function::parameters() const { return kernel_->parameters; }
std::size_t Function::parameter_bytes() const { return kernel_->parameter_bytes; }
std::size_t Function::static_smem_bytes() const { return kernel_->static_smem_bytes; }
std::size_t Function::local_bytes() const { return kernel_->local_bytes; }
int Function::max_threads() const { return kernel_->max_threads; }
int Function::register_estimate() const { return kernel_->register_estimate; }

std::array<unsigned, 3> Function::cluster() const {
  std::array<unsigned, 3> sizes = {1, 1, 1};
  for (std::size_t d = 0; d < kernel_->cluster.size(); ++d)
    sizes[d] = static_cast<unsigned>(std::max(1, kernel_->cluster[d]));
  return sizes;
}

std::vector<std::byte> Function::pack(std::span<const std::span<const std::byte>> values) const {
  if (values.size() != parameters().size()) {
    throw std::invalid_argument(
        fmt::format("{} takes {} parameters, {} were given", name(), parameters().size(), values.size()));
  }
  std::vector<std::byte> block(parameter_bytes());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = parameters()[i];
    if (values[i].size() != parameter.bytes) {
      throw std::invalid_argument(fmt::format("parameter {} of {} has {} bytes, {} were given",
                                              parameter.name, name(), parameter.bytes, values[i].size()));
    }
    std::copy(values[i].begin(), values[i].end(),
              block.begin() + static_cast<std::ptrdiff_t>(parameter.offset));
  }
  return block;
}

Module::Module(std::string ptx, TargetArch device) : program_(load_program(std::move(ptx), device)) {}
Module::Module(std::string ptx) : program_(load_program(std::move(ptx))) {}

TargetArch Module::target() const { return program_->target; }

std::vector<Function> Module::functions() const {
  std::vector<Function> all;
  for (const Kernel& kernel : program_->kernels) all.emplace_back(program_, kernel);
  return all;
}

std::optional<Function> Module::find(std::string_view name) const {
  const Kernel* const kernel = program_->find(name);
  if (!kernel) return std::nullopt;
  return Function(program_, *kernel);
}

Function Module::function(std::string_view name) const {
  if (const std::optional<Function> found = find(name)) return *found;
  std::string names;
  for (const Kernel& kernel : program_->kernels) names += (names.empty() ? "" : ", ") + kernel.name;
  throw std::invalid_argument(
      fmt::format("there is no kernel {}; the module has {}", name, names.empty() ? "none" : names));
}

const std::string& Module::ptx() const { return program_->ptx; }
bool Module::has_variables() const { return !program_->globals.empty(); }

}  // namespace jit::emulator
