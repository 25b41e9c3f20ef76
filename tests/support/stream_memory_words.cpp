#include "tests/support/stream_memory_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <jit/device.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"

namespace jit::testing {
namespace {

// Behind all that is on `stream`.
bool holds_only(std::uint32_t word, const GrowingMemory& memory, CUstream stream) {
  for (const auto& buffer : memory.all()) {
    std::vector<std::uint32_t> words(buffer->size() / sizeof(word), ~word);
    check(driver().cuMemcpyDtoHAsync(words.data(), buffer->address(), buffer->size(), stream),
          "cuMemcpyDtoHAsync");
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (std::ranges::any_of(words, [&](std::uint32_t each) { return each != word; })) return false;
  }
  return true;
}

}  // namespace

std::string disorder(const Context& context, CUstream stream) {
  const CurrentDevice current(0);
  const std::shared_ptr<const MemoryLane> lane = Access::state(context)->memory.lane(0, stream);
  if (!holds_only(0, lane->counters, stream)) return "a counter is not 0";
  if (!holds_only(0xffffffffu, lane->mailboxes, stream)) return "a word of a mailbox is not empty";
  return "";
}

}  // namespace jit::testing
