
/// A query sees its own position and, backwards from there, every `period`-th key.
template <int period>
struct StridedMask {
  int shift;
  int seqlen_kv;
  __device__ explicit StridedMask(const BlockContext& context)
      : shift(query_shift<Alignment::bottom_right>(context)), seqlen_kv(context.seqlen_kv) {}
  __device__ KeyRange key_range(int, int q_end) const {
    return {0, maximum(0, minimum(seqlen_kv, q_end + shift))};
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    return tile.k_begin > tile.q_end - 1 + shift ? TileClass::empty : TileClass::partial;
  }
  __device__ bool keep(int q, int k) const { return k <= q + shift && (q + shift - k) % period == 0; }
};
