#include "runtime/emulator/shared_shadow.h"

#include <new>

namespace jit::emulator {
namespace {

// Whether the two say the same of different bytes.
bool same_access(const Record& a, const Record& b) {
  return a.agent == b.agent && a.time == b.time && a.pc == b.pc && a.lane == b.lane && a.async == b.async &&
         a.strong == b.strong;
}

}  // namespace

// A list of a cell: its first record, then those that were spilled.
class Shadow::List {
 public:
  List(Shadow& shadow, Record& first, std::uint32_t& more) : shadow_(shadow), first_(first), more_(more) {}

  std::size_t size() const { return first_.bytes == 0 ? 0 : 1 + (more_ ? spilled().size() : 0); }
  Record& operator[](std::size_t index) { return index == 0 ? first_ : spilled()[index - 1]; }

  void add(const Record& record) {
    if (first_.bytes == 0) {
      first_ = record;
      return;
    }
    if (more_ == 0) {
      if (shadow_.unused_.empty()) {
        shadow_.unused_.push_back(static_cast<std::uint32_t>(shadow_.spilled_.size()));
        shadow_.spilled_.emplace_back();
      }
      more_ = shadow_.unused_.back();
      shadow_.unused_.pop_back();
    }
    spilled().push_back(record);
  }

  void remove(std::size_t index) {
    if (more_ == 0) {
      first_.bytes = 0;
      return;
    }
    (*this)[index] = spilled().back();
    spilled().pop_back();
    if (spilled().empty()) give_back();
  }

  void clear() {
    first_.bytes = 0;
    if (more_ == 0) return;
    spilled().clear();
    give_back();
  }

 private:
  std::vector<Record>& spilled() const { return shadow_.spilled_[more_]; }
  void give_back() {
    shadow_.unused_.push_back(more_);
    more_ = 0;
  }

  Shadow& shadow_;
  Record& first_;
  std::uint32_t& more_;
};

// calloc leaves pages that nobody touches to the system.
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
  if (cell.more_writes == 0) return {};
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
  if (cell.more_reads == 0) return {};
  for (const Record& record : spilled_[cell.more_reads]) {
    if (is_race(record)) return Conflict{Verdict::race, record, true};
  }
  return {};
}

void Shadow::remove(List list, ByteMask bytes) {
  for (std::size_t i = 0; i < list.size();) {
    Record& record = list[i];
    record.bytes = static_cast<ByteMask>(record.bytes & ~bytes);
    if (record.bytes == 0) {
      list.remove(i);
    } else {
      ++i;
    }
  }
}

// Adds a record in place of all that its bytes had.
void Shadow::replace(List list, const Record& record) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    // Weak writes do not overlap; a strong one that stays beside this only says less than this does.
    if (list[i].bytes == record.bytes && !list[i].strong) {
      list[i] = record;
      return;
    }
  }
  remove(list, record.bytes);
  list.add(record);
}

// Adds a record beside those of other agents. What the same agent did to the same bytes merges into it: the
// later time stands for both, and the lanes add up unless the earlier one is in the past.
void Shadow::combine(List list, const Access& access, Record record) {
  std::size_t like = list.size();
  for (std::size_t i = 0, end = like; i < end; ++i) {
    Record& old = list[i];
    if (old.agent != record.agent || old.strong != record.strong) continue;
    const auto common = static_cast<ByteMask>(old.bytes & record.bytes);
    if (common == 0) {
      if (same_access(old, record)) like = i;
      continue;
    }
    Record merged = record;
    merged.bytes = common;
    if (!precedes(old, access)) merged.lane = access.lane == whole_warp ? old.lane : several_lanes;
    record.bytes = static_cast<ByteMask>(record.bytes & ~common);
    if (old.bytes == common) {
      old = merged;
    } else {
      old.bytes = static_cast<ByteMask>(old.bytes & ~common);
      list.add(merged);
    }
    if (record.bytes == 0) return;
  }
  if (like < list.size() && same_access(list[like], record)) {
    list[like].bytes = static_cast<ByteMask>(list[like].bytes | record.bytes);
  } else {
    list.add(record);
  }
}

void Shadow::note_read(Cell& cell, const Access& access, const Record& record) {
  combine({*this, cell.read, cell.more_reads}, access, record);
}

void Shadow::note_write(Cell& cell, const Access& access, const Record& record) {
  cell.written = static_cast<ByteMask>(cell.written | record.bytes);
  const List writes(*this, cell.write, cell.more_writes);
  if (access.strong) return combine(writes, access, record);
  if (record.bytes == whole_cell) {
    List(writes).clear();
    List(*this, cell.read, cell.more_reads).clear();
    cell.write = record;
    return;
  }
  replace(writes, record);
  if (cell.read.bytes != 0) remove({*this, cell.read, cell.more_reads}, record.bytes);
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
