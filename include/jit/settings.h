/// @file
/// The settings of the library, and the environment variables that they are read from.
///
/// @code
/// jit::Settings settings = jit::settings_from_environment();
/// settings.tuning = jit::TuningMode::off;
/// assert(jit::to_string(settings.tuning) == "off");
/// for (const jit::SettingDoc& variable : jit::setting_docs()) std::puts(variable.name.c_str());
/// @endcode
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jit {

/// How the config of a kernel is chosen. `to_string` gives the enumerator's name.
enum class TuningMode {
  off,         ///< the cost model decides
  recorded,    ///< a stored result decides, else the cost model
  first_run,   ///< a stored result decides, else the best candidates are measured on the first run
  exhaustive,  ///< a stored result of this mode decides, else all candidates are measured
};
/// The enumerator's name.
std::string_view to_string(TuningMode mode);

/// The settings of a Context: where kernels are kept, and how they are chosen and compiled.
struct Settings {
  std::string cache_dir;                       ///< absolute path; empty: the user's cache folder
  std::uint64_t cache_max_bytes = 1ull << 30;  ///< the least recently used kernels are removed beyond this
  std::vector<std::string> readonly_caches;    ///< searched in this order, after cache_dir
  std::vector<std::string> packs;  ///< files of write_pack(), searched in this order, after the caches
  bool disk_cache = true;          ///< whether kernels are kept on the disk
  bool offline = false;            ///< compiling is forbidden
  TuningMode tuning = TuningMode::first_run;  ///< how configs are chosen
  double tuning_seconds = 10;                 ///< time limit for tuning one problem, in seconds
  std::string templates;  ///< folder that replaces the embedded templates; empty: embedded
  std::string nvrtc;      ///< path of libnvrtc, or of its folder; empty: search
};

/// Settings from JIT_ATTENTION_* variables; the defaults in a set-uid program. Unset and empty variables mean
/// default. Throws Error invalid_argument with variable, value and accepted values for a malformed one.
Settings settings_from_environment();

/// One row of the table of variables.
struct SettingDoc {
  std::string name;           ///< "JIT_ATTENTION_CACHE_DIR"
  std::string default_value;  ///< as text
  std::string doc;            ///< one sentence
};
/// All variables of the library.
const std::vector<SettingDoc>& setting_docs();

}  // namespace jit
