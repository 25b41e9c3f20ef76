#include "machine/launch.h"

#include <algorithm>
#include <cfenv>
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

#include "machine/block.h"
#include "machine/global_races.h"
#include "machine/memory.h"
#include "machine/residency.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

constexpr std::size_t most_findings = 64;
// A cluster that has run for so long may be polling for what another one writes: others get their turn.
constexpr std::uint64_t slice = std::uint64_t{1} << 22;
// And for about so long, where blocks read what others write, before the next one begins: as on a GPU they run side by
// side, and some have begun before others end.
constexpr std::uint32_t slices_of_beginners = 12;  // powers of 2
constexpr std::chrono::milliseconds time_between_questions(20);

using Size3 = std::array<unsigned, 3>;

std::uint64_t product(const Size3& size) { return std::uint64_t{size[0]} * size[1] * size[2]; }

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::string to_text(const Size3& size) { return fmt::format("({}, {}, {})", size[0], size[1], size[2]); }

bool waits_for_grids(const Kernel& kernel) {
  return std::any_of(kernel.info.begin(), kernel.info.end(), [](const InstructionInfo& instruction) {
    return instruction.name == "griddepcontrol.wait";
  });
}

// Whether blocks of the grid may wait for others: they read words that others write at the same time.
bool asks_other_blocks(const Kernel& kernel) {
  return std::any_of(kernel.info.begin(), kernel.info.end(), [](const InstructionInfo& instruction) {
    return instruction.name.starts_with("ld.relaxed.gpu") || instruction.name.starts_with("ld.acquire.gpu") ||
           instruction.name.starts_with("ld.volatile.global");
  });
}

// The limits of CUDA's programming guide, "Technical Specifications per Compute Capability".
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

/// The grid's clusters, handed out in order to the host threads.
class Grid {
 public:
  explicit Grid(const LaunchShape& shape) {
    for (std::size_t d = 0; d < 3; ++d) clusters_[d] = shape.grid[d] / shape.cluster[d];
    cluster_ = shape.cluster;
    count_ = product(clusters_);
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t take() { return next_.fetch_add(1); }
  /// The next of those that were not taken.
  std::uint64_t next() const { return next_; }
  /// ctaid of the first block of a cluster.
  Size3 first_block(std::uint64_t number) const {
    const std::uint64_t x = number % clusters_[0], y = number / clusters_[0] % clusters_[1],
                        z = number / clusters_[0] / clusters_[1];
    return {static_cast<unsigned>(x) * cluster_[0], static_cast<unsigned>(y) * cluster_[1],
            static_cast<unsigned>(z) * cluster_[2]};
  }

 private:
  Size3 clusters_{}, cluster_{};
  std::uint64_t count_ = 0;
  std::atomic<std::uint64_t> next_ = 0;
};

/// Rounding to nearest, with subnormals, in this thread: a caller may compute in another way, as XLA's threads do.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&callers_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t callers_;
};

/// One host thread's share of the work.
class Worker {
 public:
  Worker(Launch& launch, Grid& grid, std::size_t index)
      : launch_(launch),
        grid_(grid),
        index_(index),
        counts_(launch.kernel.code.size()),
        begin_together_(asks_other_blocks(launch.kernel)),
        random_(launch.options.seed + index) {}

  // Ends when the grid has ended or the launch was stopped. Never throws.
  void run() noexcept {
    const DefaultArithmetic arithmetic;
    try {
      while (step()) {
      }
    } catch (const LaunchStopped&) {
      launch_.stopped = true;
    } catch (...) {
      launch_.stopped = true;
      failure_ = std::current_exception();
    }
    launch_.residency->note_end(index_);
    for (const auto& cluster : resident_) steps_ += cluster->steps;
    // Blocks hold state that refers to each other: they go here, within the launch.
    resident_.clear();
  }

