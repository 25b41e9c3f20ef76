// Pieces of rows in global memory as floats: a few elements side by side, in accesses as wide as they are aligned.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit {

/// Loads `bytes` bytes, a power of two, as 32-bit words; `alignment` is that of the address.
template <int bytes, int alignment>
JIT_DEVICE void load_words(const void* source, unsigned (&words)[(bytes + 3) / 4]) {
  constexpr int access = minimum(minimum(bytes, alignment), chunk_bytes);
  const char* from = static_cast<const char*>(source);
#pragma unroll
  for (int at = 0; at < bytes; at += access) {
    const int word = at / 4;
    if constexpr (access == 16) {
      const uint4 four = *reinterpret_cast<const uint4*>(from + at);
      words[word] = four.x;
      words[word + 1] = four.y;
      words[word + 2] = four.z;
      words[word + 3] = four.w;
    } else if constexpr (access == 8) {
      const uint2 two = *reinterpret_cast<const uint2*>(from + at);
      words[word] = two.x;
      words[word + 1] = two.y;
    } else if constexpr (access == 4) {
      words[word] = *reinterpret_cast<const unsigned*>(from + at);
    } else {
      static_assert(access == 2, "elements have 16 bits or more");
      const unsigned half = *reinterpret_cast<const unsigned short*>(from + at);
      words[word] = at % 4 == 0 ? half : words[word] | half << 16;
    }
  }
}

template <int bytes, int alignment>
JIT_DEVICE void store_words(void* target, const unsigned (&words)[(bytes + 3) / 4]) {
  constexpr int access = minimum(minimum(bytes, alignment), chunk_bytes);
  char* to = static_cast<char*>(target);
#pragma unroll
  for (int at = 0; at < bytes; at += access) {
    const int word = at / 4;
    if constexpr (access == 16) {
      *reinterpret_cast<uint4*>(to + at) =
          make_uint4(words[word], words[word + 1], words[word + 2], words[word + 3]);
    } else if constexpr (access == 8) {
      *reinterpret_cast<uint2*>(to + at) = make_uint2(words[word], words[word + 1]);
    } else if constexpr (access == 4) {
      *reinterpret_cast<unsigned*>(to + at) = words[word];
    } else if constexpr (access == 2) {
      *reinterpret_cast<unsigned short*>(to + at) = static_cast<unsigned short>(words[word] >> (at % 4 * 8));
    } else {
      *reinterpret_cast<unsigned char*>(to + at) = static_cast<unsigned char>(words[word] >> (at % 4 * 8));
    }
  }
}

/// Elements that lie in words, as floats.
template <class Element, int count, int word_count>
JIT_DEVICE void upcast_words(const unsigned (&words)[word_count], float (&values)[count]) {
  static_assert(word_count == (count * static_cast<int>(sizeof(Element)) + 3) / 4);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if constexpr (sizeof(Element) == 4) {
      values[i] = __int_as_float(static_cast<int>(words[i]));
    } else {
      values[i] = to_float(Element{static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16))});
    }
  }
}

/// Loads elements as floats. `alignment` is that of the row in bytes; at least the size of an element.
template <int alignment, int count, class Element>
JIT_DEVICE void load_piece(const Element* source, float (&values)[count]) {
  constexpr int bytes = count * static_cast<int>(sizeof(Element));
  unsigned words[(bytes + 3) / 4];
  load_words<bytes, maximum(alignment, static_cast<int>(sizeof(Element)))>(source, words);
  upcast_words<Element>(words, values);
}

/// Stores floats, rounded to the nearest element.
template <int alignment, int count, class Element>
JIT_DEVICE void store_piece(Element* target, const float (&values)[count]) {
  constexpr int bytes = count * static_cast<int>(sizeof(Element));
  unsigned words[(bytes + 3) / 4];
#pragma unroll
  for (int i = 0; i < count; i += 4 / static_cast<int>(sizeof(Element))) {
    if constexpr (sizeof(Element) == 4) {
      words[i] = static_cast<unsigned>(__float_as_int(values[i]));
    } else {
      words[i / 2] = pack<Element>(values[i], i + 1 < count ? values[i + 1] : 0.0f);
    }
  }
  store_words<bytes, maximum(alignment, static_cast<int>(sizeof(Element)))>(target, words);
}

}  // namespace jit
