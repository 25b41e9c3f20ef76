// The handlers of jit/xla.h in calls that are made by hand, on an emulated device.
#include <jit/xla.h>

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/attention.h>
#include <jit/context.h>
#include <jit/device.h>
#include <jit/stream.h>

#include "tests/support/captured_graph.h"
#include "tests/support/device_tensor.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/xla/call_frame.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using xla::ElementType;
using xla::Stage;

constexpr int invalid_argument = 3;

/// A problem on the device: what forward and backward are given.
struct Tensors {
  DeviceTensor q{DType::bf16, {2, 20, 4, 32}}, k{DType::bf16, {2, 30, 2, 32}}, v{DType::bf16, {2, 30, 2, 32}};
  DeviceTensor o{DType::bf16, {2, 20, 4, 32}}, lse{DType::fp32, {2, 4, 20}};
  DeviceTensor bias{DType::fp32, {1, 1, 20, 30}}, sinks{DType::fp32, {4}};
  DeviceTensor d_o{DType::bf16, {2, 20, 4, 32}}, dq{DType::bf16, {2, 20, 4, 32}};
  DeviceTensor dk{DType::bf16, {2, 30, 2, 32}}, dv{DType::bf16, {2, 30, 2, 32}};
  DeviceTensor d_bias{DType::fp32, {1, 1, 20, 30}}, d_sinks{DType::fp32, {4}};

  Tensors() {
    int salt = 1;
    for (DeviceTensor* input : {&q, &k, &v, &bias, &sinks, &d_o}) {
      const int own = ++salt;
      input->fill([&](std::int64_t i) { return static_cast<double>((i * 37 + own * 11) % 17 - 8) / 8; });
      input->upload();
    }
    for (DeviceTensor* output : outputs()) {
      output->poison();
      output->upload();
    }
  }

  std::vector<DeviceTensor*> outputs() { return {&o, &lse, &dq, &dk, &dv, &d_bias, &d_sinks}; }
  /// All bytes of the outputs, from the device.
  std::vector<std::vector<std::uint8_t>> bytes() {
    std::vector<std::vector<std::uint8_t>> all;
    for (DeviceTensor* output : outputs()) {
      output->download();
      all.push_back(output->bytes());
    }
    return all;
  }
};

const AttentionSpec spec{
    .head_dim = 32, .gqa_ratio = 2, .sinks = true, .mask = mask::causal(), .score = score::bias(DType::fp32)};

AttributeMap spec_attributes() {
  return {{"head_dim", std::int64_t{32}},
          {"gqa_ratio", std::int64_t{2}},
          {"sinks", true},
          {"mask", std::string("causal")},
          {"score", spec.score.to_string()}};
}

FrameCall forward_call(const Tensors& on) {
  return {.operands = {buffer_of(on.q.view()), buffer_of(on.k.view()), buffer_of(on.v.view()),
                       buffer_of(on.bias.view()), buffer_of(on.sinks.view())},
          .results = {buffer_of(on.o.view()), buffer_of(on.lse.view())},
          .attributes = {{"operands", std::string("q k v tensors.bias sinks")},
                         {"results", std::string("o lse")},
                         {"spec", spec_attributes()}}};
}

FrameCall backward_call(const Tensors& on) {
  return {.operands = {buffer_of(on.d_o.view()), buffer_of(on.q.view()), buffer_of(on.k.view()),
                       buffer_of(on.v.view()), buffer_of(on.o.view()), buffer_of(on.lse.view()),
                       buffer_of(on.bias.view()), buffer_of(on.sinks.view())},
          .results = {buffer_of(on.dq.view()), buffer_of(on.dk.view()), buffer_of(on.dv.view()),
                      buffer_of(on.d_sinks.view()), buffer_of(on.d_bias.view())},
          .attributes = {{"operands", std::string("do q k v o lse tensors.bias sinks")},
                         {"results", std::string("dq dk dv d_sinks d_tensors.bias")},
                         {"deterministic", true},
                         {"spec", spec_attributes()}}};
}

