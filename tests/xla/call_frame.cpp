#include "tests/xla/call_frame.h"

#include <bit>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

namespace jit::testing {
namespace {

using namespace xla;

// Functions of XLA. The context of a call is its FrameCall.
XLA_FFI_Error* create_error(ErrorCreateArguments* arguments) {
  return new XLA_FFI_Error{static_cast<int>(arguments->code), arguments->message};
}
void destroy_error(ErrorDestroyArguments* arguments) { delete arguments->error; }
XLA_FFI_Error* get_stream(StreamGetArguments* arguments) {
  const FrameCall& call = *static_cast<const FrameCall*>(arguments->context);
  if (!call.has_stream) return new XLA_FFI_Error{12, "no stream"};
  arguments->stream = call.stream;
  return nullptr;
}

Api api_of(int major_version, int minor_version) {
  Api api{};
  api.struct_size = sizeof(api);
  api.version = {sizeof(ApiVersion), nullptr, major_version, minor_version};
  api.error_create = create_error;
  api.error_destroy = destroy_error;
  api.stream_get = get_stream;
  return api;
}

/// Buffers as XLA has them.
struct FrameBuffers {
  explicit FrameBuffers(const std::vector<FrameBuffer>& given) : dims(given.size()) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      dims[i] = given[i].dims;
      buffers.push_back({sizeof(Buffer), nullptr, given[i].type, given[i].data,
                         static_cast<std::int64_t>(dims[i].size()), dims[i].data()});
      kinds.push_back(BufferKind::buffer);
    }
    for (Buffer& buffer : buffers) items.push_back(&buffer);
    all = {sizeof(Buffers), nullptr, static_cast<std::int64_t>(items.size()), kinds.data(), items.data()};
  }

  std::vector<std::vector<std::int64_t>> dims;
  std::vector<Buffer> buffers;
  std::vector<BufferKind> kinds;
  std::vector<void*> items;
  Buffers all;
};

}  // namespace

void FrameAttributes::add(const std::string& name, AttributeKind kind, void* item) {
  texts_.push_back(name);
  spans_.push_back({texts_.back().data(), texts_.back().size()});
  names_.push_back(&spans_.back());
  kinds_.push_back(kind);
  items_.push_back(item);
}

FrameAttributes::FrameAttributes(const AttributeMap& values) {
  const auto add_scalar = [&](const std::string& name, ElementType type, std::int64_t bits) {
    words_.push_back(bits);
    scalars_.push_back({type, &words_.back()});
    add(name, AttributeKind::scalar, &scalars_.back());
  };
  for (const auto& [name, value] : values) {
    if (const bool* truth = std::get_if<bool>(&value)) {
      add_scalar(name, ElementType::boolean, *truth ? 1 : 0);
    } else if (const std::int64_t* whole = std::get_if<std::int64_t>(&value)) {
      add_scalar(name, ElementType::int64, *whole);
    } else if (const double* real = std::get_if<double>(&value)) {
      add_scalar(name, ElementType::fp64, std::bit_cast<std::int64_t>(*real));
    } else if (const std::string* text = std::get_if<std::string>(&value)) {
      texts_.push_back(*text);
      spans_.push_back({texts_.back().data(), texts_.back().size()});
      add(name, AttributeKind::string, &spans_.back());
    } else {
      dictionaries_.emplace_back(std::get<AttributeMap>(value));
      add(name, AttributeKind::dictionary, const_cast<Attributes*>(&dictionaries_.back().get()));
    }
  }
  attributes_ = {sizeof(Attributes), nullptr,       static_cast<std::int64_t>(items_.size()),
                 kinds_.data(),      names_.data(), items_.data()};
}

FrameBuffer buffer_of(const TensorView& view) {
  const auto type = [&] {
    switch (view.dtype) {
      case DType::bf16:
        return ElementType::bf16;
      case DType::fp16:
        return ElementType::fp16;
      case DType::fp32:
        return ElementType::fp32;
      case DType::int32:
        return ElementType::int32;
      case DType::int64:
        return ElementType::int64;
      case DType::uint8:
        return ElementType::uint8;
      case DType::fp8_e4m3:
        return ElementType::fp8_e4m3;
      case DType::fp8_e5m2:
        return ElementType::fp8_e5m2;
      default:
        return ElementType::fp64;
    }
    return ElementType::fp64;
  }();
  return {type, view.data, {view.shape, view.shape + view.rank}};
}

FrameAnswer call(Handler* handler, const FrameCall& given, Stage stage) {
  const Api api = api_of(given.major_version, given.minor_version);
  const FrameBuffers operands(given.operands), results(given.results);
  const FrameAttributes attributes(given.attributes);
  CallFrame frame{
      given.frame_bytes, nullptr,         &api, const_cast<FrameCall*>(&given), stage, operands.all,
      results.all,       attributes.get()};
  const std::unique_ptr<XLA_FFI_Error> error(handler(reinterpret_cast<XLA_FFI_CallFrame*>(&frame)));
  return error == nullptr ? FrameAnswer{} : FrameAnswer{error->code, error->message};
}

Metadata metadata_of(Handler* handler, int major_version, int minor_version) {
  const Api api = api_of(major_version, minor_version);
  Metadata metadata{sizeof(Metadata), {sizeof(ApiVersion), nullptr, -1, -1}, 99};
  MetadataExtension extension{{sizeof(MetadataExtension), metadata_extension, nullptr}, &metadata};
  CallFrame frame{};
  frame.struct_size = sizeof(frame);
  frame.extension_start = &extension.base;
  frame.api = &api;
  EXPECT_EQ(handler(reinterpret_cast<XLA_FFI_CallFrame*>(&frame)), nullptr);
  return metadata;
}

}  // namespace jit::testing
