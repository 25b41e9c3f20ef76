// Functors of the whole sequence, taken out of those that map rows to positions, so that all of its parts share
// one look-up.
#pragma once

#include "base/prelude.cuh"
#include "problem/masks.cuh"
#include "problem/positions.cuh"
#include "problem/score_mask.cuh"
#include "problem/scores.cuh"

namespace jit {

/// The functor of the whole sequence, and its positions (Places), of a functor that is evaluated by positions. Places
/// are void if it has none.
template <class Functor>
struct Whole {
  using type = Functor;
  using Places = void;
};
template <class Mask, class Of>
struct Whole<PositionedMask<Mask, Of>> {
  using type = Mask;
  using Places = Of;
};
template <class Score, class Of>
struct Whole<PositionedScore<Score, Of>> {
  using type = Score;
  using Places = Of;
};
template <class A, class B>
struct WholePair {
  using Places =
      typename ChosenType<is_same<typename Whole<A>::Places, void>, Whole<B>, Whole<A>>::type::Places;
};
template <class Op, class A, class B>
struct Whole<CombinedMask<Op, A, B>> : WholePair<A, B> {
  using type = CombinedMask<Op, typename Whole<A>::type, typename Whole<B>::type>;
};
template <class A>
struct Whole<NotMask<A>> : Whole<A> {
  using type = NotMask<typename Whole<A>::type>;
};
// A score that drops keys does so itself.
template <class A, class Kept>
struct Whole<ScoredMask<A, Kept>> : Whole<A> {};
template <class A, class B>
struct Whole<ThenScore<A, B>> : WholePair<A, B> {
  using type = ThenScore<typename Whole<A>::type, typename Whole<B>::type>;
};

/// Whether a part of a functor is evaluated by positions.
template <class Functor>
inline constexpr bool is_positioned = !is_same<typename Whole<Functor>::Places, void>;

}  // namespace jit