/// Computes the same by calls of the library.
void compute(const Tensors& on) {
  const Attention attention = jit::attention(spec);
  attention({.q = on.q.view(),
             .k = on.k.view(),
             .v = on.v.view(),
             .o = on.o.view(),
             .lse = on.lse.view(),
             .tensors = {{"bias", on.bias.view()}},
             .sinks = on.sinks.view()});
  BackwardArguments gradients{};
  gradients.d_o = on.d_o.view(), gradients.q = on.q.view(), gradients.k = on.k.view();
  gradients.v = on.v.view(), gradients.o = on.o.view(), gradients.lse = on.lse.view();
  gradients.dq = on.dq.view(), gradients.dk = on.dk.view(), gradients.dv = on.dv.view();
  gradients.tensors = {{"bias", on.bias.view()}}, gradients.d_tensors = {{"bias", on.d_bias.view()}};
  gradients.sinks = on.sinks.view(), gradients.d_sinks = on.d_sinks.view();
  gradients.deterministic = true;
  attention.backward(gradients);
  synchronize();
}

class XlaTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { default_context() = Context(shared_cache_settings()); }

  const CurrentDevice device_{0};
};

TEST_F(XlaTest, HandlersSayWhatTheyAre) {
  for (const auto& [handler, traits] : {std::pair{&jit_xla_attention_forward, 1u},
                                        {&jit_xla_attention_backward, 1u},
                                        {&jit_xla_attention_forward_cpu, 0u},
                                        {&jit_xla_attention_backward_cpu, 0u}}) {
    EXPECT_EQ(metadata_of(handler, 0, 1).traits, traits);
    EXPECT_EQ(metadata_of(handler, 0, 1).version.minor_version, 1) << "of an older XLA";
    EXPECT_EQ(metadata_of(handler, 0, 9).version.minor_version, 9) << "of a later one";
    EXPECT_EQ(metadata_of(handler, 1, 0).version.major_version, 0) << "which XLA refuses";
  }
}

TEST_F(XlaTest, CallsEqualThoseOfTheLibrary) {
  Tensors own, others;
  compute(others);
  for (const Stage stage : {Stage::instantiate, Stage::prepare, Stage::initialize}) {
    EXPECT_EQ(call(&jit_xla_attention_forward, forward_call(own), stage).message, "");
    EXPECT_EQ(call(&jit_xla_attention_backward, backward_call(own), stage).message, "");
  }
  EXPECT_TRUE(own.bytes() == Tensors().bytes()) << "nothing is written before calls are executed";
  EXPECT_EQ(call(&jit_xla_attention_forward, forward_call(own)).message, "");
  EXPECT_EQ(call(&jit_xla_attention_backward, backward_call(own)).message, "");
  synchronize();
  EXPECT_TRUE(own.bytes() == others.bytes());
}

