#include "generator/problem/dispatch_key.h"

#include <set>

#include <gtest/gtest.h>

#include <jit/spec_table.h>


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
  std::set<Digest> keys = {dispatch_key({}, KernelConfig{})};
  for (const ConfigField& field : config_fields()) {
    KernelConfig config;
    field.set(config, field.value_names.empty() ? field.get(config) + 1 : 1 - field.get(config));
    EXPECT_TRUE(keys.insert(dispatch_key({}, config)).second) << field.name;
  }
}

}  // namespace
}  // namespace jit
