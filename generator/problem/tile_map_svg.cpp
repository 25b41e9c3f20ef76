// Draws a mask's tiles. Adjacent tiles of one class in a row share a rectangle.
#include <algorithm>

#include <fmt/format.h>

#include <jit/tile_map.h>

namespace jit {
namespace {

constexpr double side = 480;   // of the longer edge of the map
constexpr double margin = 48;  // around it, for words
constexpr double legend = 76;  // below it

struct Look {
  TileClass kind;
  const char* name;
  const char* color;
};
constexpr Look looks[] = {{TileClass::full, "full", "#1f4e79"},
                          {TileClass::partial, "partial", "#f2a541"},
                          {TileClass::empty, "empty", "#f4f4f2"}};

const Look& look_of(TileClass kind) {
  return *std::find_if(std::begin(looks), std::end(looks),
                       [&](const Look& look) { return look.kind == kind; });
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ' || c == '\n')
      safe += c;
  }
  return safe;
}

std::string rectangle(double x, double y, double width, double height, const char* color) {
  return fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", x,
                     y, width, height, color);
}

std::string words(double x, double y, std::string_view text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, escaped(text));
}

}  // namespace

std::string to_svg(const TileMap& map, std::string_view title) {
  const double scale = side / static_cast<double>(std::max(map.shape.seqlen_q, map.shape.seqlen_kv));
  const double width = scale * static_cast<double>(map.shape.seqlen_kv);
  const double height = scale * static_cast<double>(map.shape.seqlen_q);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.1f} {1:.1f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n",
      side + 2 * margin, height + 2 * margin + legend);
  svg += rectangle(0, 0, side + 2 * margin, height + 2 * margin + legend, "#ffffff");
  svg += words(margin, 20, title, " font-weight=\"bold\"");
  svg += words(margin, margin - 8, fmt::format("{} keys →", map.shape.seqlen_kv));
  svg += words(-margin - height, margin - 8, fmt::format("← {} queries", map.shape.seqlen_q),
               " transform=\"rotate(-90)\"");
  svg += rectangle(margin, margin, width, height, look_of(TileClass::empty).color);
  for (std::int64_t row = 0; row < map.rows; ++row) {
    const double y = scale * static_cast<double>(row * map.place.tile_q);
    const double bottom = std::min(height, y + scale * map.place.tile_q);
    for (std::int64_t begin = 0, end; begin < map.columns; begin = end) {
      const TileClass kind = map.at(row, begin);
      for (end = begin + 1; end < map.columns && map.at(row, end) == kind;) ++end;
      if (kind == TileClass::empty) continue;
      const double x = scale * static_cast<double>(begin * map.place.tile_kv);
      const double right = std::min(width, scale * static_cast<double>(end * map.place.tile_kv));
      svg += rectangle(margin + x, margin + y, right - x, bottom - y, look_of(kind).color);
    }
  }
  double x = margin;
  const double y = margin + height + 24;
  for (const Look& look : looks) {
    const std::string text = fmt::format("{} {}", map.count(look.kind), look.name);
    svg += rectangle(x, y - 10, 12, 12, look.color) + words(x + 18, y, text);
    x += 130;
  }
  svg += words(margin, y + 22,
               fmt::format("tiles of {} queries × {} keys, batch entry {}, head {}: {:.1f} % are computed",
                           map.place.tile_q, map.place.tile_kv, map.place.batch, map.place.head,
                           100 * map.computed_share()));
  return svg + "</svg>\n";
}

}  // namespace jit
