#include "runtime/nvrtc_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <jit/error.h>

#include "runtime/build_id.h"
#include "runtime/environment.h"
#include "runtime/python_packages.h"

namespace jit {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string message) {
  throw Error(ErrorCode::nvrtc_unavailable, "compile", "nvrtc", std::move(message));
}

// The version at the end of "prefix13.0"; {0, 0} for other names.
NvrtcVersion version_in_name(std::string_view name, std::string_view prefix) {
  NvrtcVersion version;
  if (!name.starts_with(prefix)) return version;
  const char* end = name.data() + name.size();
  const auto major = std::from_chars(name.data() + prefix.size(), end, version.major);
  if (major.ec == std::errc() && major.ptr != end && *major.ptr == '.') {
    std::from_chars(major.ptr + 1, end, version.minor);
  }
  return version;
}

// The newest builtins library of `folder`, of the given major version unless that is 0.
std::pair<NvrtcVersion, std::string> find_builtins(const fs::path& folder, int major) {
  std::pair<NvrtcVersion, std::string> newest;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    const NvrtcVersion version = version_in_name(name, "libnvrtc-builtins.so.");
    // Not "libnvrtc-builtins.so.13.0.88": NVRTC opens the name that ends with the minor version.
    if (name != fmt::format("libnvrtc-builtins.so.{}.{}", version.major, version.minor)) continue;
    if (major != 0 && version.major != major) continue;
    if (version > newest.first) newest = {version, entry->path()};
  }
  return newest;
}

// The location, or an empty one and why `library` is unsuitable.
std::pair<NvrtcLocation, std::string> examine(const fs::path& library, const std::string& found_by) {
  std::error_code error;
  const fs::path real = fs::canonical(library, error);
  if (error || !fs::is_regular_file(real, error))
    return {{}, fmt::format("{}: not a file", library.string())};
  int major = version_in_name(library.filename().string(), "libnvrtc.so.").major;
  if (major == 0) major = version_in_name(real.filename().string(), "libnvrtc.so.").major;
  fs::path path = fs::absolute(library, error).lexically_normal();
  auto [version, builtins] = find_builtins(path.parent_path(), major);
  if (builtins.empty()) {
    // A symbolic link to another folder: the builtins are next to its target.
    path = real;
    std::tie(version, builtins) = find_builtins(path.parent_path(), major);
  }
  if (builtins.empty()) {
    return {{},
            fmt::format("{}: no libnvrtc-builtins.so.{}.* beside it", library.string(),
                        major == 0 ? "*" : std::to_string(major))};
  }
  if (version < oldest_nvrtc_version) {
    return {{}, fmt::format("{}: is of CUDA {}.{}", library.string(), version.major, version.minor)};
  }
  try {
    return {
        {path, builtins, version, fmt::format("nvrtc {}+{}", build_id(path), build_id(builtins)), found_by},
        ""};
  } catch (const Error& unreadable) {
    return {{}, unreadable.message()};
  }
}

// Why opening the library failed; empty if it was not tried.
std::string why_unopened(const std::string& path, std::span<const UnopenedNvrtc> unopened) {
  const auto found = std::ranges::find(unopened, path, &UnopenedNvrtc::path);
  return found == unopened.end() ? "" : fmt::format("{}: {}", path, found->reason);
}

constexpr const char* library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

NvrtcLocation find_first(std::span<const NvrtcFolder> folders, std::span<const UnopenedNvrtc> unopened,
                         const std::string& advice) {
  std::string tried;
  std::vector<std::string> passed_over;
  for (const NvrtcFolder& folder : folders) {
    std::string reason;
    for (const char* name : library_names) {
      const fs::path library = fs::path(folder.path) / name;
      std::error_code error;
      if (!fs::exists(library, error)) continue;
      auto [location, refused] = examine(library, folder.reason);
      if (refused.empty()) refused = why_unopened(location.path, unopened);
      if (refused.empty()) {
        location.passed_over = std::move(passed_over);
        return location;
      }
      passed_over.push_back(refused);
      reason += (reason.empty() ? "" : "; ") + refused;
    }
    tried += fmt::format("\n  {} ({}){}", folder.path, folder.reason, reason.empty() ? "" : ": " + reason);
  }
  fail(
      fmt::format("no libnvrtc of CUDA {}.{} or later with its libnvrtc-builtins was found; {}. Looked in:{}",
                  oldest_nvrtc_version.major, oldest_nvrtc_version.minor, advice, tried));
}

// NVIDIA's wheels in a folder of Python packages.
void add_wheel_folders(const PackagesFolder& packages, std::vector<NvrtcFolder>& folders) {
  std::error_code error;
  for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}) {
    const fs::path folder = fs::path(packages.path) / wheel;
    if (fs::is_directory(folder, error)) folders.push_back({folder, packages.reason});
  }
}

template <class Function>
void resolve(void* library, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) fail(fmt::format("{} lacks the function {}", path, name));
}

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  const char* reason = dlerror();
  fail(fmt::format("{} cannot be opened: {}", path, reason ? reason : "no reason given"));
}

