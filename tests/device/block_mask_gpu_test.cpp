// jit::block_mask on a device against every score of every block, asked one by one on the host.
#include <jit/block_mask.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "generator/operations/block_mask/program.h"
#include "generator/plan/kernel_choice.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/captured_graph.h"
#include "tests/support/device_tensor.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using reference::draw;

enum class Kind { empty, partial, full };

struct BlockMaskCase {
  BlockMaskSpec spec = {};
  int batch = 1, heads = 1;
  int heads_q = 0;  ///< 0: heads
  int seqlen_q = 1, seqlen_kv = 1;
  bool with_seqused = false;
  TensorLayout layout = {};  ///< of the table
  bool with_map = false, with_partial = false, with_full = false;
  bool as_bsr = false;  ///< lists
  bool without_order = false;
  bool named_for_all = false;  ///< maps and lists are one for all batch entries and heads
};

std::string to_string(const BlockMaskCase& problem) {
  return fmt::format("{} in blocks of {}x{}, batch {}, {} heads, {} queries, {} keys",
                     problem.spec.mask.to_string(), problem.spec.block_q, problem.spec.block_kv,
                     problem.batch, problem.heads, problem.seqlen_q, problem.seqlen_kv);
}

/// One of a caller's two lists of blocks, with what no list should have in it.
struct Lists {
  std::optional<DeviceTensor> counts, indptr, indices;
  std::int64_t room = 0;  ///< of indices, with indptr

  /// Rows one behind another, some of which overlap, end before they begin, or lie outside.
  void fill_bsr(std::vector<std::int64_t> shape, std::int64_t columns, reference::Random& random) {
    const std::int64_t size = 2 * columns + 5;
    ++shape.back();
    indptr.emplace(DType::int32, shape);
    room = size;
    indices.emplace(DType::int32, std::vector<std::int64_t>{size + 5});  // what no row may reach
    indptr->fill([&](std::int64_t) { return draw(random, -2, static_cast<int>(size) + 2); });
    indices->fill([&](std::int64_t i) {
      return i < size ? draw(random, -2, static_cast<int>(columns) + 2)
                      : draw(random, 0, static_cast<int>(columns) - 1);
    });
    indptr->upload();
    indices->upload();
  }
  void fill(const std::vector<std::int64_t>& shape, std::int64_t columns, reference::Random& random) {
    const std::int64_t capacity = columns + 1;
    counts.emplace(DType::int32, shape);
    std::vector<std::int64_t> all = shape;
    all.push_back(capacity);
    indices.emplace(DType::int32, all, TensorLayout{.row_elements = capacity + 3});
    counts->fill([&](std::int64_t) { return draw(random, -2, static_cast<int>(capacity) + 2); });
    indices->fill([&](std::int64_t) { return draw(random, -2, static_cast<int>(columns) + 2); });
    // Behind the room of each row lies what a count above it must not reach.
    for (std::int64_t flat = 0; flat < counts->count(); ++flat) {
      std::vector<std::int64_t> at = counts->index(flat);
      at.push_back(capacity);
      for (; at.back() < capacity + 3; ++at.back())
        indices->set(at, draw(random, 0, static_cast<int>(columns) - 1));
    }
    counts->upload();
    indices->upload();
  }
  bool has(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    if (indptr) {
      b %= indptr->view().shape[0], h %= indptr->view().shape[1];
      const double end = std::min(indptr->get({b, h, row + 1}), static_cast<double>(room));
      for (double i = std::max(indptr->get({b, h, row}), 0.0); i < end; ++i) {
        if (indices->get({static_cast<std::int64_t>(i)}) == static_cast<double>(column)) return true;
      }
      return false;
    }
    if (!counts) return false;
    b %= counts->view().shape[0], h %= counts->view().shape[1];
    const auto count = static_cast<std::int64_t>(counts->get({b, h, row}));
    for (std::int64_t i = 0; i < std::min(count, indices->view().shape[3]); ++i) {
      if (indices->get({b, h, row, i}) == static_cast<double>(column)) return true;
    }
    return false;
  }
  BlockListViews views() const {
    if (indptr) {
      BlockListViews views{.indices = indices->view(), .indptr = indptr->view()};
      views.indices.shape[0] = room;
      return views;
    }
    return counts ? BlockListViews{counts->view(), indices->view()} : BlockListViews{};
  }
};

