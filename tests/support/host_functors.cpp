#include "tests/support/host_functors.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "generator/functors/functor_tensors.h"
#include "generator/functors/host_functor.h"
#include "tests/support/float16.h"

namespace jit::reference {
namespace {

using Problem = std::shared_ptr<const FunctorProblem>;

template <class Entries>
const auto& find_text(const Entries& entries, const FunctorText& text) {
  for (const auto& entry : entries) {
    if (entry.text == text) return entry;
  }
  throw std::logic_error("no meaning is known for the text functor " + text.name);
}

HostProblem on_host(const FunctorProblem& problem) {
  HostProblem result{.sizes = problem.extents()};
  for (const auto& [name, data] : problem.tensors) result.tensors[name] = data.view();
  return result;
}

// A random shape: each size as it is, broadcast, or with its dimension missing.
std::vector<std::int64_t> random_shape(const Dims& dims, const Extents& sizes, Random& random) {
  std::vector<std::int64_t> shape;
  for (const Dim& dim : dims) {
    if (dim.may_be_missing && draw(random, 0, 1) == 0) continue;
    const bool broadcasts = dim.may_broadcast && draw(random, 0, 2) == 0;
    const std::int64_t size = sizes.*dim.extent->size + (dim.may_be_more ? draw(random, 0, 1) : 0);
    shape.push_back(broadcasts ? 1 : size);
  }
  return shape;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(value));
}

// Word `i` of a row of so many words: no, all, few or many bits, in blocks that are wide enough for whole
// tiles.
std::uint32_t random_bits(std::int64_t i, std::int64_t words, Random& random) {
  const auto bits = static_cast<std::uint32_t>(random());
  switch ((i / words / 80 + i % words / 3) % 4) {
    case 0:
      return ~0u;
    case 1:
      return bits;
    case 2:
      return 0;
    default:
      return bits & static_cast<std::uint32_t>(random()) & static_cast<std::uint32_t>(random());
  }
}

// Where the subtree of key k ends: of nested ones, which begin now and then and end at random, and unless they must be right
// with a number now and then that no tree has.
std::int32_t random_end(std::int64_t k, std::int64_t keys, bool is_right, std::vector<std::int64_t>& subtrees,
                        Random& random) {
  if (k == 0) subtrees = {keys};
  while (subtrees.size() > 1 && subtrees.back() <= k) subtrees.pop_back();
  if (draw(random, 0, 50) == 0) {
    const std::int64_t room = subtrees.back() - k;
    subtrees.push_back(subtrees.back() - draw(random, 0, static_cast<int>(room) - 1));
  }
  if (is_right || k / 160 % 2 == 0)
    return static_cast<std::int32_t>(subtrees.back());  // whole tiles of a tree
  if (draw(random, 0, 100) == 0)
    return std::vector{-1,
                       0,
                       std::numeric_limits<std::int32_t>::min(),
                       std::numeric_limits<std::int32_t>::max(),
                       static_cast<std::int32_t>(keys) + 70,
                       static_cast<std::int32_t>(k)}[random() % 6];
  if (draw(random, 0, 60) == 0) return draw(random, 0, static_cast<int>(keys));  // not nested
  return static_cast<std::int32_t>(subtrees.back());
}

FunctorData random_data(const FunctorTensorUse& use, const FunctorProblem& problem, bool is_checked,
                        Random& random, const std::map<std::string, std::vector<std::int64_t>>& shapes) {
  const FunctorTensorSpec& tensor = use.tensor;
  const std::string& name = tensor.name;
  FunctorData data{.dtype = tensor.dtype, .shape = {}, .bytes = {}};
  if (const auto given = shapes.find(name); given != shapes.end()) {
    data.shape = given->second;
  } else if (use.row != nullptr) {
    const Extents sizes = problem.extents();
    data.shape =
        random_shape(use.row->dims, use.row->sizes ? use.row->sizes(sizes, use.arguments) : sizes, random);
  } else {
    data.shape = {name == "temperatures" ? problem.heads_q : problem.seqlen_kv};
  }
  std::int64_t count = 1;
  for (const std::int64_t size : data.shape) count *= size;
  std::normal_distribution<float> normal;
  // Documents are runs of ids, as packed sequences are, with a foreign id now and then.
  int document = 0;
  std::vector<std::int64_t> subtrees;  // that are open, by where they end
  // A bias of −inf drops a key, or all keys of a query.
  bool row_is_dropped = false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (name == "bias" && i % problem.seqlen_kv == 0)
      row_is_dropped = data.shape[2] > 1 && draw(random, 0, 40) == 0;
    if (name == "bias" && (row_is_dropped || draw(random, 0, 40) == 0)) {
      constexpr float dropped = -std::numeric_limits<float>::infinity();
      tensor.dtype == DType::fp32 ? append(data.bytes, dropped)
                                  : append(data.bytes, from_float(tensor.dtype, dropped));
    } else if (name == "prefix_lengths") {
      append<std::int32_t>(data.bytes, draw(random, -1, problem.seqlen_kv + 1));
    } else if (name == "is_causal") {
      append<std::int32_t>(data.bytes, draw(random, 0, 1) * draw(random, -3, 3));
    } else if (name == "draft_tree") {
      append(data.bytes, random_bits(i, data.shape.back(), random));
    } else if (name ==
               "block_mask") {  // of which nothing is known to be full; bits of blocks without keys are any
      append(data.bytes, i % 2 == 1 ? 0u : static_cast<std::uint32_t>(random() & random()));
    } else if (name == "block_places") {  // of two, where there are as many, and of none
      append<std::int32_t>(data.bytes, draw(random, -1, 2));
    } else if (name == "block_scores") {
      append(data.bytes, random_bits(i, data.shape.back(), random));
    } else if (name.starts_with("document_ids")) {
      if (draw(random, 0, 60) == 0) ++document;
      append<std::int32_t>(data.bytes, draw(random, 0, 200) == 0 ? 2 : document);
    } else if (name == "tree_ends") {
      append<std::int32_t>(
          data.bytes, random_end(i % data.shape.back(), data.shape.back(), is_checked, subtrees, random));
    } else if (name == "alibi_slopes") {
      append(data.bytes, std::abs(normal(random)) * 0.1f);
    } else if (name == "temperatures") {
      append(data.bytes, 0.5f + std::abs(normal(random)) * 0.5f);
    } else if (tensor.dtype == DType::uint8) {
      append<std::uint8_t>(data.bytes, draw(random, 0, 2) != 0);
    } else if (tensor.dtype == DType::fp32) {
      append(data.bytes, normal(random));
    } else {
      append(data.bytes, from_float(tensor.dtype, normal(random)));
    }
  }
  return data;
}

