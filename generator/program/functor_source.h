// Masks and scores as C++ source: structs for a program, and the type of the combined functor.
#pragma once

#include <string>
#include <string_view>

#include <jit/spec.h>

namespace jit {

/// The file name that diagnostics show for lines of a program after a user's text.
inline constexpr std::string_view generated_lines = "generated";

struct FunctorSource {
  std::string definitions;    ///< structs for user text and constants; may be empty
  std::string mask_type;      ///< e.g. "AndMask<CausalMask<Alignment::bottom_right>, UserMask0>"
  std::string score_type;     ///< e.g. "SoftcapScore<SoftcapConstants0>"
  std::string output_type;    ///< e.g. "UserOutput0"; empty: none
  std::string places_type;    ///< of positions, "Positions<0, 1, 2>"; empty: none
  std::string arrivals_type;  ///< of key_arrivals, "KeyArrivals<3>"; empty: none
  std::string lists_type;     ///< of lists of keys, "KeyLists<0, 1, 2, 1, 64, false>"; empty: there are none
  std::string assertions;     ///< after Config: the host's analysis of the mask holds on the device
};

/// The type of a score in texts.
enum class ScoreNumbers {
  floats,
  duals,  ///< with its derivative, for gradients (templates/problem/dual.cuh)
};

/// `gradient_slots` has a bit per tensor, in the order of functor_tensors(spec), whose reads scores record
/// (templates/problem/tensor_reads.cuh).
FunctorSource functor_source(const AttentionSpec& spec, ScoreNumbers numbers = ScoreNumbers::floats,
                             unsigned gradient_slots = 0);

}  // namespace jit
