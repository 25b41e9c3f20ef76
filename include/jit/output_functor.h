/// @file
/// Output functors: functions of o, in fp32 before it is rounded, that kernels apply where they write it. They are immutable
/// values: the functions of namespace jit::output make them, and `then` chains them.
///
/// @code
/// const jit::OutputFunctor gated = jit::output::sigmoid_gate().then(jit::output::residual());
/// assert(gated.to_string() == "sigmoid_gate, residual" && jit::parse_output("sigmoid_gate, residual") == gated);
/// assert(gated.tensors().front().name == "gate");  // which calls pass
/// const jit::OutputFunctor own =
///     jit::output::text({.name = "softplus",
///                        .body = "return value * log1pf(expf(gate));",
///                        .tensors = {{"gate", jit::DType::fp32, jit::TensorAccess::as_row}}});
/// assert(jit::kind_text(own.tensors().front()) == "fp32 as_row" && !own.is_none() && own.hash() != gated.hash());
/// assert(jit::parse_functor_tensor("gate", "fp32 as_row") == own.tensors().front() && jit::output::none().is_none());
/// assert(gated.texts().size() == 2 && gated.texts().front().name == "sigmoid_gate");
/// const jit::OutputFunctor scaled = jit::output::row_gate(jit::DType::fp16).then(jit::output::scale());
/// std::puts(jit::output_usages().c_str());  // all built-in ones, as parse_output reads them
/// @endcode
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jit/functor_text.h>

namespace jit {

struct OutputNode;

/// An output functor or a chain of them; immutable, cheap to copy, thread safe.
class OutputFunctor {
 public:
  /// The output as it is.
  OutputFunctor();

  /// Chains two: this one is applied first. Throws Error invalid_spec for more than 8 in a row.
  OutputFunctor then(const OutputFunctor& next) const;

  /// Text that `parse_output` reads back (a text functor shows as its name), e.g. "sigmoid_gate, residual".
  std::string to_string() const;
  /// The tensors that each call passes, each name once.
  std::vector<FunctorTensorSpec> tensors() const;
  /// A digest of everything that it contributes to a kernel.
  std::uint64_t hash() const;
  /// Whether it changes nothing.
  bool is_none() const;
  /// The texts that are applied in turn; what is built in is text, too.
  const std::vector<FunctorText>& texts() const;

  /// Whether both have the same text and the same user texts.
  bool operator==(const OutputFunctor& other) const;

 private:
  explicit OutputFunctor(std::shared_ptr<const OutputNode> node) : node_(std::move(node)) {}
  friend OutputFunctor make_output(std::string shown, FunctorText text);

  std::shared_ptr<const OutputNode> node_;
};

namespace output {

/// The output as it is.
OutputFunctor none();
/// value · σ(gate): tensor "gate" of this dtype (bf16, fp16 or fp32) at each call, of o's shape, sizes of 1 broadcast. Throws
/// Error invalid_spec for another dtype, as those below do.
OutputFunctor sigmoid_gate(DType dtype = DType::bf16);
/// value · σ(gate): tensor "gate" at each call, one per token and head: (batch, seqlen_q, heads_q), varlen (total_q,
/// heads_q).
OutputFunctor row_gate(DType dtype = DType::bf16);
/// value · scale: tensor "scale" at each call, of row_gate's shape; (1, 1, heads_q) is one scale per head.
OutputFunctor scale(DType dtype = DType::fp32);
/// value + residual: tensor "residual" at each call, of o's shape.
OutputFunctor residual(DType dtype = DType::bf16);
/// One of your own: `text.body` returns the new output. Throws as mask::text does, and for a `derivative`.
OutputFunctor text(FunctorText text);

}  // namespace output

/// Reads a chain: names with arguments, separated by commas. Names: none, sigmoid_gate, row_gate, scale, residual, each with
/// a dtype or without, and text(name) for each of `texts`. Throws Error invalid_argument that points at the place.
OutputFunctor parse_output(std::string_view text, const std::vector<FunctorText>& texts = {});

/// The built-in ones as parse_output reads them, with commas between: for help texts.
std::string output_usages();

}  // namespace jit
