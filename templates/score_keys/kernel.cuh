// Scores of keys, Σ over heads of weight · relu(q · k), times the key's scale: an indexer's (DeepSeek-V3.2). For sm_90a, by TMA
// and wgmma. Keys are the rows of the products, so that a sum over heads stays within four lanes.
#pragma once

#include "ptx/fp8.cuh"
#include "score_keys/consumer.cuh"
#include "score_keys/producer.cuh"
#include "score_mainloop/roles.cuh"

namespace jit {

template <class Config>
JIT_DEVICE void score_keys(const ScoreKeysParams& params) {
  using Traits = ScoreKeysTraits<Config>;
  const unsigned smem = begin_score_pass<Traits>();
  run_score_pass<Traits>([&] { ScoreKeysProducer<Traits>(params, smem).run(); },
                         [&](int consumer) { ScoreKeysConsumer<Traits>(params, smem, consumer).run(); });
}

}  // namespace jit
