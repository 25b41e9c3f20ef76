// The record of an invalid element of an array on the device, written by a kernel. Compiled by the host and
// by NVRTC.
#pragma once

namespace jit {

/// The arrays that say where sequences lie.
enum class SequenceArrayId : int {
  none,
  cu_seqlens_q,
  cu_seqlens_k,
  seqused_q,
  seqused_k,
  cache_leftpad,
  page_table
};

/// The first element that was found to be none that it may be. All 0: none was.
struct ArrayFault {
  SequenceArrayId array;
  int request;
  int index;  ///< of the element: of cu_seqlens among all, of the page table in the request's row; else the request
  int value;
  int least;  ///< that it may be
  int most;
};

}  // namespace jit
