// The parts of DLPack 1.3's binary interface for exchanging arrays: tensors, the two kinds of managed tensor,
// and the table of C functions that a framework's array type carries as `__dlpack_c_exchange_api__`. Source:
// https://dmlc.github.io/dlpack/latest/c_api.html. Declared here because distributions' headers predate the
// table.
#pragma once

#include <cstdint>

namespace jit::python::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

struct Device {
  DeviceType type;
  std::int32_t id;

  bool operator==(const Device&) const = default;
};

enum TypeCode : std::uint8_t { signed_int = 0, unsigned_int = 1, floating = 2, bfloat = 4, boolean = 6 };

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: dense, row-major
  std::uint64_t byte_offset;
};

/// The content of a capsule named "dltensor".
struct ManagedTensor {
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

inline constexpr std::uint64_t read_only_flag = 1;

/// The content of a capsule named "dltensor_versioned". Only `version` and `deleter` may be accessed unless
/// the major version is 1.
struct ManagedTensorVersioned {
  Version version;
  void* manager;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

/// Functions return 0, or -1 with a Python exception set; allocate reports through `set_error` instead. None
/// waits for a stream: work belongs on `current_work_stream`.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;  ///< of an older major version, or null
  int (*allocate)(Tensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*to_managed)(void* object, ManagedTensorVersioned** out);
  int (*to_object)(ManagedTensorVersioned* stolen, void** out);
  int (*borrow)(void* object, Tensor* out);  ///< may be null; valid while the object is unmodified
  int (*current_work_stream)(DeviceType type, std::int32_t id, void** out);
};

}  // namespace jit::python::dlpack
