/// @file
/// Scores: functions of softmax_scale · q·k (natural units) that are applied before the softmax. They are immutable
/// values: the functions of namespace jit::score make them, and `then` chains them.
///
/// @code
/// const jit::Score score = jit::score::softcap(30).then(jit::score::alibi());
/// assert(score.to_string() == "softcap(30), alibi" && jit::parse_score("softcap(30), alibi") == score);
/// assert(score.tensors().front().name == "alibi_slopes");  // which calls pass
/// assert(jit::Score().hash() == jit::score::none().hash());
/// const jit::Score bias = jit::score::bias(jit::DType::bf16);
/// const jit::Score nearer = jit::score::text({.name = "nearer", .body = "return score - 0.1f * abs(q - k);"});
/// std::puts(jit::score_usages().c_str());  // all built-in scores, as parse_score reads them
/// @endcode
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jit/functor_text.h>

namespace jit {

struct ScoreAccess;
struct ScoreNode;

/// A score or a chain of them; immutable, cheap to copy, thread safe.
class Score {
 public:
  /// The score as it is.
  Score();

  /// Chains two scores: this one is applied first. Throws Error invalid_spec for more than 64 scores in a row.
  Score then(const Score& next) const;

  /// Text that `parse_score` reads back (a text functor shows as its name), e.g. "softcap(30), alibi".
  std::string to_string() const;
  /// The tensors that each call passes, each name once.
  std::vector<FunctorTensorSpec> tensors() const;
  /// A digest of everything that the score contributes to a kernel.
  std::uint64_t hash() const;

  /// Whether both have the same text and the same user texts.
  bool operator==(const Score& other) const;

 private:
  friend struct ScoreAccess;
  explicit Score(std::shared_ptr<const ScoreNode> node) : node_(std::move(node)) {}

  std::shared_ptr<const ScoreNode> node_;
};

namespace score {

/// The score as it is.
Score none();
/// cap · tanh(score / cap). Throws Error invalid_spec unless cap is positive and finite.
Score softcap(float cap);
/// score − slope · |q + seqlen_kv − seqlen_q − k|. Each call passes the fp32 tensor "alibi_slopes", (heads_q) or
/// (batch, heads_q).
Score alibi();
/// score + bias(b, h, q, k). Each call passes the tensor "bias" of this dtype (fp32, bf16 or fp16), (batch, heads_q,
/// seqlen_q, seqlen_kv), where each size but the last may be 1; last stride 1. A bias of −inf drops the key. Throws
/// Error invalid_spec for another dtype.
Score bias(DType dtype = DType::fp32);
/// A score of your own: `text.body` returns the new score. Throws as mask::text does.
Score text(FunctorText text);

}  // namespace score

/// Reads a chain: names with arguments, separated by commas. Names: none, softcap(cap), alibi, bias,
/// bias(dtype), and text(name) for each of `texts`. Throws Error invalid_argument that points at the place
/// and lists the known names.
Score parse_score(std::string_view text, const std::vector<FunctorText>& texts = {});

/// The built-in scores as parse_score reads them, with commas between: for help texts.
std::string score_usages();

}  // namespace jit
