// jit-attention show: the tiles of scores that a mask, or a score of −inf, keeps, as numbers and as a
// picture.
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <jit/output_file.h>
#include <jit/spec_table.h>
#include <jit/tile_map.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "number_options.h"
#include "problem.h"
#include "useful_work.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct ShowOptions {
  ProblemOptions problem;
  TilePlace place;
  std::string out;
  bool as_json = false;
};

Json describe(const TileMap& map) {
  return {{"rows", map.rows},
          {"columns", map.columns},
          {"full", map.count(TileClass::full)},
          {"partial", map.count(TileClass::partial)},
          {"empty", map.count(TileClass::empty)},
          {"computed_share", map.computed_share()},
          {"notes", map.notes}};
}

int run_show(const ShowOptions& options) {
  const Problem problem = build_problem(options.problem);
  if (!is_dense(problem.spec)) {
    throw BadInput(
        "--sequences-q and --sequences-kv: the tiles shown are those of one sequence, however sequences are "
        "given; leave them out");
  }
  std::optional<OutputFile> file;
  if (!options.out.empty()) file.emplace(options.out);
  const TileMap map = tile_map(problem.spec, shape_of(problem), options.place, host_tensors(problem));
  const std::string title =
      problem.spec.mask.to_string() +
      (problem.spec.score == Score() ? "" : ", score " + problem.spec.score.to_string());
  if (file) {
    const std::string svg = to_svg(map, title);
    file->write({std::as_bytes(std::span(svg))});
  }
  if (options.as_json) {
    print_json(describe(map));
    return status_ok;
  }
  print("{}: tiles of {} queries and {} keys, batch entry {}, head {}\n", title, map.place.tile_q,
        map.place.tile_kv, map.place.batch, map.place.head);
  print("  full {}, partial {}, empty {} of {}: {:.1f} % are computed\n", map.count(TileClass::full),
        map.count(TileClass::partial), map.count(TileClass::empty), map.classes.size(),
        100 * map.computed_share());
  for (const std::string& note : map.notes) print("  {}\n", note);
  if (file) print("  picture in {}\n", file->path());
  return status_ok;
}

}  // namespace

void add_show(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand(
      "show", "Show the tiles that a mask, and scores of -INFINITY, leave, as a picture; needs no GPU");
  command->add_option("--out", options->out, "SVG file to write");
  add_whole_option(*command, "--tile-q", options->place.tile_q, "Queries of a tile")->capture_default_str();
  add_whole_option(*command, "--tile-kv", options->place.tile_kv, "Keys of a tile")->capture_default_str();
  add_whole_option(*command, "--entry", options->place.batch, "Batch entry to show, counted from 0")
      ->capture_default_str();
  add_whole_option(*command, "--head", options->place.head, "Query head to show, counted from 0")
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "Print JSON");
  add_problem_options(*command, options->problem);
  commands.push_back({command, [options] { return run_show(*options); }});
}

}  // namespace jit::tool
