#include "cublas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <jit/error.h>

#include "command.h"

namespace jit::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* library_names[] = {"libcublas.so.13", "libcublas.so.12"};

// Adds "site-packages" and "dist-packages" of each Python in a "lib" folder.
void add_wheels(const fs::path& lib, std::vector<fs::path>& folders) {
  std::error_code error;
  for (fs::directory_iterator entry(lib, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cublas/lib"})
        folders.push_back(entry->path() / packages / wheel);
    }
  }
}

std::vector<fs::path> folders_to_look_in() {
  const auto variable = [](const char* name) -> fs::path {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  std::vector<fs::path> folders = {""};  // empty: the dynamic linker's search path
  if (const fs::path home = variable("CUDA_HOME"); home.is_absolute()) folders.push_back(home / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  if (const fs::path root = variable("VIRTUAL_ENV"); root.is_absolute()) add_wheels(root / "lib", folders);
  if (const fs::path home = variable("HOME"); home.is_absolute()) add_wheels(home / ".local/lib", folders);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"}) add_wheels(lib, folders);
  return folders;
}

void* open_first(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw BadInput(
      "neither libcublas.so.13 nor libcublas.so.12 can be opened from LD_LIBRARY_PATH, CUDA_HOME, "
      "/usr/local/cuda or "
      "NVIDIA's wheels; install the CUDA toolkit, or nvidia-cublas in the active virtual environment");
}

// Constants of cublas_v2.h and library_types.h.
constexpr int success = 0, not_transposed = 0, transposed = 1, type_bf16 = 14, compute_fp32 = 68,
              any_algorithm = -1;

}  // namespace

struct Cublas::Library {
  using Handle = void*;

  explicit Library(const std::vector<std::string>& files) : library(open_first(files)) {
    resolve("cublasCreate_v2", create);
    resolve("cublasDestroy_v2", destroy);
    resolve("cublasGetVersion_v2", get_version);
    resolve("cublasSetStream_v2", set_stream);
    resolve("cublasGemmEx", gemm);
    check(create(&handle), "cublasCreate");
  }
  ~Library() { destroy(handle); }

  template <class Function>
  void resolve(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw BadInput(fmt::format("libcublas lacks the function {}", name));
  }
  static void check(int status, const char* function) {
    if (status != success)
      throw Error(ErrorCode::launch_failed, "launch", "",
                  fmt::format("{} failed with status {}", function, status));
  }

  void* const library;  // stays open until the program ends: cuBLAS registers code with the driver
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*get_version)(Handle, int*) = nullptr;
  int (*set_stream)(Handle, Stream) = nullptr;
  int (*gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
              const void*, void*, int, int, int, int) = nullptr;
  Handle handle = nullptr;
};

std::vector<std::string> cublas_files() {
  std::vector<std::string> files;
  for (const fs::path& folder : folders_to_look_in()) {
    for (const char* name : library_names) files.push_back(folder / name);
  }
  return files;
}

Cublas::Cublas(const std::vector<std::string>& files) : library_(std::make_unique<Library>(files)) {}
Cublas::~Cublas() = default;

std::string Cublas::name() const {
  int version = 0;
  Library::check(library_->get_version(library_->handle, &version), "cublasGetVersion");
  return fmt::format("cuBLAS {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// cuBLAS is column-major and reads row-major matrices as their transposes: it computes Cᵀ = B Aᵀ.
void Cublas::multiply(const MatmulArguments& arguments, Stream stream) const {
  const auto whole = [](std::int64_t number) { return static_cast<int>(number); };
  const TensorView &a = arguments.a, &b = arguments.b, &c = arguments.c;
  const float one = 1, zero = 0;
  Library::check(library_->set_stream(library_->handle, stream), "cublasSetStream");
  Library::check(library_->gemm(library_->handle, transposed, not_transposed, whole(c.shape[1]),
                                whole(c.shape[0]), whole(a.shape[1]), &one, b.data, type_bf16,
                                whole(b.strides[0]), a.data, type_bf16, whole(a.strides[0]), &zero, c.data,
                                type_bf16, whole(c.strides[0]), compute_fp32, any_algorithm),
                 "cublasGemmEx");
}

}  // namespace jit::tool
