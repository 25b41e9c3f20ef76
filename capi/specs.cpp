#include "capi/specs.h"

#include <algorithm>
#include <set>
#include <string>
#include <type_traits>
#include <variant>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/functor_file.h>
#include <jit/mask.h>
#include <jit/score.h>
#include <jit/spec_table.h>

#include "capi/options.h"
#include "capi/structs.h"

namespace jit::c {
namespace {

std::string_view text_or_nothing(const char* text) { return text == nullptr ? std::string_view() : text; }

std::vector<FunctorText> functors_of(const jit_spec& spec) {
  check_array(spec.functors, spec.functor_count, "functors");
  std::vector<FunctorText> functors;
  for (std::size_t i = 0; i < spec.functor_count; ++i) {
    const auto [name, text] = spec.functors[i];
    if (name == nullptr || text == nullptr)
      refuse(fmt::format("functors[{}]", i), "has a null pointer as its name or text");
    functors.push_back(parse_functor(name, text));
  }
  return functors;
}

// Throws for a functor that mask, score and output do not call: a forgotten mask gives a wrong result.
void check_are_called(const std::vector<FunctorText>& functors, const AttentionSpec& spec) {
  const std::string calls =
      spec.mask.to_string() + ", " + spec.score.to_string() + ", " + spec.output.to_string();
  for (const FunctorText& functor : functors) {
    if (calls.find(fmt::format("text({})", functor.name)) == std::string::npos)
      refuse(
          "functors",
          fmt::format("has '{0}', which none of --mask, --score and --output calls; say --mask 'text({0})'",
                      functor.name));
  }
}

// The functors that a mask, score or output calls, since parsers refuse those of another kind.
std::vector<FunctorText> called_in(std::string_view text, const std::vector<FunctorText>& functors) {
  std::string calls(text);
  std::erase_if(calls, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });  // like the parsers
  std::vector<FunctorText> called;
  for (const FunctorText& functor : functors) {
    if (calls.find(fmt::format("text({})", functor.name)) != std::string::npos) called.push_back(functor);
  }
  const bool is_unknown = called.empty() && text.find("text") != std::string_view::npos;
  return is_unknown ? functors : called;  // errors list all
}

std::string option_name(const SpecField& field) {
  std::string name(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Options for the members of AttentionSpec, by their types.
struct MemberOption {
  AttentionSpec& spec;
  const std::vector<FunctorText>& functors;
  std::string name;

  template <class Parse, class Value>
  Option parsed(Value AttentionSpec::*member, const Parse& parse) const {
    return {name, false,
            [&spec = spec, member, parse](std::string_view text) { spec.*member = parse(text); }};
  }
  Option operator()(int AttentionSpec::*member) const { return whole_option(name, spec.*member); }
  Option operator()(bool AttentionSpec::*member) const { return truth_option(name, spec.*member); }
  Option operator()(DType AttentionSpec::*member) const { return dtype_option(name, spec.*member); }
  Option operator()(std::optional<DType> AttentionSpec::*member) const { return parsed(member, parse_dtype); }
  Option operator()(SequenceKind AttentionSpec::*member) const { return parsed(member, parse_sequence_kind); }
  Option operator()(ScaleKind AttentionSpec::*member) const { return parsed(member, parse_scale_kind); }
  Option operator()(std::optional<float> AttentionSpec::*member) const {
    return {name, false, [&spec = spec, member](std::string_view text) {
              float value = 0;
              real_option("", value).set(text);
              spec.*member = value;
            }};
  }
  Option operator()(Mask AttentionSpec::*member) const {
    return parsed(member, [&texts = functors](std::string_view text) {
      return parse_mask(text, called_in(text, texts));
    });
  }
  Option operator()(OutputFunctor AttentionSpec::*member) const {
    return parsed(member, [&texts = functors](std::string_view text) {
      return parse_output(text, called_in(text, texts));
    });
  }
  Option operator()(Score AttentionSpec::*member) const {
    return parsed(member, [&texts = functors](std::string_view text) {
      return parse_score(text, called_in(text, texts));
    });
  }
};

Option scale_kind_option(std::string name, ScaleKind& value) {
  return {std::move(name), false, [&](std::string_view text) { value = parse_scale_kind(text); }};
}

Option quantized_scales_option(std::string name, QuantizedScales& value) {
  return {std::move(name), false, [&](std::string_view text) { value = parse_quantized_scales(text); }};
}

// "16,24,24".
Option sections_option(std::string name, std::array<int, 3>& value) {
  return {std::move(name), false, [&](std::string_view text) {
            for (std::size_t i = 0; i < value.size(); ++i) {
              const std::size_t end = std::min(text.find(','), text.size());
              whole_option("", value[i]).set(text.substr(0, end));
              if ((end == text.size()) != (i + 1 == value.size()))
                throw Error(ErrorCode::invalid_argument, "parse", "",
                            "it must be three numbers with commas between");
              text.remove_prefix(std::min(end + 1, text.size()));
            }
          }};
}

Option keep_rows_option(std::string name, KeepRows& value) {
  return {std::move(name), false, [&](std::string_view text) {
            for (const KeepRows known : {KeepRows::automatic, KeepRows::never, KeepRows::always}) {
              if (to_string(known) == text) {
                value = known;
                return;
              }
            }
            throw Error(ErrorCode::invalid_argument, "parse", "", "it must be automatic, never or always");
          }};
}

void check_is_text_alone(const jit_spec& spec) {
  if (spec.functor_count != 0)
    refuse("functors", "were given, and only attention and block masks call functors");
  if (spec.config != nullptr) refuse("config", "was given, and only attention has one");
}

}  // namespace

namespace {

// Reads the text of an attention spec, with additional options `more`.
void read_attention_text(const jit_spec& given, AttentionSpec& spec, std::vector<Option> more = {}) {
  const std::vector<FunctorText> functors = functors_of(given);
  for (const SpecField& field : spec_fields())
    more.push_back(std::visit(MemberOption{spec, functors, option_name(field)}, field.member));
  read_options(text_or_nothing(given.text), more);
  check_are_called(functors, spec);
}

}  // namespace

AttentionSpec read_attention_spec(const jit_spec& given) {
  AttentionSpec spec;
  read_attention_text(given, spec);
  return spec;
}

AttentionSpec attention_spec_of(const jit_spec& given) {
  AttentionSpec spec = read_attention_spec(given);
  validate(spec);
  return spec;
}

std::optional<KernelConfig> config_of(const jit_spec& spec) {
  if (spec.config == nullptr) return {};
  return parse_config(spec.config);
}

AppendSpec append_spec_of(const jit_spec& given) {
  check_is_text_alone(given);
  AppendSpec spec;
  DType cache_dtype = spec.dtype;
  Option cache = dtype_option("cache-dtype", cache_dtype);
  cache.set = [&, set = cache.set](std::string_view text) {
    set(text);
    spec.cache_dtype = cache_dtype;
  };
  read_options(text_or_nothing(given.text),
               {dtype_option("dtype", spec.dtype), cache, scale_kind_option("scale-per", spec.scale_per),
                whole_option("head-dim", spec.head_dim), whole_option("head-dim-v", spec.head_dim_v),
                whole_option("alignment", spec.alignment), whole_option("rotary-dim", spec.rotary_dim),
                truth_option("rotary-interleaved", spec.rotary_interleaved),
                dtype_option("cos-sin-dtype", spec.cos_sin_dtype),
                sections_option("mrope-sections", spec.mrope_sections),
                truth_option("mrope-interleaved", spec.mrope_interleaved), truth_option("norm", spec.norm),
                dtype_option("norm-dtype", spec.norm_dtype),
                truth_option("norm-adds-one", spec.norm_adds_one), real_option("norm-eps", spec.norm_eps)});
  validate(spec);
  return spec;
}

MergeSpec merge_spec_of(const jit_spec& given) {
  check_is_text_alone(given);
  MergeSpec spec;
  read_options(text_or_nothing(given.text),
               {dtype_option("dtype", spec.dtype), dtype_option("out-dtype", spec.out_dtype),
                whole_option("head-dim-v", spec.head_dim_v), whole_option("alignment", spec.alignment),
                whole_option("views", spec.views)});
  validate(spec);
  return spec;
}

QuantizeSpec quantize_spec_of(const jit_spec& given) {
  check_is_text_alone(given);
  QuantizeSpec spec;
  read_options(
      text_or_nothing(given.text),
      {dtype_option("dtype", spec.dtype),
       dtype_option("out-dtype", spec.out_dtype),
       whole_option("head-dim", spec.head_dim),
       whole_option("head-dim-v", spec.head_dim_v),
       whole_option("alignment", spec.alignment),
       quantized_scales_option("scales", spec.scales),
       quantized_scales_option("value-scales", spec.value_scales),
       truth_option("norm", spec.norm),
       dtype_option("norm-dtype", spec.norm_dtype),
       truth_option("norm-adds-one", spec.norm_adds_one),
       real_option("norm-eps", spec.norm_eps),
       whole_option("rotary-dim", spec.rotary_dim),
       truth_option("rotary-interleaved", spec.rotary_interleaved),
       dtype_option("cos-sin-dtype", spec.cos_sin_dtype),
       truth_option("rotate", spec.rotate),
       truth_option("center-keys", spec.center_keys),
       truth_option("center-values", spec.center_values),
       {"sequences", false, [&](std::string_view text) { spec.sequences = parse_sequence_kind(text); }},
       keep_rows_option("keep-rows", spec.keep_rows)});
  validate(spec);
  return spec;
}

BlockMaskSpec block_mask_spec_of(const jit_spec& given) {
  if (given.config != nullptr) refuse("config", "was given, and only attention has one");
  BlockMaskSpec spec;
  const std::vector<FunctorText> functors = functors_of(given);
  read_options(text_or_nothing(given.text),
               {{"mask", false, [&](std::string_view text) { spec.mask = parse_mask(text, functors); }},
                whole_option("block-q", spec.block_q),
                whole_option("block-kv", spec.block_kv),
                truth_option("varlen-q", spec.varlen_q),
                truth_option("varlen-kv", spec.varlen_kv),
                truth_option("scores", spec.scores)});
  check_are_called(functors, {.mask = spec.mask});
  validate(spec);
  return spec;
}

KeyMassSpec key_mass_spec_of(const jit_spec& given) {
  if (given.config != nullptr) refuse("config", "was given, and only attention has one");
  KeyMassSpec spec;
  read_attention_text(given, spec.attention, {truth_option("per-query-head", spec.per_query_head)});
  validate(spec);
  return spec;
}

}  // namespace jit::c
