// Decoding: from an instruction's text to its Operation. Each family of instructions has one function, listed
// in decoder.cpp; the shared code is here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/kernel.h"

namespace jit::emulator {

/// Names of a kernel, and its registers allocated so far. One for each kernel that is decoded.
class Symbols;

/// The decoding of one instruction. Requesting an operand also records its register as read or written. Every
/// failure throws ptx::PtxError with the instruction's name and line.
class Decoder {
 public:
  Decoder(Symbols& symbols, const ptx::Instruction& instruction, TargetArch target, TargetArch device);

  const ptx::Instruction& text() const { return text_; }
  std::string_view opcode() const { return text_.opcode; }
  /// The module's target architecture: decides which instructions are legal.
  TargetArch target() const { return target_; }
  /// The device's architecture: decides behavior that PTX leaves open.
  TargetArch device() const { return device_; }

  // Modifiers. A family's function must take each one; a modifier that is left is an error ("unknown modifier
  // .foo").
  /// Takes the modifier at any position. Returns whether the instruction has it.
  bool take(std::string_view modifier);
  /// Takes whichever of these is there; throws when none is.
  std::string_view take_one_of(std::initializer_list<std::string_view> modifiers);
  /// Takes the one of these that the instruction has, if any.
  std::string_view take_any_of(std::initializer_list<std::string_view> modifiers);
  /// Takes the first remaining modifier that is a type; throws when none is.
  Type take_type();
  /// Takes the first remaining modifier; throws when none remains.
  std::string take_next();
  bool has(std::string_view modifier) const;  ///< without taking it
  /// Throws unless the target is at least sm_`major``minor` (with suffix 'a' when `only` is set: exactly
  /// that).
  void require_arch(int major, int minor, bool only = false);

  // Operands, by index.
  std::size_t count() const { return text_.operands.size(); }
  void expect_count(std::size_t least, std::size_t most);
  void expect_count(std::size_t exactly) { expect_count(exactly, exactly); }
  const ptx::Operand& operand(std::size_t index) const;

  /// A destination register of `type`'s width. `_` gives an unused slot.
  Slot destination(std::size_t index, Type type) { return destination(operand(index), type); }
  Slot destination(const ptx::Operand& operand, Type type);
  /// A value to read: register, literal (converted to `type`; -x folded), special register, or the address of
  /// a variable. The slot holds it in every lane; 64-bit types give two units.
  Slot source(std::size_t index, Type type) { return source(operand(index), type); }
  Slot source(const ptx::Operand& operand, Type type);
  /// A register that is read and written.
  Slot in_out(const ptx::Operand& operand, Type type);

  struct PredicateSource {
    Predicate predicate;
    bool negated;
  };
  Predicate predicate_destination(const ptx::Operand& operand);
  PredicateSource predicate_source(const ptx::Operand& operand);  ///< register, or the literals 0 and 1

  /// An integer literal; throws for anything else.
  std::int64_t immediate(std::size_t index) const;

  /// [base + offset]; a variable's name gives a constant `base`. `narrow`: the register has 32 bits (shared
  /// memory).
  struct Address {
    Slot base;
    bool narrow;
    std::int64_t offset;
  };
  Address address(std::size_t index) { return address(operand(index)); }
  Address address(const ptx::Operand& operand);
  /// Offset in the parameter block when the base is a kernel parameter; else nothing.
  std::optional<std::size_t> parameter_offset(const ptx::Operand& operand) const;

  /// The label's index in Kernel::code.
  std::uint32_t label(std::size_t index) const;

  /// A slot with a constant that no operand names, filled in every lane.
  Slot constant(std::uint64_t value, Type type);
  /// A slot private to this instruction, to keep state between its executions; initially 0.
  Slot scratch(Type type);

  /// Width of the operand's register; 0 when it is no register, 1 for a predicate.
  int register_bits(const ptx::Operand& operand) const;
  /// The labels of a list declared by `.branchtargets`.
  std::vector<std::uint32_t> branch_targets(std::size_t index) const;

