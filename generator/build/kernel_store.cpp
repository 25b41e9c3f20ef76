#include "generator/build/kernel_store.h"

#include <utility>

#include <fmt/format.h>

#include "runtime/environment.h"

namespace jit {
namespace {

CacheDirectory choose_directory(const Settings& settings) {
  if (!settings.disk_cache) return {"", "the disk cache is switched off"};
  // Reads a path from the environment again, so that errors name the variable.
  const bool is_variable = settings.cache_dir == environment("JIT_ATTENTION_CACHE_DIR");
  return choose_cache_directory(is_variable ? std::string() : settings.cache_dir, environment);
}

}  // namespace

KernelStore::KernelStore(Settings settings_in, Observer observer_in)
    : settings(std::move(settings_in)),
      observer(std::move(observer_in)),
      templates(load_templates(settings.templates)),
      directory(choose_directory(settings)),
      disk({.directory = directory.path,
            .readonly_layers = settings.disk_cache ? settings.readonly_caches : std::vector<std::string>{},
            .max_bytes = settings.cache_max_bytes,
            .observer = observer}),
      packs(settings.packs, observer) {}

NvrtcLocation KernelStore::nvrtc_location() {
  const std::lock_guard lock(nvrtc_mutex_);
  if (!nvrtc_) nvrtc_ = find_nvrtc(settings.nvrtc, unopened_);
  return *nvrtc_;
}

NvrtcLocation KernelStore::opened_nvrtc() {
  return with_compiler([&] {
    NvrtcLocation location = nvrtc_location();
    nvrtc(location);
    return location;
  });
}

// Replaces a libnvrtc that cannot be opened; false if no other one opens. Observers may ask for the compiler,
// so they are notified without holding the lock.
bool KernelStore::pass_over_unopened(const std::string& why) {
  const std::string path = find_opened();
  if (path.empty()) return false;
  tell_once(Event::Kind::warning, fmt::format("{}; {} is used", why, path));
  return true;
}

std::string KernelStore::find_opened() {
  const std::lock_guard lock(nvrtc_mutex_);
  try {
    while (nvrtc_) {
      try {
        nvrtc(*nvrtc_);  // another thread may have found it meanwhile
        return nvrtc_->path;
      } catch (const Error& error) {
        unopened_.push_back({nvrtc_->path, error.message()});
        nvrtc_ = find_nvrtc(settings.nvrtc, unopened_);
      }
    }
  } catch (const Error&) {  // no other libnvrtc: the first one's error is the most useful
    nvrtc_.reset();
    unopened_.clear();
  }
  return {};
}

std::string KernelStore::compiler_identity() {
  try {
    return nvrtc_location().identity;
  } catch (const Error&) {
    const std::vector<std::string> of_packs = packs.compilers();
    if (of_packs.empty()) throw;
    return of_packs.front();
  }
}

std::vector<std::string> KernelStore::compilers_of_packs() {
  const auto may_compile = [&] {
    try {
      nvrtc_location();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::vector<std::string> own = packs.compilers();
  if (!own.empty() && (settings.offline || !may_compile())) return own;
  return {compiler_identity()};
}

void KernelStore::tell_once(Event::Kind kind, const std::string& message) {
  {
    const std::lock_guard lock(told_mutex_);
    if (!told_.insert(message).second) return;
  }
  notify(kind, message);
}

void KernelStore::notify(Event::Kind kind, std::string message, double seconds, int done, int total) const {
  if (observer)
    observer({.kind = kind, .message = std::move(message), .seconds = seconds, .done = done, .total = total});
}

}  // namespace jit
