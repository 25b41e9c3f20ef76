// Where the cache lives, why, and whether that folder can be trusted: what is loaded from it runs on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace jit {

/// A decision. An empty path means: keep everything in memory; `reason` says why, in both cases.
struct CacheDirectory {
  std::string path;    ///< absolute, or empty
  std::string reason;  ///< one phrase for a person, e.g. "XDG_CACHE_HOME"
};

/// Looks up an environment variable: empty when unset. Should hide the environment from set-uid programs.
using Environment = std::function<std::string(const std::string& name)>;

/// Home folder of the effective user by the password database; empty when there is none.
std::string password_home();

/// Chooses, in this order: `explicit_path`, $JIT_ATTENTION_CACHE_DIR, $XDG_CACHE_HOME/jit-attention,
/// $HOME/.cache/jit-attention, the same under `home_of_user()`. Never the system's temporary folder. Unset
/// and empty variables count as absent; a relative XDG_CACHE_HOME and a HOME that is relative or "/" are
/// passed over; a relative path in the first two places gives memory only, because the caller meant something
/// and it cannot be honored. Touches no file.
CacheDirectory choose_cache_directory(const std::string& explicit_path, const Environment& environment,
                                      const std::function<std::string()>& home_of_user = password_home);

/// Who may own a folder and the files in it.
enum class Ownership { user, user_or_root };

/// A folder opened for a few calls, or the reason why not.
struct OpenedDirectory {
  OwnedFile file;
  int error = 0;        ///< errno of the call that failed; 0 when the folder is there but not to be trusted
  std::string refusal;  ///< one sentence; empty when `file` is open
};

/// Opens folder `path` if nobody else can put files into it: it is no symbolic link, has a permitted owner
/// and is not writable by group or others.
OpenedDirectory open_trusted_directory(FileSystem& file_system, const std::string& path, Ownership ownership);

/// Opens a folder of the user's own, created first (mode 0700, missing parents too) when it is
/// missing.
OpenedDirectory open_or_create_directory(FileSystem& file_system, const std::string& path);

/// Why a cache cannot be at `path` (which need not exist) whatever is there: it is no absolute path, or a
/// folder above it may be written by everybody and has no sticky bit. Empty when nothing is wrong. Looks
/// along symbolic links, too.
std::string distrusted_location(const std::string& path);

/// A file that was read, or why not.
struct TrustedFile {
  OwnedFile file;
  struct stat status {};
  std::vector<std::byte> bytes;
  bool absent = false;   ///< there is no such file
  std::string distrust;  ///< not empty: something is there that must not be used
  std::string failure;   ///< not empty: a system call failed
};

/// Reads a whole file (`path` relative to `directory`) if it is a regular file of a permitted owner, not
/// writable by group or others and of at most `max_bytes`.
TrustedFile read_trusted_file(FileSystem& file_system, int directory, const std::string& path,
                              Ownership ownership, std::uint64_t max_bytes);

}  // namespace jit
