#include "generator/operations/merge/arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

// A name such as "parts[3].lse", without allocation.
class PartName {
 public:
  PartName(std::size_t index, std::string_view member) {
    const auto end = fmt::format_to_n(text_, sizeof text_, "parts[{}].{}", index, member).out;
    size_ = static_cast<std::size_t>(end - text_);
  }
  operator std::string_view() const { return {text_, size_}; }

 private:
  char text_[40];
  std::size_t size_;
};

// The first state of a stacked tensor, with the dimensions of the result.
TensorView first_of_stack(TensorView stack) {
  for (int i = 1; i < stack.rank; ++i) {
    stack.shape[i - 1] = stack.shape[i];
    stack.strides[i - 1] = stack.strides[i];
  }
  --stack.rank;
  return stack;
}

TensorStrides lse_strides(const TensorView& lse) {
  return {.batch = lse.rank == 3 ? stride_along(lse, 0) : 0,
          .seq = stride_along(lse, lse.rank - 1),
          .head = stride_along(lse, lse.rank - 2)};
}

bool same_strides(const TensorStrides& a, const TensorStrides& b) {
  return a.batch == b.batch && a.seq == b.seq && a.head == b.head;
}

// The distance of consecutive rows of o, if all have the same.
std::optional<long long> row_stride(const TensorStrides& strides,
                                    const MergeParams<max_merge_views>& params) {
  const long long heads = params.heads.divisor, seqlen = params.seqlen.divisor;
  const long long batch = params.rows / (heads * seqlen);
  const long long stride = heads > 1 ? strides.head : seqlen > 1 ? strides.seq : strides.batch;
  if (seqlen > 1 && strides.seq != stride * heads) return std::nullopt;
  if (batch > 1 && strides.batch != stride * heads * seqlen) return std::nullopt;
  return stride;
}

/// The dimensions of o and lse, padded or varlen, single and stacked.
struct Layout {
  DimNames o, lse, o_stack, lse_stack;
};
constexpr Layout dense = {"batch, seqlen, heads, head_dim_v", "batch, heads, seqlen", "", ""};
constexpr Layout varlen = {"tokens, heads, head_dim_v", "heads, tokens", "states, tokens, heads, head_dim_v",
                           "states, heads, tokens"};

/// Collects parts into views.
class Views {
 public:
  Views(const MergeSpec& spec, MergeParams<max_merge_views>& params) : spec_(spec), params_(params) {
    params_.states = 0;
  }

  void add(std::size_t index, const MergeView& next) {
    if (next.states == 0) return;
    params_.states += static_cast<unsigned>(next.states);
    if (count_ > 0 && append(params_.view[count_ - 1], next)) return;
    if (count_ == spec_.views) {
      refuse("parts",
             fmt::format("are more than {} views, of which the last begins with parts[{}]; raise spec.views, "
                         "or give states at equal distances",
                         spec_.views, index));
    }
    params_.view[count_++] = next;
  }

  void finish() {
    for (; count_ < spec_.views; ++count_) params_.view[count_] = {};
  }

 private:
  // Appends a single state if it is at the view's next address.
  bool append(MergeView& view, const MergeView& next) const {
    if (next.states != 1 || !same_strides(view.o_strides, next.o_strides) ||
        !same_strides(view.lse_strides, next.lse_strides))
      return false;
    const std::int64_t o = distance(view.o, next.o), lse = distance(view.lse, next.lse);
    const int bytes = size_of(spec_.dtype);
    if (view.states == 1) {
      view.o_state_stride = o / bytes;
      view.lse_state_stride = lse / static_cast<int>(sizeof(float));
    } else if (o != view.o_state_stride * bytes * view.states ||
               lse != view.lse_state_stride * static_cast<int>(sizeof(float)) * view.states) {
      return false;
    }
    ++view.states;
    return true;
  }

  static std::int64_t distance(const void* from, const void* to) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) -
                                     reinterpret_cast<std::uintptr_t>(from));
  }

  const MergeSpec& spec_;
  MergeParams<max_merge_views>& params_;
  int count_ = 0;
};

// An output may be exactly an input, which the same thread reads first; it may not overlap others.
void check_apart(std::string_view output_name, const TensorView& output, std::string_view name,
                 const TensorView& tensor) {
  if (!is_same_view(output, tensor)) check_no_overlap(output_name, output, name, tensor);
}

}  // namespace

