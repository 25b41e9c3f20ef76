#include "all_cores.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace jit::tool {

void on_all_cores(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(take_turns);
  take_turns();
}

}  // namespace jit::tool