// Pieces of `rows` rows of each batch entry anywhere in a longer sequence: long ones, stripes, and single rows.
void draw_positions(FunctorProblem& problem, const char* name, int rows, Random& random) {
  const bool is_query = std::string_view(name) == "q_positions";
  std::vector<std::vector<int>>& positions = is_query ? problem.query_positions : problem.key_positions;
  int& length = is_query ? problem.seqlen_q : problem.seqlen_kv;
  std::vector<std::vector<int>> tables;
  for (int b = 0; b < problem.batch; ++b) {
    std::vector<int> own, table;
    for (int next = draw(random, 0, 9); static_cast<int>(own.size()) < rows;) {
      const int run = draw(random, 1, draw(random, 0, 1) == 0 ? 8 : 80);
      const int stride = run + draw(random, 0, 1) * draw(random, 0, 40), count = run * draw(random, 1, 4);
      for (const int word : {static_cast<int>(own.size()), next, run, stride}) table.push_back(word);
      const int begin = next;
      for (int i = 0; i < count && static_cast<int>(own.size()) < rows; ++i) {
        own.push_back(begin + i / run * stride + i % run);
        next = own.back() + 1 + draw(random, 0, 2) / 2 * draw(random, 0, 30);
      }
      length = std::max(length, own.back() + 1 + draw(random, 0, 20));
    }
    positions.push_back(std::move(own));
    tables.push_back(std::move(table));
  }
  std::size_t most = 4;
  for (const std::vector<int>& table : tables) most = std::max(most, table.size());
  FunctorData& data = problem.tensors[name] = {.dtype = DType::int32, .shape = {}, .bytes = {}};
  data.shape = {problem.batch, static_cast<std::int64_t>(most / 4), 4};
  for (std::vector<int>& table : tables) {
    while (table.size() < most) table.push_back(table.size() % 4 == 0 ? 0x7fffffff : 1);  // not used
    for (const int word : table) append<std::int32_t>(data.bytes, word);
  }
}

}  // namespace

Extents FunctorProblem::extents() const {
  return {.batch = batch,
          .seqlen_q = seqlen_q,
          .seqlen_kv = seqlen_kv,
          .heads_q = heads_q,
          .words = words_of(seqlen_q)};
}

