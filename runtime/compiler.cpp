#include "runtime/compiler.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/error.h>

#include "runtime/compile_log.h"
#include "runtime/kept_signal_handlers.h"
#include "runtime/resource_usage.h"

namespace jit {
namespace {

// State of the process, not of the library: in a child forked while another thread was compiling, NVRTC's
// locks stay locked for ever, and a compile would hang.
std::atomic<int> compiles_in_flight{0};
std::atomic<bool> forked_while_compiling{false};

[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  if (compiles_in_flight.exchange(0) > 0) forked_while_compiling = true;
});

class CompileInFlight {
 public:
  CompileInFlight() {
    if (forked_while_compiling) {
      throw Error(
          ErrorCode::compile_failed, "compile", "process",
          "forked while compiling: this process was forked while another thread was compiling, and can "
          "compile no more; start worker processes before the first compile, or with exec");
    }
    ++compiles_in_flight;
  }
  ~CompileInFlight() { --compiles_in_flight; }
  CompileInFlight(const CompileInFlight&) = delete;
  CompileInFlight& operator=(const CompileInFlight&) = delete;
};

// NVRTC recurses over nested constructs, which may be as deep as a text is long: 16,000 times "!" took 2.4 KB
// each.
std::size_t stack_for(const CompileRequest& request) {
  constexpr std::size_t bytes_per_character = 4096;
  return (std::size_t{16} << 20) + request.source.size() * bytes_per_character;
}

// Runs `work` on its own thread: callers may have a small stack, on which NVRTC crashes. Starting the thread
// takes some 45 µs, compiling an empty kernel 15 ms.
// Meanwhile it calls `meanwhile` each millisecond, and once when the work is done.
void run_on_large_stack(std::size_t stack_bytes, const std::function<void()>& work,
                        const std::function<void()>& meanwhile) {
  struct Task {
    const std::function<void()>& work;
    std::exception_ptr failure;
  } task{work, nullptr};
  const auto body = [](void* argument) -> void* {
    Task& task = *static_cast<Task*>(argument);
    try {
      task.work();
    } catch (...) {
      task.failure = std::current_exception();
    }
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  // Blocks all signals, which the program's own threads must handle.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, body, &task);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    throw Error(ErrorCode::compile_failed, "compile", "process",
                fmt::format("no thread to compile on could be started: {}", std::strerror(error)));
  }
  for (bool is_done = false; !is_done;) {
    timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 1'000'000;
    if (soon.tv_nsec >= 1'000'000'000) {
      ++soon.tv_sec;
      soon.tv_nsec -= 1'000'000'000;
    }
    is_done = pthread_timedjoin_np(thread, nullptr, &soon) != ETIMEDOUT;
    meanwhile();
  }
  if (task.failure) std::rethrow_exception(task.failure);
}

