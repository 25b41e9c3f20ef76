#include <jit/error.h>

#include <utility>

#include <fmt/format.h>

namespace jit {
namespace {

// One line: stage, sentence, native code; then the log's first error line, if any.
std::string describe(const ErrorDetails& details) {
  std::string text = details.stage.empty() ? details.message : details.stage + ": " + details.message;
  if (details.native_code != 0) text += fmt::format(" (code {})", details.native_code);
  const std::size_t error = details.log.find("error");
  if (error != std::string::npos) {
    const std::size_t before = details.log.rfind('\n', error);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    const std::size_t end = details.log.find('\n', error);
    text += "\n  " + details.log.substr(begin, end == std::string::npos ? end : end - begin);
  }
  return text;
}

}  // namespace

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_spec:
      return "invalid_spec";
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported_device:
      return "unsupported_device";
    case ErrorCode::no_valid_config:
      return "no_valid_config";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::nvrtc_unavailable:
      return "nvrtc_unavailable";
    case ErrorCode::driver_unavailable:
      return "driver_unavailable";
    case ErrorCode::load_failed:
      return "load_failed";
    case ErrorCode::launch_failed:
      return "launch_failed";
    case ErrorCode::driver_error:
      return "driver_error";
    case ErrorCode::offline:
      return "offline";
    case ErrorCode::not_prepared:
      return "not_prepared";
    case ErrorCode::io_error:
      return "io_error";
  }
  return "unknown";
}

Error::Error(ErrorDetails details)
    : std::runtime_error(describe(details)),
      details_(std::make_shared<const ErrorDetails>(std::move(details))) {}

Error::Error(ErrorCode code, std::string stage, std::string field, std::string message)
    : Error(ErrorDetails{.code = code,
                         .stage = std::move(stage),
                         .message = std::move(message),
                         .field = std::move(field),
                         .native_code = 0,
                         .log = {},
                         .source = {}}) {}

}  // namespace jit
