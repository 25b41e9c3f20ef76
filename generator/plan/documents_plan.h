// Plans of forward calls whose mask keeps a query in its document.
#pragma once

#include <optional>

#include "generator/plan/plan.h"
#include "generator/problem/problem_shape.h"

namespace jit {

struct DeviceInfo;
struct KernelStore;

/// The plan of two kernels for dense calls under a document mask: one computes documents that follow one another as varlen
/// sequences, without asking for ids, the other one the batch entries in which an id comes back. What an entry has is found on
/// the device. None where it would not be faster, or if a kernel is not at hand.
std::optional<Plan> documents_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                                   const DeviceInfo& device);

}  // namespace jit
