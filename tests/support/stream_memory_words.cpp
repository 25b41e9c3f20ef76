#include "tests/support/stream_memory_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <jit/device.h>

#include "generator/access.h"
#include "generator/context_state.h"

namespace jit::testing {
namespace {

// Behind what is on `stream`: memory that is asked for here first is filled there.
bool holds_only(std::uint32_t word, const void* from, std::size_t count, CUstream stream) {
  std::vector<std::uint32_t> words(count, 0x12345678);
  check(driver().cuMemcpyDtoHAsync(words.data(), reinterpret_cast<CUdeviceptr>(from),
                                   count * sizeof(words[0]), stream),
        "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return std::count(words.begin(), words.end(), word) == static_cast<std::ptrdiff_t>(count);
}

}  // namespace

std::string disorder(const Context& context, CUstream stream) {
  const CurrentDevice current(0);
  auto& memory = Access::state(context)->memory;
  constexpr int counters = 64;
  if (!holds_only(0, memory.counters(0, stream, counters), counters, stream)) return "a counter is not 0";
  // Whatever mailboxes have their sizes.
  for (std::size_t bytes = 4096; bytes <= std::size_t{16} << 20; bytes *= 2) {
    if (!holds_only(0xffffffffu, memory.mailbox(0, stream, bytes), bytes / 4, stream))
      return "a word of a mailbox is not empty";
  }
  return "";
}

}  // namespace jit::testing