const std::vector<TextMask>& text_masks() {
  static const std::vector<TextMask> masks = {
      {{.name = "stripes",
        .body = "return (q + 2 * k) % period != 0;",
        .constants = {{"period", std::int64_t{3}}}},
       [](const FunctorProblem&, int, int, int q, int k) { return (q + 2 * k) % 3 != 0; }},
      {{.name = "allowed-keys", .body = "return allowed[k] != 0;", .tensors = {{"allowed", DType::uint8}}},
       [](const FunctorProblem& problem, int, int, int, int k) {
         return problem.tensors.at("allowed").at({k}) != 0;
       }},
      {{.name = "blocks",
        .body = "return q / width == k / width;",
        .classify = "const int q_block = q_begin / width, k_block = k_begin / width;\n"
                    "if (q_block != (q_end - 1) / width || k_block != (k_end - 1) / width) "
                    "return TileClass::partial;\n"
                    "return q_block == k_block ? TileClass::full : TileClass::empty;",
        .constants = {{"width", std::int64_t{128}}}},
       [](const FunctorProblem&, int, int, int q, int k) { return q / 128 == k / 128; }},
      {{.name = "by_head.and_batch",
        .body = "if (h == heads_q - 1) return inverted;\nreturn (h + b + k) % 2 == 0 || k == seqlen_kv - 1;",
        .constants = {{"inverted", true}}},
       [](const FunctorProblem& problem, int b, int h, int, int k) {
         return h == problem.heads_q - 1 || (h + b + k) % 2 == 0 || k == problem.seqlen_kv - 1;
       }},
      {{.name = "ends_by_head", .body = "return h % 2 == 0 ? k < 40 : k >= seqlen_kv - 40;"},
       [](const FunctorProblem& problem, int, int h, int, int k) {
         return h % 2 == 0 ? k < 40 : k >= problem.seqlen_kv - 40;
       }},
      {{.name = "grows_by_head", .body = "return k < 90 * (h + 1) * (h + 1);"},
       [](const FunctorProblem&, int, int h, int, int k) { return k < 90 * (h + 1) * (h + 1); }},
      {{.name = "recent",
        .body = "const int position = q + seqlen_kv - seqlen_q;\n"
                "if (k > position) return false;\n"
                "return k < first || position - k < width;",
        .constants = {{"first", std::int64_t{4}}, {"width", std::int64_t{40}}}},
       [](const FunctorProblem& problem, int, int, int q, int k) {
         const int position = q + problem.seqlen_kv - problem.seqlen_q;
         return k <= position && (k < 4 || position - k < 40);
       }},
      {{.name = "close", .body = "return q - k <= 150 && k - q <= 20;"},
       [](const FunctorProblem&, int, int, int q, int k) { return q - k <= 150 && k - q <= 20; }},
      {{.name = "valley", .body = "return k <= 60 + (q - 2) * (q - 2) * 40;"},
       [](const FunctorProblem&, int, int, int q, int k) { return k <= 60 + (q - 2) * (q - 2) * 40; }},
      {{.name = "band",
        .body = "const int position = q + seqlen_kv - seqlen_q;\n"
                "return abs(position - k) <= reach + 8 * h && k / chunk <= position / chunk;",
        .constants = {{"reach", std::int64_t{20}}, {"chunk", std::int64_t{16}}}},
       [](const FunctorProblem& problem, int, int h, int q, int k) {
         const int position = q + problem.seqlen_kv - problem.seqlen_q;
         return std::abs(position - k) <= 20 + 8 * h && k / 16 <= position / 16;
       }},
  };
  return masks;
}

const std::vector<TextScore>& text_scores() {
  static const std::vector<TextScore> scores = {
      {{.name = "distance",
        .body = "const float d = static_cast<float>(q - k);\nreturn score - slope * (d < 0 ? -d : d);",
        .constants = {{"slope", 0.015625}}},
       [](const FunctorProblem&, double score, int, int, int q, int k) {
         return score - 0.015625 * std::abs(q - k);
       }},
      {{.name = "temperature",
        .body = "return score * temperatures[h];",
        .tensors = {{"temperatures", DType::fp32}}},
       [](const FunctorProblem& problem, double score, int, int h, int, int) {
         return score * problem.tensors.at("temperatures").at({h});
       }},
      {{.name = "offsets",
        .body = "return score + to_float(offsets[k]);",
        .tensors = {{"offsets", DType::bf16}}},
       [](const FunctorProblem& problem, double score, int, int, int, int k) {
         return score + problem.tensors.at("offsets").at({k});
       }},
      {{.name = "near",
        .body = "const int distance = q + seqlen_kv - seqlen_q - k;\n"
                "if (distance < 0 || distance >= width) return -INFINITY;\nreturn score * 0.75f;",
        .constants = {{"width", std::int64_t{70}}}},
       [](const FunctorProblem& problem, double score, int, int, int q, int k) {
         const int distance = q + problem.seqlen_kv - problem.seqlen_q - k;
         return distance < 0 || distance >= 70 ? -std::numeric_limits<double>::infinity() : score * 0.75;
       }},
      {{.name = "first_by_head", .body = "return score + (h % 2 == 0 && k >= 40 ? -INFINITY : 0.0f);"},
       [](const FunctorProblem&, double score, int, int h, int, int k) {
         return h % 2 == 0 && k >= 40 ? -std::numeric_limits<double>::infinity() : score;
       }},
  };
  return scores;
}

