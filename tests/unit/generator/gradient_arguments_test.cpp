// Arguments that backward refuses without a device.
#include <jit/attention.h>

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/problem/functor_gradients.h"
#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

// Dense, at an address where nothing else is.
TensorView view(std::uintptr_t slot, DType dtype, std::initializer_list<std::int64_t> shape) {
  TensorView tensor{.data = reinterpret_cast<void*>(slot << 40), .dtype = dtype};
  for (const std::int64_t size : shape) tensor.shape[tensor.rank++] = size;
  std::int64_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

const AttentionSpec spec{.head_dim = 64, .head_dim_v = 32, .gqa_ratio = 2};

BackwardArguments good_gradients() {
  const DType bf16 = DType::bf16;
  return {.d_o = view(1, bf16, {2, 10, 4, 32}),
          .q = view(2, bf16, {2, 10, 4, 64}),
          .k = view(3, bf16, {2, 20, 2, 64}),
          .v = view(4, bf16, {2, 20, 2, 32}),
          .o = view(5, bf16, {2, 10, 4, 32}),
          .lse = view(6, DType::fp32, {2, 4, 10}),
          .dq = view(7, bf16, {2, 10, 4, 64}),
          .dk = view(8, bf16, {2, 20, 2, 64}),
          .dv = view(9, bf16, {2, 20, 2, 32})};
}

TEST(BackwardArguments, WhatIsRightPasses) {
  EXPECT_NO_THROW(check_backward_arguments(spec, good_gradients()));
  BackwardArguments broadcast = good_gradients();
  broadcast.d_o.strides[0] = broadcast.d_o.strides[1] = 0;  // as the gradient of a sum is
  broadcast.o.strides[0] = broadcast.lse.strides[1] = 0;    // written by forward, read by backward
  broadcast.o.data = broadcast.d_o.data;
  EXPECT_NO_THROW(check_backward_arguments(spec, broadcast));
}

TEST(BackwardArguments, ErrorsNameTheArgument) {
  struct Case {
    const char* argument;
    std::function<void(BackwardArguments&)> spoil;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"do", [](auto& a) { a.d_o = {}; }, "do"},
      {"do", [](auto& a) { a.d_o.dtype = DType::fp16; }, "fp16"},
      {"do", [](auto& a) { a.d_o.shape[1] = 9; }, "seqlen"},
      {"do", [](auto& a) { a.d_o.shape[3] = 64; }, "head_dim"},
      {"lse", [](auto& a) { a.lse = {}; }, "is missing"},
      {"lse", [](auto& a) { a.lse.dtype = DType::bf16; }, "bf16"},
      {"o", [](auto& a) { a.o.rank = 3; }, "dimensions"},
      {"k", [](auto& a) { a.k.shape[2] = 4; }, "heads"},
      {"dq", [](auto& a) { a.dq = {}; }, "dq"},
      {"dq", [](auto& a) { a.dq.data = a.q.data; }, "q"},
      {"dq", [](auto& a) { a.dq.strides[1] = 0; }, "dq"},
      {"dk", [](auto& a) { a.dk.shape[2] = 4; }, "heads"},
      {"dk", [](auto& a) { a.dk.strides[3] = 2; }, "dk"},
      {"dv", [](auto& a) { a.dv.data = static_cast<char*>(a.dv.data) + 2; }, "16"},
      {"dv", [](auto& a) { a.dv.data = a.dk.data; }, "dk"},
      {"dv", [](auto& a) { a.dv.data = a.d_o.data; }, "do"},
  };
  for (const Case& wrong : cases) {
    BackwardArguments arguments = good_gradients();
    wrong.spoil(arguments);
    const Error error = error_of([&] { check_backward_arguments(spec, arguments); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << wrong.argument;
    EXPECT_EQ(error.field(), wrong.argument) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(wrong.message)) << wrong.argument;
  }
}

AttentionSpec varlen_spec() {
  AttentionSpec varlen = spec;
  varlen.sequences_q = varlen.sequences_kv = SequenceKind::varlen;
  return varlen;
}

BackwardArguments good_varlen() {
  const DType bf16 = DType::bf16;
  BackwardArguments arguments{.d_o = view(1, bf16, {10, 4, 32}),
                              .q = view(2, bf16, {10, 4, 64}),
                              .k = view(3, bf16, {20, 2, 64}),
                              .v = view(4, bf16, {20, 2, 32}),
                              .o = view(5, bf16, {10, 4, 32}),
                              .lse = view(6, DType::fp32, {4, 10}),
                              .dq = view(7, bf16, {10, 4, 64}),
                              .dk = view(8, bf16, {20, 2, 64}),
                              .dv = view(9, bf16, {20, 2, 32})};
  arguments.cu_seqlens_q = view(11, DType::int32, {4});
  arguments.cu_seqlens_k = view(12, DType::int32, {4});
  arguments.seqused_k = view(13, DType::int32, {3});
  return arguments;
}

TEST(BackwardArguments, VarlenErrorsNameTheArgument) {
  EXPECT_NO_THROW(check_backward_arguments(varlen_spec(), good_varlen()));
  struct Case {
    const char* argument;
    std::function<void(BackwardArguments&)> spoil;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"cu_seqlens_q", [](auto& a) { a.cu_seqlens_q = {}; }, "cu_seqlens_q"},
      {"cu_seqlens_k", [](auto& a) { a.cu_seqlens_k.shape[0] = 3; }, "batch + 1"},
      {"seqused_k", [](auto& a) { a.seqused_k.dtype = DType::fp32; }, "int32"},
      {"do", [](auto& a) { a.d_o.shape[0] = 9; }, "total_q"},
      {"lse", [](auto& a) { a.lse.shape[1] = 9; }, "total_q"},
      {"dk", [](auto& a) { a.dk.shape[0] = 19; }, "total_k"},
      {"dv", [](auto& a) { a.dv.rank = 4; }, "dimensions"},
      {"dq", [](auto& a) { a.dq.data = a.cu_seqlens_q.data; }, "cu_seqlens_q"},
      {"dk", [](auto& a) { a.dk.data = a.seqused_k.data; }, "seqused_k"},
      {"cu_seqlens_q",
       [](auto& a) {
         a.cu_seqlens_q.shape[0] = a.cu_seqlens_k.shape[0] = (1 << 30) + 1;
         a.seqused_k = {};
       },
       "at most"},
  };
  for (const Case& wrong : cases) {
    BackwardArguments arguments = good_varlen();
    wrong.spoil(arguments);
    const Error error = error_of([&] { check_backward_arguments(varlen_spec(), arguments); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << wrong.argument;
    EXPECT_EQ(error.field(), wrong.argument) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(wrong.message)) << wrong.argument;
  }
  BackwardArguments dense = good_gradients();
  dense.seqused_q = view(13, DType::int32, {2});
  EXPECT_NO_THROW(check_backward_arguments(spec, dense));
  dense.seqused_q = view(13, DType::int32, {3});
  const Error error = error_of([&] { check_backward_arguments(spec, dense); });
  EXPECT_EQ(error.field(), "seqused_q");
  EXPECT_THAT(error.message(), HasSubstr("batch"));
}

TEST(BackwardArguments, TensorsOfFunctorsAreReadAndNotWritten) {
  AttentionSpec biased = spec;
  biased.score = score::bias(DType::fp32);
  BackwardArguments arguments = good_gradients();
  EXPECT_EQ(error_of([&] { check_backward_arguments(biased, arguments); }).field(), "bias");
  const TensorView bias = view(10, DType::fp32, {2, 4, 10, 20});
  arguments.tensors.add({"bias", bias});
  EXPECT_NO_THROW(check_backward_arguments(biased, arguments));
  BackwardArguments reads_twice = arguments;
  reads_twice.lse.data = bias.data;
  EXPECT_NO_THROW(check_backward_arguments(biased, reads_twice));
  arguments.dk.data = bias.data;
  const Error error = error_of([&] { check_backward_arguments(biased, arguments); });
  EXPECT_EQ(error.field(), "dk");
  EXPECT_THAT(error.message(), HasSubstr("bias"));
}

TEST(BackwardArguments, GradientsOfWhatIsReadAreChecked) {
  AttentionSpec read = spec;
  read.sinks = true;
  read.mask =
      mask::document() &&
      mask::text({.name = "some", .body = "return weights[k] > 0;", .tensors = {{"weights", DType::fp32}}});
  read.score = score::bias(DType::bf16)
                   .then(score::text({.name = "counts",
                                      .body = "return score + counts[k];",
                                      .tensors = {{"counts", DType::int32}}}));
  const auto all = [&] {
    BackwardArguments arguments = good_gradients();
    arguments.tensors = {{"document_ids_q", view(10, DType::int32, {1, 10})},
                         {"document_ids_kv", view(11, DType::int32, {1, 20})},
                         {"weights", view(12, DType::fp32, {20})},
                         {"bias", view(13, DType::bf16, {1, 4, 1, 20})},
                         {"counts", view(14, DType::int32, {20})}};
    arguments.d_lse = view(15, DType::fp32, {2, 4, 10});
    arguments.sinks = view(16, DType::fp32, {4});
    arguments.d_sinks = view(17, DType::fp32, {4});
    arguments.d_tensors = {{"bias", view(18, DType::bf16, {1, 4, 1, 20})}};
    return arguments;
  };
  EXPECT_NO_THROW(check_backward_arguments(read, all()));
  struct Case {
    const char* argument;
    std::function<void(BackwardArguments&)> spoil;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"dlse", [](auto& a) { a.d_lse.shape[2] = 9; }, "seqlen"},
      {"dlse", [](auto& a) { a.d_lse.dtype = DType::bf16; }, "fp32"},
      {"dq", [](auto& a) { a.d_lse.data = a.dq.data; }, "dlse"},
      {"sinks", [](auto& a) { a.sinks = {}; }, "is missing"},
      {"d_sinks", [](auto& a) { a.d_sinks.shape[0] = 2; }, "heads"},
      {"d_sinks", [](auto& a) { a.d_sinks.data = a.sinks.data; }, "sinks"},
      {"d_tensors.bias",
       [](auto& a) {
         a.d_tensors = {{"bias", view(18, DType::bf16, {2, 4, 1, 20})}};
       },
       "shape"},
      {"d_tensors.bias",
       [](auto& a) {
         a.d_tensors = {{"bias", view(18, DType::fp32, {1, 4, 1, 20})}};
       },
       "bf16"},
      {"d_tensors.bias",
       [](auto& a) {
         a.d_tensors = {{"bias", view(13, DType::bf16, {1, 4, 1, 20})}};
       },
       "memory"},
      {"d_tensors.bias",
       [](auto& a) {
         a.d_tensors.add({"bias", view(19, DType::bf16, {1, 4, 1, 20})});
       },
       "twice"},
      {"d_tensors.biases",
       [](auto& a) {
         a.d_tensors = {{"biases", a.q}};
       },
       "it reads bias, counts"},
      {"d_tensors.counts",
       [](auto& a) {
         a.d_tensors = {{"counts", a.q}};
       },
       "is int32; it must be fp32, bf16 or fp16"},
      {"d_tensors.weights",
       [](auto& a) {
         a.d_tensors = {{"weights", a.q}};
       },
       "only the mask reads"},
  };
  for (const Case& wrong : cases) {
    BackwardArguments arguments = all();
    wrong.spoil(arguments);
    const Error error = error_of([&] { check_backward_arguments(read, arguments); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << wrong.argument;
    EXPECT_EQ(error.field(), wrong.argument) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(wrong.message)) << wrong.argument;
  }
  BackwardArguments arguments = good_gradients();
  arguments.d_sinks = view(17, DType::fp32, {4});
  EXPECT_EQ(error_of([&] { check_backward_arguments(spec, arguments); }).field(), "d_sinks");
}

// A tensor has a gradient when each text that gives its derivative speaks of it.
TEST(BackwardArguments, TextsThatGiveTheirDerivativeSpeakOfTensors) {
  const auto slots_of = [](const std::string& derivative, const Score& before) {
    const Score own = score::text({.name = "own",
                                   .body = "return score + x[0] + y[0] + n[0];",
                                   .derivative = derivative,
                                   .tensors = {{"x", DType::fp32}, {"y", DType::fp16}, {"n", DType::int32}}});
    AttentionSpec read = spec;
    read.score = before.then(own);
    return slots_with_gradient(functor_tensor_uses(read));
  };
  const Score itself = score::text(
      {.name = "itself", .body = "return score + y[0];", .tensors = {{"y", DType::fp16}}});  // in front of x
  EXPECT_EQ(slots_of("", Score()), 0b011u);
  EXPECT_EQ(slots_of("return 1;", Score()), 0u);
  EXPECT_EQ(slots_of("// d_x\nd_\\\ny[0] += 1; return 1;", Score()), 0b010u);
  EXPECT_EQ(slots_of("d_x[0] += 1; return 1;", itself), 0b010u);
  EXPECT_EQ(slots_of("d_y[0] += 1; *d_x += 1; return 1;", itself), 0b011u);
}

TEST(BackwardArguments, SpecsWithoutBackwardAreRefused) {
  for (const auto& [wrong, field] :
       {std::pair(AttentionSpec{.sequences_kv = SequenceKind::paged, .page_size = 16}, "spec.sequences_kv"),
        {AttentionSpec{.dtype = DType::fp8_e4m3}, "spec.dtype"},
        {AttentionSpec{.kv_dtype = DType::fp8_e4m3}, "spec.kv_dtype"},
        {AttentionSpec{.head_dim_v = 64, .values_in_keys = true}, "spec.values_in_keys"},
        {AttentionSpec{.sequences_q = SequenceKind::varlen,
        .sequences_kv = SequenceKind::varlen,
        .values_in_keys = true,
        .list_block = 1},
         "spec.list_block"}}) {
    const Error error = error_of([&, &wrong = wrong] { check_backward_arguments(wrong, good_gradients()); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr("has no backward"));
  }
}

}  // namespace
}  // namespace jit
