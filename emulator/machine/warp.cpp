#include "machine/warp.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <fmt/format.h>

#include "machine/address_space.h"
#include "operations/barriers/barrier.h"
#include "operations/copies/bulk.h"
#include "operations/copies/cp_async.h"
#include "operations/tcgen05/state.h"
#include "operations/warps/register_watch.h"
#include "operations/warps/warpgroup.h"

namespace jit::emulator {
namespace {

// Registers that the assembler keeps out of a thread's own: a warp has 63 uniform ones for values that all
// lanes share; addresses and constants are recomputed at their uses (estimate).
constexpr int uniform_registers = 63;
constexpr int recomputed_registers = 56;

// An unwritten register is not zero.
constexpr std::uint32_t unwritten = 0xdeadbeefu;

std::uint32_t* new_registers(std::uint32_t slots) {
  const std::size_t words = std::size_t{std::max(slots, 1u)} * warp_lanes;
  auto* registers = static_cast<std::uint32_t*>(std::aligned_alloc(128, words * sizeof(std::uint32_t)));
  if (registers == nullptr) throw std::bad_alloc();
  std::fill_n(registers, words, unwritten);
  return registers;
}

/// Lanes of the warp that wait for each other at an instruction such as shfl.sync. The warp ends the wait
/// itself.
class Meeting final : public Waitable {
 public:
  bool is_over(std::uint64_t) const override { return false; }
  std::string describe(std::uint64_t token) const override {
    return fmt::format("lanes {:#010x} of its own warp, which have not come to this instruction", token);
  }
};
const Meeting meeting;

constexpr std::uint32_t no_join = 0xffffffffu;

std::uint32_t lanes_of(const LaunchShape& shape, int warp) {
  const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
  const unsigned rest = threads - static_cast<unsigned>(warp) * warp_lanes;
  return rest >= warp_lanes ? all_lanes : (1u << rest) - 1;
}

}  // namespace

Warp::Warp(Block& own_block, int own_id)
    : block(own_block),
      id(own_id),
      agent(own_block.cluster.add_agent()),
      alive(lanes_of(own_block.cluster.launch.shape, own_id)),
      knowledge(agent, alive),
      registers_(new_registers(own_block.cluster.launch.kernel.slots),
                 [](std::uint32_t* p) { std::free(p); }),
      predicates_(own_block.cluster.launch.kernel.predicates, 0) {
  predicates_[1] = all_lanes;  // Symbols::constant_predicate
  paths.push_back({.pc = 0, .lanes = alive});
  fill_presets();
}

Warp::~Warp() = default;

void Warp::note_poll(std::uint64_t address, std::uint64_t value) {
  polling.reads.resize(Polling::places);
  Polling::Read& last = polling.reads[pc % Polling::places];
  if (last.pc == pc && last.address == address && last.value == value) {
    ++polling.in_a_row;
    ++polling.count;
    return;
  }
  last = {pc, address, value};
  polling.in_a_row = 0;
}

bool Warp::is_polling() const {
  constexpr std::uint64_t reads_of_a_wait = 64, longest_loop = 4096;
  return polling.in_a_row >= reads_of_a_wait && polling.steps_since < longest_loop;
}

void Warp::fill_presets() {
  using What = PresetSlot::What;
  const LaunchShape& shape = launch().shape;
  const Kernel& kernel = launch().kernel;
  const auto dimension = [](What what, What x) {
    return static_cast<std::size_t>(what) - static_cast<std::size_t>(x);
  };
  for (const PresetSlot& preset : kernel.presets) {
    for (unsigned lane = 0; lane < warp_lanes; ++lane) {
      const unsigned thread = static_cast<unsigned>(id) * warp_lanes + lane;
      const auto& b = shape.block;
      const std::array<unsigned, 3> tid = {thread % b[0], thread / b[0] % b[1], thread / b[0] / b[1]};
      const auto& first = block.cluster.first_block;
      const auto& extent = block.cluster.shape;
      std::uint64_t value = 0;
      switch (preset.what) {
        case What::constant:
          break;
        case What::tid_x:
        case What::tid_y:
        case What::tid_z:
          value = tid[dimension(preset.what, What::tid_x)];
          break;
        case What::ntid_x:
        case What::ntid_y:
        case What::ntid_z:
          value = b[dimension(preset.what, What::ntid_x)];
          break;
        case What::ctaid_x:
        case What::ctaid_y:
        case What::ctaid_z:
          value = block.index[dimension(preset.what, What::ctaid_x)];
          break;
        case What::nctaid_x:
        case What::nctaid_y:
        case What::nctaid_z:
          value = shape.grid[dimension(preset.what, What::nctaid_x)];
          break;
        case What::laneid:
          value = lane;
          break;
        case What::warpid:
          value = static_cast<unsigned>(id);
          break;
        case What::nwarpid:
          value = 64;
          break;
        case What::smid:
        case What::gridid:
          break;
        case What::nsmid:
          value = 1;
          break;
        case What::lanemask_eq:
          value = 1u << lane;
          break;
        case What::lanemask_lt:
          value = (1u << lane) - 1;
          break;
        case What::lanemask_le:
          value = (2u << lane) - 1;
          break;
        case What::lanemask_gt:
          value = ~((2u << lane) - 1);
          break;
        case What::lanemask_ge:
          value = ~((1u << lane) - 1);
          break;
        case What::clusterid_x:
        case What::clusterid_y:
        case What::clusterid_z: {
          const std::size_t d = dimension(preset.what, What::clusterid_x);
          value = first[d] / extent[d];
          break;
        }
        case What::nclusterid_x:
        case What::nclusterid_y:
        case What::nclusterid_z: {
          const std::size_t d = dimension(preset.what, What::nclusterid_x);
          value = shape.grid[d] / extent[d];
          break;
        }
        case What::cluster_ctaid_x:
        case What::cluster_ctaid_y:
        case What::cluster_ctaid_z: {
          const std::size_t d = dimension(preset.what, What::cluster_ctaid_x);
          value = block.index[d] - first[d];
          break;
        }
        case What::cluster_nctaid_x:
        case What::cluster_nctaid_y:
        case What::cluster_nctaid_z:
          value = extent[dimension(preset.what, What::cluster_nctaid_x)];
          break;
        case What::cluster_ctarank:
          value = block.rank;
          break;
        case What::cluster_nctarank:
          value = std::uint64_t{extent[0]} * extent[1] * extent[2];
          break;
        case What::dynamic_smem_size:
          value = shape.dynamic_smem_bytes;
          break;
        case What::total_smem_size:
          value = kernel.static_smem_bytes + shape.dynamic_smem_bytes;
          break;
        case What::shared_base:
          value = shared_base(block.rank) - shared_begin;
          break;
        case What::param_base:
          value = param_window;
          break;
        case What::global_base:
          value = launch().globals;
          break;
      }
      value += preset.value;
      if (preset.wide) {
        r64(preset.slot)[lane] = value;
      } else {
        r32(preset.slot)[lane] = static_cast<std::uint32_t>(value);
      }
    }
  }
}

/// Runs a warp's paths; holds the state of a Warp that changes as paths switch.
class Runner {
 public:
  explicit Runner(Warp& warp)
      : warp_(warp), kernel_(warp.launch().kernel), counts_(warp.block.cluster.counts.data()) {}

