// What launches on a stream, which are done, have left in its counters and mailboxes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <jit/context.h>
#include <jit/device.h>

#include "generator/access.h"
#include "generator/context_state.h"
#include "runtime/driver_api.h"

namespace jit::testing {

/// Behind what is on `stream`: memory that is asked for here first is filled there.
inline std::vector<std::uint32_t> downloaded_words(const void* from, std::size_t count, CUstream stream) {
  std::vector<std::uint32_t> words(count, 0x12345678);
  check(driver().cuMemcpyDtoHAsync(words.data(), reinterpret_cast<CUdeviceptr>(from),
                                   count * sizeof(words[0]), stream),
        "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return words;
}

/// 0 between launches.
inline std::vector<std::uint32_t> counters_of(const Context& context, CUstream stream) {
  constexpr int count = 64;
  return downloaded_words(Access::state(context)->memory.counters(0, stream, count), count, stream);
}

/// Of its mailboxes of up to 16 MiB, whatever has their sizes: 0xffffffff between launches.
inline std::vector<std::uint32_t> mailboxes_of(const Context& context, CUstream stream) {
  std::vector<std::uint32_t> all;
  for (std::size_t bytes = 4096; bytes <= std::size_t{16} << 20; bytes *= 2) {
    const auto words =
        downloaded_words(Access::state(context)->memory.mailbox(0, stream, bytes), bytes / 4, stream);
    all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

/// What of that is not as launches find it.
inline std::string disorder(const Context& context, CUstream stream) {
  const CurrentDevice current(0);
  for (const std::uint32_t word : counters_of(context, stream))
    if (word != 0) return "a counter is not 0";
  for (const std::uint32_t word : mailboxes_of(context, stream))
    if (word != 0xffffffffu) return "a word of a mailbox is not empty";
  return "";
}

}  // namespace jit::testing
