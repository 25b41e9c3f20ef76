#include "xla/problem.h"

#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <jit/functor_text.h>
#include <jit/spec_table.h>

#include "generator/tensors/tensor_checks.h"
#include "xla/attributes.h"
#include "xla/functors.h"

namespace jit::xla {
namespace {

/// The functors in a mask's or score's text.
struct Functors {
  std::vector<FunctorText> masks, scores;
};

template <class Value>
void read(const Attribute& attribute, const Functors& functors, Value& value) {
  if constexpr (std::is_same_v<Value, int>) {
    value = attribute.whole();
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = attribute.truth();
  } else if constexpr (std::is_same_v<Value, Mask>) {
    value = parse_mask(attribute.text(), functors.masks);
  } else if constexpr (std::is_same_v<Value, Score>) {
    value = parse_score(attribute.text(), functors.scores);
  } else if constexpr (std::is_same_v<Value, OutputFunctor>) {
    value = parse_output(attribute.text());
  } else if constexpr (std::is_same_v<Value, SequenceKind>) {
    value = parse_sequence_kind(attribute.text());
  } else if constexpr (std::is_same_v<Value, ScaleKind>) {
    value = parse_scale_kind(attribute.text());
  } else if constexpr (std::is_same_v<Value, std::optional<float>>) {
    value = static_cast<float>(attribute.real());
  } else {  // an element type, or an optional one
    value = parse_dtype(attribute.text());
  }
}

std::string field_names() {
  std::string names;
  for (const SpecField& field : spec_fields())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", field.name);
  return names;
}

const SpecField& field_of(const Attribute& attribute) {
  for (const SpecField& field : spec_fields()) {
    if (field.name == attribute.name()) return field;
  }
  refuse_unknown(attribute, "in `spec` " + field_names());
}

AttentionSpec read_spec(const Attributes& attributes, const Functors& functors) {
  AttentionSpec spec;
  for (const Attribute& attribute : all_of(attributes)) {
    const SpecField& field = field_of(attribute);
    std::visit([&](auto member) { read(attribute, functors, spec.*member); }, field.member);
  }
  validate(spec);
  return spec;
}

bool read_layout(const Attribute& attribute) {
  const std::string_view layout = attribute.text();
  if (layout != "BSHD" && layout != "BHSD")
    refuse(attribute.name(), fmt::format("is {}; it must be BSHD or BHSD", layout));
  return layout == "BHSD";
}

}  // namespace

Problem read_problem(const Attributes& attributes) {
  Problem problem;
  Functors functors;
  const Attributes* spec = nullptr;
  for (const Attribute& attribute : all_of(attributes)) {
    const std::string_view name = attribute.name();
    if (name == "spec") {
      spec = &attribute.dictionary();
    } else if (name.starts_with("mask_text_")) {
      functors.masks.push_back(read_functor(attribute.dictionary()));
    } else if (name.starts_with("score_text_")) {
      functors.scores.push_back(read_functor(attribute.dictionary()));
    } else if (name == "operands") {
      problem.operands = split(attribute.text(), ' ');
    } else if (name == "results") {
      problem.results = split(attribute.text(), ' ');
    } else if (name == "layout") {
      problem.heads_first = read_layout(attribute);
    } else if (name == "dropout_p") {
      problem.dropout_p = static_cast<float>(attribute.real());
    } else if (name == "num_splits") {
      problem.num_splits = attribute.whole();
    } else if (name == "zero_padding") {
      problem.zero_padding = attribute.truth();
    } else if (name == "deterministic") {
      problem.deterministic = attribute.truth();
    } else {
      refuse_unknown(attribute,
                     "operands, results, spec, layout, dropout_p, num_splits, zero_padding, deterministic, "
                     "mask_text_N and score_text_N");
    }
  }
  if (spec == nullptr) refuse("spec", "is missing; give a dictionary of the fields of a spec");
  problem.spec = read_spec(*spec, functors);
  return problem;
}

std::shared_ptr<const Problem> Problems::of(const Attributes& attributes) {
  std::string key = key_of(attributes);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = by_key_.find(key); known != by_key_.end()) return known->second;
  }
  auto problem = std::make_shared<const Problem>(read_problem(attributes));
  const std::lock_guard lock(mutex_);
  return by_key_.emplace(std::move(key), std::move(problem)).first->second;
}

}  // namespace jit::xla
