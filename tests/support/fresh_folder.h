// Files of a test: a folder that goes with it, and what is written and read there.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace jit::testing {

/// A new empty folder (mode 0700) that goes with the object; in memory where the system has such a place,
/// because the tests make many thousand files.
class FreshFolder {
 public:
  FreshFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = access(memory.c_str(), W_OK | X_OK) == 0;
    std::string name =
        ((usable ? memory : std::filesystem::temp_directory_path()) / "jit-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  FreshFolder(const FreshFolder&) = delete;
  FreshFolder& operator=(const FreshFolder&) = delete;
  ~FreshFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// The bytes of a file; empty when it cannot be read.
inline std::string read_text(const std::string& path) {
  std::ostringstream
      text;  // a block at a time: iterators read a byte at a time, which takes long where tests are at -O0
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace jit::testing
