#include "generator/problem/arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "generator/launch/tensor_maps.h"
#include "generator/problem/functor_node.h"

namespace jit {
namespace {

// Positions are 32-bit in kernels, and run past the end by at most a tile of queries and a tile of keys.
constexpr std::int64_t max_length = std::numeric_limits<std::int32_t>::max() - 4096;
constexpr std::int64_t max_count = std::numeric_limits<std::int32_t>::max() - 65535;
constexpr std::int64_t max_heads = std::numeric_limits<std::int32_t>::max();  // blocks along x of a grid
// Elements from first to last along one dimension: far beyond any memory, and no sum of such overflows.
constexpr std::int64_t max_reach = std::int64_t{1} << 48;

[[noreturn]] void refuse(std::string_view argument, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "launch", std::string(argument),
              fmt::format("{}: {}", argument, message));
}

struct Sizes {
  std::int64_t batch, seqlen_q, seqlen_kv, heads_q, heads_kv;
};

bool has_elements(const TensorView& tensor) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 0) return false;
  }
  return tensor.rank != 0;
}

void check_sizes_and_strides(std::string_view name, const TensorView& tensor) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] < 0) refuse(name, fmt::format("has a negative size: {}", tensor.to_string()));
    if (tensor.shape[i] <= 1) continue;
    const std::int64_t limit = max_reach / (tensor.shape[i] - 1);
    if (tensor.strides[i] > limit || tensor.strides[i] < -limit)
      refuse(name, fmt::format("reaches further than any memory: {}", tensor.to_string()));
  }
}

void check_rank(std::string_view name, const TensorView& tensor, int rank, const char* meaning) {
  if (tensor.rank != rank) {
    refuse(name, tensor.rank == 0 ? fmt::format("is missing; give a tensor {}", meaning)
                                  : fmt::format("has {} dimensions; it must be {}", tensor.rank, meaning));
  }
  check_sizes_and_strides(name, tensor);
}

void check_dtype(std::string_view name, const TensorView& tensor, DType dtype) {
  if (tensor.dtype != dtype) {
    refuse(name, fmt::format("is {}; it must be {}", to_string(tensor.dtype), to_string(dtype)));
  }
}

void check_size(std::string_view name, const TensorView& tensor, int dimension, const char* meaning,
                std::int64_t expected) {
  if (tensor.shape[dimension] != expected) {
    refuse(name, fmt::format("has {} = {}; it must be {}: {}", meaning, tensor.shape[dimension], expected,
                             tensor.to_string()));
  }
}

void check_pointer(std::string_view name, const TensorView& tensor, int alignment) {
  if (!has_elements(tensor)) return;
  if (tensor.data == nullptr) refuse(name, "is a null pointer");
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<unsigned>(alignment) != 0) {
    refuse(name,
           fmt::format(
               "starts at {}, which is not aligned to {} bytes; set spec.alignment to what the tensors keep",
               tensor.data, alignment));
  }
}

// q, k, v or o: (batch, seqlen, heads, head_dim) with dense head_dim and aligned rows.
TensorStrides check_operand(const AttentionSpec& spec, std::string_view name, const TensorView& tensor,
                            std::int64_t batch, std::int64_t seqlen, std::int64_t heads, int head_dim) {
  check_rank(name, tensor, 4, "(batch, seqlen, heads, head_dim)");
  check_dtype(name, tensor, spec.dtype);
  check_size(name, tensor, 0, "batch", batch);
  check_size(name, tensor, 1, "seqlen", seqlen);
  check_size(name, tensor, 2, "heads", heads);
  check_size(name, tensor, 3, "head_dim", head_dim);
  check_pointer(name, tensor, spec.alignment);
  if (tensor.strides[3] != 1) {
    refuse(name, fmt::format("has stride {} along head_dim; it must be 1: {}", tensor.strides[3],
                             tensor.to_string()));
  }
  for (int i = 0; i < 3; ++i) {
    if (tensor.shape[i] > 1 && tensor.strides[i] * 2 % spec.alignment != 0) {
      refuse(name,
             fmt::format("has stride {} in dimension {}, which does not keep rows aligned to {} bytes; set "
                         "spec.alignment to what the tensors keep",
                         tensor.strides[i], i, spec.alignment));
    }
  }
  // A dimension of one element may carry any stride.
  const auto stride = [&](int i) { return tensor.shape[i] > 1 ? tensor.strides[i] : 0; };
  return {.batch = stride(0), .seq = stride(1), .head = stride(2)};
}

