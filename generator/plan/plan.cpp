#include "generator/plan/plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "generator/kernels/families.h"

namespace jit {

PlanStep plan_step(LoadedKernel kernel, const AttentionSpec& spec, const KernelConfig& config) {
  PlanStep step =
      std::visit([&](const auto& own) { return plan_step(std::move(kernel), spec, own); }, config);
  step.config = config;
  return step;
}

FaultText fault_text(const ArrayFault& fault) {
  constexpr std::array<std::string_view, 11> names = {
      "",           "cu_seqlens_q", "cu_seqlens_k", "seqused_q",      "seqused_k", "cache_leftpad",
      "page_table", "q_positions",  "k_positions",  "global_seqlens", "tree_ends"};
  const auto id = static_cast<std::size_t>(fault.array);
  const std::string_view name = id < names.size() ? names[id] : names[0];
  const bool has_pieces =
      fault.array == SequenceArrayId::q_positions || fault.array == SequenceArrayId::k_positions;
  const bool is_of_tree = fault.array == SequenceArrayId::tree_ends;
  const bool has_rows = is_of_tree || fault.array == SequenceArrayId::page_table ||
                        fault.array == SequenceArrayId::global_seqlens;
  const std::string place = has_pieces
                                ? fmt::format("[{}, {}, {}]", fault.request, fault.index / 4, fault.index % 4)
                            : has_rows ? fmt::format("[{}, {}]", fault.request, fault.index)
                                       : fmt::format("[{}]", fault.index);
  const std::string rule =
      fault.most < fault.least ? "there is nothing that it may be"
      : is_of_tree             ? fmt::format(
                                     "it must be from {} to {}, where what contains key {} ends: its sequence, or a "
                                                 "subtree",
                                     fault.least, fault.most, fault.index)
                   : fmt::format("it must be from {} to {}", fault.least, fault.most);
  return {name, fmt::format("{}: element {}, of request {}, is {}; {}", name, place, fault.request,
                            fault.value, rule)};
}

void run_plan(const Plan& plan, AttentionParams& params, const StreamMemory& memory, Stream stream,
              GradientParams* gradients) {
  const int device = plan.steps.front().kernel.device;
  // Gives calls without a fault report a slot that nothing reads.
  if (plan.is_checked && params.sequences.fault == nullptr)
    params.sequences.fault = static_cast<ArrayFault*>(memory.faults().of_graphs(device).data());
  std::size_t bytes = 0;
  for (const PlanStep& step : plan.steps) bytes = std::max(bytes, step.workspace_bytes(params, gradients));
  constexpr std::size_t alignment = 256;
  const std::size_t kept =
      plan.kept_bytes ? (plan.kept_bytes(params) + alignment - 1) / alignment * alignment : 0;
  StreamLease lease(memory, device, stream);
  void* const memory_of_plan = lease.workspace(bytes + kept);
  void* const workspace = kept == 0 ? memory_of_plan : static_cast<std::byte*>(memory_of_plan) + kept;
  void* mailbox = nullptr;
  try {
    for (const PlanStep& step : plan.steps) {
      step.launch({.kernel = step.kernel,
                   .spec = plan.spec,
                   .params = params,
                   .stream = stream,
                   .memory = lease,
                   .workspace = workspace,
                   .kept = memory_of_plan,
                   .turn = step.turn,
                   .mailbox = &mailbox,
                   .gradients = gradients});
    }
  } catch (const Error&) {
    lease.reset();
    throw;
  }
}

}  // namespace jit
