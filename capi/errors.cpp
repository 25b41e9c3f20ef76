#include "capi/errors.h"

#include <cstring>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <jit/version.h>

namespace jit::c {
namespace {

// An error that owns its texts.
struct OwnedError : jit_error {
  ErrorDetails texts;

  OwnedError(jit_code code_in, ErrorDetails details) : texts(std::move(details)) {
    code = code_in;
    native_code = texts.native_code;
    field = texts.field.c_str();
    message = texts.message.c_str();
    stage = texts.stage.c_str();
    log = texts.log.c_str();
    source = texts.source.c_str();
  }
};

// The error when memory for an error is short.
jit_error out_of_memory = {JIT_OUT_OF_MEMORY, 0, "", "there is not enough host memory for this", "", "", ""};

jit_code code_of(ErrorCode code) {
  static_assert(static_cast<int>(ErrorCode::invalid_spec) + 1 == JIT_INVALID_SPEC &&
                static_cast<int>(ErrorCode::launch_failed) + 1 == JIT_LAUNCH_FAILED &&
                static_cast<int>(ErrorCode::io_error) + 1 == JIT_IO_ERROR);
  return static_cast<jit_code>(static_cast<int>(code) + 1);
}

ErrorDetails defect(std::string message) {
  ErrorDetails details;
  details.message = std::move(message);
  return details;
}

jit_code report(jit_error** error, jit_code code, ErrorDetails details) {
  if (error != nullptr) *error = new OwnedError(code, std::move(details));
  return code;
}

}  // namespace

void refuse(std::string_view argument, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "arguments", std::string(argument),
              fmt::format("{}: {}", argument, message));
}

jit_code report_exception(jit_error** error) noexcept {
  try {
    try {
      throw;
    } catch (const Error& thrown) {
      return report(error, code_of(thrown.code()),
                    {.code = thrown.code(),
                     .stage = thrown.stage(),
                     .message = thrown.message(),
                     .field = thrown.field(),
                     .native_code = thrown.native_code(),
                     .log = thrown.log(),
                     .source = thrown.source()});
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& thrown) {
      return report(error, JIT_INTERNAL_ERROR, defect(thrown.what()));
    } catch (...) {
      return report(error, JIT_INTERNAL_ERROR, defect("an exception of an unknown type was thrown"));
    }
  } catch (...) {
    if (error != nullptr) *error = &out_of_memory;
    return JIT_OUT_OF_MEMORY;
  }
}

char* text_of(std::string_view text) {
  char* const copy = new char[text.size() + 1];
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace jit::c

void jit_error_free(jit_error* error) {
  if (error != &jit::c::out_of_memory) delete static_cast<jit::c::OwnedError*>(error);
}

void jit_text_free(char* text) { delete[] text; }

const char* jit_version() { return JIT_ATTENTION_VERSION; }
