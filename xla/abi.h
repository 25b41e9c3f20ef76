// The part of XLA's foreign function interface that handlers need: the structs of xla/ffi/api/c_api.h of
// OpenXLA (Apache License 2.0, https://github.com/openxla/xla), API version 0.3, with the same members in the
// same order. Thus the library builds without XLA. A test compares them with the header of jaxlib.
#pragma once

#include <cstddef>
#include <cstdint>

struct XLA_FFI_Error;

namespace jit::xla {

/// The version of these structs. Minor versions only add members at the end.
inline constexpr int api_major = 0, api_minor = 3;

inline constexpr int metadata_extension = 1;

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};

struct ApiVersion {
  std::size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
};

enum class ErrorKind : int { invalid_argument = 3, internal = 13 };

struct ErrorCreateArguments {
  std::size_t struct_size;
  Extension* extension_start;
  const char* message;
  ErrorKind code;
};

struct ErrorGetMessageArguments {
  std::size_t struct_size;
  Extension* extension_start;
  XLA_FFI_Error* error;
  const char* message;  ///< out
};

struct ErrorDestroyArguments {
  std::size_t struct_size;
  Extension* extension_start;
  XLA_FFI_Error* error;
};

/// Element types that the library supports, and some for attributes.
enum class ElementType : int {
  boolean = 1,
  int32 = 4,
  int64 = 5,
  uint8 = 6,
  uint32 = 8,
  fp16 = 10,
  fp32 = 11,
  fp64 = 12,
  bf16 = 16,
  fp8_e5m2 = 19,
  fp8_e4m3 = 20,
};

/// An operand or result: dense, row-major.
struct Buffer {
  std::size_t struct_size;
  Extension* extension_start;
  ElementType dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

enum class BufferKind : int { buffer = 1 };
enum class AttributeKind : int { array = 1, dictionary = 2, scalar = 3, string = 4 };

struct Text {
  const char* data;
  std::size_t length;
};

struct Scalar {
  ElementType dtype;
  void* value;
};

/// All operands, or all results.
struct Buffers {
  std::size_t struct_size;
  Extension* extension_start;
  std::int64_t size;
  BufferKind* kinds;
  void** items;  ///< each a Buffer
};

struct Attributes {
  std::size_t struct_size;
  Extension* extension_start;
  std::int64_t size;
  AttributeKind* kinds;
  Text** names;
  void** items;  ///< each a Scalar, a Text, or Attributes
};

enum class Stage : int { instantiate = 0, prepare = 1, initialize = 2, execute = 3 };

struct StreamGetArguments {
  std::size_t struct_size;
  Extension* extension_start;
  void* context;
  void* stream;  ///< out
};

/// XLA's functions, up to the last one that handlers call.
struct Api {
  std::size_t struct_size;
  Extension* extension_start;
  ApiVersion version;
  const void* internal_api;
  XLA_FFI_Error* (*error_create)(ErrorCreateArguments*);
  void (*error_get_message)(ErrorGetMessageArguments*);
  void (*error_destroy)(ErrorDestroyArguments*);
  XLA_FFI_Error* (*handler_register)(void*);
  XLA_FFI_Error* (*stream_get)(StreamGetArguments*);
};

/// A call. With a metadata extension, `stage` and later members do not exist.
struct CallFrame {
  std::size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  Stage stage;
  Buffers operands;
  Buffers results;
  Attributes attributes;
};

/// Calls may be recorded into a command buffer and replayed.
inline constexpr std::uint32_t command_buffer_compatible = 1;

/// A handler's properties, for XLA.
struct Metadata {
  std::size_t struct_size;
  ApiVersion version;
  std::uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace jit::xla
