// What Mask and Score are made of: immutable trees, built by mask.cpp and score.cpp, read by
// functor_source.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jit/mask.h>
#include <jit/score.h>

#include "cache/digest.h"

namespace jit {

enum class MaskKind {
  none,
  causal,
  sliding_window,
  prefix,
  prefix_lengths,
  document,
  text,
  conjunction,
  disjunction,
  negation,
};

struct MaskNode {
  MaskKind kind = MaskKind::none;
  Alignment alignment = Alignment::bottom_right;
  int left = 0;    ///< window
  int right = 0;   ///< window
  int length = 0;  ///< prefix
  std::shared_ptr<const FunctorText> text = nullptr;
  std::shared_ptr<const MaskNode> a = nullptr;
  std::shared_ptr<const MaskNode> b = nullptr;
  std::uint64_t hash = 0;  ///< of all the above
};

enum class ScoreKind { none, softcap, alibi, bias, text, chain };

struct ScoreNode {
  ScoreKind kind = ScoreKind::none;
  float cap = 0;                   ///< softcap
  DType bias_dtype = DType::fp32;  ///< bias
  std::shared_ptr<const FunctorText> text = nullptr;
  std::shared_ptr<const ScoreNode> a = nullptr;
  std::shared_ptr<const ScoreNode> b = nullptr;
  std::uint64_t hash = 0;  ///< of all the above
};

/// Names of the tensors that built-in functors read.
inline constexpr std::string_view prefix_lengths_tensor = "prefix_lengths";
inline constexpr std::string_view document_ids_q_tensor = "document_ids_q";
inline constexpr std::string_view document_ids_kv_tensor = "document_ids_kv";
inline constexpr std::string_view alibi_slopes_tensor = "alibi_slopes";
inline constexpr std::string_view bias_tensor = "bias";

/// Throws Error invalid_spec when a text functor cannot become part of a kernel; `kind` is "mask" or "score".
void validate_functor_text(const FunctorText& text, std::string_view kind);

/// Adds every field of the text to a digest.
void add_functor_text(Digester& digester, const FunctorText& text);

/// Adds `tensor` unless one of that name is there; throws Error invalid_spec when the dtypes differ.
void add_functor_tensor(std::vector<FunctorTensorSpec>& tensors, const FunctorTensorSpec& tensor);

}  // namespace jit
