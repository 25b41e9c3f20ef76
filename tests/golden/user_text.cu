// Attention forward: bf16 d128 mask=text(blocks) && text(by_head.and_batch) && text(allowed-keys) score=text(distance), text(offsets). Generated: change the spec, not this file.
#include "forward_mma_sync/kernel.cuh"

using namespace jit;

#include "problem/text_parts.cuh"
#include "problem/interval_mask.cuh"
#include "checks/mask_agreement.cuh"

/// The user's mask "blocks".
struct UserMask0 : TextMask {
  __device__ explicit UserMask0(const BlockContext& context) : TextMask(context) {}
  __device__ TileClass classify(const ScoreTile& tile) const {
    [[maybe_unused]] const int q_begin = tile.q_begin, q_end = tile.q_end;
    [[maybe_unused]] const int k_begin = tile.k_begin, k_end = tile.k_end;
    [[maybe_unused]] constexpr int width = 128;
#line 1 "/jit-attention/blocks.classify"
const int q_block = q_begin / width, k_block = k_begin / width;
if (q_block != (q_end - 1) / width || k_block != (k_end - 1) / width) return TileClass::partial;
return q_block == k_block ? TileClass::full : TileClass::empty;
#line 3 "/jit-attention/blocks.classify"
  }
#line 1 "/jit-attention/generated"
  __device__ bool keep(int q, int k) const {
    [[maybe_unused]] constexpr int width = 128;
#line 1 "/jit-attention/blocks"
return q / width == k / width;
#line 1 "/jit-attention/blocks"
  }
#line 1 "/jit-attention/generated"
  __device__ Exact<long long> part0_begin([[maybe_unused]] int q) const {
    const Exact<long long> x3 = convert<long long>(Exact<int>(q) / Exact<int>(128));
    return choose(Exact<long long>(0ll) < x3, x3 * Exact<long long>(128ll), ((x3 + Exact<long long>(-1ll)) * Exact<long long>(128ll)) + Exact<long long>(1ll));
  }
  __device__ Exact<long long> part0_end([[maybe_unused]] int q) const {
    const Exact<long long> x3 = convert<long long>(Exact<int>(q) / Exact<int>(128));
    return choose(Exact<long long>(0ll) < (x3 + Exact<long long>(1ll)), (x3 + Exact<long long>(1ll)) * Exact<long long>(128ll), (x3 * Exact<long long>(128ll)) + Exact<long long>(1ll));
  }
  static constexpr bool has_parts = true;
  template <class Scores>
  __device__ auto kept_bits(const Scores& scores) const {
    const auto bits0 = scores.of_ranges([&](int q) { return existing_keys(part0_begin(q), part0_end(q), seqlen_kv); });
    return bits0;
  }
};

/// The user's mask "by_head.and_batch".
struct UserMask1 : IntervalMask<UserMask1> {
  __device__ explicit UserMask1(const BlockContext& context) : IntervalMask<UserMask1>(context) {}
  __device__ bool keep(int q, int k) const {
    [[maybe_unused]] constexpr bool inverted = true;
#line 1 "/jit-attention/by_head.and_batch"
if (h == heads_q - 1) return inverted;
return (h + b + k) % 2 == 0 || k == seqlen_kv - 1;
#line 2 "/jit-attention/by_head.and_batch"
  }
#line 1 "/jit-attention/generated"
  __device__ Exact<bool> part0([[maybe_unused]] int k) const {
    return (Exact<int>(h) == (Exact<int>(heads_q) - Exact<int>(1))) || (((((Exact<int>(h) + Exact<int>(b)) + Exact<int>(k)) % Exact<int>(2)) == Exact<int>(0)) || (Exact<int>(k) == (Exact<int>(seqlen_kv) - Exact<int>(1))));
  }
  static constexpr bool has_parts = true;
  template <class Scores>
  __device__ auto kept_bits(const Scores& scores) const {
    const auto bits0 = scores.of_keys([&](int k) { return part0(k).value; });
    return bits0;
  }
  static constexpr bool reads_head = true;
  __device__ Interval<bool> kept_of(const Interval<int>& q, const Interval<int>& k) const {
    return (Interval<int>(h) == (Interval<int>(heads_q) - Interval<int>(1))) || (((((Interval<int>(h) + Interval<int>(b)) + k) % Interval<int>(2)) == Interval<int>(0)) || (k == (Interval<int>(seqlen_kv) - Interval<int>(1))));
  }
};

