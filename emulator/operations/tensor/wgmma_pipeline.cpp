#include "operations/tensor/wgmma_pipeline.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

constexpr int most_columns = 256;
constexpr int most_k = 32;
constexpr std::size_t line_words = 8;  // 32 bytes along k
constexpr int line_pieces = 2;
// The contents of an accumulator's registers while they are in flight: a NaN.
constexpr std::uint32_t poison = 0xffffffffu;
constexpr int shape_bits = 17;

// A, 16 rows of k elements, from 16 lines along rows for each k.
void transpose_a(const std::uint16_t* lines, std::uint16_t* rows) {
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t row = 0; row < fragment_rows; ++row) rows[row * 16 + i] = lines[i * fragment_rows + row];
  }
}

// Rows of `columns` elements for each k, from 32-byte lines for each column.
template <class Raw>
void split_words(const std::uint32_t* by_word, std::size_t columns, Raw* rows) {
  constexpr std::size_t in_word = sizeof(std::uint32_t) / sizeof(Raw);
  for (std::size_t word = 0; word < line_words; ++word) {
    for (std::size_t i = 0; i < in_word; ++i) {
      Raw* const row = rows + (word * in_word + i) * columns;
      const std::uint32_t* const from = by_word + word * columns;
      for (std::size_t n = 0; n < columns; ++n) row[n] = static_cast<Raw>(from[n] >> 8 * sizeof(Raw) * i);
    }
  }
}

void transpose_b(const std::uint32_t* lines, std::size_t columns, int bytes, void* rows) {
  std::array<std::uint32_t, line_words * most_columns> by_word;
  for (std::size_t n = 0; n < columns; ++n) {
    for (std::size_t word = 0; word < line_words; ++word)
      by_word[word * columns + n] = lines[n * line_words + word];
  }
  if (bytes == 1) return split_words(by_word.data(), columns, static_cast<std::uint8_t*>(rows));
  if (bytes == 2) return split_words(by_word.data(), columns, static_cast<std::uint16_t*>(rows));
  std::memcpy(rows, by_word.data(), line_words * columns * sizeof(std::uint32_t));
}

}  // namespace

WgmmaPipeline::WgmmaPipeline(Warp& warp, std::shared_ptr<Warpgroup> group) : group_(std::move(group)) {
  const std::size_t slots = warp.launch().kernel.slots;
  owner_.assign(slots, nullptr);
  readers_.assign(slots, 0);
  written_.assign(slots, 0);
}

WgmmaPipeline& WgmmaPipeline::of(Warp& warp) {
  if (!warp.watch) {
    Warpgroup::of(warp);
    const auto first = static_cast<std::size_t>(warp.id / warpgroup_warps * warpgroup_warps);
    for (std::size_t i = first; i < first + warpgroup_warps; ++i) {
      Warp& member = *warp.block.warps[i];
      member.watch = std::make_unique<WgmmaPipeline>(member, warp.group);
    }
  }
  return static_cast<WgmmaPipeline&>(*warp.watch);
}

void WgmmaPipeline::fence(Warp& warp) {
  group_->execute(warp, {});
  ++fences_;
}

void WgmmaPipeline::commit(Warp& warp) {
  group_->execute(warp, {});
  ++commits_;
}

Flow WgmmaPipeline::wait(Warp& warp, std::uint64_t remaining) {
  const std::uint64_t groups = commits_ > remaining ? commits_ - remaining : 0;
  std::uint64_t needed = 0;
  for (const InFlight& operation : pending_) {
    if (operation.group < groups) needed = operation.sequence;
  }
  if (needed != 0 && !group_->is_over(needed)) return warp.wait_for(*group_, needed, true);
  group_->execute(warp, {});
  while (!pending_.empty() && pending_.front().group < groups) complete_first(warp);
  return Flow::next;
}

