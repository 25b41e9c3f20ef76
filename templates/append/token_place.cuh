// Where a new token belongs: in the cache, and in its sequence; and how elements of a cache are stored.
#pragma once

#include "append/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"

namespace jit {

struct TokenPlace {
  bool is_stored = false;  ///< the place in the cache exists
  int page = 0;
  int offset = 0;           ///< in the page, tokens
  long long position = -1;  ///< in the sequence; below 0: not known
};

/// The last of the requests that begin at or before `token`; −1 when none does. By a warp, which looks at 32 places at
/// a time. Whatever the array holds, the result is none or a request.
JIT_DEVICE int last_request_from(const int* cu_seqlens, int requests, int token) {
  int begin = 0, end = requests;
  while (begin < end) {
    const int step = (end - begin + warp_size - 1) / warp_size;
    const int probe = begin + lane_id() * step;
    const bool is_before = probe < end && cu_seqlens[probe] <= token;
    const int before = __popc(__ballot_sync(full_warp, is_before));
    if (before == 0) return -1;
    begin += (before - 1) * step;
    if (step == 1) return begin;
    end = minimum(end, begin + step);
  }
  return -1;
}

JIT_DEVICE TokenPlace place_of_slot(const AppendParams& params, int token) {
  TokenPlace place;
  const long long slot = params.slot_mapping[token];
  place.is_stored = slot >= 0 && slot < static_cast<long long>(params.pages) * params.page_size;
  if (place.is_stored) {
    place.page = static_cast<int>(slot / params.page_size);
    place.offset = static_cast<int>(slot % params.page_size);
  }
  return place;
}

/// The tokens of a request are its last ones.
JIT_DEVICE TokenPlace place_in_request(const AppendParams& params, int token) {
  TokenPlace place;
  int request, end;
  if (params.cu_seqlens_q != nullptr) {
    request = last_request_from(params.cu_seqlens_q, params.requests, token);
    if (request < 0) return place;
    end = params.cu_seqlens_q[request + 1];
    if (token >= end) return place;
  } else {
    request = token / params.seqlen;
    end = (request + 1) * params.seqlen;
  }
  place.position = static_cast<long long>(params.seqused_k[request]) - end + token;
  if (place.position < 0) return place;
  const long long index = place.position / params.page_size;
  place.offset = static_cast<int>(place.position % params.page_size);
  if (index >= params.max_pages) return place;
  place.page =
      params.page_table != nullptr ? params.page_table[request * params.page_table_stride + index] : request;
  place.is_stored = place.page >= 0 && place.page < params.pages;
  return place;
}

JIT_DEVICE TokenPlace place_of(const AppendParams& params, int token) {
  return params.slot_mapping != nullptr ? place_of_slot(params, token) : place_in_request(params, token);
}

/// Where the scale of a row of the cache is.
template <class Scale>
JIT_DEVICE Scale* scale_at(Scale* scales, const TensorStrides& strides, const TokenPlace& place, int head) {
  return scales + place.page * strides.batch + place.offset * strides.seq + head * strides.head;
}

/// The scale with which `magnitude` becomes the largest element. Of whole numbers it is no number where that is none.
template <class Element>
JIT_DEVICE float token_scale(float magnitude) {
  if (is_same<Element, int8_number> && magnitude != magnitude) return magnitude;
  return scale_of<Element>(magnitude);
}

template <int alignment, int count, class Element>
JIT_DEVICE void store_in_cache(Element* target, const float (&values)[count], float scale) {
  if constexpr (!is_fp8<Element>) {
    store_piece<alignment>(target, values);
  } else {
    unsigned words[(count + 3) / 4] = {};
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const float low = values[i] / scale, high = i + 1 < count ? values[i + 1] / scale : 0.0f;
      words[i / 4] |= pack_fp8<Element>(low, high) << (i % 4 * 8);
    }
    store_words<count, alignment>(target, words);
  }
}

}  // namespace jit
