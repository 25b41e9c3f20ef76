// Calls that compute a part of what another one does, from the same tensors into the same outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include <jit/attention.h>
#include <jit/dtype.h>

namespace jit::testing {

/// Elements [begin, end) of a dimension.
inline void cut(TensorView& view, int dimension, std::int64_t begin, std::int64_t end) {
  view.data = static_cast<std::byte*>(view.data) +
              begin * view.strides[dimension] * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[dimension] = end - begin;
}

inline AttentionArguments of_batch_entry(AttentionArguments arguments, std::int64_t entry) {
  for (TensorView* view : {&arguments.q, &arguments.k, &arguments.v, &arguments.o, &arguments.lse})
    cut(*view, 0, entry, entry + 1);
  return arguments;
}

/// Queries [begin, end), and all keys up to the last one's own.
inline AttentionArguments of_queries(AttentionArguments arguments, std::int64_t begin, std::int64_t end) {
  const std::int64_t behind = arguments.q.shape[1] - end, keys = arguments.k.shape[1] - behind;
  for (TensorView* view : {&arguments.q, &arguments.o}) cut(*view, 1, begin, end);
  cut(arguments.lse, 2, begin, end);
  for (TensorView* view : {&arguments.k, &arguments.v}) cut(*view, 1, 0, keys);
  return arguments;
}

}  // namespace jit::testing
