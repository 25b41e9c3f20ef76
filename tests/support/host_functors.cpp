#include "tests/support/host_functors.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "generator/problem/functor_node.h"
#include "tests/support/float16.h"

namespace jit::reference {
namespace {

template <class T>
T element(const FunctorData& data, std::int64_t index) {
  T value;
  std::memcpy(&value, data.bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

using Problem = std::shared_ptr<const FunctorProblem>;

template <class Entries>
const auto& find_text(const Entries& entries, const FunctorText& text) {
  for (const auto& entry : entries) {
    if (entry.text == text) return entry;
  }
  throw std::logic_error("no meaning is known for the text functor " + text.name);
}

Keep mask_of(const MaskNode& node, const Problem& problem) {
  const int shift = node.alignment == Alignment::bottom_right ? problem->seqlen_kv - problem->seqlen_q : 0;
  switch (node.kind) {
    case MaskKind::none:
      return [](int, int, int, int) { return true; };
    case MaskKind::causal:
      return [shift](int, int, int q, int k) { return k <= q + shift; };
    case MaskKind::sliding_window:
      return [shift, left = node.left, right = node.right](int, int, int q, int k) {
        const long long distance = static_cast<long long>(k) - (q + shift);
        return (left < 0 || -distance <= left) && (right < 0 || distance <= right);
      };
    case MaskKind::prefix:
      return [length = node.length](int, int, int, int k) { return k < length; };
    case MaskKind::prefix_lengths:
      return [lengths = &problem->tensors.at("prefix_lengths"), problem](int b, int, int, int k) {
        return k < lengths->at({b});
      };
    case MaskKind::document:
      return [ids_q = &problem->tensors.at("document_ids_q"),
              ids_kv = &problem->tensors.at("document_ids_kv"), problem](int b, int, int q, int k) {
        return ids_q->at({b, q}) == ids_kv->at({b, k});
      };
    case MaskKind::text:
      return [keep = find_text(text_masks(), *node.text).keep, problem](int b, int h, int q, int k) {
        return keep(*problem, b, h, q, k);
      };
    case MaskKind::conjunction:
      return [a = mask_of(*node.a, problem), b2 = mask_of(*node.b, problem)](int b, int h, int q, int k) {
        return a(b, h, q, k) && b2(b, h, q, k);
      };
    case MaskKind::disjunction:
      return [a = mask_of(*node.a, problem), b2 = mask_of(*node.b, problem)](int b, int h, int q, int k) {
        return a(b, h, q, k) || b2(b, h, q, k);
      };
    case MaskKind::negation:
      return [a = mask_of(*node.a, problem)](int b, int h, int q, int k) { return !a(b, h, q, k); };
  }
  throw std::logic_error("unknown mask");
}

ScoreFunction score_of(const ScoreNode& node, const Problem& problem) {
  switch (node.kind) {
    case ScoreKind::none:
      return [](double score, int, int, int, int) { return score; };
    case ScoreKind::softcap:
      return
          [cap = double{node.cap}](double score, int, int, int, int) { return cap * std::tanh(score / cap); };
    case ScoreKind::alibi:
      return
          [slopes = &problem->tensors.at("alibi_slopes"), problem](double score, int b, int h, int q, int k) {
            const double slope = slopes->shape.size() == 1 ? slopes->at({h}) : slopes->at({b, h});
            return score - slope * std::abs(q + problem->seqlen_kv - problem->seqlen_q - k);
          };
    case ScoreKind::bias:
      return [bias = &problem->tensors.at("bias"), problem](double score, int b, int h, int q, int k) {
        return score + bias->at({b, h, q, k});
      };
    case ScoreKind::text:
      return [apply = find_text(text_scores(), *node.text).apply, problem](
                 double score, int b, int h, int q, int k) { return apply(*problem, score, b, h, q, k); };
    case ScoreKind::chain:
      return [first = score_of(*node.a, problem), then = score_of(*node.b, problem)](double score, int b,
                                                                                     int h, int q, int k) {
        return then(first(score, b, h, q, k), b, h, q, k);
      };
  }
  throw std::logic_error("unknown score");
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(value));
}

FunctorData random_data(const FunctorTensorSpec& tensor, const FunctorProblem& problem, Random& random) {
  FunctorData data{.dtype = tensor.dtype, .shape = {}, .bytes = {}};
  const auto maybe_broadcast = [&](int size) { return draw(random, 0, 2) == 0 ? 1 : size; };
  const std::string& name = tensor.name;
  if (name == "prefix_lengths") {
    data.shape = {problem.batch};
  } else if (name == "document_ids_q") {
    data.shape = {maybe_broadcast(problem.batch), problem.seqlen_q};
  } else if (name == "document_ids_kv") {
    data.shape = {maybe_broadcast(problem.batch), problem.seqlen_kv};
  } else if (name == "alibi_slopes") {
    if (draw(random, 0, 1) == 0) {
      data.shape = {problem.heads_q};
    } else {
      data.shape = {maybe_broadcast(problem.batch), problem.heads_q};
    }
  } else if (name == "bias") {
    data.shape = {maybe_broadcast(problem.batch), maybe_broadcast(problem.heads_q),
                  maybe_broadcast(problem.seqlen_q), problem.seqlen_kv};
  } else if (name == "temperatures") {
    data.shape = {problem.heads_q};
  } else {
    data.shape = {problem.seqlen_kv};
  }
  std::int64_t count = 1;
  for (const std::int64_t size : data.shape) count *= size;
  std::normal_distribution<float> normal;
  // Documents are runs of ids, as packed sequences are, with a foreign id now and then.
  int document = 0;
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
    } else if (name.starts_with("document_ids")) {
      if (draw(random, 0, 60) == 0) ++document;
      append<std::int32_t>(data.bytes, draw(random, 0, 200) == 0 ? 2 : document);
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

}  // namespace

double FunctorData::at(std::initializer_list<int> index) const {
  std::int64_t flat = 0;
  std::size_t dimension = 0;
  for (const int i : index) {
    flat = flat * shape[dimension] + (shape[dimension] == 1 ? 0 : i);
    ++dimension;
  }
  switch (dtype) {
    case DType::fp32:
      return element<float>(*this, flat);
    case DType::int32:
      return element<std::int32_t>(*this, flat);
    case DType::int64:
      return static_cast<double>(element<std::int64_t>(*this, flat));
    case DType::uint8:
      return element<std::uint8_t>(*this, flat);
    case DType::bf16:
    case DType::fp16:
      return to_float(dtype, element<std::uint16_t>(*this, flat));
  }
  return 0;
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
  return mask == Mask() ? Keep() : mask_of(mask.node(), problem);
}

ScoreFunction host_score(const Score& score, std::shared_ptr<const FunctorProblem> problem) {
  return score == Score() ? ScoreFunction() : score_of(score.node(), problem);
}

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}

FunctorProblem random_functor_problem(const AttentionSpec& spec, int batch, int heads_q, int seqlen_q,
                                      int seqlen_kv, Random& random) {
  FunctorProblem problem{.batch = batch, .heads_q = heads_q, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
  for (const FunctorTensorSpec& tensor : functor_tensors(spec)) {
    problem.tensors[tensor.name] = random_data(tensor, problem, random);
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
  switch (draw(random, 0, 7)) {
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
