// A quantizer on a device with random tensors, and what it must make of them, in double precision.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <jit/quantize.h>

#include "tests/support/device_tensor.h"

namespace jit::testing {

/// Which rows of a tensor are of a sequence, as a call has it.
struct SequencesCase {
  std::vector<int> cu_seqlens = {};  ///< of varlen rows; empty: not given
  std::vector<int> seqused = {};     ///< the same

  bool has(int batch, int token) const;
  bool operator==(const SequencesCase&) const = default;
};

struct QuantizeCase {
  QuantizeSpec spec = {};  ///< QuantizeRun::spec() says of sequences what the case has
  int batch = 2;           ///< 0: varlen, one batch entry
  int seqlen_q = 5;
  int seqlen_kv = 70;
  int heads_q = 4;
  int heads_kv = 2;
  TensorLayout layout = {};   ///< of q, k and v and what is made of them
  double outliers = 0;        ///< how large one of fifty elements is
  bool has_positions = true;  ///< with rotary_dim: given, some of them none of the table's
  double offset = 0;          ///< of k and v, another one for each column
  bool with_shift = true;     ///< lse_shift and k_mean are asked for, where k is centered
  SequencesCase queries = {};
  SequencesCase keys = {};
};

/// "bf16 d64, …": for messages.
std::string to_string(const QuantizeCase& problem);

class QuantizeRun {
 public:
  QuantizeRun(const QuantizeCase& problem, std::uint64_t seed);

  const QuantizeArguments& arguments() const { return arguments_; }
  const QuantizeSpec& spec() const { return problem_.spec; }
  /// Draws all inputs anew, and poisons all that is written.
  void fill();
  /// Errors of the results; empty: none.
  std::string check();
  /// The memory of all that is written, as of the last check.
  std::vector<std::uint8_t> written() const;

 private:
  using Index = std::vector<std::int64_t>;
  /// Rows of one of q, k and v: (batch, token, head, column).
  using Rows = std::vector<double>;

  Index at(int batch, std::initializer_list<std::int64_t> rest) const;
  DeviceTensor rows(DType dtype, int seqlen, int heads, int columns) const;
  DeviceTensor numbers(std::initializer_list<std::int64_t> shape) const;
  DeviceTensor scales(QuantizedScales kind, int seqlen, int heads, int columns) const;
  int batches() const { return problem_.batch == 0 ? 1 : problem_.batch; }
  /// Rows in double precision as they are to be rounded, but for a mean.
  /// RMS norm, then rotary embedding, of a row of q or k.
  void embed(std::vector<double>& row, const DeviceTensor& weight, std::int64_t position) const;
  /// NaN in rows of no sequence, as poison is.
  Rows wanted(const DeviceTensor& source, int seqlen, int heads, int columns, bool is_rotated) const;
  std::string check_rows(const char* name, const Rows& rows, const DeviceTensor& made,
                         const DeviceTensor& scale, QuantizedScales kind, const SequencesCase& sequences,
                         int seqlen, int heads, int columns) const;

  QuantizeCase problem_;
  std::mt19937_64 random_;
  DeviceTensor q_, k_, v_, q_out_, k_out_, v_out_, q_scale_, k_scale_, v_scale_, k_mean_, v_mean_, shift_,
      q_weight_, k_weight_, table_, q_positions_, k_positions_, cu_seqlens_q_, cu_seqlens_k_, seqused_q_,
      seqused_k_;
  std::vector<DeviceTensor*> written_;
  QuantizeArguments arguments_;
};

}  // namespace jit::testing
