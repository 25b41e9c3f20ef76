// The tool over arrays in files of a test.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/cli_testing.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tools/jit_attention/npy.h"

namespace jit::testing {

class CliFiles : public ::testing::Test {
 protected:
  using Array = tool::Array;

  CliFiles() { tool_.cache_folder = shared_cache_settings().cache_dir; }

  std::string file(const std::string& name) const { return tool_.folder / (name + ".npy"); }

  Array write(const std::string& name, Array array) const {
    tool::write_npy(OutputFile(file(name)), array);
    return array;
  }
  Array random_file(const std::string& name, std::vector<std::int64_t> shape) {
    std::normal_distribution<float> normal;
    Array array = tool::zeros(DType::fp32, std::move(shape));
    for (std::int64_t i = 0; i < array.elements(); ++i)
      array.as<float>()[i] = std::round(normal(random_) * 16) / 16;  // exact in 16 bits
    return write(name, std::move(array));
  }

  std::mt19937 random_{static_cast<std::mt19937::result_type>(reference::test_seed())};
  Tool tool_;
};

}  // namespace jit::testing
