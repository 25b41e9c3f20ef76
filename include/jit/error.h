/// @file
/// The exception type of the library. An error has its kind (code), the field, its value and the violated rule
/// (message), the step that failed (stage), and what the layer below reported (native code, log, generated source).
/// Errors are immutable values: they can be copied and passed between threads.
///
/// @code
/// try {
///   jit::validate(jit::AttentionSpec{.head_dim = 100});
/// } catch (const jit::Error& error) {
///   assert(error.code() == jit::ErrorCode::invalid_spec && jit::to_string(error.code()) == "invalid_spec");
///   assert(error.stage() == "validate" && error.field() == "spec.head_dim");
///   std::puts(error.message().c_str());  // what() has the code and the stage, too
///   assert(error.native_code() == 0 && error.log().empty() && error.source().empty());  // nothing was compiled
/// }
/// @endcode
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace jit {

/// The kind of a failure. `to_string` gives the enumerator's name.
enum class ErrorCode {
  invalid_spec,        ///< the AttentionSpec contradicts itself or asks for something unsupported
  invalid_argument,    ///< an argument of a launch (tensor, stride, pointer, …) or of a function is wrong
  unsupported_device,  ///< this GPU cannot run what was asked
  no_valid_config,     ///< no KernelConfig fits the spec on this GPU
  compile_failed,      ///< NVRTC or its assembler rejected the program; `log()` has all errors
  nvrtc_unavailable,   ///< libnvrtc (or its builtins) was not found, or is too old
  driver_unavailable,  ///< no CUDA driver or no GPU on this machine
  load_failed,         ///< the driver refused the cubin
  launch_failed,       ///< the driver refused the launch, or the kernel failed on an emulated device
  driver_error,        ///< any other driver call failed
  offline,             ///< a kernel is in no cache and no pack, and compiling is forbidden
  not_prepared,        ///< the call would have to compile or tune during stream capture: prepare first
  io_error,            ///< a file that the caller named could not be read or written
};
/// The enumerator's name.
std::string_view to_string(ErrorCode code);

/// The parts of an Error; unset parts stay empty.
struct ErrorDetails {
  ErrorCode code{};   ///< the kind of failure
  std::string stage;  ///< step of the pipeline: "validate", "emit", "compile", "load", "launch", "tune", …
  std::string message;  ///< one sentence: field, value, rule and what would work
  std::string field;    ///< the offending field or argument, e.g. "spec.head_dim" or "k"
  int native_code = 0;  ///< CUresult or nvrtcResult, 0 when none
  std::string log;      ///< compiler log, without warnings about templates
  std::string source;   ///< the generated program, when compiling failed
};

/// Thrown by every function of the library that fails.
class Error : public std::runtime_error {
 public:
  /// An error with all parts.
  explicit Error(ErrorDetails details);
  /// An error without native code, log and source.
  Error(ErrorCode code, std::string stage, std::string field, std::string message);

  /// The kind of failure.
  ErrorCode code() const { return details_->code; }
  /// The step that failed: "validate", "compile", "load", "launch", "tune", …
  const std::string& stage() const { return details_->stage; }
  /// The wrong field or argument, such as "spec.head_dim" or "k"; may be empty.
  const std::string& field() const { return details_->field; }
  /// One sentence: the field, its value, the rule, and what would work.
  const std::string& message() const { return details_->message; }
  /// The CUresult or nvrtcResult; 0 if there is none.
  int native_code() const { return details_->native_code; }
  /// The compiler's log, if compiling failed.
  const std::string& log() const { return details_->log; }
  /// The generated program, if compiling failed.
  const std::string& source() const { return details_->source; }

 private:
  std::shared_ptr<const ErrorDetails> details_;  // shared, so that copying an exception cannot throw
};

}  // namespace jit