NvrtcApi open_nvrtc(const NvrtcLocation& location) {
  // Opened first, so that NVRTC uses the builtins that the location and its identity name.
  open_library(location.builtins_path);
  void* library = open_library(location.path);
  NvrtcApi api;
  resolve(library, location.path, "nvrtcVersion", api.nvrtcVersion);
  resolve(library, location.path, "nvrtcGetErrorString", api.nvrtcGetErrorString);
  resolve(library, location.path, "nvrtcCreateProgram", api.nvrtcCreateProgram);
  resolve(library, location.path, "nvrtcDestroyProgram", api.nvrtcDestroyProgram);
  resolve(library, location.path, "nvrtcCompileProgram", api.nvrtcCompileProgram);
  resolve(library, location.path, "nvrtcGetProgramLogSize", api.nvrtcGetProgramLogSize);
  resolve(library, location.path, "nvrtcGetProgramLog", api.nvrtcGetProgramLog);
  resolve(library, location.path, "nvrtcGetPTXSize", api.nvrtcGetPTXSize);
  resolve(library, location.path, "nvrtcGetPTX", api.nvrtcGetPTX);
  resolve(library, location.path, "nvrtcGetCUBINSize", api.nvrtcGetCUBINSize);
  resolve(library, location.path, "nvrtcGetCUBIN", api.nvrtcGetCUBIN);
  if (api.nvrtcVersion(&api.version.major, &api.version.minor) != NVRTC_SUCCESS ||
      api.version != location.version) {
    fail(fmt::format("{} is NVRTC {}.{} and does not match {}", location.path, api.version.major,
                     api.version.minor, location.builtins_path));
  }
  return api;
}

}  // namespace

std::vector<NvrtcFolder> nvrtc_folders() {
  std::vector<NvrtcFolder> folders;
  const auto add_toolkit = [&](const std::string& root, const std::string& reason) {
    if (!fs::path(root).is_absolute()) return;
    for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
      folders.push_back({fs::path(root) / folder, reason});
    }
  };
  add_toolkit(environment("CUDA_HOME"), "CUDA_HOME");
  add_toolkit(environment("CUDA_PATH"), "CUDA_PATH");
  add_toolkit("/usr/local/cuda", "the default folder of the CUDA toolkit");
  const PackagesFolder packages = packages_beside_this_code();
  add_wheel_folders(packages, folders);
  // Conda keeps libraries in PREFIX/lib, above "PREFIX/lib/python3.12/site-packages".
  const fs::path prefix_lib = fs::path(packages.path).parent_path().parent_path();
  if (prefix_lib.filename() == "lib")
    folders.push_back({prefix_lib, "the library folder of the Python of the package jit_attention"});
  for (const std::string& folder : split_paths(environment("LD_LIBRARY_PATH"))) {
    if (fs::path(folder).is_absolute()) folders.push_back({folder, "LD_LIBRARY_PATH"});
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"}) {
    folders.push_back({folder, "a system library folder"});
  }
  for (const PackagesFolder& more : packages_of_environment()) add_wheel_folders(more, folders);
  constexpr std::string_view hint = JIT_ATTENTION_NVRTC_HINT;
  if (!hint.empty())
    folders.push_back({std::string(hint), "the folder that this library was configured with"});
  return folders;
}

NvrtcLocation find_nvrtc(std::span<const NvrtcFolder> folders, std::span<const UnopenedNvrtc> unopened) {
  return find_first(folders, unopened,
                    "install the CUDA toolkit or the wheel nvidia-cuda-nvrtc, or set JIT_ATTENTION_NVRTC");
}

NvrtcLocation find_nvrtc(const std::string& explicit_path, std::span<const UnopenedNvrtc> unopened) {
  if (explicit_path.empty()) return find_nvrtc(nvrtc_folders(), unopened);
  const std::string reason = "set explicitly";
  std::error_code error;
  if (fs::is_directory(explicit_path, error)) {
    const NvrtcFolder folder{explicit_path, reason};
    return find_first({&folder, 1}, unopened, "set JIT_ATTENTION_NVRTC to another folder or unset it");
  }
  auto [location, refused] = examine(explicit_path, reason);
  if (refused.empty()) refused = why_unopened(location.path, unopened);
  if (!refused.empty()) {
    fail(
        fmt::format("the libnvrtc that was set explicitly cannot be used: {}; CUDA {}.{} or later with its "
                    "libnvrtc-builtins is needed",
                    refused, oldest_nvrtc_version.major, oldest_nvrtc_version.minor));
  }
  return location;
}

const NvrtcApi& nvrtc(const NvrtcLocation& location) {
  // Neither is destroyed: compiles may run while the process destroys static objects.
  static std::mutex& mutex = *new std::mutex;
  static auto& opened = *new std::map<std::string, std::unique_ptr<const NvrtcApi>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const NvrtcApi>& api = opened[location.path];
  if (!api) api = std::make_unique<const NvrtcApi>(open_nvrtc(location));
  return *api;
}

}  // namespace jit
