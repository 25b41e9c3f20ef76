#include "machine/shared_shadow.h"

#include <new>

namespace jit::emulator {
namespace {

// Whether the two say the same of different bytes.
bool same_access(const Record& a, const Record& b) {
  return a.agent == b.agent && a.time == b.time && a.pc == b.pc && a.lanes == b.lanes &&
         a.together == b.together && a.async == b.async && a.strong == b.strong;
}

ByteMask without(ByteMask bytes, ByteMask taken) { return static_cast<ByteMask>(bytes & ~taken); }

}  // namespace

// calloc leaves untouched pages to the system.
Shadow::Shadow(std::size_t bytes)
    : cells_(static_cast<Cell*>(std::calloc((bytes + cell_bytes - 1) / cell_bytes + 1, sizeof(Cell)))),
      spilled_(1) {
  if (!cells_) throw std::bad_alloc();
}

std::optional<Conflict> Shadow::check_read(const Cell& cell, const Access& access, ByteMask bytes) const {
  const auto check = [&](const Record& record) {
    return (record.bytes & bytes) == 0 ? Verdict::fine : after_write(record, access);
  };
  if (const Verdict verdict = check(cell.write); verdict != Verdict::fine) {
    return Conflict{verdict, cell.write, false};
  }
  for (const Record& record : spilled_[cell.more_writes]) {
    if (const Verdict verdict = check(record); verdict != Verdict::fine) {
      return Conflict{verdict, record, false};
    }
  }
  return {};
}

std::optional<Conflict> Shadow::check_write(const Cell& cell, const Access& access, ByteMask bytes) const {
  if (const auto conflict = check_read(cell, access, bytes)) return conflict;
  const auto is_race = [&](const Record& record) {
    return (record.bytes & bytes) != 0 && after_read(record, access) == Verdict::race;
  };
  if (is_race(cell.read)) return Conflict{Verdict::race, cell.read, true};
  for (const Record& record : spilled_[cell.more_reads]) {
    if (is_race(record)) return Conflict{Verdict::race, record, true};
  }
  return {};
}

void Shadow::add(Record& first, std::uint32_t& more, const Record& record) {
  if (first.bytes == 0) {
    first = record;
    return;
  }
  if (more == 0) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<std::uint32_t>(spilled_.size()));
      spilled_.emplace_back();
    }
    more = unused_.back();
    unused_.pop_back();
  }
  spilled_[more].push_back(record);
}

void Shadow::give_back(std::uint32_t& more) {
  spilled_[more].clear();
  unused_.push_back(more);
  more = 0;
}

void Shadow::clear(Record& first, std::uint32_t& more) {
  first.bytes = 0;
  if (more != 0) give_back(more);
}

void Shadow::remove(Record& first, std::uint32_t& more, ByteMask bytes) {
  first.bytes = without(first.bytes, bytes);
  if (more == 0) return;
  std::vector<Record>& list = spilled_[more];
  std::size_t kept = 0;
  for (Record& record : list) {
    record.bytes = without(record.bytes, bytes);
    if (record.bytes == 0) continue;
    if (first.bytes == 0) {
      first = record;
    } else {
      list[kept++] = record;
    }
  }
  list.resize(kept);
  if (list.empty()) give_back(more);
}

// Adds a record beside those of other agents. It replaces the same agent's records of the same bytes that
// happen before it, merges with those of the same time, and removes its own lanes from the others.
template <class Precedes>
void Shadow::combine(Record& first, std::uint32_t& more, const Access& access, Record record,
                     Precedes precedes) {
  std::vector<Record> parts;
  Record* like = nullptr;
  const auto merge = [&](Record& old) {
    if (old.agent != record.agent || old.strong != record.strong || old.together != record.together ||
        old.bytes == 0) {
      return;
    }
    const auto common = static_cast<ByteMask>(old.bytes & record.bytes);
    if (common == 0) {
      if (same_access(old, record)) like = &old;
      return;
    }
    Record left = old;
    left.lanes = precedes(old, access) ? 0 : old.lanes & ~record.lanes;
    if (left.lanes == 0 || left.time == record.time) {
      const std::uint32_t lanes = left.lanes | record.lanes;
      left = record;
      left.lanes = lanes;
      record.bytes = without(record.bytes, common);
    }
    left.bytes = common;
    if (old.bytes == common) {
      old = left;
    } else {
      old.bytes = without(old.bytes, common);
      parts.push_back(left);
    }
  };
  merge(first);
  for (Record& old : spilled_[more]) merge(old);
  if (record.bytes != 0 && like != nullptr) {
    like->bytes = static_cast<ByteMask>(like->bytes | record.bytes);
  } else if (record.bytes != 0) {
    add(first, more, record);
  }
  for (const Record& part : parts) add(first, more, part);
}

void Shadow::note_read(Cell& cell, const Access& access, const Record& record) {
  combine(cell.read, cell.more_reads, access, record, read_precedes);
}

void Shadow::note_write(Cell& cell, const Access& access, const Record& record) {
  cell.written = static_cast<ByteMask>(cell.written | record.bytes);
  if (access.strong) {
    cell.has_strong = 1;
    combine(cell.write, cell.more_writes, access, record, write_precedes);
    return;
  }
  remove(cell.read, cell.more_reads, record.bytes);
  remove(cell.write, cell.more_writes, record.bytes);
  add(cell.write, cell.more_writes, record);
  if (record.bytes == whole_cell) cell.has_strong = 0;
}

std::optional<Record> Shadow::last_write(const Cell& cell, ByteMask bytes) const {
  bytes = static_cast<ByteMask>(bytes & -bytes);
  if ((cell.write.bytes & bytes) != 0) return cell.write;
  for (const Record& record : spilled_[cell.more_writes]) {
    if ((record.bytes & bytes) != 0) return record;
  }
  return {};
}

}  // namespace jit::emulator
