#include "capi/context.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>

#include "capi/structs.h"

namespace jit::c {
namespace {

constexpr std::uint32_t latest_dlpack = 1;

std::vector<std::string> paths_of(const char* const* paths, std::size_t count, std::string_view name) {
  check_array(paths, count, name);
  std::vector<std::string> copies;
  for (std::size_t i = 0; i < count; ++i)
    copies.emplace_back(&checked_pointer(paths[i], fmt::format("{}[{}]", name, i)));
  return copies;
}

TuningMode tuning_mode_of(std::string_view text) {
  for (const TuningMode mode :
       {TuningMode::off, TuningMode::recorded, TuningMode::first_run, TuningMode::exhaustive}) {
    if (to_string(mode) == text) return mode;
  }
  refuse("tuning", fmt::format("is '{}'; it must be off, recorded, first_run or exhaustive", text));
}

// Sets a setting: 1 is yes, -1 no, 0 leaves it unchanged.
void choose(bool& setting, std::int32_t choice, std::string_view name) {
  if (choice < -1 || choice > 1) refuse(name, fmt::format("is {}; it must be 1, -1 or 0", choice));
  if (choice != 0) setting = choice == 1;
}

Settings settings_of(const jit_context_options& options) {
  Settings settings = settings_from_environment();
  if (options.cache_dir != nullptr) settings.cache_dir = options.cache_dir;
  if (options.cache_max_bytes != 0) settings.cache_max_bytes = options.cache_max_bytes;
  if (options.readonly_cache_count != 0)
    settings.readonly_caches =
        paths_of(options.readonly_caches, options.readonly_cache_count, "readonly_caches");
  if (options.pack_count != 0) settings.packs = paths_of(options.packs, options.pack_count, "packs");
  choose(settings.disk_cache, options.disk_cache, "disk_cache");
  choose(settings.offline, options.offline, "offline");
  if (options.tuning != nullptr) settings.tuning = tuning_mode_of(options.tuning);
  if (!std::isfinite(options.tuning_seconds) || options.tuning_seconds < 0)
    refuse("tuning_seconds", fmt::format("is {}; it must be 0 or positive", options.tuning_seconds));
  if (options.tuning_seconds != 0) settings.tuning_seconds = options.tuning_seconds;
  if (options.templates != nullptr) settings.templates = options.templates;
  if (options.nvrtc != nullptr) settings.nvrtc = options.nvrtc;
  return settings;
}

Observer observer_of(const jit_context_options& options) {
  if (options.observer == nullptr) return {};
  return [observer = options.observer, data = options.observer_data](const Event& event) {
    static_assert(static_cast<int>(Event::Kind::note) == JIT_EVENT_NOTE &&
                  static_cast<int>(Event::Kind::tuned) == JIT_EVENT_TUNED);
    const jit_event given = {.size = sizeof(given),
                             .kind = static_cast<jit_event_kind>(event.kind),
                             .done = event.done,
                             .total = event.total,
                             .reserved = 0,
                             .seconds = event.seconds,
                             .message = event.message.c_str()};
    observer(data, &given);
  };
}

}  // namespace

int device_now(const jit_context& context) { return context.device < 0 ? current_device() : context.device; }

}  // namespace jit::c

jit_code jit_context_create(const jit_context_options* given, jit_context** context, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(context, "context") = nullptr;
    const jit_context_options options =
        given == nullptr ? jit_context_options{} : known_part(given, "options");
    if (options.dlpack_major > latest_dlpack) {
      refuse("dlpack_major", fmt::format("is {}; DLPack {} and earlier are understood: give tensors of these",
                                         options.dlpack_major, latest_dlpack));
    }
    if (options.device < -1)
      refuse("device",
             fmt::format("is {}; it must be an ordinal, or -1 for the current device", options.device));
    if (options.devices != nullptr) jit::use_device(options.devices);
    *context = new jit_context{jit::Context(settings_of(options), observer_of(options)), options.device};
  });
}

void jit_context_free(jit_context* context) { delete context; }
