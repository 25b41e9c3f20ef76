#include "generator/dispatch_key.h"

#include <set>

#include <gtest/gtest.h>

#include <jit/spec_table.h>

#include "generator/kernels/families.h"

namespace jit {
namespace {

TEST(DispatchKey, EveryFieldOfTheSpecChangesIt) {
  std::set<Digest> keys = {dispatch_key({}, {}), dispatch_key({}, KernelConfig{})};
  EXPECT_EQ(keys.size(), 2u);
  for (const SpecField& field : spec_fields()) {
    for (const AttentionSpec& spec : field.samples()) {
      EXPECT_TRUE(keys.insert(dispatch_key(spec, {})).second) << field.name;
      EXPECT_TRUE(keys.insert(dispatch_key(spec, KernelConfig{})).second) << field.name;
      EXPECT_EQ(dispatch_key(spec, {}), dispatch_key(AttentionSpec(spec), {}));
    }
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
