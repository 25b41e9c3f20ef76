// jit_attention._core.make_block_mask, and attention calls with a block mask.
#pragma once

#include <jit/tensor.h>
#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

/// A call's BlockMask, or None; then mask and tensors are the arguments. Needs the interpreter lock.
class GivenBlockMask {
 public:
  /// Throws Error invalid_argument when the table's mask or tensors differ from the given ones, a Python
  /// TypeError for anything but a BlockMask and None.
  GivenBlockMask(nb::handle block_mask, nb::handle mask, nb::handle score, nb::handle tensors);
  /// A BlockMask for kernels prepared for `spec`.
  static GivenBlockMask for_prepared(nb::handle block_mask, nb::handle spec, nb::handle tensors);
  /// A BlockMask for gradients, which evaluate the table's mask instead of reading its mask bits.
  static GivenBlockMask for_gradients(nb::handle block_mask, nb::handle mask, nb::handle score,
                                      nb::handle tensors);

  nb::handle mask() const { return mask_; }
  nb::handle tensors() const { return tensors_; }
  /// Whether there is a BlockMask.
  bool is_given() const { return !block_mask_.is_none(); }

  /// Sizes and lengths that a table must match.
  struct Sizes {
    const TensorView& q;  ///< (batch, seqlen_q, heads_q, head_dim), or varlen
    const TensorView& k;
    const TensorView& cu_seqlens_q;
    const TensorView& cu_seqlens_k;
    const TensorView& page_table;
    const nb::dict& lengths;  ///< sequence lengths of the call, by name, possibly with other arrays
  };
  /// Throws Error invalid_argument when the BlockMask was made for other sizes or lengths. Requires a
  /// BlockMask.
  void check(const Sizes& sizes) const;

 private:
  /// `over`: the BlockMask's replacement of mask and tensors, or None.
  GivenBlockMask(nb::handle block_mask, nb::handle mask, nb::handle tensors, nb::object over);

  nb::object block_mask_, mask_, tensors_;
};

/// The jit_attention.AttentionSpec `spec` with the mask over a BlockMask's table. Throws as GivenBlockMask does.
nb::object spec_over(nb::handle block_mask, nb::handle spec);

void bind_block_mask(nb::module_& module);

}  // namespace jit::python
