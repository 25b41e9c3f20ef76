// A call's attributes decoded: the problem, options of the call, and its buffers' tensors.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <jit/spec.h>

#include "xla/abi.h"

namespace jit::xla {

/// A call's decoded attributes.
struct Problem {
  AttentionSpec spec;
  std::vector<std::string> operands, results;
  bool heads_first = false;  ///< "BHSD" in place of "BSHD"
  float dropout_p = 0;
  int num_splits = 0;
  bool zero_padding = false;   ///< of forward
  bool deterministic = false;  ///< of backward
};

/// Reads attributes; jit/xla.h lists them. Throws Error invalid_argument, which names the attribute, and invalid_spec.
Problem read_problem(const Attributes& attributes);

/// Cache of calls' problems: each is decoded once. Thread safe.
class Problems {
 public:
  /// Throws as `read_problem` does.
  std::shared_ptr<const Problem> of(const Attributes& attributes);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Problem>> by_key_;
};

}  // namespace jit::xla