TEST_F(XlaTest, CallsAreRecordedIntoCommandBuffers) {
  Tensors own, others;
  compute(others);
  const TestStream stream;
  FrameCall forward = forward_call(own), backward = backward_call(own);
  forward.stream = backward.stream = stream.get();
  EXPECT_EQ(call(&jit_xla_attention_forward, forward, Stage::initialize).message, "");
  EXPECT_EQ(call(&jit_xla_attention_backward, backward, Stage::initialize).message, "");
  const CapturedGraph graph(
      stream,
      [&] {
        EXPECT_EQ(call(&jit_xla_attention_forward, forward).message, "");
        EXPECT_EQ(call(&jit_xla_attention_backward, backward).message, "");
      },
      CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_TRUE(own.bytes() == Tensors().bytes()) << "nothing runs before the graph does";
  for (int run = 0; run < 2; ++run) {
    graph.run(stream);
    EXPECT_TRUE(own.bytes() == others.bytes());
  }
}

// A problem of this test alone, whose kernels are compiled while the stream is being captured: those of typical sizes.
TEST_F(XlaTest, CommandBuffersOfCallsThatWereNotInitialized) {
  Tensors own, others;
  const AttentionSpec causal{.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal(Alignment::top_left)};
  attention(causal)({.q = others.q.view(),
                     .k = others.k.view(),
                     .v = others.v.view(),
                     .o = others.o.view(),
                     .lse = others.lse.view()});
  BackwardArguments gradients{};
  gradients.d_o = others.d_o.view(), gradients.q = others.q.view(), gradients.k = others.k.view();
  gradients.v = others.v.view(), gradients.o = others.o.view(), gradients.lse = others.lse.view();
  gradients.dq = others.dq.view(), gradients.dk = others.dk.view(), gradients.dv = others.dv.view();
  attention(causal).backward(gradients);
  const TestStream stream;
  FrameCall forward = forward_call(own), backward = backward_call(own);
  const AttributeMap spec_of_causal{{"head_dim", std::int64_t{32}},
                                    {"gqa_ratio", std::int64_t{2}},
                                    {"mask", std::string("causal(top_left)")}};
  forward.operands.resize(3);
  forward.attributes["operands"] = std::string("q k v");
  backward.operands.resize(6);
  backward.results.resize(3);
  backward.attributes["operands"] = std::string("do q k v o lse");
  backward.attributes["results"] = std::string("dq dk dv");
  for (FrameCall* given : {&forward, &backward}) {
    given->attributes["spec"] = spec_of_causal;
    given->stream = stream.get();
  }
  const CapturedGraph graph(stream, [&] {
    EXPECT_EQ(call(&jit_xla_attention_forward, forward).message, "");
    EXPECT_EQ(call(&jit_xla_attention_backward, backward).message, "");
  });
  graph.run(stream);
  own.bytes(), others.bytes();  // downloads them
  for (const auto& [one, other] : {std::pair{&own.o, &others.o},
                                   {&own.lse, &others.lse},
                                   {&own.dq, &others.dq},
                                   {&own.dk, &others.dk},
                                   {&own.dv, &others.dv}}) {
    for (std::int64_t i = 0; i < one->count(); ++i)
      ASSERT_NEAR(one->get(one->index(i)), other->get(other->index(i)), 0.02);
  }
}

TEST_F(XlaTest, MemoryOfTheHost) {
  Tensors on;
  compute(on);
  const std::vector<std::vector<std::uint8_t>> expected = on.bytes();
  FrameCall forward = forward_call(on);
  std::vector<std::vector<std::uint8_t>> memory;
  for (const DeviceTensor* tensor : {&on.q, &on.k, &on.v, &on.bias, &on.sinks, &on.o, &on.lse})
    memory.push_back(tensor->bytes());
  for (int output : {5, 6})
    memory[static_cast<std::size_t>(output)].assign(memory[static_cast<std::size_t>(output)].size(), 0xff);
  for (std::size_t i = 0; i < forward.operands.size(); ++i) forward.operands[i].data = memory[i].data();
  for (std::size_t i = 0; i < 2; ++i) forward.results[i].data = memory[5 + i].data();
  forward.has_stream = false;
  EXPECT_EQ(call(&jit_xla_attention_forward_cpu, forward, Stage::initialize).message, "");
  EXPECT_EQ(call(&jit_xla_attention_forward_cpu, forward).message, "");
  EXPECT_TRUE(memory[5] == expected[0]);
  EXPECT_TRUE(memory[6] == expected[1]);
  EXPECT_THAT(call(&jit_xla_attention_forward, forward).message,
              HasSubstr("q: is at an address of no emulated device"));
}

// Rows that are nobody's keep what results held at first: a buffer that is operand and result.
TEST_F(XlaTest, ResultsThatAreAliased) {
  Tensors on;
  compute(on);
  DeviceTensor used(DType::int32, {2});
  used.fill([](std::int64_t) { return 25.0; });
  used.upload();
  FrameCall backward = backward_call(on);
  backward.operands.push_back(buffer_of(used.view()));
  for (const DeviceTensor* gradient : {&on.dk, &on.dv})
    backward.operands.push_back(buffer_of(gradient->view()));
  backward.attributes["operands"] = std::string("do q k v o lse tensors.bias sinks seqused_k dk dv");
  on.dk.fill([](std::int64_t) { return 0.5; });
  on.dk.upload();
  EXPECT_EQ(call(&jit_xla_attention_backward, backward).message, "");
  synchronize();
  on.dk.download();
  EXPECT_EQ(on.dk.get({1, 29, 1, 3}), 0.5);
  EXPECT_NE(on.dk.get({1, 20, 1, 3}), 0.5);
  backward.operands.back().data = on.q.view().data;
  EXPECT_THAT(call(&jit_xla_attention_backward, backward).message,
              HasSubstr("dv: is both an operand and a result, and they are not the same memory"));
}

TEST_F(XlaTest, StatesOfRandomNumbersWithout64Bits) {
  Tensors own, others;
  DeviceTensor state(DType::int64, {2});
  state.fill([](std::int64_t i) { return 5.0 + static_cast<double>(i); });
  state.upload();
  FrameCall given = forward_call(own);
  given.operands = {given.operands[0], given.operands[1], given.operands[2], buffer_of(state.view())};
  given.attributes = {{"operands", std::string("q k v rng_state")},
                      {"results", std::string("o lse")},
                      {"dropout_p", 0.25},
                      {"num_splits", std::int64_t{1}},
                      {"layout", std::string("BSHD")},
                      {"spec", AttributeMap{{"head_dim", std::int64_t{32}},
                                            {"gqa_ratio", std::int64_t{2}},
                                            {"softmax_scale", 0.5},
                                            {"dropout", true}}}};
  attention({.head_dim = 32, .gqa_ratio = 2, .dropout = true, .softmax_scale = 0.5f})(
      {.q = others.q.view(),
       .k = others.k.view(),
       .v = others.v.view(),
       .o = others.o.view(),
       .lse = others.lse.view(),
       .dropout_p = 0.25f,
       .rng_state = state.view()});
  synchronize();
  EXPECT_EQ(call(&jit_xla_attention_forward, given).message, "");
  synchronize();
  EXPECT_TRUE(own.bytes() == others.bytes());
  given.operands[3].type = ElementType::uint32;
  given.operands[3].dims = {4};
  Tensors again;
  given.results = forward_call(again).results;
  EXPECT_EQ(call(&jit_xla_attention_forward, given).message, "");
  synchronize();
  EXPECT_TRUE(again.bytes() == others.bytes());
}

TEST_F(XlaTest, BadFrames) {
  struct Case {
    const char* message;
    std::function<void(FrameCall&)> spoil;
  };
  const auto spec_of = [](FrameCall& call) -> AttributeMap& {
    return std::get<AttributeMap>(call.attributes.at("spec"));
  };
  const Case cases[] = {
      {"api_version: is 1.0; this library knows version 0",
       [](FrameCall& c) { c.major_version = 1, c.minor_version = 0; }},
      {"call_frame: has 24 bytes", [](FrameCall& c) { c.frame_bytes = 24; }},
      {"shade: is no attribute of this call; there are operands",
       [](FrameCall& c) { c.attributes["shade"] = true; }},
      {"head_dims: is no attribute of this call; there are in `spec` dtype, head_dim",
       [&](FrameCall& c) { spec_of(c)["head_dims"] = std::int64_t{3}; }},
      {"spec: is missing", [](FrameCall& c) { c.attributes.erase("spec"); }},
      {"spec: must be a dictionary attribute",
       [](FrameCall& c) { c.attributes["spec"] = std::string("d32"); }},
      {"head_dim: must be a scalar attribute",
       [&](FrameCall& c) { spec_of(c)["head_dim"] = std::string("32"); }},
      {"head_dim: is 68719476736, which 32 bits have no room for",
       [&](FrameCall& c) { spec_of(c)["head_dim"] = std::int64_t{1} << 36; }},
      {"sinks: must be a scalar attribute of PRED",
       [&](FrameCall& c) { spec_of(c)["sinks"] = std::int64_t{1}; }},
      {"softmax_scale: must be a scalar attribute of F32",
       [&](FrameCall& c) { spec_of(c)["softmax_scale"] = true; }},
      {"spec.head_dim = 100 must be a multiple of 8",
       [&](FrameCall& c) { spec_of(c)["head_dim"] = std::int64_t{100}; }},
      {"casual", [&](FrameCall& c) { spec_of(c)["mask"] = std::string("casual"); }},
      {"layout: is BDSH; it must be BSHD or BHSD",
       [](FrameCall& c) { c.attributes["layout"] = std::string("BDSH"); }},
      {"operands: has 4 names, and the call has 5",
       [](FrameCall& c) { c.attributes["operands"] = std::string("q k v sinks"); }},
      {"results: has 1 names, and the call has 2",
       [](FrameCall& c) { c.attributes["results"] = std::string("o"); }},
      {"w: is no operand of this call; there are q, k, v,",
       [](FrameCall& c) { c.attributes["operands"] = std::string("q k w tensors.bias sinks"); }},
      {"dq: is no result of this call; there are o, lse",
       [](FrameCall& c) { c.attributes["results"] = std::string("o dq"); }},
      {"k: is given twice",
       [](FrameCall& c) { c.attributes["operands"] = std::string("q k k tensors.bias sinks"); }},
      {"v: is missing",
       [](FrameCall& c) {
         c.operands.erase(c.operands.begin() + 2);
         c.attributes["operands"] = std::string("q k tensors.bias sinks");
       }},
      {"sinks: is missing",
       [](FrameCall& c) {
         c.operands.pop_back();
         c.attributes["operands"] = std::string("q k v tensors.bias");
       }},
      {"bias", [](FrameCall& c) { c.attributes["operands"] = std::string("q k v tensors.bios sinks"); }},
      {"q: has 0 dimensions; tensors of calls have from 1 to 4",
       [](FrameCall& c) { c.operands[0].dims = {}; }},
      {"q: has 5 dimensions",
       [](FrameCall& c) {
         c.operands[0].dims = {1, 2, 20, 4, 32};
       }},
      {"q: ",
       [](FrameCall& c) {
         c.operands[0].dims = {2, 20, 128};
       }},
      {"k: is of XLA's element type 12; it must be one of BF16",
       [](FrameCall& c) { c.operands[1].type = ElementType::fp64; }},
      {"v: is fp16", [](FrameCall& c) { c.operands[2].type = ElementType::fp16; }},
      {"k: ",
       [](FrameCall& c) {
         c.operands[1].dims = {3, 30, 2, 32};
       }},
      {"whatever the layout", [](FrameCall& c) { c.attributes["layout"] = std::string("BHSD"); }},
      {"lse: ",
       [](FrameCall& c) {
         c.results[1].dims = {2, 20, 4};
       }},
      {"o: ", [](FrameCall& c) { c.results[0].data = c.operands[0].data; }},
      {"mask_text_0: must be a dictionary attribute",
       [](FrameCall& c) { c.attributes["mask_text_0"] = true; }},
      {"author: is no attribute of this call; there are name, body",
       [](FrameCall& c) {
         c.attributes["mask_text_0"] = AttributeMap{{"author", std::string("me")}};
       }},
      {"constants: holds 'maybe', which is not true, false or a number",
       [](FrameCall& c) {
         c.attributes["mask_text_0"] = AttributeMap{{"constants", std::string("a = maybe")}};
       }},
      {"tensors: holds 'ids', without a ' '",
       [](FrameCall& c) {
         c.attributes["mask_text_0"] = AttributeMap{{"tensors", std::string("ids")}};
       }},
  };
  Tensors on;
  for (const auto& [message, spoil] : cases) {
    FrameCall given = forward_call(on);
    spoil(given);
    const FrameAnswer answer = call(&jit_xla_attention_forward, given);
    EXPECT_THAT(answer.message, HasSubstr(message));
    EXPECT_EQ(answer.code, invalid_argument) << answer.message;
  }
  FrameCall without_stream = forward_call(on);
  without_stream.has_stream = false;
  EXPECT_THAT(call(&jit_xla_attention_forward, without_stream).message,
              HasSubstr("XLA gives none for this call"));
  synchronize();
  EXPECT_TRUE(on.bytes() == Tensors().bytes()) << "nothing is written by calls that fail";
}

TEST_F(XlaTest, TextsOfTheCallers) {
  Tensors own, others;
  const FunctorText near{.name = "near",
                         .body = "return on && q - k < window && ids[k] >= 0;",
                         .constants = {{"window", std::int64_t{7}}, {"on", true}},
                         .tensors = {{"ids", DType::int32}}};
  DeviceTensor ids(DType::int32, {30});
  ids.fill([](std::int64_t i) { return static_cast<double>(i % 3) - 1; });
  ids.upload();
  const AttentionSpec wanted{.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal() && mask::text(near)};
  attention(wanted)({.q = others.q.view(),
                     .k = others.k.view(),
                     .v = others.v.view(),
                     .o = others.o.view(),
                     .lse = others.lse.view(),
                     .tensors = {{"ids", ids.view()}}});
  FrameCall given = forward_call(own);
  given.operands = {given.operands[0], given.operands[1], given.operands[2], buffer_of(ids.view())};
  given.attributes = {{"operands", std::string("q k v tensors.ids")},
                      {"results", std::string("o lse")},
                      {"mask_text_0", AttributeMap{{"name", near.name},
                                                   {"body", near.body},
                                                   {"constants", std::string("window = 7, on = true")},
                                                   {"tensors", std::string("ids int32")}}},
                      {"spec", AttributeMap{{"head_dim", std::int64_t{32}},
                                            {"gqa_ratio", std::int64_t{2}},
                                            {"mask", std::string("causal && text(near)")}}}};
  EXPECT_EQ(call(&jit_xla_attention_forward, given).message, "");
  synchronize();
  EXPECT_TRUE(own.bytes() == others.bytes());
}

}  // namespace
}  // namespace jit::testing