  std::uint64_t run(std::uint64_t budget) {
    std::uint64_t executed = 0;
    if (!pick_path()) return 0;
    while (executed < budget) {
      if (warp_.pc == join_pc_) {
        arrive_at_join();
        if (!pick_path()) return executed;
        continue;
      }
      if (warp_.pc == kernel_.code.size()) {
        // The body ends without ret: the lanes exit.
        warp_.exec = warp_.active;
        exit_lanes();
        if (!pick_path()) return executed;
        continue;
      }
      ++executed;
      const Instruction& instruction = kernel_.code[warp_.pc];
      warp_.exec = warp_.active;
      if (instruction.guard) {
        const std::uint32_t holds = warp_.predicate(*instruction.guard);
        warp_.exec &= instruction.guard_negated ? ~holds : holds;
        if (warp_.exec == 0) {
          ++warp_.pc;
          continue;
        }
      }
      if (instruction.aligned && warp_.exec != warp_.alive) report_divergence();
      InstructionCounts& count = counts_[warp_.pc];
      ++count.warps;
      count.lanes += static_cast<std::uint64_t>(std::popcount(warp_.exec));
      if (warp_.watch && kernel_.info[warp_.pc].kind != InstructionClass::wgmma) {
        warp_.watch->watch(warp_, kernel_.info[warp_.pc]);
      }
      if (warp_.register_limit != 0 &&
          kernel_.live_registers[warp_.pc] > warp_.register_limit + uniform_registers + recomputed_registers)
        report_registers();
      switch (instruction.operation->execute(warp_)) {
        case Flow::next:
          ++warp_.pc;
          continue;
        case Flow::jump:
          load_path();
          continue;
        case Flow::exit:
          exit_lanes();
          break;
        case Flow::wait_then_next:
        case Flow::wait_then_retry:
          ++count.waits;
          if (warp_.wait.retry) {
            --count.warps;
            count.lanes -= static_cast<std::uint64_t>(std::popcount(warp_.exec));
          }
          path().pc = warp_.pc;
          path().wait = warp_.wait;
          if (path().wait.on == &meeting) meet();
          break;
      }
      if (!pick_path()) return executed;
    }
    path().pc = warp_.pc;
    return executed;
  }

