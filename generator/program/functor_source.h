// Masks and scores as C++ source: the structs that a program needs, and the type that names the whole.
#pragma once

#include <string>
#include <string_view>

#include <jit/spec.h>

namespace jit {

/// The name by which diagnostics call the lines of a program behind a text of the user.
inline constexpr std::string_view generated_lines = "generated";

struct FunctorSource {
  std::string definitions;    ///< structs for user text and constants; may be empty
  std::string mask_type;      ///< e.g. "AndMask<CausalMask<Alignment::bottom_right>, UserMask0>"
  std::string score_type;     ///< e.g. "SoftcapScore<SoftcapConstants0>"
  std::string output_type;    ///< e.g. "UserOutput0"; empty: there is none
  std::string places_type;    ///< of positions, "Positions<0, 1, 2>"; empty: there are none
  std::string arrivals_type;  ///< of key_arrivals, "KeyArrivals<3>"; empty: all keys are there
  std::string lists_type;     ///< of lists of keys, "KeyLists<0, 1, 2, 1, 64, false>"; empty: there are none
  std::string assertions;     ///< behind Config: what the host derived of the mask is what the device has
};

/// The type of a score in texts.
enum class ScoreNumbers {
  floats,
  duals,  ///< with its derivative, for gradients (templates/problem/dual.cuh)
};

/// `gradient_slots` has a bit for each tensor, in the order of functor_tensors(spec), whose reads scores tell of
/// (templates/problem/tensor_reads.cuh).
FunctorSource functor_source(const AttentionSpec& spec, ScoreNumbers numbers = ScoreNumbers::floats,
                             unsigned gradient_slots = 0);

}  // namespace jit
