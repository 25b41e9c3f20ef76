#include <jit/kernel_config.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {
namespace {

constexpr std::array<std::string_view, 2> mainloop_names = {"mma_sync", "wgmma"};
constexpr std::array<std::string_view, 3> order_names = {"free", "ping_pong", "softmax_lock"};
constexpr std::array<std::string_view, 2> swizzle_names = {"none", "xor_chunks"};
constexpr std::array<std::string_view, 3> rescale_names = {"always", "lazy", "on_overflow"};
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

struct FieldTraits {
  std::span<const std::string_view> value_names = {};
  std::optional<Mainloop> mainloop = std::nullopt;
};

template <auto member>
constexpr ConfigField field(std::string_view name, std::string_view cpp_type, std::string_view doc,
                            FieldTraits traits = {}) {
  return {name, cpp_type, doc, traits.value_names, traits.mainloop, &get_member<member>, &set_member<member>};
}

constexpr std::optional<Mainloop> mma_sync = Mainloop::mma_sync;
constexpr std::optional<Mainloop> wgmma = Mainloop::wgmma;

constexpr std::array fields = {
    field<&KernelConfig::mainloop>("mainloop", "Mainloop", "which instructions multiply", {mainloop_names}),
    field<&KernelConfig::tile_q>("tile_q", "int", "queries per block"),
    field<&KernelConfig::tile_kv>("tile_kv", "int", "keys per step"),
    field<&KernelConfig::warps>("warps", "int", "warps per block; each owns tile_q / warps queries",
                                {.mainloop = mma_sync}),
    field<&KernelConfig::stages_q>("stages_q", "int", "buffers for Q tiles", {.mainloop = wgmma}),
    field<&KernelConfig::stages_k>("stages_k", "int", "buffers for K tiles"),
    field<&KernelConfig::stages_v>("stages_v", "int", "buffers for V tiles"),
    field<&KernelConfig::swizzle>("swizzle", "Swizzle", "how tiles lie in shared memory",
                                  {swizzle_names, mma_sync}),
    field<&KernelConfig::ldmatrix_matrices>(
        "ldmatrix_matrices", "int", "8x8 matrices per ldmatrix of K and V: 2 or 4", {.mainloop = mma_sync}),
    field<&KernelConfig::q_in_registers>("q_in_registers", "bool",
                                         "Q stays in registers, else in shared memory", {bool_names}),
    field<&KernelConfig::p_in_registers>(
        "p_in_registers", "bool", "P V reads P from registers, else from shared memory", {bool_names, wgmma}),
    field<&KernelConfig::separate_o>(
        "separate_o", "bool", "O leaves through shared memory of its own, not Q's", {bool_names, wgmma}),
    field<&KernelConfig::direct_o>("direct_o", "bool",
                                   "consumers write O from their registers, not by way of shared memory",
                                   {bool_names, wgmma}),
    field<&KernelConfig::overlap>("overlap", "bool", "softmax runs under the P V of the tile before",
                                  {bool_names, wgmma}),
    field<&KernelConfig::order>("order", "WarpgroupOrder", "how consumer warpgroups take turns",
                                {order_names, wgmma}),
    field<&KernelConfig::persistent>(
        "persistent", "bool", "a block computes one tile of queries after another", {bool_names, wgmma}),
    field<&KernelConfig::dependent_launch>(
        "dependent_launch", "bool", "starts while the kernel before it on the stream ends, and waits for it",
        {bool_names, wgmma}),
    field<&KernelConfig::polynomial_exp2>("polynomial_exp2", "int",
                                          "of 8 exponentials, how many are polynomials instead of ex2",
                                          {.mainloop = wgmma}),
    field<&KernelConfig::rescale>("rescale", "Rescale", "when the output is rescaled to a new row maximum",
                                  {rescale_names}),
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
    if (!field.applies_to(config)) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", field.name, field.print(config));
  }
  return text;
}

KernelConfig parse_config(std::string_view text, const KernelConfig& base) {
  KernelConfig config = base;
  std::vector<const ConfigField*> given;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" ,\t\n");
    if (begin == std::string_view::npos) break;
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
    given.push_back(known);
  }
  // A field of one mainloop alone asks for it, unless the text names another.
  const bool names_mainloop = std::find(given.begin(), given.end(), &fields[0]) != given.end();
  const auto special = std::find_if(given.begin(), given.end(),
                                    [](const ConfigField* field) { return field->mainloop.has_value(); });
  if (!names_mainloop && special != given.end()) config.mainloop = *(*special)->mainloop;
  for (const ConfigField* field : given) {
    if (field->applies_to(config)) continue;
    throw Error(ErrorCode::invalid_argument, "parse", "config." + std::string(field->name),
                fmt::format("config field {} belongs to mainloop={}; this config has mainloop={}",
                            field->name, mainloop_names[static_cast<std::size_t>(*field->mainloop)],
                            mainloop_names[static_cast<std::size_t>(config.mainloop)]));
  }
  for (const ConfigField& field : fields) {
    if (!field.applies_to(config)) field.set(config, field.get(KernelConfig{}));
  }
  return config;
}

}  // namespace jit
