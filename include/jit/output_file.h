/// @file
/// Output files that are checked early, and then written completely or not at all.
///
/// @code
/// const jit::OutputFile file(folder + "/result.bin");  // fails now if nothing can be written there
/// const std::string text = "whole, or not at all";
/// file.write({std::as_bytes(std::span(text))});
/// assert(file.replaces() && file.path() == folder + "/result.bin");
/// assert(jit::is_same_file(folder + "/result.bin", folder + "/./result.bin"));
/// const jit::OutputFile other(folder + "/other.bin");
/// jit::write_together({{file, std::as_bytes(std::span(text))}, {other, std::as_bytes(std::span(text))}});
/// @endcode
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace jit {

class FileSystem;

/// A file to write, given by its path. Symbolic links are followed, also to files that do not exist yet. A regular file
/// is replaced atomically once all bytes are on disk: after an error, a full disk or the death of the process it is
/// unchanged, and keeps its permissions. A process that is killed while it replaces a file may leave a file .tmp-…
/// beside it, which a later write in that folder removes after an hour. Devices, pipes and open files of the process
/// (/dev/stdout) are written directly.
class OutputFile {
 public:
  /// Finds the place and tries whether a file can be written there; leaves nothing behind. Throws Error
  /// io_error when not. `file_system` is not owned; null: the real one.
  explicit OutputFile(std::string path, FileSystem* file_system = nullptr);

  /// As it was given.
  const std::string& path() const { return path_; }

  /// Whether writing replaces a file or makes a new one, and does not write into what is there.
  bool replaces() const { return !name_.empty(); }

  /// Writes these bytes, part after part. Throws Error io_error. Thread safe.
  void write(std::initializer_list<std::span<const std::byte>> parts) const;

  class Filled;  ///< bytes on the disk that have not got the file's name yet

 private:
  FileSystem* file_system_;
  std::string path_;
  int descriptor_ = -1;          // of this process that the path stands for
  std::string folder_;           // of the file behind all links
  std::string name_;             // in that folder; empty: write into what is there
  unsigned permissions_ = 0666;  // of the file
  bool is_new_ = true;           // the umask may take permissions away
};

/// Writes files together: where the bytes of one find no room, no file is made or replaced; devices and pipes are
/// written last. Throws Error io_error.
void write_together(const std::vector<std::pair<OutputFile, std::span<const std::byte>>>& outputs);

/// Whether two paths lead to the same file, or would if it were there.
bool is_same_file(const std::string& one, const std::string& other);

}  // namespace jit
