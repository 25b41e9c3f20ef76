#include <jit/context.h>

#include <utility>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include "generator/attention_state.h"
#include "generator/context_state.h"
#include "generator/operations/operation.h"
#include "runtime/environment.h"

namespace jit {
namespace {

CacheDirectory choose_directory(const Settings& settings) {
  if (!settings.disk_cache) return {"", "the disk cache is switched off"};
  // What came from the environment is left to the environment, so that the reason names the variable.
  const bool is_variable = settings.cache_dir == environment("JIT_ATTENTION_CACHE_DIR");
  return choose_cache_directory(is_variable ? std::string() : settings.cache_dir, environment);
}

}  // namespace

ContextState::ContextState(Settings settings_in, Observer observer_in)
    : settings(std::move(settings_in)),
      observer(std::move(observer_in)),
      templates(load_templates(settings.templates)),
      directory(choose_directory(settings)),
      disk({.directory = directory.path,
            .readonly_layers = settings.disk_cache ? settings.readonly_caches : std::vector<std::string>{},
            .max_bytes = settings.cache_max_bytes,
            .observer = observer}),
      packs(settings.packs, observer),
      // A folder that cannot be used is told of once.
      tuning(disk.writable() ? directory.path : std::string(), nullptr, observer) {}

ContextState::~ContextState() = default;

NvrtcLocation ContextState::nvrtc_location() {
  const std::lock_guard lock(nvrtc_mutex_);
  if (!nvrtc_) nvrtc_ = find_nvrtc(settings.nvrtc, unopened_);
  return *nvrtc_;
}

// Whether there is one that opens in place of one that did not. Observers may ask for the compiler: they are told without
// the lock.
bool ContextState::pass_over_unopened(const std::string& why) {
  const std::string path = find_opened();
  if (path.empty()) return false;
  tell_once(Event::Kind::warning, fmt::format("{}; {} is used", why, path));
  return true;
}

std::string ContextState::find_opened() {
  const std::lock_guard lock(nvrtc_mutex_);
  try {
    while (nvrtc_) {
      try {
        nvrtc(*nvrtc_);  // another thread may have found it meanwhile
        return nvrtc_->path;
      } catch (const Error&) {
        unopened_.push_back(nvrtc_->path);
        nvrtc_ = find_nvrtc(settings.nvrtc, unopened_);
      }
    }
  } catch (const Error&) {  // there is no other: the first one's own error says the most
    nvrtc_.reset();
    unopened_.clear();
  }
  return {};
}

std::string ContextState::compiler_identity() {
  try {
    return nvrtc_location().identity;
  } catch (const Error&) {
    if (packs.compiler().empty()) throw;
    return std::string(packs.compiler());
  }
}

void ContextState::tell_of_fallback() {
  const std::string& reason = fallback_reason();
  if (reason.empty() || told_of_fallback_.test_and_set()) return;
  notify(Event::Kind::warning, fmt::format("no GPU here ({}); computing on emulated:{}, which is slow",
                                           reason, to_string(device_info(0).arch)));
}

void ContextState::tell_once(Event::Kind kind, const std::string& message) {
  {
    const std::lock_guard lock(told_mutex_);
    if (!told_.insert(message).second) return;
  }
  notify(kind, message);
}

void ContextState::notify(Event::Kind kind, std::string message, double seconds, int done, int total) const {
  if (observer)
    observer({.kind = kind, .message = std::move(message), .seconds = seconds, .done = done, .total = total});
}

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
  const NvrtcLocation nvrtc = state_->nvrtc_location();
  return {.path = nvrtc.path,
          .builtins_path = nvrtc.builtins_path,
          .version = fmt::format("{}.{}", nvrtc.version.major, nvrtc.version.minor),
          .identity = nvrtc.identity,
          .found_by = nvrtc.found_by};
}

Context& default_context() {
  static Context context;
  return context;
}

}  // namespace jit
