// Accumulation of tensor cores. PTX leaves order and precision open ("mma": "accumulation … is unspecified");
// the model follows measurements by Fasi, Higham, Mikaitis and Pranesh ("Numerical behavior of NVIDIA tensor
// cores", 2021), Xie, Wang, Yang and Yang ("MMA-Sim", 2025), and Khattak and Mikaitis ("Accurate Models of
// NVIDIA Tensor Cores", 2025).
#pragma once

#include <cstdint>

#include "machine/kernel.h"
#include "machine/types.h"
#include "operations/tensor/tensor_formats.h"

namespace jit::emulator {

/// Accumulation of products. The products of `group` neighbors along k are exact; together with the
/// accumulator they are aligned to the largest exponent among them (the sum of the factors' exponents, not
/// normalized), truncated `fraction_bits` below it, and added without error. The sum is rounded as `result`
/// says and is the accumulator of the next group.
struct AccumulationModel {
  enum class Result {
    f32,    ///< truncated
    e8m13,  ///< truncated to 13 fraction bits
    f16,    ///< rounded to nearest even
  };
  int group = 0;
  int fraction_bits = 0;
  Result result = Result::f32;
  /// The unit lacks 8-bit products: elements become f16; the even pairs along k are summed first, then the
  /// odd ones, from zero; the accumulator is added last, rounding to nearest even.
  bool through_f16 = false;
};

enum class TensorUnit { mma, wgmma };

/// For products of k elements of these types: `factor` of A (B has the same width), `accumulator` f32 or f16.
AccumulationModel accumulation_model(TargetArch arch, TensorUnit unit, Type factor, Type accumulator, int k);

/// c += a · b, with a row by row [rows][k], b [k][columns] and c [rows][columns]. `rows` is a multiple of
/// 4, `columns` of 8, k and the model's group are even. NaN results are 0x7fffffff. With Result::f16, c holds
/// values of f16.
void multiply_add(const AccumulationModel& model, int rows, int columns, int k, Factors a, Factors b,
                  float* c);

/// One element of the product for one group of `count` terms, in plain integers: slow, the reference for the
/// rest. Consecutive elements of b are `stride` apart. `scale` is added to the products' exponents.
[[gnu::noinline]] float add_products(const AccumulationModel& model, Factors a, Factors b, int stride,
                                     int count, float c, int scale = 0);

}  // namespace jit::emulator