  [[noreturn]] void fail(const std::string& message) const;

  // The class of the instruction; its family decides.
  void set_class(InstructionClass kind) { kind_ = kind; }
  void set_aligned() { aligned_ = true; }
  /// A branch to one of `targets`, or on to the next instruction.
  void set_branch(std::vector<std::uint32_t> targets, bool falls_through) {
    branch_targets_ = std::move(targets);
    falls_through_ = falls_through;
  }
  void set_exit() { exits_ = true; }

  // For decoder.cpp.
  void check_all_taken() const;
  const std::vector<Slot>& reads() const { return reads_; }
  const std::vector<Slot>& writes() const { return writes_; }
  InstructionClass kind() const { return kind_; }
  bool aligned() const { return aligned_; }
  bool exits() const { return exits_; }
  const std::vector<std::uint32_t>& branch_targets() const { return branch_targets_; }
  bool falls_through() const { return falls_through_; }

 private:
  void note(std::vector<Slot>& list, Slot slot, Type type);
  std::uint32_t find_label(const std::string& name) const;

  Symbols& symbols_;
  const ptx::Instruction& text_;
  TargetArch target_, device_;
  std::vector<bool> taken_;
  std::vector<Slot> reads_, writes_;
  InstructionClass kind_ = InstructionClass::other;
  bool aligned_ = false, exits_ = false, falls_through_ = true;
  std::vector<std::uint32_t> branch_targets_;
};

/// Returns the operation of an instruction of the family; null for any other instruction.
using DecodeFunction = std::unique_ptr<const Operation> (*)(Decoder&);

// The families, each in operations/FOLDER/NAME.cpp.
std::unique_ptr<const Operation> decode_integer(Decoder&);  ///< add … lop3, prmt, bfe, shf, dp4a on integers
std::unique_ptr<const Operation> decode_floating(Decoder&);  ///< f32, f64 arithmetic and approximations
std::unique_ptr<const Operation> decode_half(Decoder&);      ///< f16, bf16 and their pairs
std::unique_ptr<const Operation> decode_compare(Decoder&);  ///< setp, set, selp, slct, testp, predicate logic
std::unique_ptr<const Operation> decode_convert(Decoder&);  ///< cvt, cvta
std::unique_ptr<const Operation> decode_move(Decoder&);     ///< mov with packing, isspacep, mapa, getctarank
std::unique_ptr<const Operation> decode_control(Decoder&);  ///< bra, brx, ret, exit, trap, nanosleep, pragma
std::unique_ptr<const Operation> decode_warp(Decoder&);     ///< shfl, vote, match, redux, activemask, elect
std::unique_ptr<const Operation> decode_barrier(Decoder&);  ///< bar, barrier, barrier.cluster
std::unique_ptr<const Operation> decode_fence(Decoder&);    ///< fence, membar
std::unique_ptr<const Operation> decode_memory(Decoder&);   ///< ld, ldu, st, prefetch, createpolicy
std::unique_ptr<const Operation> decode_atomic(Decoder&);   ///< atom, red
std::unique_ptr<const Operation> decode_cp_async(Decoder&);     ///< cp.async without bulk
std::unique_ptr<const Operation> decode_matrix_move(Decoder&);  ///< ldmatrix, stmatrix, movmatrix
std::unique_ptr<const Operation> decode_mma(Decoder&);          ///< mma.sync
std::unique_ptr<const Operation> decode_wgmma(Decoder&);        ///< wgmma.*, setmaxnreg
std::unique_ptr<const Operation> decode_tcgen05(Decoder&);      ///< tcgen05.*
std::unique_ptr<const Operation> decode_mbarrier(Decoder&);     ///< mbarrier.*, cp.async.mbarrier.arrive
std::unique_ptr<const Operation> decode_bulk(Decoder&);         ///< cp.async.bulk.*, cp.reduce.async.bulk.*
std::unique_ptr<const Operation> decode_grid(Decoder&);         ///< griddepcontrol

}  // namespace jit::emulator
