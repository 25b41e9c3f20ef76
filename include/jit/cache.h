/// @file
/// The folder that compiled kernels and tuning results are kept in, shared by all processes of a user.
///
/// @code
/// jit::Settings settings = jit::settings_from_environment();
/// settings.cache_dir = folder;
/// const jit::Context context(settings);
/// const jit::CompiledKernel kernel = jit::compile({.head_dim = 64}, jit::parse_arch("sm_80"), {}, context);
/// const jit::Cache cache(context);
/// assert(cache.kernels().size() == 1 && cache.damaged_kernels().empty() && cache.tunings().empty());
/// assert(cache.find(kernel.key().substr(0, 8))->code_bytes == kernel.cubin().size());
/// assert(cache.export_to(folder + "/kernels.bin") == 1);  // a file for other machines
/// assert(cache.clear().kernels == 1);
/// assert(cache.import_from(folder + "/kernels.bin").kernels == 1);
/// assert(cache.prune(1 << 20) == 0);  // nothing has to go for the cache to have at most 1 MiB
/// @endcode
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/context.h>

namespace jit {

/// A named input of a compilation or a measurement.
struct CacheField {
  std::string name;   ///< what it is
  std::string value;  ///< its value as text
};

/// One kernel as a listing shows it.
struct CachedKernel {
  std::string key;                                  ///< 32 hexadecimal digits: CompiledKernel::key()
  std::uint64_t bytes = 0;                          ///< of the file
  std::chrono::system_clock::time_point last_used;  ///< up to ten minutes behind
  std::string facts;       ///< what is known of it, such as spec and config: JSON; empty unless it is whole
  std::string layer;       ///< folder that holds it: the user's cache, or one of Settings::readonly_caches
  std::string path;        ///< of the file, absolute
  bool damaged = false;    ///< not what its name says, or not to be trusted
  std::string unreadable;  ///< why the file could not be read; empty when it was
};

/// The cache entry of one kernel.
struct CachedCode {
  std::string key;                 ///< 32 hexadecimal digits: CompiledKernel::key()
  std::string facts;               ///< JSON
  std::vector<CacheField> inputs;  ///< what its key is made of, the program among them
  std::size_t code_bytes = 0;      ///< of machine code, or of PTX for emulated devices
};

/// One tuning result.
struct CachedTuning {
  std::vector<CacheField> environment;  ///< machine, versions and policy that it holds for
  std::vector<CacheField> operation;    ///< spec and size class that it holds for
  std::string record;                   ///< TuningResult::record
  std::string path;                     ///< of the file, absolute
};

/// The result of an import.
struct CacheImport {
  std::size_t kernels = 0;           ///< that were added
  std::vector<std::string> damaged;  ///< a sentence for each part of the file that was passed over
};

/// The cache folder of a context, Context::cache_directory(), and its read-only layers. Cheap to make and to
/// copy; shares the context. Thread safe, and safe against any number of processes that use the folder.
/// Functions that change the folder throw Error io_error where there is none.
class Cache {
 public:
  /// The cache of a context.
  explicit Cache(const Context& context = default_context()) : context_(context) {}

  /// All kernels of all layers, by key. Reads every file; one that goes meanwhile is left out.
  std::vector<CachedKernel> kernels() const;
  /// The damaged ones among them. They are compiled anew when they are needed.
  std::vector<CachedKernel> damaged_kernels() const;
  /// All whole tuning results.
  std::vector<CachedTuning> tunings() const;

  /// The kernel whose key begins with these hexadecimal digits, lower or upper case; nothing when there is
  /// none or it is damaged. Throws Error invalid_argument for other text, and when several keys match.
  std::optional<CachedCode> find(std::string_view key_prefix) const;

  /// Removes what is damaged (not what cannot be read), then the least recently used kernels until at most
  /// `max_bytes` remain. Returns how many went. Throws Error io_error when one that had to go could not be removed,
  /// as on a read-only file system; the others are gone then.
  std::size_t prune(std::uint64_t max_bytes) const;

  /// Numbers of what clear() removed.
  struct Cleared {
    std::size_t kernels = 0;  ///< kernels
    std::size_t tunings = 0;  ///< tuning results
  };
  /// Removes all kernels and tuning results. Returns how many. Throws as prune does.
  Cleared clear() const;

  /// Writes all whole kernels of all layers to one file, an OutputFile, for another machine. Returns how many.
  /// Throws Error io_error.
  std::size_t export_to(const std::string& path) const;
  /// Adds the kernels of such a file, each checked. Throws Error io_error when it cannot be read or a kernel
  /// cannot be stored.
  CacheImport import_from(const std::string& path) const;

 private:
  Context context_;
};

}  // namespace jit
