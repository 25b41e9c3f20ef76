// Finding libnvrtc without opening it, and opening it when the first compile needs it. A process whose
// kernels all come from the cache never maps the library. Thread safe.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

#include <nvrtc.h>

namespace jit {

struct NvrtcVersion {
  int major = 0;
  int minor = 0;
  auto operator<=>(const NvrtcVersion&) const = default;
};

/// Oldest NVRTC that the library works with.
inline constexpr NvrtcVersion oldest_nvrtc_version{12, 8};

/// One libnvrtc on disk, with the builtins library that belongs to it.
struct NvrtcLocation {
  std::string path;           ///< absolute path of libnvrtc
  std::string builtins_path;  ///< absolute path of libnvrtc-builtins
  NvrtcVersion version;       ///< from the name of the builtins, which NVRTC wants to match exactly
  std::string identity;  ///< "nvrtc <build-id of libnvrtc>+<build-id of the builtins>": part of cache keys
  std::string found_by;  ///< why this one, e.g. "CUDA_HOME"
};

/// A folder that may hold libnvrtc and the reason to look there.
struct NvrtcFolder {
  std::string path;
  std::string reason;
};

/// The folders to search, best first, from the environment: CUDA_HOME, CUDA_PATH, /usr/local/cuda,
/// LD_LIBRARY_PATH, system library folders, PyPI's NVIDIA wheels and the folder that this build was
/// configured with.
std::vector<NvrtcFolder> nvrtc_folders();

/// The first libnvrtc of `folders` with matching builtins and a supported version. Opens nothing.
/// Libraries at the paths `unopened` are passed over. Throws Error nvrtc_unavailable, listing what was tried and why it was
/// refused.
NvrtcLocation find_nvrtc(std::span<const NvrtcFolder> folders, std::span<const std::string> unopened = {});

/// `explicit_path` (a file, or a folder with libnvrtc) and nothing else when it is not empty, else the search
/// above.
NvrtcLocation find_nvrtc(const std::string& explicit_path, std::span<const std::string> unopened = {});

/// The functions of an opened libnvrtc, under their own names.
struct NvrtcApi {
  NvrtcVersion version;
  decltype(&::nvrtcVersion) nvrtcVersion = nullptr;
  decltype(&::nvrtcGetErrorString) nvrtcGetErrorString = nullptr;
  decltype(&::nvrtcCreateProgram) nvrtcCreateProgram = nullptr;
  decltype(&::nvrtcDestroyProgram) nvrtcDestroyProgram = nullptr;
  decltype(&::nvrtcCompileProgram) nvrtcCompileProgram = nullptr;
  decltype(&::nvrtcGetProgramLogSize) nvrtcGetProgramLogSize = nullptr;
  decltype(&::nvrtcGetProgramLog) nvrtcGetProgramLog = nullptr;
  decltype(&::nvrtcGetPTXSize) nvrtcGetPTXSize = nullptr;
  decltype(&::nvrtcGetPTX) nvrtcGetPTX = nullptr;
  decltype(&::nvrtcGetCUBINSize) nvrtcGetCUBINSize = nullptr;
  decltype(&::nvrtcGetCUBIN) nvrtcGetCUBIN = nullptr;
};

/// Opens the library on the first call for this path and keeps it open for the life of the process.
/// Throws Error nvrtc_unavailable when it cannot be opened or does not match its builtins.
const NvrtcApi& nvrtc(const NvrtcLocation& location);

}  // namespace jit