void WgmmaPipeline::check_fence(Warp& warp, const WgmmaInstruction& instruction) {
  if (fences_ == 0) {
    warp.report(FindingKind::access_in_flight, -1,
                "no wgmma.fence was executed before the first wgmma.mma_async");
    return;
  }
  const auto since_fence = [&](Slot slot) { return written_[slot] >> shape_bits == fences_; };
  constexpr std::uint64_t shape_mask = (std::uint64_t{1} << shape_bits) - 1;
  for (const Slot slot : instruction.accumulators) {
    if (!since_fence(slot) || (written_[slot] & shape_mask) == instruction.shape()) continue;
    warp.report(
        FindingKind::access_in_flight, -1,
        "a register of D was written after the last wgmma.fence; only wgmma.mma_async of the same shape "
        "may follow each other on it without one");
    return;
  }
  for (const Slot slot : instruction.a_registers) {
    if (!since_fence(slot)) continue;
    warp.report(FindingKind::access_in_flight, -1, "a register of A was written after the last wgmma.fence");
    return;
  }
}

WgmmaPipeline::Accumulator& WgmmaPipeline::accumulator_of(Warp& warp, const WgmmaInstruction& instruction) {
  const auto& a = instruction.a_registers;
  const auto& d = instruction.accumulators;
  const auto read = std::find_if(a.begin(), a.end(), [&](Slot slot) { return is_in_flight(slot); });
  if (read != a.end()) report_in_flight(warp, *read, "is in A here");
  Accumulator* const owner = owner_[d.front()];
  if (owner && owner->instruction->accumulators == d && owner->instruction->format == instruction.format) {
    return *owner;
  }
  const auto written = std::find_if(d.begin(), d.end(), [&](Slot slot) { return is_used(slot); });
  if (written != d.end()) {
    report_in_flight(warp, *written, "is in D here");
    // Some of its values are not in the registers.
    while (!pending_.empty()) complete_first(warp);
  }
  auto& accumulator = *accumulators_.emplace_back(std::make_unique<Accumulator>());
  accumulator.instruction = &instruction;
  accumulator.values.resize(static_cast<std::size_t>(fragment_rows * instruction.columns));
  read_accumulator(warp, d, instruction.format, instruction.columns, accumulator.values.data());
  for (const Slot slot : d) {
    owner_[slot] = &accumulator;
    std::fill_n(warp.r32(slot), warp_lanes, poison);
  }
  return accumulator;
}

void WgmmaPipeline::issue(Warp& warp, const WgmmaInstruction& instruction, std::uint64_t a, std::uint64_t b,
                          bool accumulate) {
  const std::uint64_t sequence = group_->execute(warp, {a, b});
  Accumulator& accumulator = accumulator_of(warp, instruction);
  check_fence(warp, instruction);
  ++accumulator.operations;
  for (const Slot slot : instruction.accumulators) {
    written_[slot] = fences_ << shape_bits | instruction.shape();
  }
  for (const Slot slot : instruction.a_registers) ++readers_[slot];
  pending_.push_back({&instruction, warp.pc, a, b, accumulate, &accumulator, warp.knowledge.common(warp.exec),
                      commits_, sequence});
}

void WgmmaPipeline::complete_first(Warp& warp) {
  const InFlight operation = std::move(pending_.front());
  pending_.pop_front();
  multiply(warp, operation);
  for (const Slot slot : operation.instruction->a_registers) --readers_[slot];
  Accumulator& accumulator = *operation.accumulator;
  if (--accumulator.operations > 0) return;
  const WgmmaInstruction& instruction = *accumulator.instruction;
  write_accumulator(warp, instruction.accumulators, instruction.format, instruction.columns,
                    accumulator.values.data());
  for (const Slot slot : instruction.accumulators) owner_[slot] = nullptr;
  std::erase_if(accumulators_, [&](const auto& own) { return own.get() == &accumulator; });
}

