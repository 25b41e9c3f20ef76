#include <jit/kernel_config.h>

#include <array>
#include <charconv>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {
namespace {

constexpr std::array<std::string_view, 2> swizzle_names = {"none", "xor_chunks"};
constexpr std::array<std::string_view, 2> rescale_names = {"always", "lazy"};
constexpr std::array<std::string_view, 2> bool_names = {"false", "true"};

template <auto member>
int get_member(const KernelConfig& config) {
  return static_cast<int>(config.*member);
}

template <auto member>
void set_member(KernelConfig& config, int value) {
  using Value = std::remove_reference_t<decltype(config.*member)>;
  config.*member = static_cast<Value>(value);
}

template <auto member>
constexpr ConfigField field(std::string_view name, std::string_view cpp_type, std::string_view doc,
                            std::span<const std::string_view> value_names = {}) {
  return {name, cpp_type, doc, value_names, &get_member<member>, &set_member<member>};
}

constexpr std::array<ConfigField, 10> fields = {
    field<&KernelConfig::tile_q>("tile_q", "int", "queries per block"),
    field<&KernelConfig::tile_kv>("tile_kv", "int", "keys per step"),
    field<&KernelConfig::warps>("warps", "int", "warps per block; each owns tile_q / warps queries"),
    field<&KernelConfig::stages_k>("stages_k", "int", "buffers for K tiles"),
    field<&KernelConfig::stages_v>("stages_v", "int", "buffers for V tiles"),
    field<&KernelConfig::swizzle>("swizzle", "Swizzle", "how tiles lie in shared memory", swizzle_names),
    field<&KernelConfig::ldmatrix_matrices>("ldmatrix_matrices", "int",
                                            "8x8 matrices per ldmatrix of K and V: 2 or 4"),
    field<&KernelConfig::q_in_registers>("q_in_registers", "bool",
                                         "Q stays in registers, else in shared memory", bool_names),
    field<&KernelConfig::rescale>("rescale", "Rescale", "when the output is rescaled to a new row maximum",
                                  rescale_names),
    field<&KernelConfig::blocks_per_sm>("blocks_per_sm", "int",
                                        "blocks that must fit on a multiprocessor: caps the registers"),
};

int parse_value(const ConfigField& field, std::string_view text) {
  for (std::size_t i = 0; i < field.value_names.size(); ++i) {
    if (field.value_names[i] == text) return static_cast<int>(i);
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!field.value_names.empty() || error != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::invalid_argument, "parse", "config." + std::string(field.name),
                fmt::format("config field {} cannot be '{}'; it is {}", field.name, text,
                            field.value_names.empty()
                                ? "a whole number"
                                : fmt::format("one of {}", fmt::join(field.value_names, ", "))));
  }
  return value;
}

}  // namespace

std::string ConfigField::print(const KernelConfig& config) const {
  const int value = get(config);
  return value_names.empty() ? std::to_string(value)
                             : std::string(value_names[static_cast<std::size_t>(value)]);
}

std::string ConfigField::emit(const KernelConfig& config) const {
  const bool is_enum = !value_names.empty() && cpp_type != "bool";
  return is_enum ? fmt::format("{}::{}", cpp_type, print(config)) : print(config);
}

std::span<const ConfigField> config_fields() { return fields; }

std::string to_string(const KernelConfig& config) {
  std::string text;
  for (const ConfigField& field : fields) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", field.name, field.print(config));
  }
  return text;
}

KernelConfig parse_config(std::string_view text, const KernelConfig& base) {
  KernelConfig config = base;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" ,\t\n");
    if (begin == std::string_view::npos) return config;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" ,\t\n"));
    text.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const ConfigField* known = nullptr;
    std::string names;
    for (const ConfigField& field : fields) {
      if (field.name == name) known = &field;
      names += (names.empty() ? "" : ", ") + std::string(field.name);
    }
    if (known == nullptr || equals == std::string_view::npos) {
      throw Error(ErrorCode::invalid_argument, "parse", "config",
                  fmt::format("'{}' is not field=value of a config; fields are {}", word, names));
    }
    known->set(config, parse_value(*known, word.substr(equals + 1)));
  }
}

}  // namespace jit