// Two elements of an output must not share an address: in order of stride, each dimension must step over the
// one before.
void check_no_self_overlap(std::string_view name, const TensorView& tensor) {
  if (!has_elements(tensor)) return;
  struct Dimension {
    std::int64_t size, stride;
  };
  Dimension dimensions[max_rank];
  int count = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] <= 1) continue;
    const Dimension dimension{tensor.shape[i], std::abs(tensor.strides[i])};
    int place = count++;
    for (; place > 0 && dimensions[place - 1].stride > dimension.stride; --place)
      dimensions[place] = dimensions[place - 1];
    dimensions[place] = dimension;
  }
  std::int64_t extent = 1;
  for (int i = 0; i < count; ++i) {
    if (dimensions[i].stride < extent) {
      refuse(name,
             fmt::format("is an output whose strides make elements share memory: {}", tensor.to_string()));
    }
    extent += (dimensions[i].size - 1) * dimensions[i].stride;
  }
}

struct ByteRange {
  std::intptr_t begin, end;
};

ByteRange byte_range(const TensorView& tensor) {
  std::intptr_t low = 0, high = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    const std::int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::intptr_t>(tensor.data);
  const int bytes = size_of(tensor.dtype);
  return {base + low * bytes, base + (high + 1) * bytes};
}

// Whether two views with the same strides over one buffer, as slices of a packed tensor are, share an
// element: whether their distance is a difference of two indices. Each dimension takes the whole number of
// strides just below or above what is left.
bool same_stride_overlap(const TensorView& a, const TensorView& b, std::int64_t distance, unsigned used) {
  int widest = -1;
  for (int i = 0; i < a.rank; ++i) {
    const bool moves =
        std::max(a.shape[i], b.shape[i]) > 1;  // a dimension of one element may carry any stride
    if (moves && !(used >> i & 1) && (widest < 0 || std::abs(a.strides[i]) > std::abs(a.strides[widest])))
      widest = i;
  }
  if (widest < 0) return distance == 0;
  const std::int64_t stride = std::abs(a.strides[widest]);
  const std::int64_t reach = std::max(a.shape[widest], b.shape[widest]) - 1;
  if (stride == 0) return same_stride_overlap(a, b, distance, used | 1u << widest);
  const std::int64_t below = distance >= 0 ? distance / stride : -((-distance + stride - 1) / stride);
  for (const std::int64_t steps : {below, below + 1}) {
    if (std::abs(steps) <= reach && same_stride_overlap(a, b, distance - steps * stride, used | 1u << widest))
      return true;
  }
  return false;
}

void check_no_overlap(std::string_view output_name, const TensorView& output, std::string_view input_name,
                      const TensorView& input) {
  if (!has_elements(output) || !has_elements(input)) return;
  const ByteRange a = byte_range(output), b = byte_range(input);
  if (a.end <= b.begin || b.end <= a.begin) return;
  bool same_strides = output.rank == input.rank && output.dtype == input.dtype;
  for (int i = 0; same_strides && i < output.rank; ++i) same_strides = output.strides[i] == input.strides[i];
  if (same_strides) {
    const std::int64_t bytes =
        reinterpret_cast<std::intptr_t>(output.data) - reinterpret_cast<std::intptr_t>(input.data);
    const int size = size_of(output.dtype);
    if (bytes % size == 0 && !same_stride_overlap(output, input, bytes / size, 0)) return;
  }
  refuse(
      output_name,
      fmt::format("shares memory with {}, which other blocks still read while it is written; give it its own",
                  input_name));
}

std::int64_t broadcast_stride(std::string_view name, const TensorView& tensor, int dimension,
                              const char* meaning, std::int64_t expected) {
  if (tensor.shape[dimension] == 1) return 0;
  check_size(name, tensor, dimension, meaning, expected);
  return tensor.strides[dimension];
}

void check_dense_last(std::string_view name, const TensorView& tensor) {
  const int last = tensor.rank - 1;
  if (tensor.shape[last] > 1 && tensor.strides[last] != 1) {
    refuse(name, fmt::format("must have stride 1 in its last dimension: {}", tensor.to_string()));
  }
}

// The texts of users get a pointer and nothing that tells of strides.
void check_dense(std::string_view name, const TensorView& tensor) {
  std::int64_t dense = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    if (tensor.shape[i] > 1 && tensor.strides[i] != dense && has_elements(tensor))
      refuse(name, fmt::format("is read by a text and must be dense: {}", tensor.to_string()));
    dense *= tensor.shape[i];
  }
}

