#include <jit/xla.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/context.h>
#include <jit/device.h>
#include <jit/error.h>
#include <jit/list_gradients.h>

#include "generator/functors/functor_tensors.h"
#include "generator/tensors/tensor_checks.h"
#include "xla/abi.h"
#include "xla/arguments.h"
#include "xla/problem.h"
#include "xla/staged.h"

namespace jit::xla {
namespace {

enum class Platform { cuda, host };

// Never destroyed: XLA's threads may compute while the process exits.
Problems& problems() {
  static Problems& known = *new Problems;
  return known;
}

const Context& measuring_context() {
  static const Context& context = *new Context(default_context());
  return context;
}

// One that measures no kernels, with the settings of the other.
const Context& recorded_context() {
  static const Context& context = *[] {
    Settings settings = measuring_context().settings();
    if (settings.tuning <= TuningMode::recorded) return new Context(measuring_context());
    settings.tuning = TuningMode::recorded;
    return new Context(settings);
  }();
  return context;
}

// Kernels are chosen before the first call, when arrays of masks and scores may lack their contents; kernels
// that read these cannot be measured.
const Context& context_of(const Problem& problem) {
  return functor_tensors(problem.spec).empty() ? measuring_context() : recorded_context();
}

/// Forward and backward.
struct Forward {
  using Arguments = AttentionArguments;
  static constexpr auto arguments = forward_arguments;
  static void check(const AttentionSpec& spec, const Arguments& given) { check_arguments(spec, given); }
  static void prepare(const AttentionSpec& spec, const Context& context, const Arguments& given) {
    attention_when_called(spec, context).prepare(given);
  }
  static void launch(const AttentionSpec& spec, const Context& context, const Arguments& given,
                     Stream stream) {
    attention_when_called(spec, context)(given, stream);
  }
};

struct Backward {
  using Arguments = BackwardArguments;
  static constexpr auto arguments = backward_arguments;
  static void check(const AttentionSpec& spec, const Arguments& given) {
    if (has_lists(spec)) return check_arguments(ListGradientsSpec{.attention = spec}, given);
    check_backward_arguments(spec, given);
  }
  static void prepare(const AttentionSpec& spec, const Context& context, const Arguments& given) {
    if (has_lists(spec)) return list_gradients({.attention = spec}, context).prepare();
    attention_when_called(spec, context).prepare_backward(given);
  }
  static void launch(const AttentionSpec& spec, const Context& context, const Arguments& given,
                     Stream stream) {
    if (has_lists(spec)) return list_gradients({.attention = spec}, context)(given, stream);
    attention_when_called(spec, context).backward(given, stream);
  }
};

void check_version(const CallFrame& frame) {
  const ApiVersion& version = frame.api->version;
  if (version.major_version != api_major)
    refuse("api_version", fmt::format("is {}.{}; this library knows version {} of XLA's foreign function "
                                      "interface: use versions of both that fit",
                                      version.major_version, version.minor_version, api_major));
  if (frame.struct_size < sizeof(CallFrame) || frame.api->struct_size < sizeof(Api))
    refuse("call_frame",
           fmt::format("has {} bytes, and its functions {}; they must have {} and {} at least",
                       frame.struct_size, frame.api->struct_size, sizeof(CallFrame), sizeof(Api)));
}

Stream stream_of(const CallFrame& frame) {
  StreamGetArguments get{.struct_size = sizeof(StreamGetArguments),
                         .extension_start = nullptr,
                         .context = frame.context,
                         .stream = nullptr};
  if (XLA_FFI_Error* const error = frame.api->stream_get(&get)) {
    ErrorDestroyArguments destroy{
        .struct_size = sizeof(ErrorDestroyArguments), .extension_start = nullptr, .error = error};
    frame.api->error_destroy(&destroy);
    throw Error(ErrorCode::driver_error, "launch", "stream", "stream: XLA gives none for this call");
  }
  return static_cast<Stream>(get.stream);
}

// The device that holds the buffers; nothing when all are empty.
std::optional<int> device_of(const CallBuffers& buffers) {
  for (const auto* list : {&buffers.operands, &buffers.results}) {
    for (const NamedBuffer& buffer : *list) {
      if (buffer.view.data == nullptr) continue;
      const auto device = device_of_address(reinterpret_cast<std::uintptr_t>(buffer.view.data));
      if (!device)
        refuse(buffer.name, fmt::format("is at an address of no {}device of this process",
                                        emulates_devices() ? "emulated " : ""));
      return device;
    }
  }
  return {};
}

// Launches on the stream. During stream capture, sizes without a prepared kernel use the cost model's choice.
template <class Operation>
void launch(const Problem& problem, const typename Operation::Arguments& arguments, Stream stream) {
  try {
    Operation::launch(problem.spec, context_of(problem), arguments, stream);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_prepared) throw;
    Operation::prepare(problem.spec, recorded_context(), arguments);
    Operation::launch(problem.spec, recorded_context(), arguments, stream);
  }
}

template <class Operation>
void run_on_gpu(const CallFrame& frame, const Problem& problem, const CallBuffers& buffers) {
  const std::optional<int> ordinal = device_of(buffers);
  if (!ordinal) return;
  const CurrentDevice device(*ordinal);
  const typename Operation::Arguments arguments = Operation::arguments(problem, buffers);
  if (frame.stage == Stage::initialize) {
    Operation::prepare(problem.spec, context_of(problem), arguments);
  } else {
    launch<Operation>(problem, arguments, stream_of(frame));
  }
}

template <class Operation>
void run_on_host(const Problem& problem, const CallBuffers& buffers) {
  if (!emulates_devices())
    refuse("platform",
           "is cpu, where an emulated device computes; choose one with "
           "JIT_ATTENTION_DEVICE=emulated:sm_90a before its first use, or use XLA's platform CUDA");
  Operation::check(problem.spec, Operation::arguments(problem, buffers));  // before copies hide shared memory
  const CurrentDevice device(0);
  const Staged staged(0, buffers);
  launch<Operation>(problem, Operation::arguments(problem, staged.buffers()), nullptr);
  synchronize();
  staged.download();
}

// Notes in an error with shapes that they are in the library's layout.
Error in_library_layout(const Error& error, const Problem& problem) {
  if (!problem.heads_first || error.code() != ErrorCode::invalid_argument) return error;
  return Error(error.code(), error.stage(), error.field(),
               error.message() + " (shapes are (batch, seqlen, heads, head_dim) here, whatever the layout)");
}

template <class Operation>
void run(const CallFrame& frame, Platform platform) {
  check_version(frame);
  const std::shared_ptr<const Problem> problem = problems().of(frame.attributes);
  const bool is_launched = frame.stage == Stage::execute;
  const bool is_prepared = frame.stage == Stage::initialize && platform == Platform::cuda;
  if (!is_launched && !is_prepared) return;
  const CallBuffers buffers{named_buffers(frame.operands, problem->operands, "operands"),
                            named_buffers(frame.results, problem->results, "results")};
  try {
    if (platform == Platform::cuda) {
      run_on_gpu<Operation>(frame, *problem, buffers);
    } else {
      run_on_host<Operation>(*problem, buffers);
    }
  } catch (const Error& error) {
    throw in_library_layout(error, *problem);
  }
}

XLA_FFI_Error* error_of(const CallFrame& frame, ErrorKind code, const char* message) {
  ErrorCreateArguments create{.struct_size = sizeof(ErrorCreateArguments),
                              .extension_start = nullptr,
                              .message = message,
                              .code = code};
  return frame.api->error_create(&create);
}

// Whether XLA asks what the handler is; it is told.
bool tells_metadata(const CallFrame& frame, Platform platform) {
  for (Extension* extension = frame.extension_start; extension != nullptr; extension = extension->next) {
    if (extension->type != metadata_extension) continue;
    Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;
    const ApiVersion& version = frame.api->version;
    metadata.version.major_version = api_major;
    // Later minor versions have the same structs with additional members at the end.
    metadata.version.minor_version = version.major_version == api_major ? version.minor_version : api_minor;
    metadata.traits = platform == Platform::cuda ? command_buffer_compatible : 0;
    return true;
  }
  return false;
}

template <class Operation>
XLA_FFI_Error* handle(XLA_FFI_CallFrame* call_frame, Platform platform) noexcept {
  const CallFrame& frame = *reinterpret_cast<const CallFrame*>(call_frame);
  try {
    if (!tells_metadata(frame, platform)) run<Operation>(frame, platform);
    return nullptr;
  } catch (const Error& error) {
    const bool is_callers =
        error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::invalid_spec;
    if (is_callers) return error_of(frame, ErrorKind::invalid_argument, error.message().c_str());
    return error_of(frame, ErrorKind::internal, error.what());
  } catch (const std::exception& error) {
    return error_of(frame, ErrorKind::internal, error.what());
  } catch (...) {
    return error_of(frame, ErrorKind::internal, "an exception of an unknown type");
  }
}

}  // namespace
}  // namespace jit::xla

extern "C" {

XLA_FFI_Error* jit_xla_attention_forward(XLA_FFI_CallFrame* call_frame) {
  return jit::xla::handle<jit::xla::Forward>(call_frame, jit::xla::Platform::cuda);
}

XLA_FFI_Error* jit_xla_attention_backward(XLA_FFI_CallFrame* call_frame) {
  return jit::xla::handle<jit::xla::Backward>(call_frame, jit::xla::Platform::cuda);
}

XLA_FFI_Error* jit_xla_attention_forward_cpu(XLA_FFI_CallFrame* call_frame) {
  return jit::xla::handle<jit::xla::Forward>(call_frame, jit::xla::Platform::host);
}

XLA_FFI_Error* jit_xla_attention_backward_cpu(XLA_FFI_CallFrame* call_frame) {
  return jit::xla::handle<jit::xla::Backward>(call_frame, jit::xla::Platform::host);
}
}
