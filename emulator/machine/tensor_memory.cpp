#include "machine/tensor_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "machine/memory_access.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

constexpr std::uint32_t nothing_written = 0xffffffffu;

}  // namespace

TensorMemory::TensorMemory()
    : words_(static_cast<std::size_t>(tensor_lanes) * tensor_columns, nothing_written),
      cells_(static_cast<std::size_t>(cell_rows) * tensor_columns) {}

template <class F>
void TensorMemory::for_each_cell(const TensorRegion& region, F f) {
  for (int row = 0; row < cell_rows; ++row) {
    if ((region.rows >> row & 1) == 0) continue;
    for (int column = region.first; column < region.first + region.columns; ++column) {
      f(cells_[static_cast<std::size_t>(row * tensor_columns + column)], row, column);
    }
  }
}

TensorMemory::Record TensorMemory::record_of(const TensorAccess& access) {
  return {access.agent,
          access.time,
          access.pc,
          static_cast<std::int16_t>(access.warp.id),
          static_cast<std::int16_t>(access.lane),
          access.warp.block.rank};
}

TensorMemory::Verdict TensorMemory::check(const TensorAccess& access, const Record& record) {
  if (record.time == 0 || record.agent == access.agent || access.ordered.at(record.agent) >= record.time) {
    return Verdict::fine;
  }
  return access.seen.at(record.agent) >= record.time ? Verdict::missing_fence : Verdict::race;
}

void TensorMemory::report(const TensorAccess& access, Verdict verdict, const Record& other, const char* verb,
                          const char* did, int row, int column) {
  const Launch& launch = access.warp.launch();
  const FindingKind kind =
      verdict == Verdict::race ? FindingKind::data_race : FindingKind::missing_proxy_fence;
  if (!is_news(launch, kind, access.pc)) return;
  const std::string block = launch.shape.cluster == std::array{1u, 1u, 1u}
                                ? ""
                                : fmt::format("block {} of the cluster ", other.rank);
  const std::string lane = other.lane < 0 ? "" : fmt::format(" lane {}", other.lane);
  launch.report_at(
      access.pc, kind, access.warp, access.lane,
      fmt::format("{} column {} of tensor memory, lanes {} to {}; {}warp {}{} {} with {} at {}, {}", verb,
                  column, row * cell_lanes, (row + 1) * cell_lanes - 1, block, other.warp, lane, did,
                  launch.kernel.info[other.pc].name, place_of(launch.kernel, other.pc),
                  verdict == Verdict::race
                      ? "and nothing orders the two"
                      : "which tcgen05 instructions of another thread see only where that one executes "
                        "tcgen05.wait and "
                        "tcgen05.fence::before_thread_sync, and this one tcgen05.fence::after_thread_sync"));
}

void TensorMemory::check_write(const TensorAccess& access, const Cell& cell, int row, int column,
                               const char* verb) {
  if (const Verdict verdict = check(access, cell.write); verdict != Verdict::fine) {
    report(access, verdict, cell.write, verb, cell.in_flight != 0 ? "is still to write" : "wrote", row,
           column);
  }
}

void TensorMemory::check_reads(const TensorAccess& access, const Cell& cell, int row, int column,
                               const char* verb) {
  const auto look = [&](const Record& read) {
    if (const Verdict verdict = check(access, read); verdict != Verdict::fine) {
      report(access, verdict, read, verb, "read", row, column);
    }
  };
  look(cell.read);
  for (const Record& read : cell.more_reads) look(read);
}

void TensorMemory::note_read(const TensorAccess& access, const TensorRegion& region) {
  if (!access.warp.launch().options.check_races) return;
  for_each_cell(region, [&](Cell& cell, int row, int column) {
    if (!cell.is_written) {
      const Launch& launch = access.warp.launch();
      if (is_news(launch, FindingKind::uninitialized_read, access.pc)) {
        launch.report_at(
            access.pc, FindingKind::uninitialized_read, access.warp, access.lane,
            fmt::format("reads column {} of tensor memory, lanes {} to {}, which were never written", column,
                        row * cell_lanes, (row + 1) * cell_lanes - 1));
      }
    }
    check_write(access, cell, row, column, "reads");
    if (cell.read.time == 0 || cell.read.agent == access.agent) {
      cell.read = record_of(access);
      return;
    }
    const auto own = std::find_if(cell.more_reads.begin(), cell.more_reads.end(),
                                  [&](const Record& read) { return read.agent == access.agent; });
    if (own != cell.more_reads.end()) {
      *own = record_of(access);
    } else {
      cell.more_reads.push_back(record_of(access));
    }
  });
}

void TensorMemory::expect_no_sums(const TensorAccess& access, const TensorRegion& region) {
  const Launch& launch = access.warp.launch();
  if (!launch.options.check_races || !is_news(launch, FindingKind::uninitialized_read, access.pc)) return;
  for_each_cell(region, [&](const Cell& cell, int row, int column) {
    const InstructionInfo& writer = launch.kernel.info[cell.write.pc];
    if (cell.write.time == 0 || !writer.name.starts_with("tcgen05.mma")) return;
    if (!is_news(launch, FindingKind::uninitialized_read, access.pc)) return;
    launch.report_at(
        access.pc, FindingKind::uninitialized_read, access.warp, access.lane,
        fmt::format(
            "reads elements or scales from column {} of tensor memory, lanes {} to {}, which holds sums of "
            "{} at {}: no tcgen05.st or tcgen05.cp has written there since",
            column, row * cell_lanes, (row + 1) * cell_lanes - 1, writer.name,
            place_of(launch.kernel, cell.write.pc)));
  });
}

void TensorMemory::put(const TensorAccess& access, Cell& cell) {
  cell.write = record_of(access);
  cell.read = {};
  cell.more_reads.clear();
  cell.is_written = true;
}

void TensorMemory::note_write(const TensorAccess& access, const TensorRegion& region) {
  if (!access.warp.launch().options.check_races) return;
  for_each_cell(region, [&](Cell& cell, int row, int column) {
    check_write(access, cell, row, column, "writes");
    check_reads(access, cell, row, column, "writes");
    put(access, cell);
  });
}

void TensorMemory::begin_write(const TensorAccess& access, const TensorRegion& region) {
  note_write(access, region);
  for_each_cell(region, [](Cell& cell, int, int) { ++cell.in_flight; });
}

void TensorMemory::land(const TensorRegion& region) {
  for_each_cell(region, [](Cell& cell, int, int) {
    if (cell.in_flight != 0) --cell.in_flight;
  });
}

void TensorMemory::give_back(const TensorAccess& access, const TensorRegion& region) {
  const bool is_watched = access.warp.launch().options.check_races;
  for_each_cell(region, [&](Cell& cell, int row, int column) {
    if (is_watched) check_write(access, cell, row, column, "gives back");
    if (is_watched) check_reads(access, cell, row, column, "gives back");
    cell = {};
  });
  for (int lane = 0; lane < tensor_lanes; ++lane) {
    std::fill_n(row(lane) + region.first, region.columns, nothing_written);
  }
}

}  // namespace jit::emulator
