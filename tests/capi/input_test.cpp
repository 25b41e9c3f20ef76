// Mistakes of callers of jit/c.h: one sentence that begins with the argument, and nothing computed.
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/capi/c_tensors.h"
#include "tests/support/attention_run.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CInput : public ::testing::Test {
 protected:
  CFailure forward(const jit_forward_arguments* arguments) {
    CFailure failure = failure_of(
        [&](jit_error** error) { return jit_forward(attention_.get(), arguments, nullptr, error); });
    EXPECT_TRUE(failure.code == JIT_OK || run_.untouched()) << failure.message;
    return failure;
  }
  // The failure of a call whose q is changed.
  CFailure with_q(const std::function<void(jit_tensor&)>& change) {
    jit_tensor q = *arguments_.q;
    change(q);
    jit_forward_arguments arguments = arguments_;
    arguments.q = &q;
    return forward(&arguments);
  }
  static CFailure create(const jit_context_options& options) {
    jit_context* context = nullptr;
    CFailure failure =
        failure_of([&](jit_error** error) { return jit_context_create(&options, &context, error); });
    EXPECT_EQ(context == nullptr, failure.code != JIT_OK);
    jit_context_free(context);
    return failure;
  }

  CContext context_ = make_context();
  COperation attention_ = make_operation(context_, JIT_ATTENTION, "--head-dim 64");
  AttentionRun run_{{.spec = {.head_dim = 64}, .heads_kv = 2, .seqlen_q = 8, .seqlen_kv = 8}};
  CTensors tensors_;
  const jit_forward_arguments arguments_ = c_arguments(run_.arguments(), tensors_);
};

TEST_F(CInput, NullPointers) {
  EXPECT_EQ(forward(nullptr).message, "arguments: is a null pointer");
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_forward(nullptr, &arguments_, nullptr, error);
            }).message,
            "attention: is a null pointer");
  EXPECT_EQ(with_q([](jit_tensor& q) { q.shape = nullptr; }).message, "q.shape: is a null pointer");
  EXPECT_EQ(with_q([](jit_tensor& q) { q.data = nullptr; }).message,
            "q: has elements, and its data is a null pointer");
  EXPECT_EQ(failure_of([](jit_error** error) { return jit_context_create(nullptr, nullptr, error); }).field,
            "context");
  jit_forward_arguments arguments = arguments_;
  arguments.q = nullptr;
  EXPECT_THAT(forward(&arguments).message, StartsWith("q: is missing; give a tensor "));
  arguments = arguments_;
  arguments.tensor_count = 2;
  arguments.tensors = nullptr;
  EXPECT_EQ(forward(&arguments).message, "tensors: is a null pointer");
  const jit_named_tensor unnamed = {nullptr, arguments_.q};
  arguments.tensors = &unnamed;
  arguments.tensor_count = 1;
  EXPECT_EQ(forward(&arguments).message, "tensors[0].name: is a null pointer");
  // Errors may be ignored, and nothing may be freed.
  EXPECT_EQ(jit_forward(nullptr, nullptr, nullptr, nullptr), JIT_INVALID_ARGUMENT);
  jit_error_free(nullptr);
  jit_text_free(nullptr);
  jit_buffer_free(nullptr);
  jit_operation_free(nullptr);
  jit_context_free(nullptr);
}

TEST_F(CInput, UnalignedPointers) {
  std::vector<unsigned char> bytes(sizeof(jit_tensor) + 8);
  std::memcpy(bytes.data() + 1, arguments_.q, sizeof(jit_tensor));
  jit_forward_arguments arguments = arguments_;
  arguments.q = reinterpret_cast<const jit_tensor*>(bytes.data() + 1);
  EXPECT_EQ(forward(&arguments).message, "q: is a pointer that is not aligned to 8 bytes");
  EXPECT_THAT(with_q([](jit_tensor& q) { q.byte_offset = 2; }).message,
              HasSubstr("which is not aligned to 16 bytes"));
  EXPECT_THAT(with_q([](jit_tensor& q) { q.strides[1] += 1; }).message, StartsWith("q: has stride "));
}

