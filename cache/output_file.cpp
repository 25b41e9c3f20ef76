#include <jit/output_file.h>

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/error.h>

#include "cache/atomic_file.h"

namespace jit {

// A file being written: with a temporary name or, where the system supports it, without one, so that a killed
// process leaves no file.
struct OutputDraft {
  OwnedFile file;
  bool has_name = false;
};

namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;  // Linux's limit

// The folder of a path, by its canonical name.
fs::path real_folder(const fs::path& path) {
  std::error_code missing;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path real = fs::canonical(folder, missing);
  return missing ? folder : real;
}

// A path, the target of its symbolic link, that one's target, and so on; the last file need not exist.
std::vector<fs::path> chain_of_links(const fs::path& path) {
  std::vector<fs::path> chain = {path};
  for (int links = 0; links < most_links; ++links) {
    std::error_code no_link;
    const fs::path target = fs::read_symlink(chain.back(), no_link);
    if (no_link) break;
    chain.push_back(chain.back().parent_path() / target);
  }
  return chain;
}

fs::path real_place(const std::string& path) {
  const fs::path place = chain_of_links(path).back();
  return real_folder(place) / place.filename();
}

// The descriptor of this process that a path such as /dev/stdout refers to; -1 if none.
int descriptor_of(const std::string& path) {
  std::error_code missing;
  const fs::path descriptors = fs::canonical("/proc/self/fd", missing);
  for (const fs::path& link : chain_of_links(path)) {
    if (!missing && real_folder(link) == descriptors) return std::atoi(link.filename().c_str());
  }
  return -1;
}

std::string name_of_open_file(int file) { return fmt::format("/proc/self/fd/{}", file); }

OutputDraft open_draft(FileSystem& file_system, int folder, const std::string& name, mode_t mode) {
  OwnedFile nameless(file_system, file_system.openat(folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
  if (nameless && ::access(name_of_open_file(nameless.get()).c_str(), F_OK) == 0)
    return {std::move(nameless), false};
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  return {OwnedFile(file_system, file_system.openat(folder, name.c_str(), flags, mode)), true};
}

FileFailure fill(FileSystem& file_system, int file, std::initializer_list<std::span<const std::byte>> parts) {
  for (const std::span<const std::byte> part : parts) {
    if (FileFailure failure = write_all(file_system, file, part)) return failure;
  }
  return {};
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::io_error, "write", "path", fmt::format("{} cannot be written: {}", path, why));
}

void refuse_if(const FileFailure& failure, const std::string& path) {
  if (failure) refuse(path, failure.message());
}

OwnedFile open_folder(FileSystem& file_system, const std::string& folder, const std::string& path) {
  OwnedFile opened(file_system,
                   file_system.openat(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) refuse(path, FileFailure{"folder " + folder, errno}.message());
  return opened;
}

}  // namespace

OutputFile::OutputFile(std::string path, FileSystem* file_system)
    : file_system_(file_system == nullptr ? &real_file_system() : file_system), path_(std::move(path)) {
  if (path_.empty()) refuse("''", "a file name is needed");
  struct stat status;
  const bool exists = file_system_->fstatat(AT_FDCWD, path_.c_str(), &status, 0) == 0;
  if (!exists && errno != ENOENT) refuse_if({"stat", errno}, path_);
  descriptor_ = descriptor_of(path_);
  const fs::path place = real_place(path_);
  if ((exists && S_ISDIR(status.st_mode)) || !place.has_filename()) refuse(path_, "it is a folder");
  if (exists && ::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) != 0)
    refuse_if({"access", errno}, path_);
  if (descriptor_ >= 0 || (exists && !S_ISREG(status.st_mode))) return;
  folder_ = place.parent_path().string();
  name_ = place.filename().string();
  is_new_ = !exists;
  if (exists) permissions_ = status.st_mode & 0777;

  const OwnedFile folder = open_folder(*file_system_, folder_, path_);
  const std::string trial = temporary_name();
  if (trial.empty()) refuse_if({"getrandom", errno}, path_);
  const OutputDraft tried = open_draft(*file_system_, folder.get(), trial, 0600);
  if (!tried.file) refuse_if({"open", errno}, path_);
  if (tried.has_name) file_system_->unlinkat(folder.get(), trial.c_str(), 0);
}

// A file's whole content on disk, under a temporary name or none, until `publish` gives it the file's name.
class OutputFile::Filled {
 public:
  Filled(const OutputFile& output, std::initializer_list<std::span<const std::byte>> parts)
      : output_(output), folder_(open_folder(*output.file_system_, output.folder_, output.path_)) {
    temporary_ = temporary_name();
    if (temporary_.empty()) refuse_if({"getrandom", errno}, output_.path_);
    draft_ = open_draft(files(), folder_.get(), temporary_, output_.permissions_);
    if (!draft_.file) refuse_if({"open", errno}, output_.path_);
    const int file = draft_.file.get();
    FileFailure failure = fill(files(), file, parts);
    if (!failure && !output_.is_new_ && ::fchmod(file, output_.permissions_) != 0) failure = {"chmod", errno};
    if (!failure && files().fsync(file) != 0) failure = {"fsync", errno};
    if (failure) discard();
    refuse_if(failure, output_.path_);
  }
  Filled(Filled&& other) noexcept
      : output_(other.output_),
        folder_(std::move(other.folder_)),
        temporary_(std::move(other.temporary_)),
        draft_(std::move(other.draft_)) {
    other.draft_.has_name = false;
  }
  Filled& operator=(Filled&&) = delete;
  ~Filled() { discard(); }