void WgmmaPipeline::multiply(Warp& warp, const InFlight& operation) {
  const WgmmaInstruction& instruction = *operation.instruction;
  const auto k = static_cast<std::size_t>(instruction.k);
  const auto columns = static_cast<std::size_t>(instruction.columns);
  const int bytes = element_bytes(instruction.a);
  Access access = warp.access_together(Proxy::async);
  access.pc = operation.pc;
  access.knowledge = &operation.knowledge;

  std::array<std::uint32_t, fragment_rows * line_words> a_rows;
  if (!instruction.a_registers.empty()) {
    read_a_fragment(warp, instruction.a_registers, a_rows.data());
  } else {
    const OperandLayout layout(MatrixDescriptor::parse(operation.a), instruction.a_major);
    const int member = warp.id % warpgroup_warps;
    if (instruction.a_major == Major::k) {
      layout.read(warp.block.shared, access, fragment_rows * member, fragment_rows, 0, line_pieces,
                  reinterpret_cast<std::byte*>(a_rows.data()));
    } else {
      std::array<std::uint16_t, 16 * fragment_rows> lines;
      layout.read(warp.block.shared, access, 0, 16, line_pieces * member, line_pieces,
                  reinterpret_cast<std::byte*>(lines.data()));
      transpose_a(lines.data(), reinterpret_cast<std::uint16_t*>(a_rows.data()));
    }
  }
  std::array<float, fragment_rows * most_k> a_values;
  std::array<std::int16_t, fragment_rows * most_k> a_exponents;
  decode_elements(instruction.a, a_rows.data(), fragment_rows * k, a_values.data(), a_exponents.data());
  if (instruction.negate) {
    for (std::size_t i = 0; i < fragment_rows * k; ++i) a_values[i] = -a_values[i];
  }

  std::array<std::uint32_t, line_words * most_columns> b_rows;
  const OperandLayout layout(MatrixDescriptor::parse(operation.b), instruction.b_major);
  if (instruction.b_major == Major::k) {
    std::array<std::uint32_t, line_words * most_columns> lines;
    layout.read(warp.block.shared, access, 0, instruction.columns, 0, line_pieces,
                reinterpret_cast<std::byte*>(lines.data()));
    transpose_b(lines.data(), columns, bytes, b_rows.data());
  } else {
    layout.read(warp.block.shared, access, 0, 16, 0, instruction.columns / 8,
                reinterpret_cast<std::byte*>(b_rows.data()));
  }
  std::array<float, most_columns * most_k> b_values;
  std::array<std::int16_t, most_columns * most_k> b_exponents;
  decode_elements(instruction.b, b_rows.data(), columns * k, b_values.data(), b_exponents.data());

  std::vector<float>& c = operation.accumulator->values;
  if (!operation.accumulate) std::fill(c.begin(), c.end(), 0.0f);
  multiply_add(instruction.model, fragment_rows, instruction.columns, instruction.k,
               {a_values.data(), a_exponents.data()}, {b_values.data(), b_exponents.data()}, c.data());
}

void WgmmaPipeline::report_in_flight(const Warp& warp, Slot slot, const char* what_happens) const {
  const auto uses = [&](const InFlight& operation) {
    const auto& a = operation.instruction->a_registers;
    return operation.accumulator == owner_[slot] || std::find(a.begin(), a.end(), slot) != a.end();
  };
  const InFlight& operation = *std::find_if(pending_.begin(), pending_.end(), uses);
  warp.report(FindingKind::access_in_flight, -1,
              fmt::format("a register of {} of the wgmma.mma_async at {} {} before wgmma.wait_group",
                          is_in_flight(slot) ? 'D' : 'A', place_of(warp.launch().kernel, operation.pc),
                          what_happens));
}

void WgmmaPipeline::watch(Warp& warp, const InstructionInfo& info) {
  for (const Slot slot : info.writes) written_[slot] = fences_ << shape_bits;
  if (pending_.empty()) return;
  for (const Slot slot : info.writes) {
    if (is_used(slot)) return report_in_flight(warp, slot, "is written");
  }
  for (const Slot slot : info.reads) {
    if (is_in_flight(slot)) return report_in_flight(warp, slot, "is read");
  }
}

void WgmmaPipeline::finish(Warp& warp) {
  if (pending_.empty()) return;
  warp.launch().report_at(
      pending_.front().pc, FindingKind::unfinished_copy, warp, -1,
      fmt::format("the warp exits without wgmma.wait_group for {} wgmma.mma_async", pending_.size()));
}

}  // namespace jit::emulator
