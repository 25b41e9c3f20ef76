// Conversion of arguments other than arrays, in one place that knows their names.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "function.h"

namespace jit::python {

namespace nb = nanobind;

/// A type's name, qualified for NumPy, whose bool differs from Python's.
std::string type_of(nb::handle object);
/// An argument as shown in an error message: a number, a short text, None, or the type of anything else.
std::string shown(nb::handle object);

// Each throws TypeError with one sentence: the argument, its value and the expected type.
bool truth_of(nb::handle object, const char* name);
double real_of(nb::handle object, const char* name);
std::string text_of(nb::handle object, const char* name);
std::filesystem::path path_of(nb::handle object, const char* name);
std::vector<std::string> texts_of(nb::handle object, const char* name);
std::array<int, 3> three_of(nb::handle object, const char* name);
nb::iterable items_of(nb::handle object, const char* name);
/// Throws Error invalid_argument for a number out of range.
std::int64_t whole_of(nb::handle object, const char* name, std::int64_t least, std::int64_t most);
/// Throws Error invalid_argument for a negative number, or one of more than 64 bits.
std::uint64_t natural_of(nb::handle object, const char* name);

/// An unconverted Python argument; signatures show it as a T.
template <class T>
struct Given {
  nb::handle object;
};

template <class T>
struct IsGiven : std::bool_constant<std::is_arithmetic_v<T>> {};
template <class T>
struct IsGiven<std::optional<T>> : IsGiven<T> {};
template <class T>
inline constexpr bool is_given =
    IsGiven<T>::value || std::is_same_v<T, nb::handle> || std::is_same_v<T, std::string> ||
    std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::vector<std::string>> ||
    std::is_same_v<T, std::optional<std::array<int, 3>>> || std::is_same_v<T, nb::iterable>;
/// The C++ parameter that nanobind gets for an argument of type `T`.
template <class T>
using given_as = std::conditional_t<is_given<std::decay_t<T>>, Given<std::decay_t<T>>, T>;

template <class T>
T converted(Given<T> given, const char* name) {
  const nb::handle object = given.object;
  if constexpr (std::is_same_v<T, bool>) {
    return truth_of(object, name);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return natural_of(object, name);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(
        whole_of(object, name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(real_of(object, name));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text_of(object, name);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return path_of(object, name);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return texts_of(object, name);
  } else if constexpr (std::is_same_v<T, std::array<int, 3>>) {
    return three_of(object, name);
  } else if constexpr (std::is_same_v<T, nb::iterable>) {
    return items_of(object, name);
  } else if constexpr (std::is_same_v<T, nb::handle>) {
    return object;
  } else {  // an optional one
    if (object.is_none()) return {};
    return converted(Given<typename T::value_type>{object}, name);
  }
}
/// nanobind converts arguments of other types.
template <class T>
T&& converted(T&& argument, const char*) {
  return std::forward<T>(argument);
}

namespace detail {

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class F, class R, class... A>
struct Signature<R (F::*)(A...) const> {
  using type = R(A...);
};
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using type = R(A...);
};

template <std::size_t count, std::size_t... i, class F, class R, class... A>
auto named(F f, const std::array<const char*, count>& names, std::index_sequence<i...>, R (*)(A...)) {
  return [f, names](given_as<A>... given) -> R {
    return f(converted(std::forward<given_as<A>>(given), names[i])...);
  };
}

template <class T>
auto name_in(const T& extra) {
  if constexpr (nb::detail::arg_traits<T>::is_arg) {
    return std::make_tuple(extra.name_);
  } else {
    return std::tuple<>();
  }
}

}  // namespace detail

/// `scope.def(name, f, extras...)` of a module's function or a class's method, each of whose arguments has a
/// name among `extras`: a wrong type or range gives one sentence instead of all signatures. Names documented
/// in _core.pyi are public: see `publish`.
template <class Scope, class F, class... Extras>
void define(Scope& scope, const char* name, F f, const Extras&... extras) {
  using Function = typename detail::Signature<F>::type;
  const auto of_arguments =
      std::apply([](auto... each) { return std::array<const char*, sizeof...(each)>{each...}; },
                 std::tuple_cat(detail::name_in(extras)...));
  constexpr std::size_t count = std::tuple_size_v<std::decay_t<decltype(of_arguments)>>;
  const auto bind = [&]<class R, class... A>(R (*signature)(A...)) {
    constexpr std::size_t selves = sizeof...(A) - count;
    static_assert(selves <= 1, "every argument but self has a name");
    std::array<const char*, sizeof...(A)> names{};
    std::copy(of_arguments.begin(), of_arguments.end(), names.begin() + selves);
    scope.def(name, detail::named(f, names, std::index_sequence_for<A...>(), signature), extras...);
  };
  bind(static_cast<Function*>(nullptr));
  std::string qualified = name;
  if constexpr (!std::is_base_of_v<nb::module_, Scope>)
    qualified.insert(0, nb::cast<std::string>(scope.attr("__name__")) + ".");
  if (const Documentation* const row = find_documentation(qualified)) publish(scope, name, *row);
}

}  // namespace jit::python

namespace nanobind::detail {

template <class T>
struct type_caster<jit::python::Given<T>> {
  NB_TYPE_CASTER(jit::python::Given<T>, make_caster<remove_opt_mono_t<T>>::Name)
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};
// None reaches the conversion, which knows the argument's name.
template <class T>
struct has_arg_defaults<jit::python::Given<T>> : std::true_type {};

}  // namespace nanobind::detail
