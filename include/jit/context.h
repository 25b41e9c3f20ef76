/// @file
/// A context holds settings, caches, tuning records and the compiler. Programs that use the environment's settings
/// need none; tests and servers make their own.
///
/// @code
/// jit::Settings settings = jit::settings_from_environment();
/// settings.cache_dir = folder;
/// settings.tuning = jit::TuningMode::off;
/// const jit::Context context(settings, [](const jit::Event& event) { std::puts(event.message.c_str()); });
/// assert(context.cache_directory() == folder && context.settings().tuning == jit::TuningMode::off);
/// std::puts(context.cache_reason().c_str());
/// std::printf("NVRTC %s\n", context.compiler().version.c_str());
/// assert(context.packs().empty());
/// jit::default_context() = context;  // that of calls which are not given one
/// @endcode
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <jit/observer.h>
#include <jit/settings.h>

namespace jit {

struct ContextState;

/// The NVRTC that compiles: libnvrtc and the builtins library that belongs to it.
struct CompilerLocation {
  std::string path;           ///< absolute, of libnvrtc
  std::string builtins_path;  ///< absolute, of libnvrtc-builtins
  std::string version;        ///< "13.0"
  std::string identity;       ///< build ids of both: part of the keys of kernels and tuning records
  std::string found_by;       ///< why this one: "CUDA_HOME"
  std::vector<std::string> passed_over;  ///< those that were found before it: "PATH: why not"
};

/// A pack that a context was given.
struct PackInUse {
  std::string path;         ///< as it was given
  std::string refusal;      ///< why it is not used, in one sentence; empty: it is
  std::size_t entries = 0;  ///< kernels and tuning records
  std::string targets;      ///< "sm_90a, sm_80"
};

/// Copies share the same state, which lives at least as long as the Attention objects that were made from it. Thread
/// safe.
class Context {
 public:
  /// Opens the cache folder; compiles and loads nothing. Trouble with the folder is an event, not an error.
  /// Throws Error io_error when `settings.templates` names a folder that cannot be read.
  explicit Context(Settings settings = settings_from_environment(), Observer observer = {});

  /// The settings that it was made with.
  const Settings& settings() const;
  /// The cache folder; empty if everything stays in memory.
  const std::string& cache_directory() const;
  /// Why the cache folder is what it is.
  const std::string& cache_reason() const;

  /// The compiler that compiles here: the first NVRTC that opens. Throws Error nvrtc_unavailable, at each call until there
  /// is one.
  CompilerLocation compiler() const;

  /// The packs of the settings, in the order of search.
  std::vector<PackInUse> packs() const;

 private:
  friend struct Access;
  std::shared_ptr<ContextState> state_;
};

/// The context that functions use unless they are given one: settings from the environment, read at the first call, and
/// an observer that writes warnings to standard error. Assign another context before the first use to replace it.
/// Throws what the constructor throws, again at each call until it succeeds.
Context& default_context();

}  // namespace jit