 private:
  Path& path() { return warp_.paths[warp_.current]; }

  void load_path() {
    warp_.pc = path().pc;
    warp_.active = path().lanes;
    join_pc_ = path().join < 0 ? no_join : warp_.joins[static_cast<std::size_t>(path().join)].pc;
  }

  bool end_wait(Path& path) {
    if (!path.wait.on->is_over(path.wait.token)) return false;
    if (!path.wait.retry) {
      warp_.pc = path.pc;
      warp_.active = warp_.exec = path.lanes;
      path.wait.on->wake(warp_);
      ++path.pc;
    }
    path.wait = {};
    return true;
  }

  // The current path when it can go on, else another.
  bool pick_path() {
    for (std::size_t i = 0; i < warp_.paths.size(); ++i) {
      const std::size_t index = (warp_.current + i) % warp_.paths.size();
      Path& path = warp_.paths[index];
      if (path.wait && !end_wait(path)) continue;
      warp_.current = index;
      load_path();
      return true;
    }
    return false;
  }

  void remove_path() {
    warp_.paths.erase(warp_.paths.begin() + static_cast<std::ptrdiff_t>(warp_.current));
    if (warp_.current >= warp_.paths.size()) warp_.current = 0;
  }

  void arrive_at_join() {
    const int join = path().join;
    warp_.joins[static_cast<std::size_t>(join)].arrived |= warp_.active;
    remove_path();
    pass_if_complete(join);
  }

  void pass_if_complete(int index) {
    Join& join = warp_.joins[static_cast<std::size_t>(index)];
    if (join.arrived != join.expected || join.expected == 0) return;
    warp_.paths.push_back({.pc = join.pc, .lanes = join.arrived, .join = join.parent});
    warp_.current = warp_.paths.size() - 1;
    join = {};
  }

  // Ends the lanes `exec` of the current path.
  void exit_lanes() {
    const std::uint32_t lanes = warp_.exec;
    warp_.alive &= ~lanes;
    int join = path().join;
    path().lanes &= ~lanes;
    path().pc = warp_.pc + 1;
    const bool path_ends = path().lanes == 0;
    if (path_ends) remove_path();
    while (join >= 0) {
      Join& place = warp_.joins[static_cast<std::size_t>(join)];
      const int parent = place.parent;
      place.expected &= ~lanes;
      pass_if_complete(join);
      if (place.expected == 0) place = {};
      join = parent;
    }
    // Other lanes of the warp may have waited for only these.
    for (std::size_t i = 0; i < warp_.paths.size(); ++i) {
      if (warp_.paths[i].wait.on == &meeting) release_if_met(warp_.paths[i]);
    }
    for (const auto& barrier : warp_.barriers) barrier->recheck(warp_.alive);
    if (warp_.alive == 0) finish();
  }