class BlockMaskRun {
 public:
  explicit BlockMaskRun(const BlockMaskCase& problem)
      : problem_(problem),
        random_(reference::test_seed()),
        shape_(shape_of(problem)),
        bit_words_(shape_[3] / 2 * 2),
        columns_((problem.seqlen_kv + problem.spec.block_kv - 1) / problem.spec.block_kv),
        table_(DType::int32, {shape_[0], shape_[1], shape_[2], shape_[3]}, problem.layout) {
    fill_tensors();
    draw_lengths();
    const std::int64_t b = problem.named_for_all ? 1 : problem.batch,
                       h = problem.named_for_all ? 1 : problem.heads;
    if (problem.with_map) {
      map_.emplace(DType::uint8, std::vector<std::int64_t>{b, h, shape_[2], columns_});
      map_->fill([&](std::int64_t) { return draw(random_, 0, 1) * draw(random_, 1, 255); });
      map_->upload();
    }
    for (const auto& [lists, is_given] :
         {std::pair{&partial_, problem.with_partial}, {&full_, problem.with_full}}) {
      if (is_given && problem.as_bsr) lists->fill_bsr({b, h, shape_[2]}, columns_, random_);
      if (is_given && !problem.as_bsr) lists->fill({b, h, shape_[2]}, columns_, random_);
    }
  }

