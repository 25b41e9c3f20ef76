// A kernel ready to run: decoded instructions, and its registers, bytes and threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <emulator/module.h>

#include "machine/types.h"
#include "ptx/syntax.h"

namespace jit::emulator {

struct Warp;

/// A register of 32 lanes, as an index in units of 32 × 4 bytes in the warp's register file. A 64-bit
/// register takes two units, as 32 × 8 bytes; narrower ones take one, each lane zero-extended to 32 bits.
using Slot = std::uint32_t;
/// Index of a predicate register: one bit for each lane.
using Predicate = std::uint32_t;

/// Control flow after an instruction.
enum class Flow {
  next,             ///< continue with the following instruction
  jump,             ///< the operation has set the program counter
  wait_then_next,   ///< Warp::wait holds the condition; then the following instruction
  wait_then_retry,  ///< the same wait, then execute again
  exit,             ///< lanes `Warp::exec` end
};

/// The effect of one instruction. Immutable, shared by all warps and threads.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Executes for the lanes `warp.exec`, never 0.
  virtual Flow execute(Warp& warp) const = 0;
};

enum class InstructionClass : std::uint8_t {
  integer,
  floating,
  special_function,
  conversion,
  move,
  predicate,
  control,
  global_memory,
  shared_memory,
  local_memory,
  param_memory,
  atomic,
  async_copy,
  barrier,
  warp_exchange,
  matrix_load,
  matrix,
  wgmma,
  other,
};
std::string_view to_string(InstructionClass kind);  ///< "special_function"

struct Instruction {
  std::unique_ptr<const Operation> operation;
  std::optional<Predicate> guard;
  bool guard_negated = false;
  bool aligned = false;  ///< all threads of the warp must execute it together
  /// The reconvergence point of a conditional branch: where both sides meet, as an index in Kernel::code;
  /// code.size(): the exit.
  std::uint32_t reconvergence = 0;
};

/// Rarely used facts about an instruction.
struct InstructionInfo {
  std::string name;  ///< "mma.sync.aligned.…"
  InstructionClass kind = InstructionClass::other;
  int ptx_line = 0;
  std::optional<ptx::SourceLine> source;
  bool guarded = false;
  /// Registers of its operands, as units of the register file; a 64-bit one gives two.
  std::vector<Slot> reads, writes;
  std::vector<std::uint32_t> successors;  ///< in Kernel::code; empty after exit
};

/// A slot that is filled at the start: a constant or a special register.
struct PresetSlot {
  enum class What {
    constant,
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
    warpid,
    nwarpid,
    smid,
    nsmid,
    gridid,
    lanemask_eq,
    lanemask_lt,
    lanemask_le,
    lanemask_gt,
    lanemask_ge,
    clusterid_x,
    clusterid_y,
    clusterid_z,
    nclusterid_x,
    nclusterid_y,
    nclusterid_z,
    cluster_ctaid_x,
    cluster_ctaid_y,
    cluster_ctaid_z,
    cluster_nctaid_x,
    cluster_nctaid_y,
    cluster_nctaid_z,
    cluster_ctarank,
    cluster_nctarank,
    dynamic_smem_size,
    total_smem_size,
    shared_base,  ///< bits of the block's rank in addresses of .shared
    param_base,   ///< generic address of the parameter block
    global_base,  ///< address of the module's global variables on the device
  };
  What what{};
  Slot slot = 0;
  bool wide = false;        ///< 64-bit
  std::uint64_t value = 0;  ///< the constant; for other presets, an addend
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<InstructionInfo> info;  ///< parallel to `code`
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::vector<PresetSlot> presets;
  std::uint32_t slots = 0;  ///< units of the register file
  std::uint32_t predicates = 0;
  std::size_t static_smem_bytes = 0;
  std::size_t dynamic_smem_alignment = 16;
  std::size_t local_bytes = 0;                            ///< per thread
  int max_threads = 1024;                                 ///< per block: .maxntid, .reqntid
  std::optional<std::array<unsigned, 3>> required_block;  ///< .reqntid
  int min_blocks = 1;                                     ///< per multiprocessor: .minnctapersm
  std::vector<int> cluster;                               ///< .reqnctapercluster; empty: the launch decides
  int register_estimate = 0;  ///< per thread, from liveness: the most 32-bit registers live at once
  /// 32-bit registers live before each instruction, parallel to `code`.
  std::vector<int> live_registers;
  std::vector<std::string> files;  ///< by ptx::SourceLine::file
};

/// Source location of an instruction for messages: "softmax.cuh:41", or "PTX line 812" without line
/// information.
std::string place_of(const Kernel& kernel, std::uint32_t pc);

/// The contents of a Module. Immutable, thread safe.
struct Program {
  TargetArch target;
  std::string ptx;
  std::vector<Kernel> kernels;
  std::vector<std::uint8_t> globals;  ///< initial bytes of .global and .const variables
  std::size_t globals_alignment = 256;
  std::vector<ptx::Variable::Relocation> relocations;  ///< in `globals`; the symbol's offset is in `addend`

  const Kernel* find(std::string_view name) const;  ///< null: not found
};

/// Parses and decodes PTX for a device, or for its .target. Throws PtxError.
std::shared_ptr<const Program> load_program(std::string ptx, TargetArch device);
std::shared_ptr<const Program> load_program(std::string ptx);

class GlobalMemory;
/// Allocates and initializes the program's variables on a device. Returns their address; 0 when it has none,
/// or memory is short.
std::uint64_t place_globals(const Program& program, GlobalMemory& memory);

}  // namespace jit::emulator
