// A problem to tune: all that the tuner, its records and the choice of a plan ask of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jit/device.h>
#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/build/image.h"
#include "generator/plan/plan.h"
#include "generator/problem/problem_shape.h"
#include "generator/tuning/candidates.h"
#include "generator/tuning/tuning_buffers.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

struct KernelStore;

/// Calls of a spec of one size on one device. The tensors of mask and score are the caller's own, since their contents
/// decide which tiles are computed; all others are the tuner's, filled with random numbers.
class TuningProblem {
 public:
  virtual ~TuningProblem() = default;

  const AttentionSpec& spec() const { return spec_; }  ///< as it was given; of gradients without sinks
  const DeviceInfo& device() const { return device_; }
  const ProblemShape& shape() const { return shape_; }
  const AttentionParams& params() const { return params_; }  ///< of the call that wants a plan
  /// Whether equal inputs must give bitwise identical results where a plan could be faster without.
  virtual bool deterministic() const { return false; }

  /// Candidates of the call, in the order of promise: all that is legal, or what is worth a first run.
  virtual std::vector<Candidate> candidates(bool exhaustive) const = 0;
  /// Why these are no configs of such a call's kernels, in a sentence; empty: they are.
  virtual std::string rejection(const PlanConfigs& configs) const = 0;
  /// Whether it may run these, which were found elsewhere or earlier: they can read its tensors, too.
  virtual bool can_run(const PlanConfigs& configs) const = 0;
  /// The templates with which the kernels of all candidates begin.
  virtual std::vector<std::string> competing_entries() const = 0;

  /// Compiles the kernels of a plan: those of the configs, then others. Throws what compiling throws.
  virtual std::vector<std::shared_ptr<const KernelImage>> build(KernelStore& store,
                                                                const PlanConfigs& configs) const = 0;
  /// The plan itself, with kernels loaded. Throws what compiling and loading throw.
  virtual Plan plan(KernelStore& store, const PlanConfigs& configs, std::string why) const = 0;

  /// The programs that `buffers` needs, to be compiled ahead.
  virtual std::vector<Program> check_programs() const = 0;
  /// Throws Error driver_error when a single batch entry is too large for half of the free memory.
  virtual std::unique_ptr<TuningBuffers> buffers(KernelStore& store, CUstream stream) const = 0;

 protected:
  TuningProblem(AttentionSpec spec, DeviceInfo device, const ProblemShape& shape,
                const AttentionParams& params)
      : spec_(std::move(spec)), device_(std::move(device)), shape_(shape), params_(params) {}

 private:
  AttentionSpec spec_;
  DeviceInfo device_;
  ProblemShape shape_;
  AttentionParams params_;
};

/// The output of attention: one kernel computes it.
class ForwardProblem : public TuningProblem {
 public:
  ForwardProblem(const AttentionSpec& spec, DeviceInfo device, const ProblemShape& shape,
                 const AttentionParams& params = {});

  std::vector<Candidate> candidates(bool exhaustive) const override;
  std::string rejection(const PlanConfigs& configs) const override;
  bool can_run(const PlanConfigs& configs) const override;
  std::vector<std::string> competing_entries() const override;
  std::vector<std::shared_ptr<const KernelImage>> build(KernelStore& store,
                                                        const PlanConfigs& configs) const override;
  Plan plan(KernelStore& store, const PlanConfigs& configs, std::string why) const override;
  std::vector<Program> check_programs() const override;
  std::unique_ptr<TuningBuffers> buffers(KernelStore& store, CUstream stream) const override;

 private:
  AttentionSpec kernel_spec_;
};

/// The gradients of q, k and v: one kernel computes all of them, or one computes dq and another dk and dv.
class BackwardProblem : public TuningProblem {
 public:
  /// `shape` is of Pass::backward, and tells of all tensors of the call.
  BackwardProblem(const AttentionSpec& spec, DeviceInfo device, const ProblemShape& shape,
                  const AttentionParams& params, bool deterministic);

  bool deterministic() const override { return deterministic_; }
  std::vector<Candidate> candidates(bool exhaustive) const override;
  std::string rejection(const PlanConfigs& configs) const override;
  bool can_run(const PlanConfigs& configs) const override;
  std::vector<std::string> competing_entries() const override;
  std::vector<std::shared_ptr<const KernelImage>> build(KernelStore& store,
                                                        const PlanConfigs& configs) const override;
  Plan plan(KernelStore& store, const PlanConfigs& configs, std::string why) const override;
  std::vector<Program> check_programs() const override;
  std::unique_ptr<TuningBuffers> buffers(KernelStore& store, CUstream stream) const override;

 private:
  ProblemShape shape_of(Pass pass) const;
  bool has_two_passes() const;
  std::vector<Candidate> one_pass_candidates() const;
  std::vector<Candidate> two_pass_candidates(bool exhaustive) const;

  AttentionSpec kernel_spec_;
  bool deterministic_;
};

/// Whether calls of the spec can be measured: not those whose mask or score reads a tensor with a row for each row of
/// varlen q, because what is measured lies elsewhere.
bool can_time(const AttentionSpec& spec);

/// The problems of calls, which compute something.
ForwardProblem forward_problem(const AttentionSpec& spec, const DeviceInfo& device,
                               const AttentionParams& params);
BackwardProblem backward_problem(const AttentionSpec& spec, const DeviceInfo& device,
                                 const AttentionParams& params, const GradientParams& gradients,
                                 bool deterministic);

}  // namespace jit