  /// Draws what the mask reads, of the same shapes once there is some, and poisons the table.
  void fill_tensors() {
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const auto& [name, data] : functors_.tensors) shapes[name] = data.shape;
    functors_ = reference::random_functor_problem(attention_of(problem_.spec), problem_.batch, heads_q(),
                                                  problem_.seqlen_q, problem_.seqlen_kv, random_, shapes);
    std::size_t i = 0;
    for (const auto& [name, data] : functors_.tensors) {
      if (i == tensors_.size()) tensors_.emplace_back(data.dtype, data.shape);
      const reference::FunctorData flat{data.dtype, {tensors_[i].count()}, data.bytes};
      tensors_[i].fill([&](std::int64_t at) { return flat.at({at}); });
      tensors_[i++].upload();
    }
    table_.poison();
    table_.upload();
  }

  int heads_q() const { return problem_.heads_q == 0 ? problem_.heads : problem_.heads_q; }

  BlockMaskArguments arguments() const {
    BlockMaskArguments result{.block_mask = table_.view(),
                              .seqlen_q = problem_.seqlen_q,
                              .seqlen_kv = problem_.seqlen_kv,
                              .heads_q = problem_.heads_q,
                              .partial = partial_.views(),
                              .full = full_.views()};
    std::size_t i = 0;
    for (const auto& [name, data] : functors_.tensors)
      result.tensors.add({name.c_str(), tensors_[i++].view()});
    if (map_) result.map = map_->view();
    const auto give = [](TensorView& view, const std::optional<DeviceTensor>& tensor) {
      if (tensor) view = tensor->view();
    };
    give(result.cu_seqlens_q, cu_q_);
    give(result.cu_seqlens_k, cu_k_);
    give(result.seqused_q, used_q_);
    give(result.seqused_k, used_k_);
    if (cu_q_) result.total_q = static_cast<std::int64_t>(cu_q_->get({problem_.batch}));
    if (cu_k_) result.total_k = static_cast<std::int64_t>(cu_k_->get({problem_.batch}));
    return result;
  }

  /// Errors of the table; empty: none.
  std::string check() {
    DeviceTensor expected(DType::int32, {shape_[0], shape_[1], shape_[2], shape_[3]}, problem_.layout);
    table_.download();
    for (std::int64_t b = 0; b < shape_[0]; ++b) {
      reference::FunctorProblem of_entry = functors_;
      of_entry.seqlen_q = lengths_q_[static_cast<std::size_t>(b)];
      of_entry.seqlen_kv = lengths_k_[static_cast<std::size_t>(b)];
      const reference::Keep keep = reference::host_mask(
          problem_.spec.mask, std::make_shared<const reference::FunctorProblem>(of_entry));
      for (std::int64_t h = 0; h < shape_[1]; ++h) {
        std::vector<std::int64_t> amounts(static_cast<std::size_t>(shape_[2]), 0);  // of blocks in rows
        for (std::int64_t row = 0; row < shape_[2]; ++row) {
          std::vector<std::uint32_t> words(static_cast<std::size_t>(bit_words_), 0);
          for (std::int64_t column = 0; column < columns_; ++column) {
            const Kind kind = kind_of(of_entry, keep, b, h, row, column);
            ++counts_[static_cast<int>(kind)];
            amounts[static_cast<std::size_t>(row)] += kind != Kind::empty;
            const auto pair = static_cast<std::size_t>(column / 32 * 2);
            words[pair] |= static_cast<std::uint32_t>(kind != Kind::empty) << column % 32;
            words[pair + 1] |= static_cast<std::uint32_t>(kind == Kind::full) << column % 32;
          }
          for (std::int64_t i = 0; i < bit_words_; ++i) {
            const auto word = words[static_cast<std::size_t>(i)];
            expected.set({b, h, row, i}, static_cast<std::int32_t>(word));
            const auto got =
                static_cast<std::uint32_t>(static_cast<std::int32_t>(table_.get({b, h, row, i})));
            if (got != word)
              return fmt::format("word {} of batch entry {}, head {}, row {} is {:08x}, should be {:08x}", i,
                                 b, h, row, got, word);
          }
        }
        if (shape_[3] == bit_words_) continue;
        const std::vector<std::int64_t> order = by_amount(std::move(amounts));
        for (std::int64_t place = 0; place < shape_[2]; ++place) {
          const auto row = static_cast<double>(order[static_cast<std::size_t>(place)]);
          expected.set({b, h, place, bit_words_}, row);
          if (const double got = table_.get({b, h, place, bit_words_}); got != row)
            return fmt::format("place {} of batch entry {}, head {} has row {}, should have {}", place, b, h,
                               got, row);
        }
      }
    }
    return table_.bytes() == expected.bytes() ? "" : "something between the rows of the table was written";
  }

  /// Rows with the fewest blocks first, and last the one that has fewer queries than the others.
  std::vector<std::int64_t> by_amount(std::vector<std::int64_t> amounts) const {
    std::vector<std::int64_t> rows(amounts.size());
    std::iota(rows.begin(), rows.end(), 0);
    if (problem_.seqlen_q % problem_.spec.block_q != 0) amounts.back() = INT64_MAX;
    std::stable_sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) {
      return amounts[static_cast<std::size_t>(a)] < amounts[static_cast<std::size_t>(b)];
    });
    return rows;
  }

  /// How many blocks are empty, partial and full, once checked.
  const std::array<int, 3>& counts() const { return counts_; }

 private:
  void draw_lengths() {
    const auto batch = static_cast<std::size_t>(problem_.batch);
    const auto draw_side = [&](bool is_varlen, int most, std::vector<int>& lengths,
                               std::optional<DeviceTensor>& cu, std::optional<DeviceTensor>& used) {
      lengths.assign(batch, most);
      if (is_varlen) {
        for (int& length : lengths) length = draw(random_, 0, most);
        lengths.back() = most;
        cu.emplace(DType::int32, std::vector<std::int64_t>{problem_.batch + 1});
        int begin = 0;
        for (std::int64_t i = 0; i <= problem_.batch; ++i) {
          cu->set({i}, begin);
          if (i < problem_.batch) begin += lengths[static_cast<std::size_t>(i)];
        }
        cu->upload();
      }
      if (!problem_.with_seqused) return;
      used.emplace(DType::int32, std::vector<std::int64_t>{problem_.batch});
      for (std::int64_t i = 0; i < problem_.batch; ++i) {
        int& length = lengths[static_cast<std::size_t>(i)];
        const int value = draw(random_, -1, length + 1);
        used->set({i}, value);
        length = std::clamp(value, 0, length);
      }
      used->upload();
    };
    draw_side(problem_.spec.varlen_q, problem_.seqlen_q, lengths_q_, cu_q_, used_q_);
    draw_side(problem_.spec.varlen_kv, problem_.seqlen_kv, lengths_k_, cu_k_, used_k_);
  }

  Kind kind_of(const reference::FunctorProblem& entry, const reference::Keep& keep, std::int64_t b,
               std::int64_t h, std::int64_t row, std::int64_t column) const {
    const auto q_begin = row * problem_.spec.block_q, k_begin = column * problem_.spec.block_kv;
    const auto q_end = std::min<std::int64_t>(q_begin + problem_.spec.block_q, entry.seqlen_q);
    const auto k_end = std::min<std::int64_t>(k_begin + problem_.spec.block_kv, entry.seqlen_kv);
    if (q_begin >= q_end || k_begin >= k_end) return Kind::empty;
    if (map_ && map_->get({b % map_->view().shape[0], h % map_->view().shape[1], row, column}) == 0)
      return Kind::empty;
    if (full_.has(b, h, row, column)) return Kind::full;
    const bool has_lists = partial_.indices || full_.indices;
    if (has_lists && !partial_.has(b, h, row, column)) return Kind::empty;
    bool is_some = false, is_all = true;
    for (std::int64_t q = q_begin; q < q_end; ++q) {
      for (std::int64_t k = k_begin; k < k_end; ++k) {
        const bool is_kept = keep == nullptr || keep(static_cast<int>(b), static_cast<int>(h),
                                                     static_cast<int>(q), static_cast<int>(k));
        is_some |= is_kept;
        is_all &= is_kept;
      }
    }
    return is_all ? Kind::full : is_some ? Kind::partial : Kind::empty;
  }

  BlockMaskCase problem_;
  reference::Random random_;
  static std::array<std::int64_t, 4> shape_of(const BlockMaskCase& problem) {
    auto shape =
        block_mask_shape(problem.spec, problem.batch, problem.heads, problem.seqlen_q, problem.seqlen_kv);
    if (problem.without_order) --shape[3];
    return shape;
  }

  std::array<std::int64_t, 4> shape_;
  std::int64_t bit_words_, columns_;
  DeviceTensor table_;
  reference::FunctorProblem functors_;
  std::vector<DeviceTensor> tensors_;  ///< as those of functors_
  std::vector<int> lengths_q_, lengths_k_;
  std::optional<DeviceTensor> cu_q_, cu_k_, used_q_, used_k_, map_;
  Lists partial_, full_;
  std::array<int, 3> counts_ = {};
};

