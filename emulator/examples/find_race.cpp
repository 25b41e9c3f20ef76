// find_race [FILE.ptx] runs the kernel `block_sum` of a PTX file on the CPU and prints its findings.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <emulator/launch.h>

using namespace jit::emulator;

int main(int count, char** arguments) try {
  std::ifstream file(count > 1 ? arguments[1] : BLOCK_SUM_PTX);
  const std::string ptx{std::istreambuf_iterator<char>(file), {}};
  const Function block_sum = Module(ptx, {9, 0, 'a'}).function("block_sum");  // on an emulated sm_90a

  constexpr unsigned blocks = 4, threads = 256;
  Memory memory(1 << 20);
  const std::uint64_t in = memory.upload(std::vector<float>(blocks * threads, 1.0f));
  const std::uint64_t out = memory.allocate(blocks * sizeof(float));
  const LaunchResult result = launch(block_sum, {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}},
                                     block_sum.arguments(in, out), memory, {.seed = 7});

  for (const Finding& finding : result.findings) std::printf("%s\n", to_string(finding).c_str());
  for (const float sum : memory.download<float>(out, blocks)) std::printf("sum %g\n", sum);
  std::printf("%zu findings\n", result.findings.size());
  return result.findings.empty() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "find_race: %s\n", error.what());
  return 2;
}
