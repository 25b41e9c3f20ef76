// Finding libnvrtc without opening it, and opening it when the first compile needs it. A process whose
// kernels all come from the cache never maps the library. Thread safe.
#pragma once

#include <compare>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

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
  std::vector<std::string> passed_over = {};  ///< those found before it, each with the reason why not
};

/// A folder that may hold libnvrtc and the reason to look there.
struct NvrtcFolder {
  std::string path;
  std::string reason;
};

/// A libnvrtc that was found and cannot be opened.
struct UnopenedNvrtc {
  std::string path;
  std::string reason;
};

/// The folders to search, best first, from the environment: CUDA_HOME, CUDA_PATH, /usr/local/cuda, PyPI's NVIDIA wheels
/// and the library folder beside the Python package, LD_LIBRARY_PATH, system library folders, other wheels, and the
/// folder that this build was configured with.
std::vector<NvrtcFolder> nvrtc_folders();

/// The first libnvrtc of `folders` with matching builtins and a supported version. Opens nothing.
/// Libraries of `unopened` are passed over. Throws Error nvrtc_unavailable, listing what was tried and why it was
/// refused.
NvrtcLocation find_nvrtc(std::span<const NvrtcFolder> folders, std::span<const UnopenedNvrtc> unopened = {});

/// `explicit_path` (a file, or a folder with libnvrtc) and nothing else when it is not empty, else the search
/// above.
NvrtcLocation find_nvrtc(const std::string& explicit_path, std::span<const UnopenedNvrtc> unopened = {});

// NVRTC's own declarations, as far as the library calls it: its header comes in a package of 90 MB.
enum nvrtcResult : int { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };
using nvrtcProgram = struct NvrtcProgramObject*;

/// The functions of an opened libnvrtc, under their own names.
struct NvrtcApi {
  NvrtcVersion version;
  nvrtcResult (*nvrtcVersion)(int* major, int* minor) = nullptr;
  const char* (*nvrtcGetErrorString)(nvrtcResult) = nullptr;
  nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram*, const char* source, const char* name, int header_count,
                                    const char* const* headers, const char* const* include_names) = nullptr;
  nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram*) = nullptr;
  nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram, int option_count, const char* const* options) = nullptr;
  nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram, std::size_t*) = nullptr;
  nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram, char*) = nullptr;
  nvrtcResult (*nvrtcGetPTXSize)(nvrtcProgram, std::size_t*) = nullptr;
  nvrtcResult (*nvrtcGetPTX)(nvrtcProgram, char*) = nullptr;
  nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram, std::size_t*) = nullptr;
  nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram, char*) = nullptr;
};

/// Opens the library on the first call for this path and keeps it open for the life of the process.
/// Throws Error nvrtc_unavailable when it cannot be opened or does not match its builtins.
const NvrtcApi& nvrtc(const NvrtcLocation& location);

}  // namespace jit
