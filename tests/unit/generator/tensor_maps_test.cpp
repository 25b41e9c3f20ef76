#include "generator/launch/tensor_maps.h"

#include <bit>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <tuple>

#include <emulator/tensor_map.h>

#include "templates/tiles/bounded_box.cuh"
#include "tests/support/emulated_driver_testing.h"
#include "tests/support/error_of.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using Encoded = emulator::TensorMap;

// Addresses only: nothing here is ever read.
void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
constexpr std::uintptr_t base = 0x200000000;

constexpr int batch = 2, heads_q = 8, heads_kv = 4, seqlen_q = 100, seqlen_kv = 70, head_dim = 128;

TensorStrides dense(int seqlen, int heads, int columns) {
  return {.batch = static_cast<long long>(seqlen) * heads * columns,
          .seq = static_cast<long long>(heads) * columns,
          .head = columns};
}

AttentionParams good_params(int head_dim_v = head_dim) {
  AttentionParams params{};
  params.q = at(base);
  params.k = at(base + 0x1000000);
  params.v = at(base + 0x2000000);
  params.o = at(base + 0x3000000);
  params.q_strides = dense(seqlen_q, heads_q, head_dim);
  params.k_strides = dense(seqlen_kv, heads_kv, head_dim);
  params.v_strides = dense(seqlen_kv, heads_kv, head_dim_v);
  params.o_strides = dense(seqlen_q, heads_q, head_dim_v);
  params.batch = batch;
  params.heads_q = heads_q;
  params.heads_kv = heads_kv;
  params.seqlen_q = seqlen_q;
  params.seqlen_kv = seqlen_kv;
  return params;
}

AttentionSpec spec_of(int head_dim_v = 0, DType dtype = DType::bf16) {
  return {.dtype = dtype, .head_dim = head_dim, .head_dim_v = head_dim_v, .gqa_ratio = heads_q / heads_kv};
}

constexpr MapBoxes boxes = {.rows_q = 64, .rows_kv = 80};

using Change = std::function<void(AttentionParams&)>;

AttentionParams changed(const Change& change) {
  AttentionParams params = good_params();
  change(params);
  return params;
}

constexpr long long too_far = (1ll << 40) / 2;  // elements

/// Encodes on an emulated sm_90a.
class TensorMapsTest : public testing::EmulatedDriverTest {
 protected:
  static Encoded decoded(const TensorMap& map) {
    const auto bytes = std::as_bytes(std::span(map.bytes));
    const std::optional<Encoded> result = emulator::decode(bytes);
    EXPECT_TRUE(result.has_value());
    return result.value_or(Encoded{});
  }

