// From a ticket to the rows of its piece of work.
#pragma once

#include "quantize/rows.cuh"

namespace jit {

/// Calls `act` with the piece's rows, which are of the tensor that it is of.
template <class Config, class Act>
__device__ __forceinline__ void with_rows(const QuantizeParams& params, const QuantizeWork& work,
                                          char* buffer, const Act& act) {
  switch (work.tensor) {
    case QkvTensor::q: {
      QuantizeRows<Config, QkvTensor::q> rows(params, work, buffer);
      return act(rows);
    }
    case QkvTensor::k: {
      QuantizeRows<Config, QkvTensor::k> rows(params, work, buffer);
      return act(rows);
    }
    case QkvTensor::v: {
      QuantizeRows<Config, QkvTensor::v> rows(params, work, buffer);
      return act(rows);
    }
  }
}

template <class Config>
__device__ __forceinline__ void start_copies(const QuantizeParams& params, int piece, char* buffer) {
  if (piece < params.pieces) {
    const QuantizeWork work = work_of_ticket<Config>(params, piece);
    with_rows<Config>(params, work, buffer, [](auto& rows) { rows.start(); });
  }
  cp_async_commit_group();
}

}  // namespace jit
