#include <jit/choose_keys.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/launch/stream_memory.h"
#include "generator/operations/spec_rules.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

// Consecutive elements along the first dimension. Requires: they exist.
TensorView part(TensorView view, std::int64_t first, std::int64_t count) {
  if (!view.is_present()) return view;
  if (view.data != nullptr)
    view.data = static_cast<std::byte*>(view.data) + first * view.strides[0] * size_of(view.dtype);
  view.shape[0] = count;
  return view;
}

TopKSpec selection(const ChooseKeysSpec& spec) { return {.k = spec.k, .page_size = spec.scores.page_size}; }

// Sizes of a call. Requires: ranks are right.
struct Work {
  std::int64_t tokens, entries, columns;
  std::int64_t stride;   ///< of a token's scores
  std::int64_t at_once;  ///< tokens of a turn
};
Work work_of(const ChooseKeysSpec& spec, const ChooseKeysArguments& given) {
  const bool is_paged = spec.scores.page_size > 0;
  const std::int64_t keys = is_paged ? given.page_table.shape[1] * spec.scores.page_size : given.k.shape[0];
  Work work{.tokens = given.q.shape[0],
            .entries = is_paged ? given.page_table.shape[0] : 1,
            .columns = given.columns < 0 ? keys : given.columns,
            .stride = 0,
            .at_once = 0};
  if (work.columns > keys)
    refuse("columns", fmt::format("is {}; at most the {} keys can be seen", work.columns, keys));
  constexpr std::int64_t words_of_chunk = 4;
  work.stride = (work.columns + words_of_chunk - 1) / words_of_chunk * words_of_chunk;
  const std::int64_t row_bytes = std::max<std::int64_t>(1, work.stride) * std::int64_t{sizeof(float)};
  work.at_once = std::max<std::int64_t>(1, spec.score_bytes / row_bytes);
  return work;
}

TensorView scores_at(void* data, std::int64_t tokens, const Work& work) {
  TensorView scores = TensorView::dense(data, DType::fp32, {tokens, work.columns});
  scores.strides[0] = work.stride;
  return scores;
}

// The call of tokens from `first` on, all of the same entries of a page table.
ScoreKeysArguments scoring(const ChooseKeysSpec& spec, const ChooseKeysArguments& given, const Work& work,
                           std::int64_t first, std::int64_t count, std::int64_t columns) {
  const int page = spec.scores.page_size;
  const std::int64_t own = std::max<std::int64_t>(1, work.tokens / std::max<std::int64_t>(1, work.entries));
  // Tensors of a whole call are left as they are, for their checks.
  const auto of = [&](const TensorView& view) {
    return count == work.tokens ? view : part(view, first, count);
  };
  ScoreKeysArguments call{.q = of(given.q),
                          .k = page > 0 ? given.k : part(given.k, 0, columns),
                          .k_scale = page > 0 ? given.k_scale : part(given.k_scale, 0, columns),
                          .weights = of(given.weights),
                          .starts = of(given.starts),
                          .ends = of(given.ends),
                          .page_table = given.page_table,
                          .scores = {}};
  if (page > 0 && count < work.tokens)
    call.page_table = part(given.page_table, first / own, (count + own - 1) / own);
  if (page > 0) call.page_table.shape[1] = (columns + page - 1) / page;
  return call;
}

TopKArguments choosing(const ScoreKeysArguments& scored, const TensorView& indices,
                       const TensorView& counts) {
  const std::int64_t count = scored.scores.shape[0];
  TensorView scores = TensorView::dense(scored.scores.data, DType::fp32, {count, 1, scored.scores.shape[1]});
  scores.strides[0] = scores.strides[1] = scored.scores.strides[0];
  return {.scores = scores,
          .starts = scored.starts,
          .ends = scored.ends,
          .page_table = scored.page_table,
          .indices = indices,
          .counts = counts};
}

