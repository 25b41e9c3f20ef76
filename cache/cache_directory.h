// Chooses the cache's folder and checks that it can be trusted, since code loaded from it runs on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace jit {

/// The chosen folder. An empty path means that everything stays in memory. `reason` says why, in both cases.
struct CacheDirectory {
  std::string path;    ///< absolute, or empty
  std::string reason;  ///< one phrase for a person, e.g. "XDG_CACHE_HOME"
};

/// Looks up an environment variable: empty when unset. Should hide the environment from set-uid programs.
using Environment = std::function<std::string(const std::string& name)>;

/// Home folder of the effective user in the password database; empty if it has none.
std::string password_home();

/// Chooses, in this order: `explicit_path`, $JIT_ATTENTION_CACHE_DIR, $XDG_CACHE_HOME/jit-attention,
/// $HOME/.cache/jit-attention, `home_of_user()`/.cache/jit-attention; never the system's temporary folder.
/// Unset and empty variables count as absent; a relative XDG_CACHE_HOME, and a HOME that is relative or "/",
/// are skipped. A relative path in one of the first two places gives memory only, because the caller's
/// request cannot be honored. Touches no file.
CacheDirectory choose_cache_directory(const std::string& explicit_path, const Environment& environment,
                                      const std::function<std::string()>& home_of_user = password_home);

/// Permitted owners of a folder and its files.
enum class Ownership { user, user_or_root };

/// A folder opened for a few calls, or the reason why not.
struct OpenedDirectory {
  OwnedFile file;
  int error = 0;        ///< errno of the failed call; 0 if the folder exists but is not trusted
  std::string refusal;  ///< one sentence; empty when `file` is open
};

/// Opens folder `path` if nobody else can put files into it: it is no symbolic link, its owner is permitted,
/// and group and others cannot write to it.
OpenedDirectory open_trusted_directory(FileSystem& file_system, const std::string& path, Ownership ownership);

/// Opens a folder that the user owns; creates it (mode 0700) and its missing parents first.
OpenedDirectory open_or_create_directory(FileSystem& file_system, const std::string& path);

/// Why no cache may be at `path` (which need not exist): it is not absolute, or everybody can write to a
/// folder above it that has no sticky bit. Empty if it may. Follows symbolic links, too.
std::string distrusted_location(const std::string& path);

/// A file's status and content, or why it was not read.
struct TrustedFile {
  OwnedFile file;
  struct stat status {};
  std::vector<std::byte> bytes;
  bool absent = false;   ///< the file does not exist
  std::string distrust;  ///< not empty: why the existing file must not be used
  std::string failure;   ///< not empty: a system call failed
};

/// Reads a whole file (`path` relative to `directory`) if it is a regular file of a permitted owner, not
/// writable by group or others and of at most `max_bytes`.
TrustedFile read_trusted_file(FileSystem& file_system, int directory, const std::string& path,
                              Ownership ownership, std::uint64_t max_bytes);

}  // namespace jit
