/// @file
/// The fields of AttentionSpec: a row is all that is known of one. Programs, keys, texts, refusals, the tool's
/// options, Python and tests read it.
///
/// @code
/// const jit::AttentionSpec spec{.head_dim = 64, .sequences_kv = jit::SequenceKind::paged, .page_size = 16};
/// std::string set;
/// for (const jit::SpecField& field : jit::spec_fields())
///   if (!jit::is_default(field, spec)) set += std::string(field.name) + "=" + jit::value_text(field, spec) + " ";
/// assert(set == "head_dim=64 sequences_kv=paged page_size=16 ");
/// const jit::SpecField& dtype = jit::spec_fields().front();
/// assert(jit::key_text(dtype, spec) == "bf16" && jit::value_word(dtype, spec) == 0);
/// assert(!jit::is_plain(spec) && !jit::is_dense(spec) && !jit::has_narrow_keys(spec) && !jit::has_fp8_queries(spec));
/// assert(jit::stored_columns({.kv_dtype = jit::DType::nvfp4}, 128) == 64 && jit::scale_columns(spec) == 0);
/// assert(jit::input_dtype(spec) == jit::DType::bf16 && jit::output_dtype(spec) == jit::DType::bf16);
/// assert(!jit::has_quantized_output(spec));
/// assert(jit::parse_sequence_kind("paged") == spec.sequences_kv && jit::to_string(spec.sequences_q) == "dense");
/// assert(jit::parse_scale_kind("token") == jit::ScaleKind::token);
/// @endcode
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jit/spec.h>

namespace jit {

/// Where a field lies, and of which type it is.
using SpecMember = std::variant<DType AttentionSpec::*, int AttentionSpec::*, bool AttentionSpec::*,
                                SequenceKind AttentionSpec::*, Mask AttentionSpec::*, Score AttentionSpec::*,
                                std::optional<DType> AttentionSpec::*, ScaleKind AttentionSpec::*,
                                std::optional<float> AttentionSpec::*, OutputFunctor AttentionSpec::*>;

/// "dense", "varlen", "paged" or "padded".
std::string_view to_string(SequenceKind kind);
/// Inverse of to_string, without "padded"; throws Error invalid_argument naming what is accepted.
SequenceKind parse_sequence_kind(std::string_view text);

/// "head", "token", "channel", "block".
std::string_view to_string(ScaleKind kind);
/// Inverse of to_string; throws Error invalid_argument naming what is accepted.
ScaleKind parse_scale_kind(std::string_view text);

/// A field. Rows live as long as the program.
struct SpecField {
  std::string_view name;  ///< of the member, in refusals, in Python; with dashes an option of the tool
  SpecMember member;      ///< where the value is
  std::string_view doc;   ///< what it is, its unit, its rule: one phrase
  /// Whether the value is compiled into the kernel; otherwise it is a run-time argument.
  bool is_baked = true;
  /// Whether it is a size of the problem that a kernel may be made for, and need not.
  bool is_size = false;
  std::string_view record_name = {};  ///< in keys of tuning records, if baked
  std::string_view comment = {};      ///< in programs, of an int
  /// The label before the value in the one-line text of a spec; nothing: the field is left out.
  std::optional<std::string_view> text_label = {};
  /// The label in the names of kernels.
  std::optional<std::string_view> name_label = {};
  bool is_always_shown = false;  ///< by both, also when it is the default
  /// Whether programs have a line of it only where it is not the default.
  bool is_line_if_set = false;
  /// The value of an int that kernels are made for, where it is not the member's own.
  int (*effective)(const AttentionSpec&) = nullptr;
  /// The reason why no GPU can serve the value, if there is one.
  std::optional<Refusal> (*refusal)(const SpecField&, const AttentionSpec&) = nullptr;
  /// Legal specs that differ from `base` in this field alone, and from each other.
  std::vector<AttentionSpec> (*samples)();
  /// A legal spec in which the field has a meaning.
  AttentionSpec (*base)() = [] { return AttentionSpec{}; };
};

/// One row per member, in their order.
std::span<const SpecField> spec_fields();

/// The value: an int as kernels are made for it, masks and scores as their parsers read them.
std::string value_text(const SpecField& field, const AttentionSpec& spec);

/// The value for keys: equal for equal kernels alone.
std::string key_text(const SpecField& field, const AttentionSpec& spec);

/// The member as a number; other values have other ones.
std::uint64_t value_word(const SpecField& field, const AttentionSpec& spec);

/// Whether kernels are made for the same value when the member is left as it is by default.
bool is_default(const SpecField& field, const AttentionSpec& spec);

/// Whether k and v are of 8 or 4 bits.
bool has_narrow_keys(const AttentionSpec& spec);

/// Stored elements of a row of k or v with `head_dim` columns: bytes if numbers are packed.
int stored_columns(const AttentionSpec& spec, int head_dim);

/// Columns of k and v that share a scale of a byte; 0: there are none.
int scale_columns(const AttentionSpec& spec);

/// Whether q is FP8.
bool has_fp8_queries(const AttentionSpec& spec);

/// Whether kernels for dense sequences of one length can serve a spec: no varlen or paged sequences, no sinks, no
/// latents with split_keys, and keys of q's type.
bool is_plain(const AttentionSpec& spec);

/// Whether all sequences have their rows at places of their own: (batch, seqlen, heads, head_dim) throughout.
bool is_dense(const AttentionSpec& spec);

/// The type of q, and of k and v unless they are of another one.
DType input_dtype(const AttentionSpec& spec);
/// The type of o.
DType output_dtype(const AttentionSpec& spec);
/// Whether o has 8 bits and scales.
bool has_quantized_output(const AttentionSpec& spec);

}  // namespace jit
