#include "tests/support/attention_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/spec_table.h>

#include "tests/support/seed.h"

namespace jit::testing {

std::string_view to_string(Layout layout) {
  constexpr std::string_view names[] = {"bshd", "bhsd", "packed_qkv", "padded", "reversed"};
  return names[static_cast<int>(layout)];
}

std::string to_string(const AttentionCase& problem) {
  return fmt::format(
      "{}, batch {}, heads_kv {}, seqlen_q {}, seqlen_kv {}, {}, lse {}, amplitude {}, seed {}, used keys "
      "[{}], used queries [{}], {} spare rows, dropout_p {}",
      to_string(problem.spec), problem.batch, problem.heads_kv, problem.seqlen_q, problem.seqlen_kv,
      to_string(problem.layout), problem.with_lse, problem.amplitude, problem.seed,
      fmt::join(problem.used_keys, " "), fmt::join(problem.used_queries, " "), problem.spare_rows,
      problem.dropout_p);
}

AttentionCase problem_of(const AttentionSpec& spec, int batch, int heads_kv, int seqlen_q, int seqlen_kv,
                         Layout layout) {
  return {.spec = spec,
          .batch = batch,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen_q,
          .seqlen_kv = seqlen_kv,
          .layout = layout,
          .seed = reference::next_seed()};
}

}  // namespace jit::testing
