#include "generator/functors/unfollowed.h"

#include <fmt/format.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/text_meaning.h"

namespace jit {
namespace {

void add(const MaskNode& node, std::vector<std::string>& sentences) {
  if (node.a) add(*node.a, sentences);
  if (node.b) add(*node.b, sentences);
  if (!node.text || !node.text->classify.empty()) return;
  const std::variant<TextMeaning, NotFollowed> meaning = mask_meaning(*node.text);
  if (const NotFollowed* why = std::get_if<NotFollowed>(&meaning))
    sentences.push_back(
        fmt::format("mask '{}' is asked score by score and skips no tiles: line {}: {}; a `classify` body "
                    "could tell which tiles "
                    "are empty and which are full",
                    node.text->name, why->line, why->reason));
}

void add(const ScoreNode& node, std::vector<std::string>& sentences) {
  if (node.a) add(*node.a, sentences);
  if (node.b) add(*node.b, sentences);
  if (!node.text || node.text->body.find("INFINITY") == std::string::npos) return;
  const std::variant<TextMeaning, NotFollowed> meaning = score_meaning(*node.text);
  if (const NotFollowed* why = std::get_if<NotFollowed>(&meaning))
    sentences.push_back(fmt::format(
        "score '{}' skips no tiles where it is -INFINITY: line {}: {}; a mask that drops the same "
        "could skip them",
        node.text->name, why->line, why->reason));
}

}  // namespace

std::vector<std::string> unfollowed_texts(const AttentionSpec& spec) {
  std::vector<std::string> sentences;
  add(node_of(spec.mask), sentences);
  add(node_of(spec.score), sentences);
  return sentences;
}

}  // namespace jit
