// The structs of xla/abi.h beside those of XLA, whose header comes with jaxlib.
#include "xla/abi.h"

#include <cstddef>

#include <gtest/gtest.h>

#if __has_include(<xla/ffi/api/c_api.h>)
#  include <xla/ffi/api/c_api.h>
#  define HAS_XLA 1
#else
#  define HAS_XLA 0
#endif

namespace jit::xla {
namespace {

#if HAS_XLA

template <class Own, class Others>
constexpr bool same_size = sizeof(Own) == sizeof(Others) && alignof(Own) == alignof(Others);

#  define EXPECT_SAME_MEMBER(own, own_member, others, others_member)       \
    EXPECT_EQ(offsetof(own, own_member), offsetof(others, others_member)); \
    EXPECT_EQ(sizeof(own::own_member), sizeof(std::declval<others>().others_member))

TEST(XlaAbi, StructsOfCalls) {
  EXPECT_TRUE((same_size<Extension, XLA_FFI_Extension_Base>));
  EXPECT_SAME_MEMBER(Extension, type, XLA_FFI_Extension_Base, type);
  EXPECT_SAME_MEMBER(Extension, next, XLA_FFI_Extension_Base, next);
  EXPECT_TRUE((same_size<Buffer, XLA_FFI_Buffer>));
  EXPECT_SAME_MEMBER(Buffer, dtype, XLA_FFI_Buffer, dtype);
  EXPECT_SAME_MEMBER(Buffer, data, XLA_FFI_Buffer, data);
  EXPECT_SAME_MEMBER(Buffer, rank, XLA_FFI_Buffer, rank);
  EXPECT_SAME_MEMBER(Buffer, dims, XLA_FFI_Buffer, dims);
  EXPECT_TRUE((same_size<Buffers, XLA_FFI_Args>)) << "operands";
  EXPECT_TRUE((same_size<Buffers, XLA_FFI_Rets>)) << "results";
  EXPECT_SAME_MEMBER(Buffers, kinds, XLA_FFI_Args, types);
  EXPECT_SAME_MEMBER(Buffers, items, XLA_FFI_Args, args);
  EXPECT_SAME_MEMBER(Buffers, items, XLA_FFI_Rets, rets);
  EXPECT_TRUE((same_size<Attributes, XLA_FFI_Attrs>));
  EXPECT_SAME_MEMBER(Attributes, kinds, XLA_FFI_Attrs, types);
  EXPECT_SAME_MEMBER(Attributes, names, XLA_FFI_Attrs, names);
  EXPECT_SAME_MEMBER(Attributes, items, XLA_FFI_Attrs, attrs);
  EXPECT_TRUE((same_size<Text, XLA_FFI_ByteSpan>));
  EXPECT_SAME_MEMBER(Text, length, XLA_FFI_ByteSpan, len);
  EXPECT_TRUE((same_size<Scalar, XLA_FFI_Scalar>));
  EXPECT_SAME_MEMBER(Scalar, value, XLA_FFI_Scalar, value);
  EXPECT_SAME_MEMBER(CallFrame, api, XLA_FFI_CallFrame, api);
  EXPECT_SAME_MEMBER(CallFrame, context, XLA_FFI_CallFrame, ctx);
  EXPECT_SAME_MEMBER(CallFrame, stage, XLA_FFI_CallFrame, stage);
  EXPECT_SAME_MEMBER(CallFrame, operands, XLA_FFI_CallFrame, args);
  EXPECT_SAME_MEMBER(CallFrame, results, XLA_FFI_CallFrame, rets);
  EXPECT_SAME_MEMBER(CallFrame, attributes, XLA_FFI_CallFrame, attrs);
  EXPECT_LE(sizeof(CallFrame), std::size_t{XLA_FFI_CallFrame_STRUCT_SIZE});
}

TEST(XlaAbi, FunctionsAndTheirArguments) {
  EXPECT_SAME_MEMBER(Api, version, XLA_FFI_Api, api_version);
  EXPECT_SAME_MEMBER(Api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
  EXPECT_SAME_MEMBER(Api, error_get_message, XLA_FFI_Api, XLA_FFI_Error_GetMessage);
  EXPECT_SAME_MEMBER(Api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
  EXPECT_SAME_MEMBER(Api, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
  EXPECT_LE(sizeof(Api), std::size_t{XLA_FFI_Api_STRUCT_SIZE});
  EXPECT_TRUE((same_size<ApiVersion, XLA_FFI_Api_Version>));
  EXPECT_SAME_MEMBER(ApiVersion, minor_version, XLA_FFI_Api_Version, minor_version);
  EXPECT_TRUE((same_size<ErrorCreateArguments, XLA_FFI_Error_Create_Args>));
  EXPECT_SAME_MEMBER(ErrorCreateArguments, message, XLA_FFI_Error_Create_Args, message);
  EXPECT_SAME_MEMBER(ErrorCreateArguments, code, XLA_FFI_Error_Create_Args, errc);
  EXPECT_TRUE((same_size<ErrorGetMessageArguments, XLA_FFI_Error_GetMessage_Args>));
  EXPECT_TRUE((same_size<ErrorDestroyArguments, XLA_FFI_Error_Destroy_Args>));
  EXPECT_TRUE((same_size<StreamGetArguments, XLA_FFI_Stream_Get_Args>));
  EXPECT_SAME_MEMBER(StreamGetArguments, stream, XLA_FFI_Stream_Get_Args, stream);
  EXPECT_SAME_MEMBER(Metadata, version, XLA_FFI_Metadata, api_version);
  EXPECT_SAME_MEMBER(Metadata, traits, XLA_FFI_Metadata, traits);
  EXPECT_SAME_MEMBER(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
}

TEST(XlaAbi, Numbers) {
  EXPECT_EQ(api_major, XLA_FFI_API_MAJOR);
  EXPECT_EQ(metadata_extension, static_cast<int>(XLA_FFI_Extension_Metadata));
  EXPECT_EQ(command_buffer_compatible, std::uint32_t{XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE});
  const std::pair<int, int> numbers[] = {
      {static_cast<int>(ErrorKind::invalid_argument), XLA_FFI_Error_Code_INVALID_ARGUMENT},
      {static_cast<int>(ErrorKind::internal), XLA_FFI_Error_Code_INTERNAL},
      {static_cast<int>(ElementType::boolean), XLA_FFI_DataType_PRED},
      {static_cast<int>(ElementType::int32), XLA_FFI_DataType_S32},
      {static_cast<int>(ElementType::int64), XLA_FFI_DataType_S64},
      {static_cast<int>(ElementType::uint8), XLA_FFI_DataType_U8},
      {static_cast<int>(ElementType::uint32), XLA_FFI_DataType_U32},
      {static_cast<int>(ElementType::fp16), XLA_FFI_DataType_F16},
      {static_cast<int>(ElementType::fp32), XLA_FFI_DataType_F32},
      {static_cast<int>(ElementType::fp64), XLA_FFI_DataType_F64},
      {static_cast<int>(ElementType::bf16), XLA_FFI_DataType_BF16},
      {static_cast<int>(ElementType::fp8_e5m2), XLA_FFI_DataType_F8E5M2},
      {static_cast<int>(ElementType::fp8_e4m3), XLA_FFI_DataType_F8E4M3FN},
      {static_cast<int>(BufferKind::buffer), XLA_FFI_ArgType_BUFFER},
      {static_cast<int>(BufferKind::buffer), XLA_FFI_RetType_BUFFER},
      {static_cast<int>(AttributeKind::array), XLA_FFI_AttrType_ARRAY},
      {static_cast<int>(AttributeKind::dictionary), XLA_FFI_AttrType_DICTIONARY},
      {static_cast<int>(AttributeKind::scalar), XLA_FFI_AttrType_SCALAR},
      {static_cast<int>(AttributeKind::string), XLA_FFI_AttrType_STRING},
      {static_cast<int>(Stage::instantiate), XLA_FFI_ExecutionStage_INSTANTIATE},
      {static_cast<int>(Stage::prepare), XLA_FFI_ExecutionStage_PREPARE},
      {static_cast<int>(Stage::initialize), XLA_FFI_ExecutionStage_INITIALIZE},
      {static_cast<int>(Stage::execute), XLA_FFI_ExecutionStage_EXECUTE},
  };
  for (const auto& [own, others] : numbers) EXPECT_EQ(own, others);
}

#else

TEST(XlaAbi, StructsOfCalls) { GTEST_SKIP() << "needs XLA's header: pip install jaxlib"; }

#endif

}  // namespace
}  // namespace jit::xla
