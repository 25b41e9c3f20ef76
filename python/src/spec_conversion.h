// Conversion of Python values to the library's.
#pragma once

#include <optional>

#include <jit/kernel_config.h>
#include <jit/spec.h>
#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

/// The mask in a jit_attention.Mask, or no mask for None. Throws a Python TypeError for anything else.
const Mask& mask_of(nb::handle mask);
const Score& score_of(nb::handle score);
const OutputFunctor& output_of(nb::handle output);
/// None, or a number. `field` is named when it is neither.
std::optional<float> scale_of(nb::handle softmax_scale);
/// None, or an element type by name or as frameworks show it ("bf16", "bfloat16", torch.bfloat16,
/// numpy.float16).
std::optional<DType> dtype_of(nb::handle dtype, const char* argument);
/// The element type, which q may have.
std::optional<DType> input_dtype_of(nb::handle dtype, const char* argument);
/// The element type of a result: a float, fp8_e4m3 or int8.
std::optional<DType> result_dtype_of(nb::handle dtype, const char* argument);
/// A floating-point type of at least 16 bits.
std::optional<DType> float_dtype_of(nb::handle dtype, const char* argument);
/// An 8-bit floating-point type.
std::optional<DType> fp8_dtype_of(nb::handle dtype, const char* argument);
/// The type of a cache with 16-bit q: fp8, int8, or a 4-bit one, by name.
std::optional<DType> stored_dtype_of(nb::handle dtype, const char* argument);
/// "head", "token", "channel" or "block"; None: nothing. Throws Error, or a Python TypeError, of field descale_per.
std::optional<ScaleKind> scale_kind_of(nb::handle descale_per);
/// The spec in a jit_attention.AttentionSpec.
AttentionSpec spec_of(nb::handle spec);
/// None, text as to_string(KernelConfig) writes it, or a dict of fields.
std::optional<KernelConfig> config_of(nb::handle config);
nb::dict config_as_dict(const KernelConfig& config);

void bind_spec(nb::module_& module);

}  // namespace jit::python
