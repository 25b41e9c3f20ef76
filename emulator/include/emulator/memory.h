// Memory of an emulated device, from the host's point of view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace jit::emulator {

class Module;

// Addresses of device memory. Several memories of one process may share the range, so that an address
// identifies its device.
inline constexpr std::uint64_t global_begin = 0x0000'1000'0000'0000;
inline constexpr std::uint64_t global_end = 0x0000'7000'0000'0000;

/// A range of device memory; none when `bytes` is 0.
struct MemoryRange {
  std::uint64_t begin = 0;
  std::size_t bytes = 0;
};

/// Thread safe. Addresses are the same in every run that allocates in the same order; a freed range is not
/// reused before all others were, and every allocation is followed by a gap, so that a stale or overrunning
/// pointer meets unallocated bytes. A shadow byte records whether each byte was written.
class Memory {
 public:
  /// `capacity` bytes of address space are reserved, at `begin`, a multiple of 256, for the device; pages
  /// cost memory when touched. Throws std::bad_alloc.
  explicit Memory(std::size_t capacity, std::uint64_t begin = global_begin);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Address, aligned to 256 bytes; 0 when memory is short or `bytes` is 0.
  std::uint64_t allocate(std::size_t bytes);
  /// False when `address` is not one that allocate returned.
  bool free(std::uint64_t address);
  MemoryRange allocation_of(std::uint64_t address) const;  ///< that the address lies in
  std::size_t capacity() const;
  std::size_t allocated() const;

  /// Lets kernels of this device access the memory of `peer`, which must live as long as this one. One
  /// direction only. Address ranges of both must differ.
  void enable_peer(Memory& peer);
  /// Ends the access that enable_peer allowed.
  void disable_peer(Memory& peer);
  bool is_peer(const Memory& memory) const;  ///< whether kernels may access it

  // Returns false when the range is not allocated as a whole.
  bool write(std::uint64_t to, const void* from, std::size_t bytes);
  bool read(void* to, std::uint64_t from, std::size_t bytes) const;
  bool copy(std::uint64_t to, std::uint64_t from, std::size_t bytes);  ///< carries uninitialized bytes along
  /// Repeats the `width` low bytes of `value`, 1 to 4 of them, `count` times.
  bool fill(std::uint64_t to, std::uint32_t value, int width, std::size_t count);

  /// A new allocation that holds the values; 0 when memory is short or `values` is empty.
  template <class T>
  std::uint64_t upload(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::uint64_t address = allocate(values.size() * sizeof(T));
    write(address, values.data(), values.size() * sizeof(T));
    return address;
  }
  /// `count` values from an address. Throws std::out_of_range when they are not allocated as a whole.
  template <class T>
  std::vector<T> download(std::uint64_t address, std::size_t count) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> values(count);
    if (!read(values.data(), address, count * sizeof(T))) {
      throw std::out_of_range("the values are not allocated as a whole");
    }
    return values;
  }

  /// Allocates and initializes the module's .global and .const variables, as its first launch would do
  /// otherwise. False when memory is short.
  bool load(const Module& module);
  /// Frees the module's variables, if it has any.
  void unload(const Module& module);

  /// For the emulator itself.
  struct Inside;
  Inside& inside() { return *inside_; }

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace jit::emulator
