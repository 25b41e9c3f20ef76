// The parameters of the kernel that finds documents. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"

namespace jit {

inline constexpr int find_documents_threads = 512;

/// The fewest tokens of a document on average: tiles that begin with shorter ones are more than others.
inline constexpr int tokens_of_document = 256;

/// Ids of queries and keys, and the table that is written.
struct FindDocuments {
  const int* ids_q;   ///< (batch, seqlen)
  const int* ids_kv;  ///< (batch, seqlen)
  long long stride_q;
  long long stride_kv;
  int batch;
  int seqlen;
  bool may_find;  ///< false: the call is dense, and nothing reads the table
  int*
      boundaries;  ///< where each document begins among the rows of all entries; from their number on, the end of all rows
  int* begins;     ///< (batch, documents_of_entry): first rows of an entry's documents
  int* counts;     ///< (batch): how many these are; 0: they do not follow one another
  int* is_dense;   ///< 0: all entries have documents that follow one another; else 1, and the table is empty
  unsigned* done;  ///< entries that are done: 0 between kernels
};

/// The most documents of an entry. Their ids are compared in pairs, whose number an int must hold.
JIT_HOST_DEVICE constexpr int documents_of_entry(int seqlen) {
  constexpr int limit = 1 << 15;
  const int most = 1 + seqlen / tokens_of_document;
  return most < limit ? most : limit;
}

}  // namespace jit