  /// can_map refuses it, and so does encoding, which names the tensor.
  static void expect_unmappable(const char* name, const Change& change) {
    const AttentionParams params = changed(change);
    EXPECT_FALSE(can_map(params)) << name;
    const Error error = error_of([&] { map_tensors(spec_of(), boxes, params); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.field(), name);
    EXPECT_THAT(error.message(), ::testing::StartsWith(std::string(name) + ": "));
    EXPECT_THAT(error.message(), HasSubstr("Give no config"));
  }

  static void expect_mappable(const Change& change) {
    const AttentionParams params = changed(change);
    EXPECT_TRUE(can_map(params));
    EXPECT_NO_THROW(map_tensors(spec_of(), boxes, params));
  }
};

TEST_F(TensorMapsTest, DenseTensorsHaveMaps) {
  expect_mappable([](AttentionParams&) {});
}

TEST_F(TensorMapsTest, StridesMustBePositive) {
  for (const long long wrong : {0ll, -128ll, -(1ll << 41), std::numeric_limits<long long>::min() / 4}) {
    expect_unmappable("q", [&](AttentionParams& p) { p.q_strides.seq = wrong; });
    expect_unmappable("k", [&](AttentionParams& p) { p.k_strides.batch = wrong; });
    expect_unmappable("v", [&](AttentionParams& p) { p.v_strides.head = wrong; });
    expect_unmappable("o", [&](AttentionParams& p) { p.o_strides.seq = wrong; });
  }
}

TEST_F(TensorMapsTest, StridesMustBeBelowTwoToTheFortieth) {
  for (const long long wrong : {too_far, 4 * too_far, std::numeric_limits<long long>::max() / 4 / 8 * 8}) {
    expect_unmappable("q", [&](AttentionParams& p) { p.q_strides.batch = wrong; });
    expect_unmappable("k", [&](AttentionParams& p) { p.k_strides.seq = wrong; });
    expect_unmappable("v", [&](AttentionParams& p) { p.v_strides.batch = wrong; });
    expect_unmappable("o", [&](AttentionParams& p) { p.o_strides.head = wrong; });
  }
  expect_mappable([](AttentionParams& p) { p.q_strides.batch = p.k_strides.batch = too_far - 8; });
}

TEST_F(TensorMapsTest, RowsMustBeAligned) {
  expect_unmappable("q", [](AttentionParams& p) { p.q = at(base + 8); });
  expect_unmappable("k", [](AttentionParams& p) { p.k_strides.seq += 4; });
  expect_unmappable("v", [](AttentionParams& p) { p.v_strides.head += 1; });
  expect_unmappable("o", [](AttentionParams& p) { p.o = at(base + 0x3000002); });
}

TEST_F(TensorMapsTest, TheFirstOfSeveralIsNamed) {
  expect_unmappable("k", [](AttentionParams& p) { p.k_strides.seq = p.v_strides.seq = p.o_strides.seq = 0; });
}

TEST_F(TensorMapsTest, ADimensionOfOneMayHaveAnyStride) {
  for (const long long stride : {0ll, -64ll, 3ll, too_far, std::numeric_limits<long long>::max() / 2}) {
    expect_mappable([&](AttentionParams& p) {
      p.batch = 1;
      p.q_strides.batch = p.k_strides.batch = p.v_strides.batch = p.o_strides.batch = stride;
    });
    expect_mappable([&](AttentionParams& p) {
      p.seqlen_q = 1;
      p.q_strides.seq = p.o_strides.seq = stride;
    });
    expect_mappable([&](AttentionParams& p) {
      p.heads_kv = 1;
      p.k_strides.head = p.v_strides.head = stride;
    });
  }
}

TEST_F(TensorMapsTest, WithoutKeysNothingIsAskedOfThem) {
  const AttentionParams params = changed([](AttentionParams& p) {
    p.seqlen_kv = 0;
    p.k = p.v = nullptr;
    p.k_strides = p.v_strides = {.batch = -1, .seq = 0, .head = too_far};
  });
  EXPECT_TRUE(can_map(params));
  const MappedTensors maps = map_tensors(spec_of(), boxes, params);
  EXPECT_EQ(decoded(maps.k).address, base) << "there must be some map";
  EXPECT_EQ(decoded(maps.v).address, base);
  expect_unmappable("o", [](AttentionParams& p) {
    p.seqlen_kv = 0;
    p.o_strides.seq = -1024;
  });
}

TEST_F(TensorMapsTest, WorkTilesMustFit32Bits) {
  AttentionParams params = good_params();
  params.heads_q = 1024;
  params.seqlen_q = static_cast<int>(64 * (max_work_tiles / 1024));
  EXPECT_TRUE(can_map(params));
  params.seqlen_q += 1;
  EXPECT_FALSE(can_map(params));
  params.seqlen_q = std::numeric_limits<int>::max() - 4096;  // the longest that is let through
  params.heads_q = 1;
  EXPECT_TRUE(can_map(params));
  params.heads_q = 17;
  EXPECT_FALSE(can_map(params));
  params.heads_q = 0;
  EXPECT_TRUE(can_map(params)) << "nothing to compute";
}

TEST_F(TensorMapsTest, MapsDescribeTheTensors) {
  const AttentionParams params = good_params(64);
  const MappedTensors maps = map_tensors(spec_of(64), boxes, params);
  struct Wanted {
    const TensorMap& map;
    const void* data;
    const TensorStrides& strides;
    unsigned seqlen, heads, columns, box_rows;
  };
  const Wanted all[] = {{maps.q, params.q, params.q_strides, seqlen_q, heads_q, head_dim, 64},
                        {maps.k, params.k, params.k_strides, seqlen_kv, heads_kv, head_dim, 80},
                        {maps.v, params.v, params.v_strides, seqlen_kv, heads_kv, 64, 80},
                        {maps.o, params.o, params.o_strides, seqlen_q, heads_q, 64, 64}};
  for (const Wanted& wanted : all) {
    const Encoded map = decoded(wanted.map);
    EXPECT_EQ(map.element, Encoded::Element::bf16);
    EXPECT_EQ(map.rank, 4u);
    EXPECT_EQ(map.address, reinterpret_cast<std::uintptr_t>(wanted.data));
    EXPECT_THAT(map.dimensions,
                ElementsAre(wanted.columns, wanted.seqlen, wanted.heads, batch, ::testing::_));
    const auto bytes = [](long long stride) { return static_cast<std::uint64_t>(2 * stride); };
    EXPECT_THAT(map.strides, ElementsAre(bytes(wanted.strides.seq), bytes(wanted.strides.head),
                                         bytes(wanted.strides.batch), ::testing::_));
    EXPECT_THAT(map.box, ElementsAre(64u, wanted.box_rows, 1u, 1u, ::testing::_));
    EXPECT_THAT(map.element_strides, ElementsAre(1u, 1u, 1u, 1u, ::testing::_));
    EXPECT_EQ(map.swizzle, Encoded::Swizzle::bytes128);
    EXPECT_EQ(map.out_of_bounds, Encoded::OutOfBounds::zero);
  }
}

GradientParams good_gradients() {
  GradientParams gradients{};
  gradients.d_o = at(base + 0x4000000);
  gradients.dk = at(base + 0x5000000);
  gradients.dv = at(base + 0x6000000);
  gradients.do_strides = dense(seqlen_q, heads_q, 64);
  gradients.dk_strides = dense(seqlen_kv, 3 * heads_kv, head_dim);  // a slice of something packed
  gradients.dv_strides = dense(seqlen_kv, heads_kv, 64);
  return gradients;
}
constexpr MapBoxes gradient_boxes = {.rows_q = 64, .rows_kv = 128, .rows_dkv = 16};

TEST_F(TensorMapsTest, GradientsHaveBoxesOfTheirOwn) {
  AttentionParams params = good_params(64);
  for (const int queries : {seqlen_q, 0}) {
    params.seqlen_q = queries;
    const GradientParams gradients = good_gradients();
    ASSERT_TRUE(can_map(params, gradients));
    const MappedGradients maps = map_gradients(spec_of(64), gradient_boxes, params, gradients);
    const Encoded dk = decoded(maps.dk), dv = decoded(maps.dv);
    EXPECT_EQ(dk.address, base + 0x5000000);
    EXPECT_EQ(dv.address, base + 0x6000000);
    EXPECT_THAT(dk.dimensions, ElementsAre(head_dim, seqlen_kv, heads_kv, batch, ::testing::_));
    EXPECT_THAT(dv.dimensions, ElementsAre(64, seqlen_kv, heads_kv, batch, ::testing::_));
    EXPECT_EQ(dk.strides[0], std::uint64_t{2 * 3 * heads_kv * head_dim});
    EXPECT_THAT(dk.box, ElementsAre(64u, 16u, 1u, 1u, ::testing::_));
    EXPECT_THAT(dv.box, ElementsAre(64u, 16u, 1u, 1u, ::testing::_));
  }
}

// Maps for boxes that end with their sequence begin as many rows before the tensor as a box has.
TEST_F(TensorMapsTest, BoundedBoxesOfGradients) {
  const GradientParams gradients = good_gradients();
  const MappedGradients maps = map_bounded_gradients(spec_of(64), gradient_boxes, good_params(64), gradients);
  const Encoded dk = decoded(maps.dk);
  EXPECT_EQ(dk.address + 16 * dk.strides[0], base + 0x5000000);
  EXPECT_THAT(dk.box, ElementsAre(64u, 16u, 1u, 1u, 1u));
  EXPECT_THAT(decoded(maps.dv).dimensions, ElementsAre(64, 16, heads_kv, seqlen_kv + 1, batch));
}

TEST_F(TensorMapsTest, GradientsThatCannotBeMappedAreNamed) {
  const AttentionParams params = good_params(64);
  const auto expect_named = [&](const char* name, const std::function<void(GradientParams&)>& change) {
    GradientParams gradients = good_gradients();
    change(gradients);
    EXPECT_FALSE(can_map(params, gradients)) << name;
    for (const auto& map : {&map_gradients, &map_bounded_gradients}) {
      const Error error = error_of([&] { map(spec_of(64), gradient_boxes, params, gradients); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.field(), name);
    }
  };
  expect_named("do", [](GradientParams& g) { g.do_strides.seq = -512; });
  expect_named("dk", [](GradientParams& g) { g.dk_strides.seq = -512; });
  expect_named("dk", [](GradientParams& g) { g.dk = at(base + 0x5000008); });
  expect_named("dv", [](GradientParams& g) { g.dv_strides.head = too_far; });
}

TEST_F(TensorMapsTest, BoxesAndSwizzlesFollowTheHeadDim) {
  for (const auto& [columns, box, swizzle] : {std::tuple(8, 16u, Encoded::Swizzle::bytes32),
                                              {16, 16u, Encoded::Swizzle::bytes32},
                                              {24, 32u, Encoded::Swizzle::bytes64},
                                              {32, 32u, Encoded::Swizzle::bytes64},
                                              {40, 64u, Encoded::Swizzle::bytes128},
                                              {200, 64u, Encoded::Swizzle::bytes128}}) {
    const Encoded map = decoded(map_tensors(spec_of(columns), boxes, good_params(columns)).v);
    EXPECT_EQ(map.dimensions[0], static_cast<std::uint64_t>(columns));
    EXPECT_EQ(map.box[0], box) << columns;
    EXPECT_EQ(map.swizzle, swizzle) << columns;
  }
  EXPECT_EQ(decoded(map_tensors(spec_of(0, DType::fp16), boxes, good_params()).q).element,
            Encoded::Element::f16);
}

}  // namespace
}  // namespace jit
