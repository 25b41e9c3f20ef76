#include "generator/build/packs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <jit/version.h>

namespace jit {
namespace {

bool has_line(std::string_view lines, std::string_view wanted) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    if (lines.substr(0, end) == wanted) return true;
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
  }
  return false;
}

std::string listed(std::string_view lines) {
  std::string text(lines);
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, ", ");
  return text;
}

// Why a pack contains no kernel for a target by one of these compilers; empty if it may.
std::string mismatch(const PackFile& file, const Target& target, std::span<const std::string> compilers) {
  if (std::ranges::find(compilers, file.fact(pack_fact::compiler)) == compilers.end())
    return fmt::format("pack {} was made with another NVRTC ({}) than this one ({})", file.path(),
                       file.fact(pack_fact::compiler), compilers.front());
  if (!has_line(file.fact(pack_fact::targets), to_string(target)))
    return fmt::format("pack {} was made for {} and has nothing for {}", file.path(),
                       listed(file.fact(pack_fact::targets)), to_string(target));
  return "";
}

}  // namespace

Packs::Packs(std::span<const std::string> paths, Observer observer) : observer_(std::move(observer)) {
  for (const std::string& path : paths) {
    auto pack = std::make_unique<Pack>(PackFile(real_file_system(), path));
    pack->refusal = pack->file.refusal();
    if (pack->refusal.empty() && pack->file.fact(pack_fact::library) != JIT_ATTENTION_VERSION) {
      pack->refusal = fmt::format("pack {} is not used: version {} of the library made it, and this is {}",
                                  path, pack->file.fact(pack_fact::library), JIT_ATTENTION_VERSION);
    }
    if (!pack->refusal.empty()) warn(*pack, pack->refusal);
    packs_.push_back(std::move(pack));
  }
}

void Packs::warn(const Pack& pack, const std::string& sentence) const {
  if (!pack.told.test_and_set() && observer_) observer_({.kind = Event::Kind::warning, .message = sentence});
}

std::vector<PackInUse> Packs::described() const {
  std::vector<PackInUse> rows;
  for (const auto& pack : packs_)
    rows.push_back({.path = pack->file.path(),
                    .refusal = pack->refusal,
                    .entries = pack->file.size(),
                    .targets = listed(pack->file.fact(pack_fact::targets))});
  return rows;
}

std::vector<std::string> Packs::compilers() const {
  std::vector<std::string> all;
  for (const auto& pack : packs_) {
    const std::string_view compiler = pack->file.fact(pack_fact::compiler);
    if (pack->refusal.empty() && std::ranges::find(all, compiler) == all.end()) all.emplace_back(compiler);
  }
  return all;
}

std::optional<Entry> Packs::load(std::span<const Key> keys, const Target& target,
                                 std::span<const std::string> compilers) const {
  for (const Key& key : keys) {
    for (const auto& pack : packs_) {
      if (!pack->refusal.empty()) continue;
      PackFile::Found found = pack->file.find(key);
      if (found.entry) return std::move(found.entry);
      if (!found.damage.empty()) warn(*pack, found.damage);
    }
  }
  if (shortfalls(target, compilers).empty()) return std::nullopt;
  for (const auto& pack : packs_) {
    if (pack->refusal.empty()) warn(*pack, mismatch(pack->file, target, compilers));
  }
  return std::nullopt;
}

std::vector<std::string> Packs::shortfalls(const Target& target,
                                           std::span<const std::string> compilers) const {
  std::vector<std::string> sentences;
  for (const auto& pack : packs_) {
    const std::string sentence =
        pack->refusal.empty() ? mismatch(pack->file, target, compilers) : pack->refusal;
    if (sentence.empty()) return {};
    sentences.push_back(sentence);
  }
  return sentences;
}

}  // namespace jit
