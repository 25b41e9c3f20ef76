// Plans of forward calls whose mask keeps a query in its document.
#pragma once

#include <optional>

#include "generator/plan/plan.h"
#include "generator/problem/problem_shape.h"

namespace jit {

struct DeviceInfo;
struct KernelStore;

/// The plan of two attention kernels for dense calls under a document mask. A kernel in front of them looks for documents
/// on the device. If it found them in every batch entry, the first attention kernel computes the call as varlen sequences
/// without reading ids, and the second one exits at once; else the first has no sequences, and the second computes the whole
/// call. None where it would not be faster, or if a kernel is not at hand.
std::optional<Plan> documents_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                                   const DeviceInfo& device);

}  // namespace jit
