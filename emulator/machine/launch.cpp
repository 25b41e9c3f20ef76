#include "machine/launch.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "machine/global_races.h"
#include "machine/memory.h"
#include "machine/residency.h"
#include "machine/running_launch.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

constexpr std::size_t most_findings = 64;
constexpr std::chrono::milliseconds time_between_questions(20);

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

bool waits_for_grids(const Kernel& kernel) {
  return std::any_of(kernel.info.begin(), kernel.info.end(), [](const InstructionInfo& instruction) {
    return instruction.name == "griddepcontrol.wait";
  });
}

// Checks the limits of CUDA's programming guide, "Technical Specifications per Compute Capability".
void check_shape(const Function& function, const LaunchShape& shape, const LaunchOptions& options) {
  const Kernel& kernel = function.kernel();
  const TargetArch target = function.program()->target;
  const Size3 required_cluster = function.cluster();
  constexpr Size3 grid_limit = {0x7fffffff, 65535, 65535};
  constexpr Size3 block_limit = {1024, 1024, 64};
  for (std::size_t d = 0; d < 3; ++d) {
    if (shape.grid[d] == 0 || shape.grid[d] > grid_limit[d]) {
      refuse(fmt::format("grid {}: each size must be at least 1, and at most (2147483647, 65535, 65535)",
                         to_text(shape.grid)));
    }
    if (shape.block[d] == 0 || shape.block[d] > block_limit[d]) {
      refuse(fmt::format("block {}: each size must be at least 1, and at most (1024, 1024, 64)",
                         to_text(shape.block)));
    }
  }
  if (product(shape.block) > static_cast<std::uint64_t>(kernel.max_threads)) {
    refuse(fmt::format("block {} has {} threads, {} takes at most {}", to_text(shape.block),
                       product(shape.block), kernel.name, kernel.max_threads));
  }
  if (kernel.required_block && shape.block != *kernel.required_block) {
    refuse(fmt::format("block {}: {} takes {} (.reqntid)", to_text(shape.block), kernel.name,
                       to_text(*kernel.required_block)));
  }
  if (product(shape.grid) > (std::uint64_t{1} << 40)) {
    refuse(fmt::format("grid {} has more blocks than can ever be run", to_text(shape.grid)));
  }
  if (product(shape.cluster) == 0 || product(shape.cluster) > 16) {
    refuse(fmt::format("cluster {} must have 1 to 16 blocks", to_text(shape.cluster)));
  }
  if (product(shape.cluster) > 1 && target.major < 9) {
    refuse(fmt::format("cluster {}: clusters come with sm_90, and {} is PTX for sm_{}{}",
                       to_text(shape.cluster), kernel.name, target.major, target.minor));
  }
  if (!kernel.cluster.empty() && shape.cluster != required_cluster) {
    refuse(fmt::format("cluster {}: {} takes {} (.reqnctapercluster)", to_text(shape.cluster), kernel.name,
                       to_text(required_cluster)));
  }
  for (std::size_t d = 0; d < 3; ++d) {
    if (shape.grid[d] % shape.cluster[d] != 0) {
      refuse(fmt::format("cluster {} does not divide grid {}", to_text(shape.cluster), to_text(shape.grid)));
    }
  }
  if (shape.dependent && !waits_for_grids(kernel)) {
    refuse(
        fmt::format("{} may start before the grid in front of it has ended, and has no griddepcontrol.wait",
                    kernel.name));
  }
  if (shape.cooperative && options.resident_blocks != 0 && product(shape.grid) > options.resident_blocks) {
    refuse(fmt::format("a cooperative launch has {} blocks, and the device runs {} of {} at once",
                       product(shape.grid), options.resident_blocks, kernel.name));
  }
  const std::size_t smem = kernel.static_smem_bytes + shape.dynamic_smem_bytes;
  if (smem < shape.dynamic_smem_bytes || smem > options.smem_limit) {
    refuse(fmt::format("{} wants {} bytes of shared memory ({} static, {} dynamic), a block can have {}",
                       kernel.name, smem, kernel.static_smem_bytes, shape.dynamic_smem_bytes,
                       options.smem_limit));
  }
}

// Runs the first worker in this thread, the others in new threads.
void run_all(std::span<const std::unique_ptr<Worker>> workers, Residency& residency) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < workers.size(); ++i) {
    try {
      threads.emplace_back([&worker = *workers[i]] { worker.run(); });
    } catch (const std::system_error&) {
      // The other workers run all clusters.
      for (; i < workers.size(); ++i) residency.note_end(i);
    }
  }
  workers[0]->run();
}

// Runs `work`, which ends soon after `stopped` is set. With `is_interrupted`, another thread runs it and this
// one only polls, so that an endless block cannot hold this thread. Returns whether it was interrupted.
template <class Work>
bool run_asking(const std::function<bool()>& is_interrupted, std::atomic<bool>& stopped, const Work& work) {
  if (!is_interrupted) {
    work();
    return false;
  }
  std::future<void> end;  // its destructor waits
  try {
    end = std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    work();  // without another thread, nothing can poll
    return false;
  }
  bool interrupted = false;
  try {
    while (end.wait_for(time_between_questions) != std::future_status::ready) {
      if (!interrupted && is_interrupted()) stopped = interrupted = true;
    }
  } catch (...) {
    stopped = true;
    throw;
  }
  return interrupted;
}

// The race detector of a launch; null: races are not checked. Takes over the previous grids' state.
GridsInFront watch(const Launch& launch, GridsInFront* in_front) {
  GridsInFront races = in_front ? std::exchange(*in_front, nullptr) : nullptr;
  if (!launch.options.check_races) return nullptr;
  if (launch.shape.dependent && races && races->can_follow(launch)) {
    races->follow(launch);
    return races;
  }
  races.reset();
  return std::make_shared<GlobalRaces>(launch);
}

