// Configs that backward calls may run, and the keys under which these are recorded.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/tuning/tuning_problem.h"
#include "generator/tuning/tuning_record.h"

namespace jit {
namespace {

DeviceInfo gpu(Arch arch) {
  return {.name = "a GPU",
          .arch = {arch.major, arch.minor, 0},
          .sm_count = 132,
          .smem_per_block_optin = arch.major >= 9 ? 232448 : 166912,
          .smem_per_sm = arch.major >= 9 ? 233472 : 167936,
          .registers_per_sm = 65536,
          .l2_bytes = 50 << 20,
          .driver_version = 13000};
}
const DeviceInfo hopper = gpu({9, 0, 0}), ampere = gpu({8, 0, 0});

BackwardProblem problem_of(const AttentionSpec& spec, const DeviceInfo& device, bool deterministic = false,
                           bool tma = true, bool has_device_lengths = false) {
  const ProblemShape shape{.pass = Pass::backward,
                           .batch = 4,
                           .heads_q = 16,
                           .seqlen_q = 2048,
                           .seqlen_kv = 2048,
                           .tma = tma,
                           .has_device_lengths = has_device_lengths};
  return BackwardProblem(spec, device, shape, {}, deterministic);
}

std::ptrdiff_t one_passes(const std::vector<Candidate>& candidates) {
  return std::count_if(candidates.begin(), candidates.end(),
                       [](const Candidate& candidate) { return candidate.configs.size() == 1; });
}

AttentionSpec varlen(AttentionSpec spec) {
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  return spec;
}

TEST(BackwardProblem, OnePassAndTwoCompete) {
  for (const int head_dim : {64, 128, 256}) {
    for (const bool deterministic : {false, true}) {
      const BackwardProblem problem = problem_of({.head_dim = head_dim}, hopper, deterministic);
      const std::vector<Candidate> few = problem.candidates(false);
      EXPECT_EQ(few.front().configs.size(), 1u) << "one pass is the default";
      EXPECT_GE(one_passes(few), 1);
      const bool is_out_of_reach = head_dim == 256;  // even if both models err as much as they may
      EXPECT_EQ(std::ssize(few) - one_passes(few), is_out_of_reach ? 0 : 2)
          << "measured, since models know little of each other";
      EXPECT_LE(few.size(), 8u);
      for (const Candidate& candidate : few) {
        EXPECT_TRUE(problem.can_run(candidate.configs)) << to_string(candidate.configs);
        if (const auto* one_pass = std::get_if<BackwardWgmma>(&candidate.configs.front())) {
          EXPECT_TRUE(one_pass->deterministic || !deterministic);
        }
      }
    }
  }
}

TEST(BackwardProblem, TwoPassesServeAllOtherCalls) {
  for (const BackwardProblem& problem :
       {problem_of({}, ampere), problem_of({.alignment = 2}, hopper),
        problem_of({}, hopper, false, /*tma=*/false),
        problem_of(varlen({}), hopper, /*deterministic=*/true, /*tma=*/false, true)}) {
    const std::vector<Candidate> few = problem.candidates(false);
    ASSERT_GE(few.size(), 2u);
    EXPECT_LE(few.size(), 8u);
    EXPECT_EQ(one_passes(few), 0);
    for (std::size_t i = 0; i < few.size(); ++i) {
      EXPECT_TRUE(problem.can_run(few[i].configs)) << to_string(few[i].configs);
      EXPECT_GE(few[i].cycles, few[0].cycles);
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_FALSE(are_near_copies(few[i].configs, few[j].configs)) << to_string(few[i].configs);
    }
  }
}

// No pair of kernels writes gradients in fp32 from 16 bits: there is no other to measure.
TEST(BackwardProblem, OnePassAloneServesGradientsInFp32) {
  for (const int head_dim : {64, 128, 256}) {
    for (const bool deterministic : {false, true}) {
      AttentionSpec spec{.head_dim = head_dim};
      spec.out_dtype = DType::fp32;
      const BackwardProblem problem = problem_of(spec, hopper, deterministic);
      for (const bool exhaustive : {false, true}) {
        const std::vector<Candidate> candidates = problem.candidates(exhaustive);
        ASSERT_GE(candidates.size(), 1u);
        EXPECT_EQ(one_passes(candidates), std::ssize(candidates));
        for (const Candidate& candidate : candidates)
          EXPECT_TRUE(problem.can_run(candidate.configs)) << to_string(candidate.configs);
      }
      EXPECT_THROW(problem_of(spec, hopper, deterministic, /*tma=*/false).candidates(false), Error)
          << "nothing serves it";
    }
  }
}

// Lengths on the device: kernels of padded or varlen sequences, which the caller's spec does not name.
TEST(BackwardProblem, LengthsOnTheDevice) {
  for (const bool deterministic : {false, true}) {
    for (const AttentionSpec& spec : {varlen({}), AttentionSpec{}}) {
      const BackwardProblem problem = problem_of(spec, hopper, deterministic, true, true);
      const std::vector<Candidate> few = problem.candidates(false);
      ASSERT_GE(one_passes(few), 1);
      const BackwardWgmma& first = std::get<BackwardWgmma>(few.front().configs.front());
      EXPECT_EQ(first.deterministic, deterministic)
          << "in any order turns are a cost that nothing is known to save";
      EXPECT_TRUE(problem.can_run(few.front().configs));
    }
  }
}

TEST(BackwardProblem, AnExhaustiveSearchTakesAllKernels) {
  const BackwardProblem problem = problem_of({.head_dim = 64}, hopper);
  const std::vector<Candidate> all = problem.candidates(true);
  std::set<std::string> kernels, plans;
  for (const Candidate& candidate : all) {
    EXPECT_TRUE(plans.insert(to_string(candidate.configs)).second) << to_string(candidate.configs);
    for (const KernelConfig& config : candidate.configs) kernels.insert(to_string(config));
  }
  for (const Pass pass : {Pass::backward, Pass::backward_dq, Pass::backward_dkv}) {
    for (const KernelConfig& config : config_space({problem.spec(), device_limits(hopper)}, {.pass = pass}))
      EXPECT_TRUE(kernels.contains(to_string(config))) << to_string(config);
  }
  EXPECT_TRUE(kernels.contains(to_string(BackwardWgmma{.stages = 4})));
}

// Turns save zeros, and cost waiting.
TEST(BackwardProblem, ShortSequencesTakeTurns) {
  const auto takes_turns = [](const AttentionSpec& spec, int tokens) {
    const ProblemShape shape{.pass = Pass::backward,
                             .batch = 16384 / tokens,
                             .heads_q = 2048 / spec.head_dim,
                             .seqlen_q = tokens,
                             .seqlen_kv = tokens};
    return std::get<BackwardWgmma>(untuned_order(spec, shape, device_limits(hopper)).front()).deterministic;
  };
  for (const int head_dim : {64, 128, 256}) {
    const AttentionSpec causal{.head_dim = head_dim, .mask = mask::causal()};
    EXPECT_TRUE(takes_turns(causal, 512)) << head_dim;
    EXPECT_FALSE(takes_turns(causal, 2048)) << head_dim;
    EXPECT_EQ(takes_turns({.head_dim = head_dim}, 512), head_dim > 64) << head_dim;
    EXPECT_FALSE(takes_turns({.head_dim = head_dim}, 2048)) << head_dim;
  }
  EXPECT_FALSE(takes_turns(varlen({.mask = mask::causal()}), 512));
}

// Where its sums fit tensor memory, and nothing is asked that it does not have.
TEST(BackwardProblem, BlackwellTakesOnePass) {
  const DeviceInfo blackwell = gpu({10, 3, 0});
  const auto is_one_pass = [&](const AttentionSpec& spec, bool deterministic = false) {
    const PlanConfigs first = problem_of(spec, blackwell, deterministic).candidates(false).front().configs;
    return first.size() == 1 && std::holds_alternative<BackwardTcgen05>(first.front());
  };
  for (const int head_dim : {8, 64, 128}) {
    for (const bool deterministic : {false, true}) {
      EXPECT_TRUE(is_one_pass({.head_dim = head_dim}, deterministic)) << head_dim;
      EXPECT_TRUE(is_one_pass({.head_dim = head_dim, .mask = mask::causal()}, deterministic)) << head_dim;
      EXPECT_TRUE(is_one_pass(varlen({.head_dim = head_dim}), deterministic)) << head_dim;
    }
  }
  EXPECT_FALSE(is_one_pass({.head_dim = 136}));
  EXPECT_FALSE(is_one_pass({.head_dim = 64, .dropout = true}));
  EXPECT_FALSE(is_one_pass({.head_dim = 64, .alignment = 8}));
}

TEST(BackwardProblem, WhatCannotServeIsNotRun) {
  const BackwardProblem problem = problem_of({}, hopper);
  const PlanConfigs pair = {BackwardDqMmaSync{}, BackwardDkvMmaSync{}};
  EXPECT_TRUE(problem.can_run({BackwardWgmma{}}));
  EXPECT_TRUE(problem.can_run(pair));
  for (const PlanConfigs& configs : std::vector<PlanConfigs>{{},
                                                             {ForwardWgmma{}},
                                                             {ForwardMmaSync{}},
                                                             {BackwardDqMmaSync{}},
                                                             {pair[1], pair[0]},
                                                             {pair[0], pair[0]},
                                                             {pair[0], BackwardDkvMmaSync{.tile_kv = 17}},
                                                             {BackwardWgmma{}, BackwardWgmma{}},
                                                             {pair[0], pair[1], pair[1]},
                                                             {BackwardWgmma{.pair = true}}})
    EXPECT_FALSE(problem.can_run(configs)) << to_string(configs);
  EXPECT_TRUE(problem_of({}, hopper, true).can_run({BackwardWgmma{.deterministic = true}}));
  EXPECT_FALSE(problem_of({}, hopper, true).can_run({BackwardWgmma{}}));
  EXPECT_FALSE(problem_of({}, ampere).can_run({BackwardWgmma{}}));
  EXPECT_FALSE(problem_of({}, hopper, false, /*tma=*/false).can_run({BackwardWgmma{}}));
  EXPECT_FALSE(ForwardProblem({}, hopper, {}).can_run(pair));
  EXPECT_FALSE(ForwardProblem({}, hopper, {}).can_run({BackwardWgmma{}}));
  EXPECT_FALSE(ForwardProblem({}, hopper, {.tma = false}).can_run({ForwardWgmma{}}));
}

TEST(BackwardProblem, RecordsSurviveARoundTrip) {
  for (const DeviceInfo& device : {hopper, ampere}) {
    for (const bool deterministic : {false, true}) {
      const BackwardProblem problem = problem_of({.head_dim = 64}, device, deterministic);
      for (const Candidate& candidate : problem.candidates(false)) {
        const std::string record = write_record({.configs = candidate.configs}, problem);
        EXPECT_EQ(read_record(record, problem), candidate.configs) << record;
        EXPECT_EQ(read_record(record, ForwardProblem({.head_dim = 64}, device, {})), std::nullopt);
      }
    }
  }
  const BackwardProblem problem = problem_of({}, hopper);
  for (const char* config : {"", " + ", "family=backward_wgmma +", "family=backward_wgmma + ",
                             "family=backward_dq_mma_sync + family=backward_dkv_mma_sync color=red"})
    EXPECT_EQ(read_record(std::string("{\"config\": \"") + config + "\"}", problem), std::nullopt) << config;
}

TEST(BackwardProblem, HasRecordsOfItsOwn) {
  const SizeClass forward, backward{.pass = Pass::backward};
  const std::set<std::string> keys = {tuning_operation({}, forward).digest().hex(),
                                      tuning_operation({}, backward).digest().hex(),
                                      tuning_operation({}, backward, /*deterministic=*/true).digest().hex()};
  EXPECT_EQ(keys.size(), 3u);
  EXPECT_THAT(
      problem_of({}, hopper).competing_entries(),
      ::testing::UnorderedElementsAre("backward_dq_mma_sync/kernel.cuh", "backward_dkv_mma_sync/kernel.cuh",
                                      "backward_wgmma/kernel.cuh"));
  EXPECT_THAT(problem_of({}, ampere).competing_entries(), ::testing::SizeIs(2));
}

// LSE has the sinks: what is measured knows nothing of them, and the record is that of calls without.
TEST(BackwardProblem, KnowsNothingOfSinks) {
  EXPECT_EQ(problem_of({.sinks = true}, hopper).spec(), AttentionSpec());
}

}  // namespace
}  // namespace jit
