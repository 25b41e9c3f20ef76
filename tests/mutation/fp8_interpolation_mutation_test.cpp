// Mutations of exponentials of 8 bits that are interpolated: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/fp8_interpolation.h"

namespace jit::testing::fp8_interpolation_mutations {
namespace {

/// What a mutation shows in.
enum class Shows { spread, spread_by_lanes, dominated, large, no_number, batches };

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
      case Shows::large:
        return fault_of_large_exponents(true, context);
      case Shows::no_number: {
        for (const int key : {200, 216}) {
          const std::string fault = fault_of_no_number(key, 2, {}, context);
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

TEST(Fp8Interpolation, IsRightUnmutated) {
  for (const Shows shows : {Shows::spread, Shows::spread_by_lanes, Shows::dominated, Shows::large,
                            Shows::no_number, Shows::batches})
    EXPECT_EQ(noticed(nullptr, shows), "") << static_cast<int>(shows);
}

class Fp8InterpolationMutationTest : public MutationTestOf<Mutation> {};

TEST_P(Fp8InterpolationMutationTest, IsCaught) {
  expect_caught(GetParam().mutation, noticed(&GetParam().mutation, GetParam().shows));
}

constexpr const char* weights = "steps/interpolated_weights.cuh";
constexpr const char* by_steps = "steps/exponentiate_by_steps.cuh";
constexpr const char* softmax = "steps/softmax.cuh";
constexpr const char* scores = "forward_wgmma/consumer_scores.cuh";
constexpr const char* fp8 = "ptx/fp8.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8InterpolationMutationTest,
    ::testing::Values(
        Mutation{{"WeightsWithAnExcess", weights, "mean_excess = 0.4603f", "mean_excess = -0.9f"},
                 Shows::spread},
        Mutation{{"NoWeightIsInterpolated", scores, "if (interpolates && may_interpolate",
                  "if (interpolates && false"},
                 Shows::spread},
        Mutation{
            {"InterpolatedBesideLse", scores, "may_interpolate && params_.lse == nullptr", "may_interpolate"},
            Shows::spread},
        Mutation{{"PairsOfBytesExchanged", fp8, "upper, d, c, 0", "upper, c, d, 0"}, Shows::spread},
        Mutation{{"HalvesOfWordsExchanged", weights,
                  "pack_rounded(bits(n, 0), bits(n, 1), bits(n + 1, 0), bits(n + 1, 1))",
                  "pack_rounded(bits(n + 1, 0), bits(n + 1, 1), bits(n, 0), bits(n, 1))"},
                 Shows::spread},
        Mutation{
            {"WordsOfTheOtherRow", "steps/wgmma_products.cuh", "? interpolated[i]", "? interpolated[i ^ 1]"},
            Shows::spread},
        Mutation{{"WordsOfTheFirstBlocks", by_steps, "interpolate_e4m3(scores, r, n, scale",
                  "interpolate_e4m3(scores, r, i / 2 * 2, scale"},
                 Shows::spread},
        Mutation{
            {"SumsWithoutInterpolatedWords", by_steps,
             "      if constexpr (interpolations > 0) row_sum[r] += sum_of_halves(interpolated_sums[r]);\n",
             ""},
            Shows::spread_by_lanes},
        Mutation{{"SumsOfTheFirstPairs", fp8, "add.rn.f16x2 first, first, last;\\n", ""},
                 Shows::spread_by_lanes},
        Mutation{{"SumsOfOneHalf", fp8, "return low + high;", "return low;"}, Shows::spread_by_lanes},
        Mutation{
            {"DominatedRowsInterpolated", weights, "do_all &= row_sum[r] >= least_sum;", "do_all &= true;"},
            Shows::dominated},
        Mutation{{"FirstKeysThatDominate", weights, "probability_factor<fp8_e4m3> / 4;",
                  "0 * probability_factor<fp8_e4m3>;"},
                 Shows::dominated},
        Mutation{{"LargeExponentsInterpolated", weights, "<= largest_first_exponent;", "<= 0x1p100f;"},
                 Shows::large},
        Mutation{{"NoNumbersAreKnown", softmax, "of_lane[r] == of_lane[r];", "true;"}, Shows::no_number},
        Mutation{{"NoNumbersDoNotExceed", softmax, "!(of_lane[r] <= limits[r])", "of_lane[r] > limits[r]"},
                 Shows::no_number},
        Mutation{{"KeysOfEarlierWorkTilesCount", scores,
                  "    if constexpr (knows_limits) least_sum_ = largest_of_sum",
                  "    if (!(least_sum_ > 0)) least_sum_ = largest_of_sum"},
                 Shows::batches}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_interpolation_mutations
