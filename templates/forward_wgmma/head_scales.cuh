// What q, k and v of 8 bits are multiplied by: one number each for a work tile, whose elements are left as they are. Those
// of q and k are factors of the softmax scale, that of v is one of the output.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit::forward_wgmma {

/// Elements of 16 bits have no scales.
template <class Config, bool has_fp8 = keys_are_fp8<Config>>
class HeadScales {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams&)
      : params_(params) {}

  /// Reads those of q and k.
  __device__ __forceinline__ void take_scores(const WorkTile&) {}
  /// Reads that of v.
  __device__ __forceinline__ void take_values(const WorkTile&) {}
  /// What makes a score of a product of elements of q and k.
  __device__ __forceinline__ float of_scores() const { return params_.softmax_scale; }
  template <class Output>
  __device__ __forceinline__ void scale_output(Output&) const {}

 private:
  const AttentionParams& params_;
};

template <class Config>
class HeadScales<Config, true> {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : params_(params), descale_(descale) {}

  __device__ __forceinline__ void take_scores(const WorkTile& work) {
    const float scale =
        read(descale_.q, descale_.q_strides, work) * read(descale_.k, descale_.k_strides, work);
    // Times 0, −inf of a dropped key would be no number; times a negative number, maxima would be minima.
    constexpr float least = 0x1p-100f;
    of_scores_ = scale < 0 ? __int_as_float(0x7fffffff) : max_nan(params_.softmax_scale * scale, least);
  }
  __device__ __forceinline__ void take_values(const WorkTile& work) {
    of_values_ = read(descale_.v, descale_.v_strides, work);
  }
  __device__ __forceinline__ float of_scores() const { return of_scores_; }
  template <class Output>
  __device__ __forceinline__ void scale_output(Output& output) const {
    const float scale[Output::rows] = {of_values_, of_values_};
    output.scale_rows(scale);
  }

 private:
  static __device__ __forceinline__ float read(const float* scales, const TensorStrides& strides,
                                               const WorkTile& work) {
    const int kv_head = work.head / Config::gqa_ratio;
    return scales != nullptr ? scales[work.batch * strides.batch + kv_head * strides.head] : 1.0f;
  }

  const AttentionParams& params_;
  const DescaleParams& descale_;
  float of_scores_ = 0;
  float of_values_ = 0;
};

}  // namespace jit::forward_wgmma