TEST_F(CInput, TensorsThatNoKernelReads) {
  EXPECT_EQ(with_q([](jit_tensor& q) { q.device.device_type = 1; }).message,
            "q: lies in CPU memory (DLPack device type 1); it must lie in CUDA memory, type 2 or 13");
  EXPECT_EQ(with_q([](jit_tensor& q) { q.device.device_id = 3; }).message,
            "q: lies on device 3; the context's device is 0");
  EXPECT_EQ(with_q([](jit_tensor& q) { q.ndim = 9; }).message, "q: has 9 dimensions; it must have 1 to 4");
  EXPECT_EQ(with_q([](jit_tensor& q) { q.ndim = -1; }).message, "q: has -1 dimensions; it must have 1 to 4");
  EXPECT_THAT(with_q([](jit_tensor& q) { q.dtype.lanes = 2; }).message, HasSubstr("4, 16 bits, 2 lanes"));
  EXPECT_THAT(with_q([](jit_tensor& q) { q.dtype = {2, 64, 1}; }).message, HasSubstr("2, 64 bits, 1 lanes"));
  EXPECT_EQ(with_q([](jit_tensor& q) { q.dtype = {2, 32, 1}; }).message, "q: is fp32; it must be bf16");
  std::int64_t shape[4] = {1, -8, 2, 64};
  EXPECT_EQ(with_q([&](jit_tensor& q) { q.shape = shape; }).message, "q: has size -8 in dimension 1");
  shape[1] = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(with_q([&](jit_tensor& q) { q.shape = shape; }).message,
            "q: has more elements than 64 bits can count");
  std::int64_t strides[4] = {1024, 128, 64, std::numeric_limits<std::int64_t>::max()};
  EXPECT_EQ(with_q([&](jit_tensor& q) { q.strides = strides; }).field, "q");
  EXPECT_EQ(with_q([](jit_tensor& q) { q.strides = nullptr; }).code, JIT_OK);  // dense
}

TEST_F(CInput, FlagsAndNumbers) {
  jit_forward_arguments arguments = arguments_;
  arguments.zero_padding = 7;
  EXPECT_EQ(forward(&arguments).message, "zero_padding: is 7; it must be 0 or 1");
  arguments = arguments_;
  arguments.num_splits = -2;
  EXPECT_EQ(forward(&arguments).field, "num_splits");
  arguments = arguments_;
  arguments.dropout_p = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(forward(&arguments).field, "dropout_p");
  const jit_backward_arguments backward = {.size = sizeof(backward), .reserved = 1};
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_backward(attention_.get(), &backward, nullptr, error);
            }).message,
            "reserved: is 1; it must be 0");
}

// A program that was compiled with an earlier header has a smaller struct.
TEST_F(CInput, ASmallerStructHasDefaults) {
  jit_forward_arguments arguments = arguments_;
  arguments.size = offsetof(jit_forward_arguments, lse);  // q, k, v and o
  arguments.lse = reinterpret_cast<const jit_tensor*>(1);
  arguments.zero_padding = 7;  // not read
  EXPECT_EQ(forward(&arguments), CFailure());
  run_.poison_outputs();
  arguments.size = offsetof(jit_forward_arguments, o);
  EXPECT_THAT(forward(&arguments).message, StartsWith("o: is missing"));
}

// One that was compiled with a later header has a larger one, and may use what this library knows.
TEST_F(CInput, ALargerStructIsTakenAsLongAsItsMembersAreZero) {
  struct Later {
    jit_forward_arguments known;
    std::uint64_t later[2];
  } arguments = {arguments_, {0, 0}};
  arguments.known.size = sizeof(arguments);
  EXPECT_EQ(forward(&arguments.known), CFailure());
  run_.poison_outputs();
  arguments.later[1] = 1ull << 16;
  const CFailure failure = forward(&arguments.known);
  EXPECT_EQ(failure.code, JIT_INVALID_ARGUMENT);
  EXPECT_THAT(
      failure.message,
      StartsWith(fmt::format("arguments: has size {} and is not zero at byte {}; this library knows {}",
                             sizeof(arguments), offsetof(Later, later) + 10, sizeof(jit_forward_arguments))));
}

TEST_F(CInput, SizesThatNoVersionHas) {
  jit_forward_arguments arguments = arguments_;
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{61}, ~std::size_t{0}}) {
    arguments.size = size;
    EXPECT_THAT(forward(&arguments).message,
                HasSubstr(fmt::format("; set it to sizeof, {}", sizeof(arguments))))
        << size;
  }
}

TEST_F(CInput, OperationsOfAnotherKind) {
  const COperation merge = make_operation(context_, JIT_MERGE, "");
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_forward(merge.get(), &arguments_, nullptr, error);
            }).message,
            "attention: is an operation of kind merge; it must be of attention");
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_prepare(merge.get(), &arguments_, nullptr, error);
            }).field,
            "forward");
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_prepare(attention_.get(), nullptr, nullptr, error);
            }).field,
            "forward");
  char* text = nullptr;
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_kernel_text(merge.get(), nullptr, nullptr, JIT_KERNEL_PTX, &text, error);
            }).field,
            "part");
}

TEST_F(CInput, KindsThatThereAreNot) {
  const jit_spec spec = {.size = sizeof(spec)};
  jit_operation* operation = nullptr;
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_operation_create(context_.get(), static_cast<jit_kind>(7), &spec, &operation, error);
            }).message,
            "kind: is 7; it must be 0 to 5");
  EXPECT_EQ(operation, nullptr);
}

