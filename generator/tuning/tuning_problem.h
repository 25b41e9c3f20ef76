// A problem to tune: the interface for the tuner, its records and the choice of a plan.
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

/// Calls of a spec with one size on one device. Tensors of mask and score are the caller's, since their
/// contents decide which tiles are computed; all others are the tuner's, with random numbers.
class TuningProblem {
 public:
  virtual ~TuningProblem() = default;

  const AttentionSpec& spec() const { return spec_; }  ///< as given; without sinks for gradients
  const DeviceInfo& device() const { return device_; }
  const ProblemShape& shape() const { return shape_; }
  const AttentionParams& params() const { return params_; }  ///< of the call that wants a plan
  /// Whether equal inputs must give bitwise identical results, even if another plan is faster.
  virtual bool deterministic() const { return false; }

  /// The call's candidates by rank: all legal ones, or those worth measuring on a first run.
  virtual std::vector<Candidate> candidates(bool exhaustive) const = 0;
  /// Why these configs are illegal for the call's kernels, in a sentence; empty if they are legal.
  virtual std::string rejection(const PlanConfigs& configs) const = 0;
  /// Whether the call can run these recorded configs: they are legal and can read its tensors.
  virtual bool can_run(const PlanConfigs& configs) const = 0;
  /// The template entries of all candidates' kernels.
  virtual std::vector<std::string> competing_entries() const = 0;

  /// Compiles the kernels of a plan, main ones first. Throws the errors of compiling.
  virtual std::vector<std::shared_ptr<const KernelImage>> build(KernelStore& store,
                                                                const PlanConfigs& configs) const = 0;
  /// The plan, with loaded kernels. Throws the errors of compiling and loading.
  virtual Plan plan(KernelStore& store, const PlanConfigs& configs, std::string why) const = 0;

  /// The programs that `buffers` uses, to be compiled ahead.
  virtual std::vector<Program> check_programs() const = 0;
  /// The tensors. Throws Error driver_error if a single batch entry exceeds half of the free memory.
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

/// The gradients of q, k and v, by one kernel or by one for dq and one for dk and dv.
class BackwardProblem : public TuningProblem {
 public:
  /// `shape` is of Pass::backward, and describes all tensors of the call.
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

/// Whether calls of the spec can be measured: not if a mask or score reads a tensor with a row per row of
/// varlen q, because measured rows have other offsets.
bool can_time(const AttentionSpec& spec);

/// The problems of nonempty calls.
ForwardProblem forward_problem(const AttentionSpec& spec, const DeviceInfo& device,
                               const AttentionParams& params);
BackwardProblem backward_problem(const AttentionSpec& spec, const DeviceInfo& device,
                                 const AttentionParams& params, const GradientParams& gradients,
                                 bool deterministic);

}  // namespace jit
