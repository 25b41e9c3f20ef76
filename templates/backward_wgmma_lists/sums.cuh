// How consumers leave dK and dV of an item. Those of a block's only item of the only launch are its gradients. Else items add to
// sums in global memory in their order, as they hold them in registers, and the last one of the last launch leaves the gradients.
#pragma once

#include "backward/gradient_writer.cuh"
#include "backward_wgmma_lists/params.cuh"
#include "ptx/atomic.cuh"

namespace jit {

/// Facts about an item that go with its keys: bits, and above them its number among those of the block.
inline constexpr int share_adds = 1;    ///< others have left sums
inline constexpr int share_leaves = 2;  ///< it is the last one
inline constexpr int share_number_shift = 2;

/// A warp's share of dK and dV, in place of GradientWriter.
template <class Traits, class Maps>
class SharedGradients {
  using Config = typename Traits::Config;
  static constexpr int warps = Traits::has_roles ? 4 : 8;  // that have rows of dK, or of dV
  static constexpr int threads = warps * warp_size;
  static constexpr int values_of_thread = Traits::ValueGradient::column_blocks * MmaLayout::block_values;
  static constexpr int keys_of_thread = Traits::KeyGradient::column_blocks * MmaLayout::block_values;
  static constexpr int block_floats = threads * (values_of_thread + keys_of_thread);

 public:
  static constexpr bool by_tma = false;

  JIT_DEVICE SharedGradients(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                             const DropoutParams&, unsigned smem, unsigned round)
      : params_(params),
        gradients_(gradients),
        work_(maps.work),
        share_(load_shared_by_warp(smem + Traits::layout.shares + round % Traits::stages_keys * 4)) {}

  JIT_DEVICE void write_dv(const KeyTile<Config>& keys, const typename Traits::ValueGradient& dv) const {
    write<Config::head_dim_v>(keys, dv, 1, 0, [&](const Gradients<Config>& gradients) {
      return gradients.dv_rows(keys.batch, keys.kv_head);
    });
  }
  JIT_DEVICE void write_dk(const KeyTile<Config>& keys, const typename Traits::KeyGradient& dk) const {
    const float factor = params_.softmax_scale;  // mutate: DkOfListsUnscaled
    write<Config::head_dim>(
        keys, dk, factor, threads * values_of_thread,
        [&](const Gradients<Config>& gradients) { return gradients.dk_rows(keys.batch, keys.kv_head); });
  }
  static JIT_DEVICE void end() {}

 private:
  static JIT_DEVICE int own_thread() {
    const int own = reread_thread_index() - warpgroup_size;  // the producers' come first
    return Traits::has_roles ? own % threads : own;
  }

  // The place of a block among those of all KV heads.
  JIT_DEVICE long long place(const KeyTile<Config>& keys) const {
    return static_cast<long long>(keys.kv_head) * work_.block_limit +
           first_varlen_tile(keys.batch, keys.kv.begin, Config::tile_kv) + keys.k_begin / Config::tile_kv;
  }

  template <int columns, class Product, class RowsOf>
  JIT_DEVICE void write(const KeyTile<Config>& keys, const Product& product, float factor, int offset,
                        const RowsOf& rows_of) const {
    constexpr int arrivals = 2 * warps;  // for each item
    Product sum = product;
    float4* const own =
        reinterpret_cast<float4*>(work_.sums + place(keys) * block_floats + offset) + own_thread();
    int* const done = work_.done + place(keys);
    if ((share_ & share_adds) != 0) {
      const int before = (share_ >> share_number_shift) * arrivals;
      if (lane_id() == 0) {
        while (load_acquire(done) < before) {  // mutate: SumsBeforeTheyAreThere
        }
      }
      __syncwarp();  // mutate: LanesReadSumsTooEarly
#pragma unroll
      for (int n = 0; n < Product::column_blocks; ++n) {
        const float4 x = own[n * threads];
        float(&values)[MmaLayout::block_values] = sum.registers[0][n];
        values[0] += x.x;
        values[1] += x.y;
        values[2] += x.z;
        values[3] += x.w;
      }
    }
    if ((share_ & share_leaves) != 0) {
      const SequencesOf<Config> sequences = keys.sequences(params_);
      const int first_key = keys.k_begin + own_thread() / warp_size * gradient_rows;
      store_rows<columns>(sum, factor, rows_of(Gradients<Config>(params_, gradients_, sequences)), first_key,
                          sequences.kv(keys.batch).length);
      return;
    }
#pragma unroll
    for (int n = 0; n < Product::column_blocks; ++n) {
      const float(&x)[MmaLayout::block_values] = sum.registers[0][n];
      own[n * threads] = make_float4(x[0], x[1], x[2], x[3]);
    }
    __syncwarp();  // mutate: SumsOfOtherLanesAreSaidToBeThere
    if (lane_id() == 0) add_one_release(done);
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const ListedWork& work_;
  const int share_;
};

/// Consumers of a kernel with these maps leave gradients so.
template <class Traits>
struct WriterOf<Traits, ListedMaps> {
  using type = SharedGradients<Traits, ListedMaps>;
};

}  // namespace jit
