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

/// The oldest supported NVRTC.
inline constexpr NvrtcVersion oldest_nvrtc_version{12, 8};

/// One libnvrtc on disk, with the builtins library that belongs to it.
struct NvrtcLocation {
  std::string path;           ///< absolute path of libnvrtc
  std::string builtins_path;  ///< absolute path of libnvrtc-builtins
  NvrtcVersion version;       ///< from the name of the builtins library, which must match NVRTC exactly
  std::string identity;  ///< "nvrtc <build-id of libnvrtc>+<build-id of the builtins>": part of cache keys
  std::string found_by;  ///< reason to search there, e.g. "CUDA_HOME"
  std::vector<std::string> passed_over = {};  ///< libraries rejected before it, with reasons
};

/// A folder that may hold libnvrtc and the reason to look there.
struct NvrtcFolder {
  std::string path;
  std::string reason;
};

/// A libnvrtc that exists but cannot be opened.
struct UnopenedNvrtc {
  std::string path;
  std::string reason;
};

/// The folders to search, best first, from the environment: CUDA_HOME, CUDA_PATH, /usr/local/cuda, PyPI's NVIDIA wheels
/// and the library folder beside the Python package, LD_LIBRARY_PATH, system library folders, other wheels, and the
/// folder that this build was configured with.
std::vector<NvrtcFolder> nvrtc_folders();

/// The first libnvrtc of `folders` with matching builtins and a supported version. Opens nothing; skips
/// libraries of `unopened`. Throws Error nvrtc_unavailable, listing the candidates and why each was rejected.
NvrtcLocation find_nvrtc(std::span<const NvrtcFolder> folders, std::span<const UnopenedNvrtc> unopened = {});

/// The library at `explicit_path` (a file, or a folder with libnvrtc), or if that is empty, the search above.
NvrtcLocation find_nvrtc(const std::string& explicit_path, std::span<const UnopenedNvrtc> unopened = {});

// Declarations of NVRTC that the library uses, since its header comes in a package of 90 MB.
enum nvrtcResult : int { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };
using nvrtcProgram = struct NvrtcProgramObject*;

/// The functions of an opened libnvrtc, by their own names.
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

/// Opens the library on the first call for its path and keeps it open until the process ends. Throws Error
/// nvrtc_unavailable if it cannot be opened or does not match its builtins.
const NvrtcApi& nvrtc(const NvrtcLocation& location);

}  // namespace jit
