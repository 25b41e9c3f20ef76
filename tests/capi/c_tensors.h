// Objects of jit/c.h that free themselves, and tensors for it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jit/attention.h>
#include <jit/c.h>
#include <jit/c_key_mass.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include <gtest/gtest.h>

namespace jit::testing {

template <auto free>
struct Freeing {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using CContext = std::unique_ptr<jit_context, Freeing<jit_context_free>>;
using COperation = std::unique_ptr<jit_operation, Freeing<jit_operation_free>>;
using CBuffer = std::unique_ptr<jit_buffer, Freeing<jit_buffer_free>>;
using CError = std::unique_ptr<jit_error, Freeing<jit_error_free>>;

/// An error as values.
struct CFailure {
  jit_code code = JIT_OK;
  std::string field = {};
  std::string message = {};

  bool operator==(const CFailure&) const = default;
};

/// The failure that a function of jit/c.h reports. `call` gets the pointer for the error.
template <class Call>
CFailure failure_of(const Call& call) {
  jit_error* error = nullptr;
  const jit_code code = call(&error);
  const CError owned(error);
  EXPECT_EQ(code == JIT_OK, error == nullptr);
  if (error == nullptr) return {code};
  EXPECT_EQ(error->code, code);
  EXPECT_NE(error->message, std::string());
  return {code, error->field, error->message};
}

inline void PrintTo(const CFailure& failure, std::ostream* out) {
  *out << "code " << failure.code << ", field '" << failure.field << "': " << failure.message;
}

/// Expects that a function of jit/c.h succeeds.
template <class Call>
void expect_ok(const Call& call) {
  EXPECT_EQ(failure_of(call), CFailure());
}

/// The text that a function of jit/c.h returns.
template <class Call>
std::string c_text(const Call& call) {
  char* text = nullptr;
  expect_ok([&](jit_error** error) { return call(&text, error); });
  std::string copy(text == nullptr ? "" : text);
  jit_text_free(text);
  return copy;
}

/// A context that keeps kernels in the tests' cache folder and tunes nothing.
inline CContext make_context(std::int32_t device = 0) {
  const jit_context_options options = {
      .size = sizeof(options), .device = device, .cache_dir = JIT_ATTENTION_TEST_CACHE, .tuning = "off"};
  jit_context* context = nullptr;
  expect_ok([&](jit_error** error) { return jit_context_create(&options, &context, error); });
  return CContext(context);
}

inline COperation make_operation(const CContext& context, jit_kind kind, const std::string& text,
                                 const std::vector<jit_functor>& functors = {}) {
  const jit_spec spec = {.size = sizeof(spec),
                         .text = text.c_str(),
                         .functors = functors.data(),
                         .functor_count = functors.size(),
                         .config = nullptr};
  jit_operation* operation = nullptr;
  expect_ok(
      [&](jit_error** error) { return jit_operation_create(context.get(), kind, &spec, &operation, error); });
  return COperation(operation);
}

/// DLPack's tensors, which live as long as this.
class CTensors {
 public:
  /// Null for no tensor.
  const jit_tensor* operator()(const TensorView& view) {
    if (!view.is_present()) return nullptr;
    Held& held = held_.emplace_back();
    std::copy_n(view.shape, max_rank, held.shape.begin());
    std::copy_n(view.strides, max_rank, held.strides.begin());
    const DTypeFacts& row = facts(view.dtype);
    held.tensor = {
        .data = view.data,
        .device = {2, 0},
        .ndim = view.rank,
        .dtype = {static_cast<std::uint8_t>(row.kind), static_cast<std::uint8_t>(row.bytes * 8), 1},
        .shape = held.shape.data(),
        .strides = held.strides.data(),
        .byte_offset = 0};
    return &held.tensor;
  }
  /// An array of them.
  const jit_named_tensor* operator()(const NamedTensors& tensors, std::size_t& count) {
    std::vector<jit_named_tensor>& list = lists_.emplace_back();
    for (const NamedTensor& tensor : tensors)
      list.push_back({names_.emplace_back(tensor.name).c_str(), (*this)(tensor.tensor)});
    count = list.size();
    return list.data();
  }