  const Counts& counts() const { return counts_; }
  std::uint64_t steps() const { return steps_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  bool step() {
    if (launch_.stopped) throw LaunchStopped();
    const std::uint64_t changes = launch_.residency->changes();
    const bool has_begun = begin_cluster();
    bool only_poll = !has_begun;
    for (std::size_t i = resident_.size(); i-- > 0;) {
      const bool is_short = begin_together_ && has_begun;
      if (!resident_[i]->run(is_short ? short_slice() : slice)) {
        only_poll = only_poll && resident_[i]->is_polling_in_vain();
        continue;
      }
      only_poll = false;
      if (launch_.races) {
        for (const auto& block : resident_[i]->blocks) launch_.races->grids().end(*block);
      }
      steps_ += resident_[i]->steps;
      resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
      launch_.residency->leave();
    }
    if (all_taken_ && resident_.empty()) return false;
    if (only_poll) look_for_deadlock(changes);
    return true;
  }

  // A slice of any order of magnitude.
  std::uint64_t short_slice() {
    return 1 + random_.below(std::uint32_t{1} << random_.below(slices_of_beginners));
  }

  // False where there is none left, or no room for it.
  bool begin_cluster() {
    if (all_taken_ || !launch_.residency->enter()) return false;
    const std::uint64_t number = grid_.take();
    if (number >= grid_.count()) {
      all_taken_ = true;
      launch_.residency->leave();
      return false;
    }
    const std::uint64_t seed = launch_.options.seed * 0x9e3779b97f4a7c15u + number;
    const std::uint64_t first = launch_.races ? launch_.races->grids().first_cluster() : 0;
    resident_.push_back(
        std::make_unique<Cluster>(launch_, first + number, grid_.first_block(number), seed, counts_));
    return true;
  }

  void look_for_deadlock(std::uint64_t changes) {
    constexpr std::size_t told = 2;
    std::string waits;
    for (std::size_t i = 0; i < std::min(told, resident_.size()); ++i)
      waits += resident_[i]->describe_polling();
    const auto all = launch_.residency->note_polling(index_, changes, std::move(waits));
    if (!all || resident_.empty()) return std::this_thread::yield();
    std::string text = "no block can go on" + *all;
    const std::uint64_t next = grid_.next();
    if (next < grid_.count()) {
      text += fmt::format(
          "; block {} has not begun, because the device runs {} blocks of this kernel at once: blocks may "
          "wait only for "
          "blocks of a grid that fits the device",
          to_text(grid_.first_block(next)), launch_.residency->most() * product(launch_.shape.cluster));
    }
    const Cluster& cluster = *resident_.front();
    for (const auto& block : cluster.blocks) {
      for (const auto& warp : block->warps) {
        if (warp->is_polling()) launch_.stop(FindingKind::deadlock, *warp, -1, std::move(text));
      }
    }
  }

  Launch& launch_;
  Grid& grid_;
  const std::size_t index_;
  Counts counts_;
  const bool begin_together_;
  Random random_;
  std::vector<std::unique_ptr<Cluster>> resident_;
  bool all_taken_ = false;
  std::uint64_t steps_ = 0;
  std::exception_ptr failure_;
};

// The first in this thread, the others in threads of their own.
void run_all(const std::vector<std::unique_ptr<Worker>>& workers, Residency& residency) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < workers.size(); ++i) {
    try {
      threads.emplace_back([&worker = *workers[i]] { worker.run(); });
    } catch (const std::system_error&) {
      // The others do their part.
      for (; i < workers.size(); ++i) residency.note_end(i);
    }
  }
  workers[0]->run();
}

// Calls `work`, which ends soon after `stopped` is set. Where there is somebody to ask this thread does
// nothing but ask, so that a block without end cannot keep it. Returns whether the answer was yes.
template <class Work>
bool run_asking(const std::function<bool()>& is_interrupted, std::atomic<bool>& stopped, const Work& work) {
  if (!is_interrupted) {
    work();
    return false;
  }
  std::future<void> end;  // waited for in its destructor
  try {
    end = std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    work();  // without another thread nobody can ask
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

// Who watches the memory of a launch; null for nobody. Takes the grids in front away.
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

}  // namespace

std::uint64_t Launch::clusters() const { return product(shape.grid) / product(shape.cluster); }

LaunchResult launch(const Function& function, const LaunchShape& asked, std::span<const std::byte> parameters,
                    Memory& memory, const LaunchOptions& options, GridsInFront* in_front) {
  const Program& program = *function.program();
  const Kernel& kernel = function.kernel();
  LaunchShape shape = asked;
  if (product(shape.cluster) == 1) shape.cluster = function.cluster();
  check_shape(function, shape, options);
  if (parameters.size() < kernel.parameter_bytes) {
    refuse(fmt::format("{} takes {} bytes of parameters, {} were given", kernel.name, kernel.parameter_bytes,
                       parameters.size()));
  }
  const std::optional<std::uint64_t> globals = memory.inside().place(function.program());
  if (!globals) refuse(fmt::format("memory is short for the variables of {}'s module", kernel.name));
  const auto start = std::chrono::steady_clock::now();
  Launch::Findings findings;
  std::atomic<bool> stopped = false;
  Launch running{program,  kernel,  shape,    parameters, memory.inside().global,
                 *globals, options, findings, stopped};
  const GridsInFront races = watch(running, in_front);
  running.races = races.get();
  Grid grid(shape);
  const unsigned cores =
      options.threads > 0 ? static_cast<unsigned>(options.threads) : std::thread::hardware_concurrency();
  const auto count = static_cast<std::size_t>(std::clamp<std::uint64_t>(cores, 1, grid.count()));
  const std::uint64_t places = options.resident_blocks / product(shape.cluster);
  Residency residency(options.resident_blocks == 0 ? 0 : std::max<std::uint64_t>(places, 1), count);
  running.residency = &residency;
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < count; ++i) workers.push_back(std::make_unique<Worker>(running, grid, i));
  const bool interrupted = run_asking(options.is_interrupted, stopped, [&] { run_all(workers, residency); });

  LaunchResult result;
  result.counts.resize(kernel.code.size());
  for (const auto& worker : workers) {
    if (worker->failure()) std::rethrow_exception(worker->failure());
    for (std::size_t i = 0; i < result.counts.size(); ++i) result.counts[i] += worker->counts()[i];
    result.warp_instructions += worker->steps();
  }
  if (interrupted) {
    throw LaunchInterrupted(
        fmt::format("{} was interrupted after {} warp instructions", kernel.name, result.warp_instructions));
  }
  result.findings = std::move(findings.list);
  if (in_front && !stopped) *in_front = races;
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
