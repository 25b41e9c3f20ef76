#include "tests/mutation/line_change.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "generator/program/templates.h"
#include "tests/support/fresh_folder.h"

namespace jit::testing {
namespace {

constexpr std::string_view anchor_mark = "// mutate: ";

std::size_t begin_of_line(std::string_view text, std::size_t line) {
  std::size_t begin = 0;
  for (; line > 0; --line) begin = text.find('\n', begin) + 1;
  return begin;
}

}  // namespace

std::string with_changed_line(std::string text, std::size_t line, const LineChange& change) {
  const std::size_t begin = begin_of_line(text, line), end = text.find('\n', begin);
  if (change.lines_up > 0) {
    const std::size_t goal = begin_of_line(text, line - static_cast<std::size_t>(change.lines_up));
    const auto at = [&](std::size_t place) { return text.begin() + static_cast<std::ptrdiff_t>(place); };
    std::rotate(at(goal), at(begin), at(end + 1));
    return text;
  }
  const std::string_view from = change.from;
  const std::size_t hole = from.find('$');
  const std::string_view head = from.substr(0, hole);
  const std::size_t place = text.find(head, text.find_first_not_of(' ', begin));
  const auto refuse = [&] {
    throw std::runtime_error(
        fmt::format("'{}' does not stand exactly once in: {}", from, text.substr(begin, end - begin)));
  };
  if (place >= end || (!head.empty() && text.find(head, place + 1) < end)) refuse();
  std::size_t behind = place + head.size();
  std::string to = change.to;
  if (hole != std::string_view::npos) {
    const std::string_view tail = from.substr(hole + 1);
    const std::size_t stop = tail.empty() ? end : text.find(tail, behind);
    if (stop == std::string::npos) refuse();
    if (const std::size_t kept = to.find('$'); kept != std::string::npos)
      to.replace(kept, 1, text.substr(behind, stop - behind));
    behind = stop + tail.size();
  }
  text.replace(place, behind - place, to);
  if (const std::size_t left = text.find_first_not_of(' ', begin); text[left] == '\n')
    text.erase(begin, left + 1 - begin);
  return text;
}

std::vector<Anchor> anchors_in(const std::string& file, std::string_view text) {
  std::vector<Anchor> anchors;
  std::size_t line = 0, counted = 0;
  for (std::size_t mark = text.find(anchor_mark); mark != std::string_view::npos;
       mark = text.find(anchor_mark, mark + 1)) {
    for (counted = text.find('\n', counted); counted < mark; counted = text.find('\n', counted + 1)) ++line;
    const std::size_t begin = text.rfind('\n', mark) + 1, name = mark + anchor_mark.size();
    const bool stands_alone = text.find_first_not_of(' ', begin) == mark;
    anchors.push_back(
        {std::string(text.substr(name, text.find('\n', name) - name)), file, line + (stands_alone ? 1 : 0)});
  }
  return anchors;
}

const std::vector<Anchor>& template_anchors() {
  static const std::vector<Anchor> anchors = [] {
    const std::filesystem::path folder = JIT_ATTENTION_SOURCE_DIR "/templates";
    std::vector<Anchor> found;
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
      if (item.path().extension() != ".cuh") continue;
      const std::string file = item.path().lexically_relative(folder).generic_string();
      for (Anchor& anchor : anchors_in(file, read_text(item.path()))) found.push_back(std::move(anchor));
    }
    return found;
  }();
  return anchors;
}

const Anchor& anchor_of(std::string_view mutation, const std::vector<Anchor>& anchors) {
  const std::string_view name = mutation.substr(0, mutation.find('_'));
  const auto is_it = [&](const Anchor& anchor) { return anchor.name == name; };
  const auto anchor = std::find_if(anchors.begin(), anchors.end(), is_it);
  if (anchor == anchors.end() || std::find_if(anchor + 1, anchors.end(), is_it) != anchors.end())
    throw std::runtime_error(fmt::format("'// mutate: {}' does not stand exactly once", name));
  return *anchor;
}

std::string changed_template(std::string_view mutation, const LineChange& change) {
  const Anchor& anchor = anchor_of(mutation);
  for (const SourceFile& file : embedded_templates()) {
    if (file.name == anchor.file) return with_changed_line(file.text, anchor.line, change);
  }
  throw std::runtime_error("there is no embedded template " + anchor.file);
}

}  // namespace jit::testing