FunctorTensor check_functor_tensor(const FunctorTensorSpec& wanted, const TensorView& tensor,
                                   const Sizes& sizes) {
  const std::string& name = wanted.name;
  if (tensor.rank < 1 || tensor.rank > max_rank)
    refuse(name, fmt::format("has {} dimensions; it must have 1 to {}", tensor.rank, max_rank));
  check_dtype(name, tensor, wanted.dtype);
  FunctorTensor result{.data = tensor.data, .strides = {0, 0, 0}};
  if (name == prefix_lengths_tensor) {
    check_rank(name, tensor, 1, "(batch)");
    check_size(name, tensor, 0, "batch", sizes.batch);
    check_dense_last(name, tensor);
  } else if (name == document_ids_q_tensor || name == document_ids_kv_tensor) {
    const bool is_q = name == document_ids_q_tensor;
    check_rank(name, tensor, 2, is_q ? "(batch, seqlen_q)" : "(batch, seqlen_kv)");
    result.strides[0] = broadcast_stride(name, tensor, 0, "batch", sizes.batch);
    check_size(name, tensor, 1, is_q ? "seqlen_q" : "seqlen_kv", is_q ? sizes.seqlen_q : sizes.seqlen_kv);
    check_dense_last(name, tensor);
  } else if (name == alibi_slopes_tensor) {
    if (tensor.rank != 2) check_rank(name, tensor, 1, "(heads_q) or (batch, heads_q)");
    if (tensor.rank == 2) result.strides[0] = broadcast_stride(name, tensor, 0, "batch", sizes.batch);
    check_size(name, tensor, tensor.rank - 1, "heads_q", sizes.heads_q);
    check_dense_last(name, tensor);
  } else if (name == bias_tensor) {
    check_rank(name, tensor, 4, "(batch, heads_q, seqlen_q, seqlen_kv)");
    result.strides[0] = broadcast_stride(name, tensor, 0, "batch", sizes.batch);
    result.strides[1] = broadcast_stride(name, tensor, 1, "heads_q", sizes.heads_q);
    result.strides[2] = broadcast_stride(name, tensor, 2, "seqlen_q", sizes.seqlen_q);
    check_size(name, tensor, 3, "seqlen_kv", sizes.seqlen_kv);
    check_dense_last(name, tensor);
  } else {
    check_sizes_and_strides(name, tensor);
    check_dense(name, tensor);
  }
  check_pointer(name, tensor, size_of(wanted.dtype));
  return result;
}

// q, k and v against the spec and each other. Fills their strides.
Sizes check_inputs(const AttentionSpec& spec, const AttentionArguments& arguments, AttentionParams& params) {
  const TensorView& q = arguments.q;
  const TensorView& k = arguments.k;
  check_rank("q", q, 4, "(batch, seqlen_q, heads_q, head_dim)");
  check_rank("k", k, 4, "(batch, seqlen_kv, heads_kv, head_dim)");
  const Sizes sizes{.batch = q.shape[0],
                    .seqlen_q = q.shape[1],
                    .seqlen_kv = k.shape[1],
                    .heads_q = q.shape[2],
                    .heads_kv = k.shape[2]};
  if (sizes.heads_q % spec.gqa_ratio != 0 || sizes.heads_q / spec.gqa_ratio != sizes.heads_kv) {
    refuse("k", fmt::format("has {} heads and q has {}; q must have spec.gqa_ratio = {} times as many",
                            sizes.heads_kv, sizes.heads_q, spec.gqa_ratio));
  }
  if (spec.seqlen_q != 0) check_size("q", q, 1, "seqlen", spec.seqlen_q);
  if (spec.seqlen_kv != 0) check_size("k", k, 1, "seqlen", spec.seqlen_kv);
  if (sizes.seqlen_q > max_length)
    refuse("q", fmt::format("has seqlen {}; at most {} fit", sizes.seqlen_q, max_length));
  if (sizes.seqlen_kv > max_length)
    refuse("k", fmt::format("has seqlen {}; at most {} fit", sizes.seqlen_kv, max_length));
  if (sizes.batch > max_count)
    refuse("q", fmt::format("has batch {}; at most {} fit", sizes.batch, max_count));
  if (sizes.heads_q > max_heads)
    refuse("q", fmt::format("has {} heads; at most {} fit", sizes.heads_q, max_heads));

  const int head_dim_v = spec.value_head_dim();
  params.q_strides = check_operand(spec, "q", q, sizes.batch, sizes.seqlen_q, sizes.heads_q, spec.head_dim);
  params.k_strides = check_operand(spec, "k", k, sizes.batch, sizes.seqlen_kv, sizes.heads_kv, spec.head_dim);
  params.v_strides =
      check_operand(spec, "v", arguments.v, sizes.batch, sizes.seqlen_kv, sizes.heads_kv, head_dim_v);
  return sizes;
}

}  // namespace

