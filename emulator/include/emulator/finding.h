// Findings: what the emulator finds wrong with a kernel while it runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jit::emulator {

enum class FindingKind {
  data_race,  ///< two accesses to shared or global memory without an order between them
  /// Ordered accesses, but no proxy fence between a generic write, or an mbarrier's init, and the async
  /// proxy.
  missing_proxy_fence,
  access_in_flight,  ///< shared memory or a register that an asynchronous operation has yet to write or read
  out_of_bounds,
  misaligned,
  uninitialized_read,         ///< of global or tensor memory
  uninitialized_shared_read,  ///< correct kernels may do so in partial tiles
  barrier_divergence,         ///< an aligned instruction that not all threads of the warp execute
  barrier_misuse,             ///< counts, ids or phases that break the rules
  deadlock,
  wrong_transaction_count,  ///< an mbarrier got more or fewer bytes than expect_tx announced
  register_limit,           ///< more registers live than setmaxnreg left
  unfinished_copy,          ///< a block exits while its asynchronous operations run
  bad_descriptor,           ///< of wgmma, or a tensor map
  illegal_instruction,  ///< reached a trap, an undefined value of an operand, or an instruction out of place
  step_limit,           ///< more instructions than LaunchOptions allows
  dropped,              ///< not run to its end, since all work of its Group was dropped
};
std::string_view to_string(FindingKind kind);  ///< "data race", …
std::vector<FindingKind> finding_kinds();      ///< all kinds
/// The kind with this name. Throws std::invalid_argument, listing the valid names, for any other name.
FindingKind parse_finding_kind(std::string_view name);

struct Finding {
  FindingKind kind{};
  std::string message;  ///< one sentence, without the location
  std::string kernel;
  std::array<unsigned, 3> block = {};  ///< ctaid
  int warp = 0;
  int lane = -1;  ///< −1: the whole warp
  int ptx_line = 0;
  std::string file;  ///< of the source; empty without line information
  int line = 0;
};

/// "data race in attn_fwd… block (0, 3, 1) warp 2 lane 5 at softmax.cuh:41 (PTX line 812): …"
std::string to_string(const Finding& finding);

}  // namespace jit::emulator
