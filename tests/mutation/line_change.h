// How a mutation breaks the line of a template, or of another kernel, that carries its anchor, `// mutate: Name`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace jit::testing {

/// The change of a line. It names as little of the line's text as it can, so that it outlives renames.
struct LineChange {
  /// A text that begins once in the line. A `$` in it stands for all up to the text behind the `$`, or up to the line's end.
  const char* from = "$";
  /// Takes its place; a `$` in it is what the other one stood for. A line that is left blank is gone.
  const char* to = "";
  int lines_up = 0;  ///< so many lines further up the line stands, unchanged
};
inline constexpr LineChange removed = {};
constexpr LineChange moved_up(int lines) { return {.lines_up = lines}; }

/// `text` with its line `line`, which counts from 0, changed. Throws where `from` does not begin in it exactly once.
std::string with_changed_line(std::string text, std::size_t line, const LineChange& change);

/// A line that mutations change.
struct Anchor {
  std::string name;
  std::string file;
  std::size_t line = 0;  ///< counts from 0
};

/// The anchors of `text`, the content of `file`. An anchor that stands alone in its line marks the next one.
std::vector<Anchor> anchors_in(const std::string& file, std::string_view text);

/// The anchors of templates/. The embedded templates have the same lines, without the anchors.
const std::vector<Anchor>& template_anchors();

/// Where the mutation of this name is made: it is the anchor's, or `Anchor_Variant`, where a line is changed in several
/// ways. Throws where there is no such anchor, or more than one.
const Anchor& anchor_of(std::string_view mutation, const std::vector<Anchor>& anchors = template_anchors());

/// The embedded template of the mutation's anchor, changed.
std::string changed_template(std::string_view mutation, const LineChange& change);

}  // namespace jit::testing