  /// Gives it a temporary name in the file's folder, a step that may fail for lack of disk space.
  void name() {
    if (draft_.has_name) return;
    const std::string open_file = name_of_open_file(draft_.file.get());
    if (::linkat(AT_FDCWD, open_file.c_str(), folder_.get(), temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      refuse_if({"link", errno}, output_.path_);
    draft_.has_name = true;
  }

  /// Gives the draft the file's name.
  void publish() {
    if (!is_published_at_once()) replace();
    remove_abandoned(files(), folder_.get(), ".");
  }

 private:
  FileSystem& files() const { return *output_.file_system_; }

  void replace() {
    name();
    if (draft_.file.reset() != 0) refuse_if({"close", errno}, output_.path_);
    if (files().renameat(folder_.get(), temporary_.c_str(), folder_.get(), output_.name_.c_str()) != 0)
      refuse_if({"rename", errno}, output_.path_);
    draft_.has_name = false;
  }

  // Links a file that does not exist yet directly under its final name, so that a kill leaves no temporary
  // file.
  bool is_published_at_once() {
    if (draft_.has_name || !output_.is_new_) return false;
    const std::string open_file = name_of_open_file(draft_.file.get());
    return ::linkat(AT_FDCWD, open_file.c_str(), folder_.get(), output_.name_.c_str(), AT_SYMLINK_FOLLOW) ==
           0;
  }

  void discard() {
    if (draft_.has_name) files().unlinkat(folder_.get(), temporary_.c_str(), 0);
    draft_.has_name = false;
  }

  const OutputFile& output_;
  OwnedFile folder_;
  std::string temporary_;
  OutputDraft draft_;
};

void OutputFile::write(std::initializer_list<std::span<const std::byte>> parts) const {
  if (replaces()) return Filled(*this, parts).publish();
  // Duplicates the descriptor of an open file: reopened, it would be written from offset 0.
  OwnedFile file(*file_system_, descriptor_ >= 0 ? ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0)
                                                 : file_system_->openat(AT_FDCWD, path_.c_str(),
                                                                        O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (!file) refuse_if({"open", errno}, path_);
  refuse_if(fill(*file_system_, file.get(), parts), path_);
  if (file.reset() != 0) refuse_if({"close", errno}, path_);
}

void write_together(const std::vector<std::pair<OutputFile, std::span<const std::byte>>>& outputs) {
  std::vector<OutputFile::Filled> drafts;
  drafts.reserve(outputs.size());
  for (const auto& [file, bytes] : outputs) {
    if (file.replaces()) drafts.emplace_back(file, std::initializer_list<std::span<const std::byte>>{bytes});
  }
  for (OutputFile::Filled& draft : drafts) draft.name();
  for (OutputFile::Filled& draft : drafts) draft.publish();
  for (const auto& [file, bytes] : outputs) {
    if (!file.replaces()) file.write({bytes});
  }
}

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code absent;
  return fs::equivalent(one, other, absent) || real_place(one) == real_place(other);
}

}  // namespace jit