TEST_F(CInput, OptionsOfAContext) {
  jit_context_options options = {.size = sizeof(options)};
  EXPECT_EQ(create(options), CFailure());
  options.dlpack_major = 2;
  EXPECT_EQ(create(options).message,
            "dlpack_major: is 2; DLPack 1 and earlier are understood: give tensors of these");
  options = {.size = sizeof(options), .device = -2};
  EXPECT_EQ(create(options).field, "device");
  options = {.size = sizeof(options), .devices = "emulated:sm_1"};
  EXPECT_EQ(create(options).code, JIT_INVALID_ARGUMENT);
  options = {.size = sizeof(options), .tuning = "sometimes"};
  EXPECT_EQ(create(options).message,
            "tuning: is 'sometimes'; it must be off, recorded, first_run or exhaustive");
  options = {.size = sizeof(options), .tuning_seconds = -1};
  EXPECT_EQ(create(options).field, "tuning_seconds");
  options = {.size = sizeof(options), .disk_cache = 2};
  EXPECT_EQ(create(options).field, "disk_cache");
  options = {.size = sizeof(options), .pack_count = 1};
  EXPECT_EQ(create(options).message, "packs: is a null pointer");
  options = {.size = sizeof(options), .templates = "/nonexistent"};
  EXPECT_EQ(create(options).code, JIT_IO_ERROR);
}

// A pack that cannot be used is told of, and calls work without it.
TEST_F(CInput, APackThatIsNone) {
  std::vector<std::string> warnings;
  const char* const packs[] = {"/nonexistent.pack"};
  const jit_context_options options = {
      .size = sizeof(options),
      .packs = packs,
      .pack_count = 1,
      .observer =
          [](void* data, const jit_event* event) {
            if (event->kind == JIT_EVENT_WARNING)
              static_cast<std::vector<std::string>*>(data)->push_back(event->message);
          },
      .observer_data = &warnings,
  };
  jit_context* context = nullptr;
  expect_ok([&](jit_error** error) { return jit_context_create(&options, &context, error); });
  const CContext owned(context);
  EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr("/nonexistent.pack")));
  const std::string info =
      c_text([&](char** json, jit_error** error) { return jit_context_info(context, json, error); });
  EXPECT_THAT(info, HasSubstr("\"path\": \"/nonexistent.pack\""));
  EXPECT_THAT(info, HasSubstr("\"arch\": \"sm_90a\""));
  EXPECT_THAT(info, HasSubstr("\"version\""));
}

TEST_F(CInput, CopiesOutsideOfABuffer) {
  jit_buffer* made = nullptr;
  expect_ok([&](jit_error** error) { return jit_buffer_create(context_.get(), 16, &made, error); });
  const CBuffer buffer(made);
  EXPECT_EQ(buffer->bytes, 16u);
  char bytes[16] = "copied";
  expect_ok([&](jit_error** error) { return jit_buffer_upload(made, bytes, 16, 0, error); });
  std::memset(bytes, 0, sizeof(bytes));
  expect_ok([&](jit_error** error) { return jit_buffer_download(made, bytes, 16, 0, nullptr, error); });
  EXPECT_STREQ(bytes, "copied");
  EXPECT_EQ(failure_of([&](jit_error** error) { return jit_buffer_upload(made, bytes, 16, 1, error); }).code,
            JIT_INVALID_ARGUMENT);
  EXPECT_EQ(
      failure_of([&](jit_error** error) { return jit_buffer_upload(made, nullptr, 16, 0, error); }).field,
      "from");
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_buffer_create(context_.get(), ~std::size_t{0}, &made, error);
            }).code,
            JIT_DRIVER_ERROR);
  EXPECT_EQ(made, nullptr);
}

// Threads share a context and an operation, and each has errors of its own.
TEST_F(CInput, ManyThreadsWithOneContext) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([this, thread] {
      AttentionRun run({.spec = {.head_dim = 64},
                        .heads_kv = 1 + thread % 3,
                        .seqlen_q = 5 + 7 * thread,
                        .seqlen_kv = 20});
      CTensors tensors;
      const jit_forward_arguments arguments = c_arguments(run.arguments(), tensors);
      jit_tensor wrong_v = *arguments.v;
      wrong_v.ndim = 10 + thread;
      jit_forward_arguments wrong = arguments;
      wrong.v = &wrong_v;
      for (int round = 0; round < 3; ++round) {
        expect_ok(
            [&](jit_error** error) { return jit_forward(attention_.get(), &arguments, nullptr, error); });
        EXPECT_EQ(run.check().failure, "");
        run.poison_outputs();
        EXPECT_EQ(failure_of([&](jit_error** error) {
                    return jit_forward(attention_.get(), &wrong, nullptr, error);
                  }).message,
                  "v: has " + std::to_string(10 + thread) + " dimensions; it must have 1 to 4");
        const COperation own = make_operation(context_, JIT_ATTENTION, "--head-dim 64");
        expect_ok([&](jit_error** error) { return jit_forward(own.get(), &arguments, nullptr, error); });
        EXPECT_EQ(run.check().failure, "");
      }
    });
  }
}

TEST_F(CInput, AnOperationOutlivesItsContext) {
  context_.reset();
  EXPECT_EQ(forward(&arguments_), CFailure());
  EXPECT_EQ(run_.check().failure, "");
}

}  // namespace
}  // namespace jit::testing
