// An append on a device with random tensors, and what it must leave in memory, in double precision.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <jit/append.h>

#include "tests/support/device_tensor.h"

namespace jit::testing {

enum class Destination { slots, pages, contiguous };

struct AppendCase {
  AppendSpec spec = {};
  Destination to = Destination::slots;
  std::vector<int> new_tokens = {3, 1, 0, 5};    ///< of each request; all alike if `is_dense`
  std::vector<int> past_tokens = {6, 0, 2, 11};  ///< that the cache has
  bool is_dense = false;
  int page_size = 4;
  int heads_q = 3;  ///< 0: no q
  int heads_kv = 2;
  bool into_q_out = false;
  bool with_positions = true;
  bool with_bad_places = false;  ///< some slots, pages and positions are none
  TensorLayout cache_layout = {};
};

/// "page_size 4, …": for messages.
std::string to_string(const AppendCase& problem);

class AppendRun {
 public:
  AppendRun(const AppendCase& problem, std::uint64_t seed);

  const AppendArguments& arguments() const { return arguments_; }
  /// Draws all inputs anew, and poisons the caches and q_out.
  void fill();
  /// Errors of the caches and q; empty: none. Bytes that belong to no new token must be as before.
  std::string check();
  /// The memory of all that is written, as of the last check.
  std::vector<std::uint8_t> written() const;

 private:
  /// Where a token goes; below 0: nowhere.
  struct Place {
    std::int64_t page = -1, offset = -1;
  };

  int tokens() const;
  std::vector<std::int64_t> at(int token, int head, int column) const;
  std::int64_t axis_position(int token, int axis) const;
  bool is_left_alone(int token) const;
  double table(int token, int pair, bool sine) const;
  std::vector<double> rotated(const DeviceTensor& source, int token, int head,
                              const DeviceTensor& weight) const;
  /// The rotated row of q; for a token that is left alone, the row that was there before.
  std::vector<double> rotated_or(int token, int head, bool is_left) const;
  bool is_near(DType dtype, double got, double expected) const;
  DeviceTensor new_tensor(int heads, int columns) const;

  AppendCase problem_;
  std::mt19937_64 random_;
  std::vector<int> begins_, request_;  ///< of requests; of tokens
  std::vector<Place> places_;
  std::vector<std::vector<std::int64_t>> positions_values_;  ///< by axis
  DeviceTensor k_, v_, q_, q_out_, k_cache_, v_cache_, slots_, table_, seqused_, cu_seqlens_, cos_sin_,
      positions_, q_weight_, k_weight_;
  DeviceTensor q_before_;
  AppendArguments arguments_;
};

}  // namespace jit::testing
