// A call as XLA makes it, by hand: named buffers, attributes, and the functions that a handler may call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <jit/tensor.h>
#include <jit/xla.h>

#include "xla/abi.h"

/// An error, as this XLA makes one.
struct XLA_FFI_Error {
  int code;
  std::string message;
};

namespace jit::testing {

/// A value of an attribute; a map is a dictionary.
struct AttributeValue;
using AttributeMap = std::map<std::string, AttributeValue>;
struct AttributeValue : std::variant<bool, std::int64_t, double, std::string, AttributeMap> {
  using variant::variant;
};

/// Attributes as XLA has them.
class FrameAttributes {
 public:
  explicit FrameAttributes(const AttributeMap& values);
  const xla::Attributes& get() const { return attributes_; }

 private:
  void add(const std::string& name, xla::AttributeKind kind, void* item);

  std::deque<std::string> texts_;
  std::deque<std::int64_t> words_;
  std::deque<xla::Text> spans_;
  std::deque<xla::Scalar> scalars_;
  std::deque<FrameAttributes> dictionaries_;
  std::vector<xla::AttributeKind> kinds_;
  std::vector<xla::Text*> names_;
  std::vector<void*> items_;
  xla::Attributes attributes_ = {};
};

/// An operand or a result.
struct FrameBuffer {
  xla::ElementType type;
  void* data;
  std::vector<std::int64_t> dims;
};

/// A dense tensor as one.
FrameBuffer buffer_of(const TensorView& view);

struct FrameCall {
  std::vector<FrameBuffer> operands, results;
  AttributeMap attributes;
  void* stream = nullptr;
  bool has_stream = true;
  int major_version = xla::api_major;
  int minor_version = xla::api_minor;
  std::size_t frame_bytes = sizeof(xla::CallFrame);
};

/// The code and message of a handler's error; code 0: there was none.
struct FrameAnswer {
  int code = 0;
  std::string message = {};
};

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

FrameAnswer call(Handler* handler, const FrameCall& given, xla::Stage stage = xla::Stage::execute);

/// The properties that a handler tells an XLA of this version.
xla::Metadata metadata_of(Handler* handler, int major_version, int minor_version);

}  // namespace jit::testing