std::vector<FunctorText> mask_texts() {
  std::vector<FunctorText> texts;
  for (const TextMask& mask : text_masks()) texts.push_back(mask.text);
  return texts;
}

std::vector<FunctorText> score_texts() {
  std::vector<FunctorText> texts;
  for (const TextScore& score : text_scores()) texts.push_back(score.text);
  return texts;
}

Keep host_mask(const Mask& mask, std::shared_ptr<const FunctorProblem> problem) {
  if (mask == Mask()) return {};
  const auto of_text = [problem](const FunctorText& text) -> HostKeep {
    return [keep = find_text(text_masks(), text).keep, problem](const Place& at) {
      return keep(*problem, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                  static_cast<int>(at.k));
    };
  };
  // `problem` owns what the tensors of on_host view.
  return [keep = jit::host_keep(mask, on_host(*problem), of_text), problem](int b, int h, int q, int k) {
    return keep({b, h, problem->query(b, q), problem->key(b, k)});
  };
}

ScoreFunction host_score(const Score& score, std::shared_ptr<const FunctorProblem> problem) {
  if (score == Score()) return {};
  const auto of_text = [problem](const FunctorText& text) -> HostApply {
    return [apply = find_text(text_scores(), text).apply, problem](double value, const Place& at) {
      return apply(*problem, value, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                   static_cast<int>(at.k));
    };
  };
  return [apply = jit::host_apply(score, on_host(*problem), of_text), problem](double value, int b, int h,
                                                                               int q, int k) {
    return apply(value, {b, h, problem->query(b, q), problem->key(b, k)});
  };
}

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}

FunctorProblem random_functor_problem(const AttentionSpec& spec, int batch, int heads_q, int seqlen_q,
                                      int seqlen_kv, Random& random,
                                      const std::map<std::string, std::vector<std::int64_t>>& shapes) {
  FunctorProblem problem{.batch = batch, .heads_q = heads_q, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
  if (spec.q_positions) draw_positions(problem, "q_positions", seqlen_q, random);
  if (spec.k_positions) draw_positions(problem, "k_positions", seqlen_kv, random);
  if (has_positions(spec)) {
    FunctorData& lengths =
        problem.tensors["global_seqlens"] = {.dtype = DType::int32, .shape = {1, 2}, .bytes = {}};
    append<std::int32_t>(lengths.bytes, problem.seqlen_q);
    append<std::int32_t>(lengths.bytes, problem.seqlen_kv);
  }
  for (const FunctorTensorUse& use : functor_tensor_uses(spec)) {
    if (!is_of_positions(use.tensor.name))
      problem.tensors[use.tensor.name] = random_data(use, problem, spec.checked, random, shapes);
  }
  return problem;
}

Mask random_mask(Random& random, int depth) {
  if (depth > 0 && draw(random, 0, 2) == 0) {
    const Mask a = random_mask(random, depth - 1);
    switch (draw(random, 0, 2)) {
      case 0:
        return a && random_mask(random, depth - 1);
      case 1:
        return a || random_mask(random, depth - 1);
      default:
        return !a;
    }
  }
  const Alignment alignment = draw(random, 0, 2) == 0 ? Alignment::top_left : Alignment::bottom_right;
  switch (draw(random, 0, 12)) {
    case 12:
      return mask::tree();
    case 11:
      return mask::block_scores(32, 48, depth > 0 ? random_mask(random, depth - 1) : mask::none());
    case 10:  // one table, and so one size of blocks, however many masks read it
      return mask::block_mask(32, 48, depth > 0 ? random_mask(random, depth - 1) : mask::none());
    case 0:
      return mask::none();
    case 1:
    case 2:
      return mask::causal(alignment);
    case 3:
      return mask::sliding_window(draw(random, -1, 200), draw(random, -1, 60), alignment);
    case 4:
      return mask::prefix(draw(random, 0, 150));
    case 5:
      return mask::prefix_lengths();
    case 6:
      return mask::document();
    case 7:
      return mask::draft_tree();
    case 8:
      return mask::causal_per_request();
    default:
      return mask::text(text_masks()[random() % text_masks().size()].text);
  }
}

Score random_score(Random& random) {
  Score score;
  for (int terms = draw(random, 0, 2); terms > 0; --terms) {
    switch (draw(random, 0, 4)) {
      case 0:
        score = score.then(score::softcap(static_cast<float>(draw(random, 5, 60)) * 0.5f));
        break;
      case 1:
        score = score.then(score::alibi());
        break;
      case 2:
        // One tensor has one dtype, however often a chain reads it.
        if (score.tensors().empty()) {
          score = score.then(score::bias(std::vector{DType::fp32, DType::bf16, DType::fp16}[random() % 3]));
        }
        break;
      default:
        score = score.then(score::text(text_scores()[random() % text_scores().size()].text));
    }
  }
  return score;
}

}  // namespace jit::reference
