// Mutations of exponentials of 8 bits that are interpolated: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/fp8_interpolation.h"

namespace jit::testing::fp8_interpolation_mutations {
namespace {

/// Symptoms of a mutation.
enum class Shows { spread, spread_by_lanes, dominated, small, large, no_number, batches };

struct Mutation {
  TemplateMutation mutation;
  Shows shows;
};
std::ostream& operator<<(std::ostream& out, const Mutation& mutation) { return out << mutation.mutation; }

std::string noticed(const TemplateMutation* mutation, Shows shows) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const DeviceInfo device = device_info(0);
  try {
    switch (shows) {
      case Shows::spread:
        return fault_of_spread_rows(true, context);
      case Shows::spread_by_lanes:
        return fault_of_spread_rows(false, context);
      case Shows::dominated:
        return fault_of_dominated_rows(2000, 0, true, context);
      case Shows::small:
        return fault_of_small_weights(150, true, context);
      case Shows::large:
        return fault_of_large_exponents(true, context);
      case Shows::no_number: {
        for (const int key : {200, 216}) {
          std::string fault = fault_of_no_number(key, 2, {}, context);
          if (!fault.empty()) return fault;
        }
        return "";
      }
      case Shows::batches:
        return fault_of_batches(device.sm_count + 2, true, context);
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return "";
}

UNMUTATED_TEST(Fp8Interpolation, IsRightUnmutated) {
  for (const Shows shows : {Shows::spread, Shows::spread_by_lanes, Shows::dominated, Shows::small,
                            Shows::large, Shows::no_number, Shows::batches})
    EXPECT_EQ(noticed(nullptr, shows), "") << static_cast<int>(shows);
}

class Fp8InterpolationMutationTest : public MutationTestOf<Mutation> {};

TEST_P(Fp8InterpolationMutationTest, IsCaught) {
  expect_caught(GetParam().mutation, noticed(&GetParam().mutation, GetParam().shows));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8InterpolationMutationTest,
    ::testing::Values(
        Mutation{{"WeightsWithAnExcess", {"0.4603f", "-0.9f"}}, Shows::spread},
        Mutation{{"ManyKeysShareAllRows_None", {"are_spread && asks", "false && asks"}}, Shows::spread},
        Mutation{{"ManyKeysShareAllRows_BesideLse", {" && params_.lse == nullptr", ""}}, Shows::spread},
        Mutation{{"PairsOfBytesExchanged", {"d, c", "c, d"}}, Shows::spread},
        Mutation{
            {"HalvesOfWordsExchanged", {"n, 0)$);", "n + 1, 0), bits(n + 1, 1), bits(n, 0), bits(n, 1));"}},
            Shows::spread},
        Mutation{{"WordsOfTheOtherRow", {"[i]", "[i ^ 1]"}}, Shows::spread},
        Mutation{{"WordsOfTheFirstBlocks", {", n,", ", i / 2 * 2,"}}, Shows::spread},
        Mutation{{"ManyKeysShareAllRows", {"are_spread && asks_for_spread &&", "asks_for_spread &&"}},
                 Shows::small},
        Mutation{{"SumsOfProductsToo", {"are_spread ? 0.25f : 0.0f", "0.25f"}}, Shows::small},
        Mutation{{"SumsWithoutInterpolatedWords", removed}, Shows::spread_by_lanes},
        Mutation{{"SumsOfTheFirstPairs", {"add.rn.f16x2 first, first, last;\\n", ""}},
                 Shows::spread_by_lanes},
        Mutation{{"SumsOfOneHalf", {" + $;", ";"}}, Shows::spread_by_lanes},
        Mutation{{"DominatedRowsInterpolated", {"&= $;", "&= true;"}}, Shows::dominated},
        Mutation{{"LargeExponentsInterpolated", {"<= $;", "<= 0x1p100f;"}}, Shows::large},
        Mutation{{"NoNumbersAreKnown", {"&& $;", "&& true;"}}, Shows::no_number},
        Mutation{{"Exceed_NoNumbersDoNot", {"!($)", "of_lane[r] > limits[r]"}}, Shows::no_number},
        Mutation{{"KeysOfEarlierWorkTilesCount", {"constexpr ($)", "(!(least_sum_ > 0))"}}, Shows::batches}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_interpolation_mutations
