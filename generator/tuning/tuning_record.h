// What tuning found, as text that describes itself, and the identities under which it is kept.
#pragma once

#include <optional>
#include <string>

#include <jit/device.h>

#include "cache/key.h"
#include "generator/kernels/heuristic.h"
#include "generator/tuning/tuner.h"

namespace jit {

struct ContextState;

/// The size class of a shape: each size rounded up to a power of two, batch and heads together. Tuning and
/// look-up share it.
struct SizeClass {
  int rows = 0;       ///< log2 of batch · heads_q, rounded up
  int seqlen_q = 0;   ///< log2, rounded up
  int seqlen_kv = 0;  ///< log2, rounded up
  bool tma = true;    ///< whether kernels with TMA are among the candidates

  bool operator==(const SizeClass&) const = default;
};
SizeClass size_class(const ProblemShape& shape);

/// The machine and the versions that a record holds for; any difference is another record. Of the templates
/// those count that the competing kernels include; without `tma`, kernels with TMA do not compete.
Key tuning_environment(ContextState& context, const DeviceInfo& device, bool tma, bool exhaustive);
/// The problem that a record holds for.
Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes);

std::string write_record(const TuningResult& result, const ProblemShape& shape, const DeviceInfo& device);
/// The config of a record; nothing when the text is not a record or its config is not legal for the spec on
/// this device.
std::optional<KernelConfig> read_record(const std::string& text, const AttentionSpec& spec,
                                        const DeviceInfo& device);

}  // namespace jit
