#include "score_call.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "argument_names.h"
#include "array.h"
#include "call_spec.h"
#include "given.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

void check_rank(const TensorView& view, const char* name, bool is_varlen) {
  if (view.rank != (is_varlen ? 3 : 4))
    refuse(name, fmt::format("has {} dimensions; it must have {}", view.rank,
                             is_varlen ? "3 beside cu_seqlens: (rows, heads, head_dim)"
                                       : "4: (batch, seqlen, heads, head_dim)"));
}

}  // namespace

ScoreCall::ScoreCall(OperationCall& call, const ScoreInputs& inputs, const char* operation)
    : named_(inputs.tensors) {
  call.read(inputs.q, "q", q_);
  call.check_dtype(q_, "q");
  call.read(inputs.k, "k", k_);
  call.read(inputs.cu_seqlens_q, "cu_seqlens_q", cu_seqlens_q_);
  call.read(inputs.cu_seqlens_k, "cu_seqlens_k", cu_seqlens_k_);
  call.read(inputs.page_table, "page_table", page_table_);
  call.read(inputs.seqused_k, "seqused_k", seqused_k_);
  if (named_.size() > tensors_.size())
    refuse("tensors", fmt::format("are {}; at most {} fit", named_.size(), tensors_.size()));
  std::size_t count = 0;
  for (const NamedArray& given : named_) {
    tensors_[count].name = given.name;
    call.read(given.object, given.name, tensors_[count++].tensor);
  }
  const bool is_varlen_q = cu_seqlens_q_.is_present(), is_varlen_k = cu_seqlens_k_.is_present();
  check_rank(q_, "q", is_varlen_q);
  check_rank(k_, "k", is_varlen_k && !page_table_.is_present());
  attention_.dtype = q_.dtype;
  if (!facts(attention_.dtype).is_operand)
    refuse("q", fmt::format("is {}; {} are of bf16 and fp16", to_string(attention_.dtype), operation));
  attention_.head_dim = small_size(q_, q_.rank - 1, "q");
  attention_.gqa_ratio = gqa_ratio(q_, k_);
  attention_.alignment = std::max(2, common_alignment({&q_, &k_}));
  if (is_varlen_q) attention_.sequences_q = SequenceKind::varlen;
  if (is_varlen_k) attention_.sequences_kv = SequenceKind::varlen;
  if (page_table_.is_present()) set_pages(attention_, k_, is_varlen_k);
  attention_.mask = mask_of(inputs.mask);
  attention_.score = score_of(inputs.score);
  attention_.softmax_scale = scale_of(inputs.softmax_scale);
}

Error ScoreCall::renamed(const Error& error, const char* result) {
  return renamed_field(renamed_argument(error, {{result, "out"}}),
                       {{"dtype", "q"}, {"head_dim", "q"}, {"gqa_ratio", "k"}, {"alignment", "q"}});
}

}  // namespace jit::python
