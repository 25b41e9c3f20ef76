// Selects the fastest of several candidates from noisy measurements, reproducibly. Pure: the caller measures.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace jit {

struct SelectionPolicy {
  double seconds = 10;       ///< time limit, after which the measurements so far decide
  double tie_margin = 0.02;  ///< candidates this close to the best tie, and the first of them is chosen
  double hopeless = 3.0;     ///< a candidate this many times slower than the best is measured once
  double behind = 1.15;      ///< after the opening rounds only candidates this close to the best continue
  int opening_rounds = 5;    ///< interleaved rounds of all candidates
  int final_rounds = 15;     ///< interleaved rounds of those that remain
};

struct CandidateTiming {
  double median = 0;  ///< in the unit of `measure`; 0: no samples
  int samples = 0;
};

struct Selection {
  std::size_t chosen = 0;
  std::vector<CandidateTiming> timings;  ///< one per candidate
  bool out_of_time = false;
};

/// Measures `count` candidates by `measure(i)`, one sample per call, and selects one. Candidate 0, the
/// default, is never dropped; among ties the lowest index wins. `elapsed` returns seconds since the start.
/// `measure` returns a negative number for a failed candidate, which is dropped. Requires: candidate 0 does
/// not fail.
Selection select_fastest(std::size_t count, const std::function<double(std::size_t)>& measure,
                         const std::function<double()>& elapsed, const SelectionPolicy& policy);

}  // namespace jit