// Whether ranks are as `work_of` reads them; the checks of both calls say what is wrong of others.
void check_ranks(const ChooseKeysSpec& spec, const ChooseKeysArguments& given) {
  const bool is_paged = spec.scores.page_size > 0;
  for (const auto& [name, view, rank] :
       {std::tuple{"q", &given.q, 3}, std::tuple{"k", &given.k, is_paged ? 3 : 2},
        std::tuple{"page_table", &given.page_table, is_paged ? 2 : 0},
        std::tuple{"weights", &given.weights, 2}, std::tuple{"indices", &given.indices, 3},
        std::tuple{"counts", &given.counts, 2}})
    if (view->rank != rank)
      refuse(name, rank == 0 ? "needs spec.scores.page_size, which is 0"
                             : fmt::format("has {} dimensions; it must have {}", view->rank, rank));
}

}  // namespace

void validate(const ChooseKeysSpec& spec) {
  validate(spec.scores);
  if (spec.scores.block_max)
    refuse_spec("scores.block_max", "true", "must be false: nothing of the scores is left", "false");
  validate(selection(spec));
  if (spec.score_bytes < 1)
    refuse_spec("score_bytes", std::to_string(spec.score_bytes), "must be at least 1", "1");
}

void check_arguments(const ChooseKeysSpec& spec, const ChooseKeysArguments& given) {
  check_ranks(spec, given);
  const Work work = work_of(spec, given);
  constexpr int row_alignment = 16;
  check_pointer("k", given.k, row_alignment);
  if (spec.scores.page_size == 0 && given.k_scale.rank == 1)
    check_size("k_scale", given.k_scale, 0, "keys", given.k.shape[0]);
  if (spec.scores.page_size > 0 && given.k.shape[0] == 0 && work.tokens > 0 && work.columns > 0)
    refuse("k", "has no pages, and tokens may see keys");
  // Scores of no columns need no memory.
  ScoreKeysArguments scored = scoring(spec, given, work, 0, work.tokens, 0);
  scored.scores = TensorView::dense(nullptr, DType::fp32, {work.tokens, 0});
  check_arguments(spec.scores, scored);
  check_arguments(selection(spec), choosing(scored, given.indices, given.counts));
  using Named = std::pair<std::string_view, const TensorView*>;
  for (const auto& [name, output] : {Named{"indices", &given.indices}, Named{"counts", &given.counts}})
    for (const auto& [other, input] :
         {Named{"q", &given.q}, Named{"k", &given.k}, Named{"k_scale", &given.k_scale},
          Named{"weights", &given.weights}, Named{"starts", &given.starts}, Named{"ends", &given.ends},
          Named{"page_table", &given.page_table}})
      if (input->is_present()) check_no_overlap(name, *output, other, *input);
}

void ChooseKeys::operator()(const ChooseKeysArguments& given, Stream stream) const {
  check_arguments(spec_, given);
  const Work work = work_of(spec_, given);
  if (work.tokens == 0) return;
  const CurrentDevice device;
  StreamLease lease(Access::state(context_)->memory, device.ordinal(), stream);
  const std::int64_t rows = std::min(work.tokens, work.at_once), own = work.tokens / work.entries;
  void* const memory = lease.workspace(static_cast<std::size_t>(rows * work.stride) * sizeof(float));
  const auto turn = [&](std::int64_t first, std::int64_t count) {
    ScoreKeysArguments scored = scoring(spec_, given, work, first, count, work.columns);
    scored.scores = scores_at(memory, count, work);
    score_(scored, stream);
    top_(choosing(scored, part(given.indices, first, count), part(given.counts, first, count)), stream);
  };
  // Whole entries of a page table, or a part of one.
  const std::int64_t step = own <= work.at_once ? work.at_once / own * own : work.at_once;
  const std::int64_t unit = own <= work.at_once ? work.tokens : own;
  for (std::int64_t begin = 0; begin < work.tokens; begin += unit)
    for (std::int64_t first = begin; first < begin + unit; first += step)
      turn(first, std::min(step, begin + unit - first));
}

void ChooseKeys::prepare() const {
  score_.prepare();
  top_.prepare();
}

ChooseKeys choose_keys(const ChooseKeysSpec& spec, const Context& context) {
  validate(spec);
  return {spec, score_keys(spec.scores, context), top_k(selection(spec), context), context};
}

}  // namespace jit
