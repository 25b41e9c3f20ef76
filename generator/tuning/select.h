// Choosing the fastest of several candidates from noisy measurements: the same choice at every run. Pure: the
// caller measures.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace jit {

struct SelectionPolicy {
  double seconds = 10;       ///< when this much has passed, what was measured so far decides
  double tie_margin = 0.02;  ///< candidates this close to the best are equal, and the first of them is taken
  double hopeless = 3.0;     ///< a candidate this many times slower than the best is measured once
  double behind = 1.15;      ///< after the opening rounds only candidates this close to the best go on
  int opening_rounds = 5;    ///< interleaved over all candidates
  int final_rounds = 15;     ///< interleaved over those that are left
};

struct CandidateTiming {
  double median = 0;  ///< in the unit of `measure`; 0: never measured
  int samples = 0;
};

struct Selection {
  std::size_t chosen = 0;
  std::vector<CandidateTiming> timings;  ///< one per candidate
  bool out_of_time = false;
};

/// Measures `count` candidates by `measure(i)`, one sample a call, and chooses. Candidate 0 is the one to
/// beat: it stays in to the end, and among equals the lowest index wins. `elapsed` gives seconds since the
/// start. `measure` returns a negative number for a candidate that failed; it drops out. Requires: candidate
/// 0 does not fail.
Selection select_fastest(std::size_t count, const std::function<double(std::size_t)>& measure,
                         const std::function<double()>& elapsed, const SelectionPolicy& policy);

}  // namespace jit