class BlockMaskTest : public GpuTest {
 protected:
  /// Returns how many blocks were empty, partial and full.
  static std::array<int, 3> expect_right(const BlockMaskCase& problem) {
    BlockMaskRun run(problem);
    block_mask(problem.spec, context())(run.arguments());
    EXPECT_EQ(run.check(), "") << to_string(problem);
    return run.counts();
  }
  static Mask parsed(const char* text) { return parse_mask(text, reference::mask_texts()); }
};

// Built-in masks, texts that are followed, that say it themselves, that read tensors and that look at heads.
TEST_F(BlockMaskTest, BlocksAreWhatTheirScoresSay) {
  const CurrentDevice current(0);
  const std::vector<std::pair<const char*, bool>> masks = {{"none", false},
                                                           {"causal && window(90, 0)", false},
                                                           {"document && causal(top_left)", false},
                                                           {"prefix_lengths || !document", false},
                                                           {"causal_per_request || draft_tree", false},
                                                           {"text(recent)", false},
                                                           {"text(blocks)", false},
                                                           {"text(stripes) || prefix(40)", false},
                                                           {"text(allowed-keys)", false},
                                                           {"text(by_head.and_batch)", true},
                                                           {"text(ends_by_head)", true}};
  constexpr std::array<std::pair<int, int>, 4> sides = {{{16, 16}, {64, 128}, {128, 128}, {48, 16}}};
  std::size_t next = 0;
  std::array<int, 3> counts = {};
  for (const auto& [mask, reads_head] : masks) {
    const auto [block_q, block_kv] = sides[next++ % sides.size()];
    const std::array<int, 3> of_mask =
        expect_right({.spec = {.mask = parsed(mask), .block_q = block_q, .block_kv = block_kv},
                      .batch = 2,
                      .heads = reads_head ? 3 : 1,
                      .heads_q = 3,
                      .seqlen_q = 203,
                      .seqlen_kv = 301});
    for (std::size_t kind = 0; kind < 3; ++kind) counts[kind] += of_mask[kind];
  }
  for (const int count : counts) EXPECT_GE(count, 20);
}