class NvrtcProgram {
 public:
  NvrtcProgram(const NvrtcApi& api, const CompileRequest& request) : api_(api) {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const SourceFile& header : request.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    const nvrtcResult result =
        api.nvrtcCreateProgram(&program_, request.source.c_str(), request.name.c_str(),
                               static_cast<int>(request.headers.size()), texts.data(), names.data());
    if (result != NVRTC_SUCCESS) {
      throw Error(ErrorCode::compile_failed, "compile", "source",
                  fmt::format("nvrtcCreateProgram failed: {}", api.nvrtcGetErrorString(result)));
    }
  }
  ~NvrtcProgram() { api_.nvrtcDestroyProgram(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  nvrtcResult compile(const std::vector<std::string>& options) const {
    std::vector<const char*> arguments;
    for (const std::string& option : options) arguments.push_back(option.c_str());
    return api_.nvrtcCompileProgram(program_, static_cast<int>(arguments.size()), arguments.data());
  }

  std::string log() const { return text(api_.nvrtcGetProgramLogSize, api_.nvrtcGetProgramLog); }
  std::string ptx() const { return text(api_.nvrtcGetPTXSize, api_.nvrtcGetPTX); }
  std::vector<std::byte> cubin() const {
    std::vector<std::byte> bytes(size(api_.nvrtcGetCUBINSize));
    if (!bytes.empty()) api_.nvrtcGetCUBIN(program_, reinterpret_cast<char*>(bytes.data()));
    return bytes;
  }

 private:
  std::size_t size(nvrtcResult (*get_size)(nvrtcProgram, std::size_t*)) const {
    std::size_t bytes = 0;
    return get_size(program_, &bytes) == NVRTC_SUCCESS ? bytes : 0;
  }

  std::string text(nvrtcResult (*get_size)(nvrtcProgram, std::size_t*),
                   nvrtcResult (*get)(nvrtcProgram, char*)) const {
    std::string result(size(get_size), '\0');
    if (!result.empty()) get(program_, result.data());
    result.resize(std::strlen(result.c_str()));  // NVRTC counts the terminating zero
    return result;
  }

  const NvrtcApi& api_;
  nvrtcProgram program_ = nullptr;
};

struct Outcome {
  nvrtcResult result = NVRTC_SUCCESS;
  std::vector<std::byte> cubin;
  std::string ptx;
  std::string log;
};

Outcome run(const NvrtcApi& api, const CompileRequest& request, const std::vector<std::string>& options) {
  const NvrtcProgram program(api, request);
  const nvrtcResult result = program.compile(options);
  return {result, program.cubin(), program.ptx(), program.log()};
}

// The base_options that this NVRTC supports, then the caller's.
std::vector<std::string> options_for(const NvrtcApi& api, const CompileRequest& request) {
  std::vector<std::string> options = base_options(request.arch);
  // NVRTC has an own cache, and the option that disables it, since 12.9.
  if (api.version < NvrtcVersion{12, 9}) std::erase(options, "--no-cache");
  options.insert(options.end(), request.options.begin(), request.options.end());
  return options;
}

std::string ptx_target(Arch arch) {
  return "--gpu-architecture=compute_" + to_string(arch).substr(std::strlen("sm_"));
}

// The folder in a name: "/jit-attention/" of "/jit-attention/kernel.cu".
std::string_view folder_of(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash + 1);
}

// The first line with an error: "mask:3: error: identifier "x" is undefined". Warnings, and the source lines
// after them, may contain the word, too.
std::string_view first_error(std::string_view log) {
  for (std::size_t begin = 0, end = 0; begin < log.size(); begin = end + 1) {
    end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = log.substr(begin, end - begin);
    const bool is_of_warning = line.starts_with(' ') || line.find(": warning ") != std::string_view::npos;
    if (!is_of_warning && line.find("error") != std::string_view::npos) return line;
  }
  return {};
}

Error describe_failure(const NvrtcApi& api, const CompileRequest& request, std::vector<std::string> options,
                       const Outcome& outcome) {
  const std::string_view folder = folder_of(request.name);
  std::string message =
      fmt::format("{} does not compile for {}", request.name.substr(folder.size()), to_string(request.arch));
  std::string log = with_plain_locations(outcome.log, folder);
  if (has_assembler_error(outcome.log)) {
    // ptxas names lines of PTX; a second compile with line information maps these to the source.
    std::erase(options, "-lineinfo");
    std::erase(options, "--generate-line-info");
    options.push_back("-lineinfo");  // NVRTC refuses an option that is given twice
    const Outcome located = run(api, request, options);
    log = locate_assembler_errors(located.log, located.ptx, folder) + log;
  }
  const auto is_header = [&](std::string_view name) {
    return std::any_of(request.headers.begin(), request.headers.end(),
                       [&](const SourceFile& header) { return header.name == name; });
  };
  log = without_warnings_about(is_header, log);
  if (const std::string_view error = first_error(log); !error.empty()) {
    message += fmt::format(": {}", error);
  } else {
    const ResourceUsage usage = parse_resource_usage(outcome.log, request.kernel);
    message += fmt::format(": {}, and NVRTC gives no reason; options: {}",
                           api.nvrtcGetErrorString(outcome.result), fmt::join(options, " "));
    if (usage.static_smem_bytes > 48 * 1024) {
      message += fmt::format("; it asks for {} bytes of static shared memory", usage.static_smem_bytes);
    }
  }
  return Error({.code = ErrorCode::compile_failed,
                .stage = "compile",
                .message = std::move(message),
                .field = "source",
                .native_code = static_cast<int>(outcome.result),
                .log = std::move(log),
                .source = request.source});
}

// Compiles to a cubin if `want_cubin`, else to PTX only.
CompileResult compile_whole(const NvrtcLocation& location, const CompileRequest& request, bool want_cubin) {
  const auto start = std::chrono::steady_clock::now();
  const CompileInFlight in_flight;
  const NvrtcApi& api = nvrtc(location);
  Outcome outcome;
  KeptSignalHandlers handlers(reinterpret_cast<const void*>(api.nvrtcCompileProgram));
  const auto work = [&] {
    std::vector<std::string> options = options_for(api, request);
    if (!want_cubin) options.front() = ptx_target(request.arch);
    outcome = run(api, request, options);
    const bool complete = want_cubin ? !outcome.cubin.empty() : !outcome.ptx.empty();
    if (outcome.result != NVRTC_SUCCESS || !complete) throw describe_failure(api, request, options, outcome);
  };
  run_on_large_stack(stack_for(request), work, [&] { handlers.restore(); });
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  CompileResult result;
  if (want_cubin) result.resources = parse_resource_usage(outcome.log, request.kernel);
  result.cubin = std::move(outcome.cubin);
  result.ptx = std::move(outcome.ptx);
  result.warnings = compiler_warnings(outcome.log, folder_of(request.name));
  result.log = std::move(outcome.log);
  result.milliseconds = elapsed.count();
  return result;
}

}  // namespace

std::vector<std::string> base_options(Arch arch) {
  return {
      "--gpu-architecture=" + to_string(arch),
      "--std=c++20",
      // Functors and layout functions have no __device__; the latter are shared with the host.
      "--device-as-default-execution-space",
      "--minimal",
      // Makes the result depend only on the request, not on the current folder or NVRTC's own cache.
      "--no-source-include",
      "--no-cache",
      // Undefined behavior that C++ compiles with a warning is an error in a kernel: functions that end
      // without a value (117, 940), variables read before they are set (549), dangling references (836). A
      // text that forgets a `return` would compute wrong results.
      "--diag-error=117,549,836,940",
      // Otherwise NVRTC raises the stack limit of the whole process during a compile.
      "--modify-stack-limit=false",
      "--ptxas-options=-v",
      "--ptxas-options=--warn-on-spills",
      "--ptxas-options=--warn-on-local-memory-usage",
  };
}

CompileResult compile(const NvrtcLocation& location, const CompileRequest& request) {
  return compile_whole(location, request, true);
}

CompileResult compile_to_ptx(const NvrtcLocation& location, const CompileRequest& request) {
  return compile_whole(location, request, false);
}

}  // namespace jit
