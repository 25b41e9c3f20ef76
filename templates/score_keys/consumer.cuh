// The epilogue of scores of keys: relu of 64 keys by all columns of q, weights, and the sum over heads, first within a lane and
// then over the four that share a key.
#pragma once

#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "score_keys/work.cuh"
#include "score_mainloop/mainloop.cuh"
#include "score_mainloop/roles.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

template <class Traits>
class ScoreKeysConsumer {
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  static constexpr int tokens = Traits::tokens, blocks = Scores::column_blocks,
                       token_blocks = blocks / tokens;
  static constexpr int lane_tokens = (tokens + 1) / 2;  // that a lane writes

 public:
  JIT_DEVICE ScoreKeysConsumer(const ScoreKeysParams& params, unsigned smem, int consumer)
      : params_(params), smem_(smem), mainloop_(smem, consumer) {}

  JIT_DEVICE void run() {
    for_each_item(params_.items, [&](int i) {
      const ScoreKeysItem<Traits> item(params_, i);
      if (item.is_empty()) return;
      load_weights(item);
      mainloop_.wait_for_resident();
#pragma unroll 1
      for (int tile = item.tile_begin; tile < item.tile_end; ++tile) score(item, tile);
      mainloop_.release_resident();
    });
  }

 private:
  // Loads the weights of the lane's columns.
  JIT_DEVICE void load_weights(const ScoreKeysItem<Traits>& item) {
#pragma unroll
    for (int n = 0; n < blocks; ++n) {
      const int token = item.first_token + n / token_blocks;
      const float* const of_token =
          params_.weights +
          (static_cast<long long>(item.entry) * params_.tokens + token) * params_.weight_token;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int head = n % token_blocks * MmaLayout::block_columns + MmaLayout::lane_column(lane_id()) + j;
        weights_[n][j] = token < params_.tokens ? of_token[head * params_.weight_head] : 0;
      }
    }
  }

  JIT_DEVICE void score(const ScoreKeysItem<Traits>& item, int tile) {
    mainloop_.wait_for_streamed();
    Scores scores;
    mainloop_.start(scores);
    // The lane writes rows of one half alone.
    const int lane = lane_id(), warp_row = mainloop_.first_row() + warp_id() % 4 * MmaLayout::block_rows;
    const int row = warp_row + MmaLayout::lane_row(lane) + lane % 2 * 8;
    const int scale = load_shared(smem_ + Traits::layout.scales +
                                  static_cast<unsigned>((mainloop_.k.stage() * score_keys_tile + row) * 4));
    mainloop_.finish(scores);
    float sums[lane_tokens];
    sum_over_heads(scores, sums);
    write(item, tile * score_keys_tile + row, scale, sums);
  }

  // Sums for the tokens that the lane writes: bit 1 of the lane names one of each two, and bit 0 the half of rows.
  JIT_DEVICE void sum_over_heads(const Scores& scores, float (&sums)[lane_tokens]) const {
    const bool is_lower = (threadIdx.x & 1) != 0, is_second = (threadIdx.x & 2) != 0;
    float of_token[2 * lane_tokens] = {};
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      float part[2] = {};
#pragma unroll
      for (int n = t * token_blocks; n < (t + 1) * token_blocks; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int j = 0; j < 2; ++j)
            // NaN stays NaN.
            part[r] =
                __fmaf_rn(weights_[n][j], max_nan(scores.at(r, n, j), 0.0f), part[r]);  // mutate: NoRelu
        }
      }
      const float received = __shfl_xor_sync(full_warp, is_lower ? part[0] : part[1], 1);
      of_token[t] = (is_lower ? part[1] : part[0]) + received;
    }
#pragma unroll
    for (int j = 0; j < lane_tokens; ++j) {
      const float first = of_token[2 * j], second = tokens == 1 ? first : of_token[2 * j + 1];
      sums[j] = (is_second ? second : first) + __shfl_xor_sync(full_warp, is_second ? first : second, 2);
    }
  }

  JIT_DEVICE void write(const ScoreKeysItem<Traits>& item, int key, int scale,
                        const float (&sums)[lane_tokens]) const {
#pragma unroll
    for (int j = 0; j < lane_tokens; ++j) {
      const int token = 2 * j + (lane_id() / 2) % 2;
      const int start = __shfl_sync(full_warp, item.start, token),
                end = __shfl_sync(full_warp, item.end, token);
      const float score = static_cast<unsigned>(scale) == scale_of_no_key ? negative_infinity()
                                                                          : sums[j] * __int_as_float(scale);
      const long long at = static_cast<long long>(item.entry) * params_.tokens + item.first_token + token;
      const bool is_seen = key >= start && key < end;  // mutate: ScoresOfOthersKeys
      if (is_seen) params_.scores[at * params_.score_token + key] = score;
      if constexpr (Config::block_max) {
        const float largest = largest_of_block(is_seen ? score : negative_infinity());
        const int block = key / score_keys_block, first_key = block * score_keys_block;
        const bool is_first = MmaLayout::lane_row(lane_id()) == 0;
        if (is_first && start < end && first_key < end && first_key + score_keys_block > start)
          params_.block_scores[at * params_.block_score_token + block] = largest;
      }
    }
  }
  // The eight rows of a block lie in as many lanes, four apart.
  static JIT_DEVICE float largest_of_block(float x) {
    static_assert(score_keys_block * 4 == warp_size);
#pragma unroll
    for (int step = 4; step < warp_size; step *= 2) x = max_nan(x, __shfl_xor_sync(full_warp, x, step));
    return x;
  }

  const ScoreKeysParams& params_;
  const unsigned smem_;
  ScoreMainloop<Traits> mainloop_;
  float weights_[blocks][2];
};

}  // namespace jit
