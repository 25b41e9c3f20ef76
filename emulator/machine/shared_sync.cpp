#include "emulator/machine/shared_sync.h"

#include "emulator/machine/warp.h"

namespace jit::emulator {

void SharedSync::write(Warp& warp, std::uint32_t offset, const Ordering& ordering, bool update) {
  const Knowledge* released = nullptr;
  if (ordering.releases) {
    released = &warp.release();
  } else {
    released = warp.block.shared.sync().fenced(warp);
  }
  if (!released) {
    // An atomic hands on what it has read: the word stays as it is.
    if (!update) words_.erase(offset);
  } else if (update) {
    words_[offset].join(*released);
  } else {
    words_[offset] = *released;
  }
}

void SharedSync::read(Warp& warp, std::uint32_t offset, const Ordering& ordering) {
  const auto word = words_.find(offset);
  if (word == words_.end()) return;
  if (ordering.acquires) {
    warp.acquire(word->second);
  } else {
    warp.block.shared.sync().fenced_[warp.agent].observed.join(word->second);
  }
}

const Knowledge* SharedSync::fenced(const Warp& warp) const {
  const auto found = fenced_.find(warp.agent);
  return found == fenced_.end() ? nullptr : &found->second.released;
}

void SharedSync::fence(Warp& warp) {
  Fenced& fenced = fenced_[warp.agent];
  warp.acquire(fenced.observed);
  fenced.observed = {};
  fenced.released = warp.release();
}

}  // namespace jit::emulator
