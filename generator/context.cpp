#include <jit/context.h>

#include <utility>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include <cstdio>
#include "generator/attention_state.h"

#include "generator/context/context_state.h"
#include "generator/operations/operation.h"

namespace jit {
ContextState::ContextState(Settings settings_in, Observer observer_in)
    : KernelStore(std::move(settings_in), std::move(observer_in)),
      // Empty if unusable: the disk cache has warned already.
      tuning(disk.writable() ? directory.path : std::string(), nullptr, observer) {}

ContextState::~ContextState() = default;

Context::Context(Settings settings, Observer observer)
    : state_(std::make_shared<ContextState>(std::move(settings), std::move(observer))) {}

const Settings& Context::settings() const { return state_->settings; }
const std::string& Context::cache_directory() const {
  static const std::string none;
  return state_->disk.writable() ? state_->directory.path : none;
}
const std::string& Context::cache_reason() const {
  return state_->disk.refusal().empty() ? state_->directory.reason : state_->disk.refusal();
}

CompilerLocation Context::compiler() const {
  const NvrtcLocation nvrtc = state_->opened_nvrtc();
  return {.path = nvrtc.path,
          .builtins_path = nvrtc.builtins_path,
          .version = fmt::format("{}.{}", nvrtc.version.major, nvrtc.version.minor),
          .identity = nvrtc.identity,
          .found_by = nvrtc.found_by,
          .passed_over = nvrtc.passed_over};
}

std::vector<PackInUse> Context::packs() const { return state_->packs.described(); }

Context& default_context() {
  static Context context(settings_from_environment(), [](const Event& event) {
    if (event.kind == Event::Kind::warning)
      std::fprintf(stderr, "jit-attention: warning: %s\n", event.message.c_str());
  });
  return context;
}

}  // namespace jit