// Also those with more blocks in a row than a word has bits, and with fewer keys than a block.
TEST_F(BlockMaskTest, Sizes) {
  const CurrentDevice current(0);
  for (const auto& [seqlen_q, seqlen_kv] :
       {std::pair{1, 1}, {0, 5}, {5, 0}, {16, 512}, {33, 513}, {17, 1100}, {300, 20}})
    expect_right(
        {.spec = {.mask = parsed("causal && window(70, 0) || prefix(33)"), .block_q = 16, .block_kv = 16},
         .heads = 2,
         .seqlen_q = seqlen_q,
         .seqlen_kv = seqlen_kv});
}

TEST_F(BlockMaskTest, StridedTables) {
  const CurrentDevice current(0);
  BlockMaskCase problem{
      .spec = {.mask = parsed("text(by_head.and_batch) && causal"), .block_q = 16, .block_kv = 16},
      .batch = 2,
      .heads = 2,
      .seqlen_q = 50,
      .seqlen_kv = 600};
  for (const TensorLayout& layout :
       {TensorLayout{.row_elements = 7}, TensorLayout{.order = {1, 0, 2, 3}, .row_elements = 6, .first = 3},
        TensorLayout{.order = {2, 1, 0, 3}}}) {
    problem.layout = layout;
    expect_right(problem);
  }
}

// Positions count from the end of each sequence, so that the same table for all would be wrong.
TEST_F(BlockMaskTest, SequencesOfTheirOwnLengths) {
  const CurrentDevice current(0);
  const Mask mask = parsed("causal && window(60, 10) || text(recent)");
  for (const auto& [varlen_q, varlen_kv, used] :
       {std::tuple{false, false, true}, {true, true, false}, {true, true, true}, {true, false, true}})
    expect_right(
        {.spec = {.mask = mask, .block_q = 32, .block_kv = 16, .varlen_q = varlen_q, .varlen_kv = varlen_kv},
         .batch = 4,
         .heads = 1,
         .heads_q = 2,
         .seqlen_q = 150,
         .seqlen_kv = 190,
         .with_seqused = used});
}

TEST_F(BlockMaskTest, MapsAndLists) {
  const CurrentDevice current(0);
  BlockMaskCase problem{.spec = {.mask = parsed("causal && window(90, 0)"), .block_q = 32, .block_kv = 16},
                        .batch = 2,
                        .heads = 2,
                        .seqlen_q = 170,
                        .seqlen_kv = 600};
  for (const bool for_all : {false, true}) {
    problem.named_for_all = for_all;
    problem.with_map = true;
    problem.with_partial = problem.with_full = false;
    expect_right(problem);
    problem.with_map = false;
    problem.with_partial = true;
    expect_right(problem);
    problem.with_full = true;
    expect_right(problem);
    problem.with_partial = false;
    expect_right(problem);
  }
  problem = {.spec = {.mask = {}, .block_q = 16, .block_kv = 32},
             .seqlen_q = 70,
             .seqlen_kv = 200,
             .with_partial = true};
  expect_right(problem);
}

TEST_F(BlockMaskTest, BlockSparseRows) {
  const CurrentDevice current(0);
  BlockMaskCase problem{.spec = {.mask = parsed("causal && window(90, 0)"), .block_q = 32, .block_kv = 16},
                        .batch = 2,
                        .heads = 2,
                        .seqlen_q = 170,
                        .seqlen_kv = 600,
                        .with_partial = true,
                        .as_bsr = true};
  for (const bool for_all : {false, true}) {
    problem.named_for_all = for_all;
    problem.with_full = false;
    expect_right(problem);
    problem.with_full = true;
    expect_right(problem);
  }
}

// More rows than a thread block has threads, whole ones and a last one that is cut; and tables without an order.
TEST_F(BlockMaskTest, RowsInOrder) {
  const CurrentDevice current(0);
  BlockMaskCase problem{.spec = {.mask = parsed("!causal(top_left) || window(200, 0) && prefix(150)"),
                                 .block_q = 16,
                                 .block_kv = 64},
                        .heads = 2,
                        .seqlen_q = 16 * 530,
                        .seqlen_kv = 256};
  expect_right(problem);
  problem.seqlen_q -= 7;
  expect_right(problem);
  problem.seqlen_q = 300;
  problem.without_order = true;
  expect_right(problem);
}

