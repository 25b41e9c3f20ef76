// Sums of tensor cores. PTX leaves the order and precision of their sums open ("mma": "accumulation … is
// unspecified"); what is here was found out on hardware by Fasi, Higham, Mikaitis and Pranesh ("Numerical
// behavior of NVIDIA tensor cores", 2021), Xie, Wang, Yang and Yang ("MMA-Sim", 2025), and Khattak and
// Mikaitis ("Accurate Models of NVIDIA Tensor Cores", 2025).
#pragma once

#include <cstdint>

#include "machine/kernel.h"
#include "machine/types.h"
#include "operations/tensor/tensor_formats.h"

namespace jit::emulator {

/// How products are summed up. The products of `group` neighbors along k are exact; together with the
/// accumulator they are aligned to the largest exponent among them (the sum of the factors' exponents, not
/// normalized), cut off towards zero `fraction_bits` below it, and added without error. The sum is rounded as
/// `result` says and is the accumulator of the next group.
struct AccumulationModel {
  enum class Result {
    f32,    ///< cut off towards zero
    e8m13,  ///< the same, to 13 bits behind the point
    f16,    ///< to nearest even
  };
  int group = 0;
  int fraction_bits = 0;
  Result result = Result::f32;
  /// The unit has no 8-bit products: elements become f16, the even pairs along k are summed first, then the
  /// odd ones, from zero; the accumulator is added at last, rounded to nearest even.
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

/// One element of it for one group of `count` products, in plain integers: slow, and the measure of the rest.
/// Consecutive elements of b are `stride` apart. Products are multiplied by 2^`scale`, which adds to their exponents.
[[gnu::noinline]] float add_products(const AccumulationModel& model, Factors a, Factors b, int stride,
                                     int count, float c, int scale = 0);

}  // namespace jit::emulator