void check_inputs(const AttentionSpec& spec, const AttentionArguments& arguments) {
  AttentionParams ignored;
  check_inputs(spec, arguments, ignored);
}

bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorSpec>& tensors,
                 const AttentionArguments& arguments, AttentionParams& params) {
  const Sizes sizes = check_inputs(spec, arguments, params);
  const TensorView& q = arguments.q;
  const TensorView& k = arguments.k;
  params.o_strides = check_operand(spec, "o", arguments.o, sizes.batch, sizes.seqlen_q, sizes.heads_q,
                                   spec.value_head_dim());
  params.lse_strides = {};
  const TensorView& lse = arguments.lse;
  if (lse.is_present()) {
    check_rank("lse", lse, 3, "(batch, heads_q, seqlen_q)");
    check_dtype("lse", lse, DType::fp32);
    check_size("lse", lse, 0, "batch", sizes.batch);
    check_size("lse", lse, 1, "heads", sizes.heads_q);
    check_size("lse", lse, 2, "seqlen", sizes.seqlen_q);
    check_pointer("lse", lse, 4);
    check_no_self_overlap("lse", lse);
    params.lse_strides = {.batch = lse.strides[0], .seq = lse.strides[2], .head = lse.strides[1]};
  }
  check_no_self_overlap("o", arguments.o);
  for (const auto& [name, input] :
       {std::pair<std::string_view, const TensorView*>("q", &q), {"k", &k}, {"v", &arguments.v}}) {
    check_no_overlap("o", arguments.o, name, *input);
    if (lse.is_present()) check_no_overlap("lse", lse, name, *input);
  }
  if (lse.is_present()) check_no_overlap("lse", lse, "o", arguments.o);

  std::size_t used = 0;
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    const NamedTensor* given = nullptr;
    for (const NamedTensor& tensor : arguments.tensors) {
      if (tensor.name == tensors[slot].name) given = &tensor;
    }
    if (given == nullptr) {
      refuse(tensors[slot].name,
             fmt::format("is read by the mask or score but was not given; add it to `tensors` as {}",
                         to_string(tensors[slot].dtype)));
    }
    params.tensors[slot] = check_functor_tensor(tensors[slot], given->tensor, sizes);
    check_no_overlap("o", arguments.o, tensors[slot].name, given->tensor);
    if (lse.is_present()) check_no_overlap("lse", lse, tensors[slot].name, given->tensor);
    ++used;
  }
  if (used != static_cast<std::size_t>(arguments.tensors.end() - arguments.tensors.begin())) {
    for (const NamedTensor& tensor : arguments.tensors) {
      const auto is_it = [&](const FunctorTensorSpec& wanted) { return wanted.name == tensor.name; };
      if (std::none_of(tensors.begin(), tensors.end(), is_it)) {
        refuse(tensor.name, "was given, but neither mask nor score reads a tensor of that name");
      }
    }
    refuse("tensors", "the same name was given twice");
  }

  params.q = q.data;
  params.k = k.data;
  params.v = arguments.v.data;
  params.o = arguments.o.data;
  params.lse = lse.is_present() ? static_cast<float*>(lse.data) : nullptr;
  params.batch = static_cast<int>(sizes.batch);
  params.batch_begin = params.q_tile_begin = 0;
  params.heads_q = static_cast<int>(sizes.heads_q);
  params.heads_kv = static_cast<int>(sizes.heads_kv);
  params.seqlen_q = static_cast<int>(sizes.seqlen_q);
  params.seqlen_kv = static_cast<int>(sizes.seqlen_kv);
  params.softmax_scale = spec.scale();
  return sizes.batch > 0 && sizes.heads_q > 0 && sizes.seqlen_q > 0;
}

ProblemShape shape_of(const AttentionParams& params) {
  return {.batch = params.batch,
          .heads_q = params.heads_q,
          .seqlen_q = params.seqlen_q,
          .seqlen_kv = params.seqlen_kv,
          .tma = can_map(params)};
}

}  // namespace jit
