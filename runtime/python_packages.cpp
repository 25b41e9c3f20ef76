#include "runtime/python_packages.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "runtime/environment.h"

namespace jit {
namespace {

namespace fs = std::filesystem;

// Adds the packages folder of each "python3*" folder of `parent`.
void add_packages_below(const fs::path& parent, const std::string& reason,
                        std::vector<PackagesFolder>& folders) {
  std::vector<fs::path> pythons;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with("python3")) pythons.push_back(entry->path());
  }
  std::sort(pythons.rbegin(), pythons.rend());
  for (const fs::path& python : pythons) {
    for (const char* packages : {"site-packages", "dist-packages"})
      folders.push_back({python / packages, reason});
  }
}

}  // namespace

PackagesFolder packages_beside_this_code() {
  const char* const reason = "a wheel beside the package jit_attention";
  Dl_info info{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&packages_beside_this_code), &info) == 0 ||
      info.dli_fname == nullptr)
    return {{}, reason};
  return {fs::absolute(info.dli_fname, error).parent_path().parent_path(), reason};
}

std::vector<PackagesFolder> packages_of_environment() {
  std::vector<PackagesFolder> folders;
  if (const fs::path root = environment("VIRTUAL_ENV"); root.is_absolute())
    add_packages_below(root / "lib", "a wheel in VIRTUAL_ENV", folders);
  if (const fs::path home = environment("HOME"); home.is_absolute())
    add_packages_below(home / ".local/lib", "a wheel of this user", folders);
  for (const char* folder : {"/usr/local/lib", "/usr/lib"})
    add_packages_below(folder, "a system wheel", folders);
  return folders;
}

}  // namespace jit
