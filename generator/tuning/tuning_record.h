// What tuning found, as text that describes itself, and the identities under which it is kept.
#pragma once

#include <optional>
#include <string>

#include <jit/device.h>

#include "cache/key.h"
#include "generator/kernels/problem_shape.h"
#include "generator/tuning/tuner.h"

namespace jit {

struct ContextState;

/// The machine and the versions that a record holds for; any difference is another record. Of the templates
/// those count that kernels of the competing families include.
Key tuning_environment(ContextState& context, const AttentionSpec& spec, const DeviceInfo& device,
                       const ProblemShape& shape, bool exhaustive);
/// The problem that a record holds for.
Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes);

std::string write_record(const TuningResult& result, const ProblemShape& shape, const DeviceInfo& device);
/// The config of a record; nothing when the text is not a record or its config is not legal for the spec on
/// this device.
std::optional<KernelConfig> read_record(const std::string& text, const AttentionSpec& spec,
                                        const DeviceInfo& device);

/// A config that was found earlier, and what its record says.
struct RecordedConfig {
  KernelConfig config;
  std::string record;
};
/// What this context's tuning mode may take from the records: of an exhaustive search where there is one, else,
/// unless the mode is exhaustive, of a first run.
std::optional<RecordedConfig> find_record(ContextState& context, const AttentionSpec& spec,
                                          const DeviceInfo& device, const ProblemShape& shape);

}  // namespace jit