 private:
  struct Held {
    std::array<std::int64_t, max_rank> shape, strides;
    jit_tensor tensor;
  };
  std::deque<Held> held_;
  std::deque<std::string> names_;
  std::deque<std::vector<jit_named_tensor>> lists_;
};

/// The arguments of a call as C has them.
inline jit_forward_arguments c_arguments(const AttentionArguments& from, CTensors& tensors) {
  jit_forward_arguments to = {.size = sizeof(to),
                              .q = tensors(from.q),
                              .k = tensors(from.k),
                              .v = tensors(from.v),
                              .o = tensors(from.o),
                              .lse = tensors(from.lse)};
  to.tensors = tensors(from.tensors, to.tensor_count);
  to.cu_seqlens_q = tensors(from.cu_seqlens_q);
  to.cu_seqlens_k = tensors(from.cu_seqlens_k);
  to.seqused_q = tensors(from.seqused_q);
  to.seqused_k = tensors(from.seqused_k);
  to.cache_leftpad = tensors(from.cache_leftpad);
  to.page_table = tensors(from.page_table);
  to.sinks = tensors(from.sinks);
  to.q_descale = tensors(from.q_descale);
  to.k_descale = tensors(from.k_descale);
  to.v_descale = tensors(from.v_descale);
  to.v_mean = tensors(from.v_mean);
  to.lse_shift = tensors(from.lse_shift);
  to.rng_state = tensors(from.rng_state);
  to.max_logit = tensors(from.max_logit);
  to.row_max = tensors(from.row_max);
  to.o_raw = tensors(from.o_raw);
  to.mean_score = tensors(from.mean_score);
  to.o_descale = tensors(from.o_descale);
  to.running_lse = tensors(from.running_lse);
  to.dropout_p = from.dropout_p;
  to.num_splits = from.num_splits;
  to.zero_padding = from.zero_padding;
  return to;
}

inline jit_backward_arguments c_arguments(const BackwardArguments& from, CTensors& tensors) {
  jit_backward_arguments to = {.size = sizeof(to),
                               .d_o = tensors(from.d_o),
                               .q = tensors(from.q),
                               .k = tensors(from.k),
                               .v = tensors(from.v),
                               .o = tensors(from.o),
                               .lse = tensors(from.lse),
                               .dq = tensors(from.dq),
                               .dk = tensors(from.dk),
                               .dv = tensors(from.dv)};
  to.tensors = tensors(from.tensors, to.tensor_count);
  to.cu_seqlens_q = tensors(from.cu_seqlens_q);
  to.cu_seqlens_k = tensors(from.cu_seqlens_k);
  to.seqused_q = tensors(from.seqused_q);
  to.seqused_k = tensors(from.seqused_k);
  to.rng_state = tensors(from.rng_state);
  to.d_lse = tensors(from.d_lse);
  to.sinks = tensors(from.sinks);
  to.d_sinks = tensors(from.d_sinks);
  to.mean_score = tensors(from.mean_score);
  to.d_mean_score = tensors(from.d_mean_score);
  to.d_tensors = tensors(from.d_tensors, to.d_tensor_count);
  to.dropout_p = from.dropout_p;
  to.deterministic = from.deterministic;
  return to;
}

/// A spec as the text that jit_spec takes. Texts of the user show as their names.
inline std::string text_of(const AttentionSpec& spec) {
  std::string text;
  for (const SpecField& field : spec_fields()) {
    if (is_default(field, spec)) continue;
    std::string name(field.name);
    std::replace(name.begin(), name.end(), '_', '-');
    text += " --" + name + " '" + value_text(field, spec) + "'";
    if (std::holds_alternative<bool AttentionSpec::*>(field.member))
      text = text.substr(0, text.rfind(' '));  // a flag
  }
  return text;
}

}  // namespace jit::testing
