#include "generator/problem/dispatch_key.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "generator/kernels/families.h"

namespace jit {
namespace {

TEST(DispatchKey, EveryFieldOfTheSpecChangesIt) {
  const std::vector<AttentionSpec> specs = {{},
                                            {.dtype = DType::fp16},
                                            {.head_dim = 64},
                                            {.head_dim_v = 64},
                                            {.gqa_ratio = 2},
                                            {.alignment = 8},
                                            {.seqlen_q = 128},
                                            {.seqlen_kv = 128},
                                            {.mask = mask::causal()},
                                            {.score = score::alibi()},
                                            {.softmax_scale = 0.5f},
                                            {.softmax_scale = 0.25f}};
  std::set<Digest> keys;
  for (const AttentionSpec& spec : specs) {
    EXPECT_TRUE(keys.insert(dispatch_key(spec, {})).second) << to_string(spec);
    EXPECT_EQ(dispatch_key(spec, {}), dispatch_key(AttentionSpec(spec), {}));
    EXPECT_TRUE(keys.insert(dispatch_key(spec, KernelConfig{})).second) << to_string(spec);
  }
}

TEST(DispatchKey, EveryFieldOfTheConfigChangesIt) {
  std::set<Digest> keys;
  for_each_family([&]<class Config>(const Config& base) {
    EXPECT_TRUE(keys.insert(dispatch_key({}, base)).second) << Family<Config>::name;
    for (const ConfigField<Config>& field : Family<Config>::fields()) {
      Config config = base;
      field.set(config, field.sample);
      EXPECT_TRUE(keys.insert(dispatch_key({}, config)).second) << field.name;
    }
  });
}

}  // namespace
}  // namespace jit