bool fill_params(const MergeSpec& spec, const MergeArguments& arguments,
                 MergeParams<max_merge_views>& params) {
  const Layout& layout = arguments.o.rank == 4 ? dense : varlen;
  CallSizes sizes;
  sizes.know("head_dim_v", spec.head_dim_v);
  sizes.check({"o", layout.o, spec.out_dtype, spec.alignment}, arguments.o);
  const bool has_lse = arguments.lse.is_present();
  if (has_lse) sizes.check({"lse", layout.lse, DType::fp32}, arguments.lse);
  check_no_self_overlap("o", arguments.o);
  if (has_lse) {
    check_no_self_overlap("lse", arguments.lse);
    check_no_overlap("lse", arguments.lse, "o", arguments.o);
  }

  Views views(spec, params);
  std::int64_t states = 0;
  for (std::size_t i = 0; i < arguments.parts.size(); ++i) {
    const PartName o_name(i, "o"), lse_name(i, "lse");
    TensorView o = arguments.parts[i].o, lse = arguments.parts[i].lse;
    const bool is_stack = arguments.o.rank == 3 && o.rank == 4;
    CallSizes own = sizes;  // per part: each may stack a different number of states
    own.check({o_name, is_stack ? layout.o_stack : layout.o, spec.dtype, spec.alignment}, o);
    own.check({lse_name, is_stack ? layout.lse_stack : layout.lse, DType::fp32}, lse);
    check_apart("o", arguments.o, o_name, o);
    check_no_overlap("o", arguments.o, lse_name, lse);
    if (has_lse) {
      check_apart("lse", arguments.lse, lse_name, lse);
      check_no_overlap("lse", arguments.lse, o_name, o);
    }
    MergeView view{};
    view.states = 1;
    if (is_stack) {
      view.states = own["states"];
      view.o_state_stride = stride_along(o, 0);
      view.lse_state_stride = stride_along(lse, 0);
      o = first_of_stack(o);
      lse = first_of_stack(lse);
    }
    view.o = o.data;
    view.lse = static_cast<const float*>(lse.data);
    view.o_strides = row_strides(o);
    view.lse_strides = lse_strides(lse);
    states += view.states;
    if (states > std::numeric_limits<std::int32_t>::max()) refuse("parts", "stack more than 2^31 states");
    views.add(i, view);
  }
  views.finish();

  params.o = arguments.o.data;
  params.lse = has_lse ? static_cast<float*>(arguments.lse.data) : nullptr;
  params.o_strides = row_strides(arguments.o);
  params.lse_strides = has_lse ? lse_strides(arguments.lse) : TensorStrides{};
  const bool is_dense = arguments.o.rank == 4;
  const std::int64_t seqlen = sizes[is_dense ? "seqlen" : "tokens"], heads = sizes["heads"];
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(seqlen * heads, is_dense ? sizes["batch"] : 1, &rows) ||
      rows > std::numeric_limits<std::int32_t>::max())
    refuse("o", fmt::format("has more than 2^31 rows: {}", arguments.o.to_string()));
  params.rows = static_cast<unsigned>(rows);
  params.seqlen = division_by(static_cast<unsigned>(std::max<std::int64_t>(seqlen, 1)));
  params.heads = division_by(static_cast<unsigned>(std::max<std::int64_t>(heads, 1)));
  return rows > 0;
}

bool fill_pair(const MergeSpec& spec, const MergeParams<max_merge_views>& params, MergePairParams& pair) {
  if (params.states != 2) return false;
  const MergeView& first = params.view[0];
  const auto stride = row_stride(params.o_strides, params),
             state_stride = row_stride(first.o_strides, params);
  if (!stride || !state_stride) return false;
  pair.state_o[0] = first.o;
  pair.state_lse[0] = first.lse;
  if (first.states == 2) {
    pair.state_o[1] = static_cast<const std::byte*>(first.o) + first.o_state_stride * size_of(spec.dtype);
    pair.state_lse[1] = first.lse + first.lse_state_stride;
  } else {
    const MergeView& second = params.view[1];
    if (!same_strides(first.o_strides, second.o_strides) ||
        !same_strides(first.lse_strides, second.lse_strides))
      return false;
    pair.state_o[1] = second.o;
    pair.state_lse[1] = second.lse;
  }
  pair.o = params.o;
  pair.lse = params.lse;
  pair.o_row_stride = *stride;
  pair.state_o_row_stride = *state_stride;
  pair.lse_strides = params.lse_strides;
  pair.state_lse_strides = first.lse_strides;
  pair.rows = params.rows;
  pair.seqlen = params.seqlen;
  pair.heads = params.heads;
  return true;
}

}  // namespace jit
