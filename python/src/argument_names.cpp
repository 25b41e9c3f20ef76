#include "argument_names.h"

#include <algorithm>
#include <regex>
#include <utility>

#include <fmt/format.h>

namespace jit::python {
namespace {

constexpr std::string_view of_spec = "spec.";

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

bool is_about_input(const Error& error) {
  return error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::invalid_spec;
}

Error with_message(const Error& error, std::string field, std::string message) {
  return Error(error.code(), error.stage(), std::move(field), std::move(message));
}

const ArgumentName* find(std::initializer_list<ArgumentName> names, std::string_view known) {
  const auto found = std::ranges::find(names, known, &ArgumentName::known);
  return found == names.end() ? nullptr : found;
}

}  // namespace

Error renamed_argument(const Error& error, std::initializer_list<ArgumentName> names) {
  if (error.code() != ErrorCode::invalid_argument) return error;
  const ArgumentName* const row = find(names, error.field());
  if (row == nullptr) return error;
  const std::string& message = error.message();
  const bool begins_with_it = message.starts_with(error.field() + ":");
  return with_message(error, std::string(row->name),
                      std::string(row->name) + message.substr(begins_with_it ? error.field().size() : 0));
}

Error renamed_field(const Error& error, std::initializer_list<ArgumentName> names) {
  if (!is_about_input(error)) return error;
  std::string_view field = error.field();
  if (field.starts_with(of_spec)) field.remove_prefix(of_spec.size());
  std::string message = error.message();
  const ArgumentName* const row = error.code() == ErrorCode::invalid_spec ? find(names, field) : nullptr;
  if (row != nullptr && row->name != field && message.starts_with(of_spec))
    message = fmt::format("{}: its {}", row->name, message.substr(of_spec.size()));
  return with_message(error, std::string(row != nullptr ? row->name : field),
                      replace_all(message, of_spec, ""));
}

TensorView with_middle_swapped(TensorView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

Error with_heads_first(const Error& error, std::initializer_list<const TensorView*> operands,
                       const std::vector<const TensorView*>& scales) {
  if (!is_about_input(error)) return error;
  static const std::regex& tokens_first = *new std::regex("(seqlen\\w*), (heads\\w*)");
  std::string message = std::regex_replace(error.message(), tokens_first, "$2, $1");
  const auto swap = [&](const TensorView& view, int rank) {
    if (view.rank != rank) return;
    message = replace_all(std::move(message), view.to_string(), with_middle_swapped(view).to_string());
  };
  for (const TensorView* view : operands) swap(*view, 4);
  for (const TensorView* view : scales) swap(*view, 3);
  return with_message(error, error.field(), std::move(message));
}

}  // namespace jit::python