// Attention over a caller's table equals attention with its mask.
TEST_F(BlockMaskTest, AttentionOverATableIsThatOfItsMask) {
  const CurrentDevice current(0);
  for (const char* mask : {"document && causal", "text(by_head.and_batch) && window(100, 20)"}) {
    const AttentionCase problem{.spec = {.head_dim = 64, .gqa_ratio = 2, .mask = parsed(mask)},
                                .batch = 2,
                                .heads_kv = 1,
                                .seqlen_q = 190,
                                .seqlen_kv = 270,
                                .seed = reference::test_seed()};
    AttentionRun run(problem);
    AttentionArguments arguments = run.arguments();
    const BlockMaskSpec spec{.mask = problem.spec.mask, .block_q = 64, .block_kv = 128};
    const auto shape = block_mask_shape(spec, 2, 2, 190, 270);
    DeviceTensor table(DType::int32, {shape.begin(), shape.end()});
    table.upload();
    block_mask(spec, context())({.block_mask = table.view(),
                                 .seqlen_q = problem.seqlen_q,
                                 .seqlen_kv = problem.seqlen_kv,
                                 .tensors = arguments.tensors});
    AttentionSpec over_table = problem.spec;
    over_table.mask = mask::block_mask(64, 128, spec.mask);
    arguments.tensors.add({"block_mask", table.view()});
    attention_when_called(over_table, context())(arguments);
    EXPECT_EQ(run.check().failure, "") << mask;
  }
}

TEST_F(BlockMaskTest, GradientsOverATableAreThoseOfItsMask) {
  const CurrentDevice current(0);
  const AttentionCase problem{.spec = {.head_dim = 64, .gqa_ratio = 2, .mask = parsed("document && causal")},
                              .batch = 2,
                              .heads_kv = 1,
                              .seqlen_q = 150,
                              .seqlen_kv = 210,
                              .seed = reference::test_seed()};
  BackwardRun run(problem);
  BackwardArguments arguments = run.arguments();
  const BlockMaskSpec spec{.mask = problem.spec.mask, .block_q = 64, .block_kv = 64};
  const auto shape = block_mask_shape(spec, 2, 1, 150, 210);
  DeviceTensor table(DType::int32, {shape.begin(), shape.end()});
  table.upload();
  block_mask(spec, context())({.block_mask = table.view(),
                               .seqlen_q = problem.seqlen_q,
                               .seqlen_kv = problem.seqlen_kv,
                               .heads_q = 2,
                               .tensors = arguments.tensors});
  AttentionSpec over_table = problem.spec;
  over_table.mask = mask::block_mask(64, 64, spec.mask);
  arguments.tensors.add({"block_mask", table.view()});
  attention_when_called(over_table, context()).backward(arguments);
  EXPECT_EQ(run.check(), "");
}

TEST_F(BlockMaskTest, GraphsReplayOnOtherTensors) {
  const CurrentDevice current(0);
  const BlockMaskCase problem{.spec = {.mask = mask::document(), .block_q = 16, .block_kv = 16},
                              .batch = 2,
                              .seqlen_q = 90,
                              .seqlen_kv = 120};
  BlockMaskRun run(problem);
  const BlockMask kernel = block_mask(problem.spec, context());
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
  for (int replay = 0; replay < 3; ++replay) {
    run.fill_tensors();
    graph.run(stream);
    EXPECT_EQ(run.check(), "");
  }
}

// Each field of a spec makes a kernel of its own; asked for again, it is the one that is there.
TEST_F(BlockMaskTest, OneKernelForASpec) {
  const CurrentDevice current(0);
  const BlockMaskSpec spec{.mask = mask::causal(), .block_q = 64, .block_kv = 64};
  const BlockMask first = block_mask(spec, context()), again = block_mask(spec, context());
  EXPECT_EQ(&first.source(), &again.source());
  EXPECT_EQ(first.spec(), spec);
  BlockMaskSpec other = spec;
  other.block_kv = 128;
  EXPECT_NE(&block_mask(other, context()).source(), &first.source());
}

}  // namespace
}  // namespace jit::testing