/// The user's mask "allowed-keys".
struct UserMask2 : IntervalMask<UserMask2> {
  const unsigned char* tensor0;
  __device__ explicit UserMask2(const BlockContext& context) : IntervalMask<UserMask2>(context), tensor0(tensor_data<unsigned char>(context, 0)) {}
  __device__ bool keep(int q, int k) const {
    [[maybe_unused]] const auto* const allowed = this->tensor0;
#line 1 "/jit-attention/allowed-keys"
return allowed[k] != 0;
#line 1 "/jit-attention/allowed-keys"
  }
#line 1 "/jit-attention/generated"
  __device__ Exact<bool> part0([[maybe_unused]] int k) const {
    return element<int>(Exact<bool>(true), convert<long long>(Exact<int>(k)), tensor0) != Exact<int>(0);
  }
  static constexpr bool has_parts = true;
  template <class Scores>
  __device__ auto kept_bits(const Scores& scores) const {
    const auto bits0 = scores.of_keys([&](int k) { return part0(k).value; });
    return bits0;
  }
  static constexpr bool reads_head = false;
  __device__ Interval<bool> kept_of(const Interval<int>& q, const Interval<int>& k) const {
    return element<int>(Interval<bool>(true), convert<long long>(k), tensor0) != Interval<int>(0);
  }
};

/// The user's score "distance".
struct UserScore3 : TextScore {
  __device__ explicit UserScore3(const BlockContext& context) : TextScore(context) {}
  __device__ float apply(float score, int q, int k) const {
    [[maybe_unused]] constexpr float slope = 0x1p-6f;  // 0.015625
#line 1 "/jit-attention/distance"
const float d = static_cast<float>(q - k);
return score - slope * (d < 0 ? -d : d);
#line 2 "/jit-attention/distance"
  }
#line 1 "/jit-attention/generated"
};

/// The user's score "offsets".
struct UserScore4 : TextScore {
  const bf16* tensor0;
  __device__ explicit UserScore4(const BlockContext& context) : TextScore(context), tensor0(tensor_data<bf16>(context, 1)) {}
  __device__ float apply(float score, int q, int k) const {
    [[maybe_unused]] const auto* const offsets = this->tensor0;
#line 1 "/jit-attention/offsets"
return score + to_float(offsets[k]);
#line 1 "/jit-attention/offsets"
  }
#line 1 "/jit-attention/generated"
};

struct Config {
  using Element = bf16;
  static constexpr int head_dim = 128;  // columns of q and k
  static constexpr int head_dim_v = 128;  // columns of v and o
  static constexpr int gqa_ratio = 1;  // query heads per KV head
  static constexpr int alignment = 16;  // bytes, of every row in global memory
  static constexpr int seqlen_q = 0;  // 0: a run-time argument
  static constexpr int seqlen_kv = 0;  // 0: a run-time argument
  static constexpr SequenceKind sequences_q = SequenceKind::dense;  // layout of q and o
  static constexpr SequenceKind sequences_kv = SequenceKind::dense;  // layout of k and v
  static constexpr int page_size = 0;  // keys in a page; 0: no pages
  static constexpr bool sinks = false;  // each head has a sink
  static constexpr int split_keys = 0;  // keys in a span that is summed separately; 0: no spans
  static constexpr bool checked = false;  // arrays on the device are checked
  using Mask = AndMask<AndMask<UserMask0, UserMask1>, UserMask2>;  // text(blocks) && text(by_head.and_batch) && text(allowed-keys)
  using Score = ThenScore<UserScore3, UserScore4>;  // text(distance), text(offsets)
  static constexpr int tile_q = 128;  // queries per block
  static constexpr int tile_kv = 64;  // keys per step
  static constexpr int warps = 4;  // warps per block; each owns tile_q / warps queries
  static constexpr int stages_k = 2;  // buffers for K tiles
  static constexpr int stages_v = 1;  // buffers for V tiles
  static constexpr bool q_in_registers = false;  // Q stays in registers, else in shared memory
  static constexpr Rescale rescale = Rescale::lazy;  // when the output is rescaled to a new row maximum
  static constexpr int blocks_per_sm = 1;  // blocks that must fit on a multiprocessor: caps the registers
};
static_assert(sizeof(AttentionParams) == 808, "host and device disagree on the kernel's parameters");
static_assert(is_whole<Config::Mask>, "all of the mask compiles");
static_assert(has_row_range<Config::Mask> == false, "host and device disagree on the mask's row_range");
static_assert(key_words<Config::Mask> == 6, "host and device disagree on the mask's key words");
static_assert(forward_mma_sync::smem_layout<Config>().total == 81920, "host and device disagree on shared memory");

extern "C" __global__ void __launch_bounds__(128, Config::blocks_per_sm)
attention_forward_mma_sync_bf16_d128_text_blocks_text_by_head_and_batch_text__text_distance_text_offsets_q128kv64w4k2v1(const __grid_constant__ AttentionParams params) {
  forward_mma_sync::attention_forward<Config>(params);
}
