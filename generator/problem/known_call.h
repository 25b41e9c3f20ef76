// The last checked call, so that a call with the same shapes only needs checks of addresses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <jit/tensor.h>

#include "generator/tensors/overlap.h"

namespace jit {

/// The tensors of a checked call. `table` has a row with a `view` for each member of Arguments.
template <class Arguments, const auto& table>
class KnownTensors {
 public:
  /// `is_output(row)` tells whether the call writes the row's tensor.
  template <class IsOutput>
  KnownTensors(const Arguments& arguments, const IsOutput& is_output) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      const TensorView& view = arguments.*table[i].view;
      if (!view.is_present()) continue;
      TensorView at_zero = view;
      at_zero.data = nullptr;
      known_[count_++] = {i, is_output(table[i]), view, byte_range(at_zero)};
    }
  }

  /// Whether these arguments are certain to pass the known call's checks. False is no statement.
  ///
  /// Checks depend on shapes, strides and types; on addresses modulo at most 16, and on null if there are
  /// elements; and on bytes that outputs share with others, which relative addresses decide.
  bool vouch_for(const Arguments& arguments) const {
    std::array<ByteRange, table.size()> ranges;
    std::size_t next = 0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const TensorView& view = arguments.*table[i].view;
      const bool is_known = next < count_ && known_[next].row == i;
      if (view.is_present() != is_known) return false;
      if (!is_known) continue;
      const Known& known = known_[next];
      if (!is_alike(view, known.view)) return false;
      const auto base = reinterpret_cast<std::intptr_t>(view.data);
      const bool has_bytes = known.reach.begin != known.reach.end;
      ranges[next++] = has_bytes ? ByteRange{base + known.reach.begin, base + known.reach.end} : ByteRange{};
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (!known_[i].is_output) continue;
      for (std::size_t j = 0; j < count_; ++j) {
        if (i != j && ranges[i].meets(ranges[j]) && distance(arguments, i, j) != known_distance(i, j))
          return false;
      }
    }
    return true;
  }

 private:
  struct Known {
    std::size_t row;
    bool is_output;
    TensorView view;
    ByteRange reach;  ///< its bytes, relative to its start
  };

  static std::uintptr_t start(const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data); }

  static bool is_alike(const TensorView& a, const TensorView& b) {
    if (a.rank != b.rank || a.dtype != b.dtype || (a.data == nullptr) != (b.data == nullptr)) return false;
    std::uint64_t difference = (start(a) ^ start(b)) & 15;
    for (int i = 0; i < a.rank; ++i)
      difference |= static_cast<std::uint64_t>((a.shape[i] ^ b.shape[i]) | (a.strides[i] ^ b.strides[i]));
    return difference == 0;
  }
  std::uintptr_t distance(const Arguments& arguments, std::size_t i, std::size_t j) const {
    return start(arguments.*table[known_[i].row].view) - start(arguments.*table[known_[j].row].view);
  }
  std::uintptr_t known_distance(std::size_t i, std::size_t j) const {
    return start(known_[i].view) - start(known_[j].view);
  }

  std::array<Known, table.size()> known_;
  std::size_t count_ = 0;
};

/// A value that one thread at a time may use. No thread waits: another one proceeds without it.
template <class Value>
class Shared {
 public:
  /// Calls `work` with the value, which may be empty; false if another thread is using it.
  template <class Work>
  bool use(const Work& work) {
    if (busy_.test_and_set(std::memory_order_acquire)) return false;
    struct Release {
      ~Release() { flag.clear(std::memory_order_release); }
      std::atomic_flag& flag;
    } release{busy_};
    work(value_);
    return true;
  }

 private:
  std::atomic_flag busy_;
  std::optional<Value> value_;
};

}  // namespace jit
