// Scores as random text, each with what it means beside it: computed as C++ computes it, by no code that reads texts.
#pragma once

#include <functional>
#include <random>
#include <string>

namespace jit::testing {

/// The inputs of a text.
struct ScorePlace {
  int q, k;
  float score;
  bool as_duals;  ///< what least and most make of no number differs between floats and duals
};

struct RandomScoreText {
  std::string body;
  std::function<float(const ScorePlace&)> value;
};

/// Many of them are −inf for some positions.
RandomScoreText random_score_text(std::mt19937_64& random);

}  // namespace jit::testing