  void finish() {
    if (warp_.cp_async) warp_.cp_async->finish(warp_);
    if (warp_.bulk) warp_.bulk->finish(warp_);
    if (warp_.group) warp_.group->exit(warp_);
    if (warp_.watch) warp_.watch->finish(warp_);
    if (warp_.block.tensor) warp_.block.tensor->finish(warp_);
    warp_.block.barriers->recheck();
    warp_.block.cluster.barrier->recheck();
  }

  void release_if_met(Path& path) {
    const auto members = static_cast<std::uint32_t>(path.wait.token);
    if ((members & warp_.alive & ~path.lanes) == 0) path.wait = {};
  }

  // Joins the current path with those that wait at the same instruction for the same lanes.
  void meet() {
    for (std::size_t i = 0; i < warp_.paths.size();) {
      const Path& other = warp_.paths[i];
      if (i == warp_.current || other.wait.on != &meeting || other.pc != path().pc ||
          other.join != path().join || other.wait.token != path().wait.token) {
        ++i;
        continue;
      }
      path().lanes |= other.lanes;
      warp_.paths.erase(warp_.paths.begin() + static_cast<std::ptrdiff_t>(i));
      if (i < warp_.current) --warp_.current;
    }
    release_if_met(path());
  }

  void report_divergence() {
    const std::uint32_t missing = warp_.alive & ~warp_.exec;
    warp_.report(
        FindingKind::barrier_divergence, std::countr_zero(missing),
        fmt::format(
            "{} must be executed by all threads of the warp together; lanes {:#010x} of {:#010x} are here",
            kernel_.info[warp_.pc].name, warp_.exec, warp_.alive));
  }

  void report_registers() {
    warp_.report(
        FindingKind::register_limit, -1,
        fmt::format(
            "{} registers hold values here, setmaxnreg left {} per thread, and a warp has {} uniform ones",
            kernel_.live_registers[warp_.pc], warp_.register_limit, uniform_registers));
  }

  Warp& warp_;
  const Kernel& kernel_;
  InstructionCounts* const counts_;
  std::uint32_t join_pc_ = no_join;
};

std::uint64_t Warp::run(std::uint64_t budget) {
  // Paths of one warp alternate, so that a polling path does not starve another.
  if (paths.size() > 1) current = (current + 1) % paths.size();
  return Runner(*this).run(budget);
}

bool Warp::meet(std::uint32_t members) {
  if ((exec & ~members) != 0) {
    stop(FindingKind::illegal_instruction, std::countr_zero(exec & ~members),
         fmt::format("lanes {:#010x} execute it, its member mask {:#010x} leaves some out", exec, members));
  }
  const std::uint32_t missing = members & alive & ~exec;
  if (missing == 0) return true;
  wait = {&meeting, members, true};
  return false;
}

Flow Warp::branch(std::span<const Side> sides) {
  Path& path = paths[current];
  if (sides.size() == 1) {
    path.pc = sides[0].pc;
    return Flow::jump;
  }
  const Kernel& kernel = launch().kernel;
  const std::uint32_t reconvergence = kernel.code[pc].reconvergence;
  int join = path.join;
  const bool same_place = join >= 0 && joins[static_cast<std::size_t>(join)].pc == reconvergence;
  if (reconvergence < kernel.code.size() && !same_place) {
    const Join fresh{.pc = reconvergence, .expected = path.lanes, .arrived = 0, .parent = join};
    const auto unused =
        std::find_if(joins.begin(), joins.end(), [](const Join& old) { return old.expected == 0; });
    join = static_cast<int>(unused - joins.begin());
    if (unused == joins.end()) {
      joins.push_back(fresh);
    } else {
      *unused = fresh;
    }
  }
  path = {.pc = sides[0].pc, .lanes = sides[0].lanes, .join = join};
  for (const Side& side : sides.subspan(1))
    paths.push_back({.pc = side.pc, .lanes = side.lanes, .join = join});
  return Flow::jump;
}

}  // namespace jit::emulator