void note(const Launch& launch, std::uint32_t pc, FindingKind kind, const Warp& warp, int lane,
          std::string message) {
  const std::lock_guard lock(launch.findings.mutex);
  if (launch.findings.list.size() == most_findings || !launch.findings.seen.emplace(kind, pc).second) return;
  Finding finding;
  finding.kind = kind;
  finding.message = std::move(message);
  finding.kernel = launch.kernel.name;
  finding.block = warp.block.index;
  finding.warp = warp.id;
  finding.lane = lane;
  if (pc < launch.kernel.info.size()) {
    const InstructionInfo& info = launch.kernel.info[pc];
    finding.ptx_line = info.ptx_line;
    const auto file = info.source ? static_cast<std::size_t>(info.source->file) : launch.kernel.files.size();
    if (file < launch.kernel.files.size()) {
      finding.file = launch.kernel.files[file];
      finding.line = info.source->line;
    }
  }
  launch.findings.list.push_back(std::move(finding));
}

// The requested shape, with the kernel's own cluster where none is given. Throws std::invalid_argument.
LaunchShape checked_shape(const Function& function, LaunchShape shape, const LaunchOptions& options,
                          std::span<const std::byte> parameters) {
  if (product(shape.cluster) == 1) shape.cluster = function.cluster();
  check_shape(function, shape, options);
  const Kernel& kernel = function.kernel();
  if (parameters.size() < kernel.parameter_bytes) {
    refuse(fmt::format("{} takes {} bytes of parameters, {} were given", kernel.name, kernel.parameter_bytes,
                       parameters.size()));
  }
  return shape;
}

std::uint64_t placed_globals(const Function& function, Memory& memory) {
  const std::optional<std::uint64_t> globals = memory.inside().place(function.program());
  if (!globals) refuse(fmt::format("memory is short for the variables of {}'s module", function.name()));
  return *globals;
}

// The most clusters of the shape that run at once; 0: any number.
std::uint64_t most_clusters(const LaunchOptions& options, const LaunchShape& shape) {
  if (options.resident_blocks == 0) return 0;
  return std::max<std::uint64_t>(options.resident_blocks / product(shape.cluster), 1);
}

}  // namespace

std::uint64_t Launch::clusters() const { return product(shape.grid) / product(shape.cluster); }

RunningLaunch::RunningLaunch(const Function& function, const LaunchShape& shape,
                             std::span<const std::byte> parameters, Memory& memory,
                             const LaunchOptions& options, std::size_t workers)
    : function_(function),
      options_(options),
      launch_{*function_.program(),
              function_.kernel(),
              checked_shape(function_, shape, options, parameters),
              parameters,
              memory.inside().global,
              placed_globals(function_, memory),
              options_,
              findings_,
              stopped_},
      grid_(launch_.shape),
      residency_(most_clusters(options, launch_.shape), std::min<std::uint64_t>(workers, grid_.count())) {
  launch_.residency = &residency_;
  for (std::size_t i = 0; i < std::min<std::uint64_t>(workers, grid_.count()); ++i)
    workers_.push_back(std::make_unique<Worker>(launch_, grid_, i));
}

LaunchResult RunningLaunch::result() {
  LaunchResult result;
  result.counts.resize(launch_.kernel.code.size());
  for (const auto& worker : workers_) {
    if (worker->failure()) std::rethrow_exception(worker->failure());
    for (std::size_t i = 0; i < result.counts.size(); ++i) result.counts[i] += worker->counts()[i];
    result.warp_instructions += worker->steps();
  }
  result.findings = std::move(findings_.list);
  return result;
}

LaunchResult launch(const Function& function, const LaunchShape& shape, std::span<const std::byte> parameters,
                    Memory& memory, const LaunchOptions& options, GridsInFront* in_front) {
  const unsigned cores =
      options.threads > 0 ? static_cast<unsigned>(options.threads) : std::thread::hardware_concurrency();
  RunningLaunch running(function, shape, parameters, memory, options, std::max(cores, 1u));
  const auto start = std::chrono::steady_clock::now();
  const GridsInFront races = watch(running.launch(), in_front);
  running.launch().races = races.get();
  const bool interrupted = run_asking(options.is_interrupted, running.stopped(),
                                      [&] { run_all(running.workers(), running.residency()); });
  LaunchResult result = running.result();
  if (interrupted) {
    throw LaunchInterrupted(fmt::format("{} was interrupted after {} warp instructions", function.name(),
                                        result.warp_instructions));
  }
  if (in_front && !running.stopped()) *in_front = races;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

void Launch::report(FindingKind kind, const Warp& warp, int lane, std::string message) const {
  report_at(warp.pc, kind, warp, lane, std::move(message));
}

void Launch::report_at(std::uint32_t pc, FindingKind kind, const Warp& warp, int lane,
                       std::string message) const {
  const std::vector<FindingKind>& allowed = options.allowed;
  if (std::find(allowed.begin(), allowed.end(), kind) == allowed.end())
    return note(*this, pc, kind, warp, lane, std::move(message));
  const std::lock_guard lock(findings.mutex);
  findings.seen.emplace(kind, pc);
}

void Launch::stop(FindingKind kind, const Warp& warp, int lane, std::string message) const {
  stop_at(warp.pc, kind, warp, lane, std::move(message));
}

void Launch::stop_at(std::uint32_t pc, FindingKind kind, const Warp& warp, int lane,
                     std::string message) const {
  note(*this, pc, kind, warp, lane, std::move(message));
  stopped = true;
  throw LaunchStopped();
}

}  // namespace jit::emulator
