#include "topologies/model.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

Parameter parameter(const std::string& name, std::vector<std::int64_t> shape,
                    const std::string& tied_to = "") {
  return {.name = name, .shape = std::move(shape), .tied_to = tied_to};
}

Model model_of(std::vector<Parameter> parameters) {
  return {.name = "m", .parameters = std::move(parameters)};
}

std::string error_of(std::vector<Parameter> parameters, const std::string& name = "m") {
  return error_text([&] { validate({.name = name, .parameters = parameters}, "m.json"); });
}

TEST(Numel, IsTheProductOfTheDimensions) {
  EXPECT_EQ(numel(parameter("p", {})), 1);
  EXPECT_EQ(numel(parameter("p", {7})), 7);
  EXPECT_EQ(numel(parameter("p", {2, 3, 4})), 24);
}

TEST(Numel, IsZeroWhereADimensionIsZero) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(numel(parameter("p", {0, 4})), 0);
  EXPECT_EQ(numel(parameter("p", {kHuge, kHuge, 0})), 0);
}

// The borders of 32-bit arithmetic: int32 would give -1,818,716,928 for the first.
TEST(Numel, CountsBeyond32Bits) {
  EXPECT_EQ(numel(parameter("p", {19345706, 128})), 2'476'250'368);
  for (const std::int64_t n : {(1LL << 30) - 1, (1LL << 30) + 1, (1LL << 31) - 1, 1LL << 31}) {
    EXPECT_EQ(numel(parameter("p", {n})), n);
    EXPECT_EQ(numel(parameter("p", {n, 4})), 4 * n);
  }
}

TEST(Numel, RefusesWhatDoesNotFitAndNamesTheParameter) {
  EXPECT_EQ(error_text([] { numel(parameter("w", {1LL << 32, 1LL << 31})); }),
            "parameter w: its number of elements does not fit in 64 bits; check the shape");
  EXPECT_EQ(error_text([] { numel(parameter("w", {2, -1})); }),
            "parameter w: a dimension is -1; sizes cannot be negative");
  EXPECT_EQ(numel(parameter("w", {(1LL << 32) - 1, 1LL << 31})), ((1LL << 32) - 1) * (1LL << 31));
}

TEST(ModelNumel, CountsSharedStorageOnce) {
  EXPECT_EQ(
      model_of({parameter("a", {5, 8}), parameter("b", {5, 8}, "a"), parameter("c", {})}).numel(),
      41);
}

TEST(ModelNumel, RefusesASumThatDoesNotFit) {
  EXPECT_EQ(error_text([] {
              (void)model_of({parameter("a", {1LL << 62}), parameter("b", {1LL << 62})}).numel();
            }),
            "the elements of model \"m\" do not fit in 64 bits; check the shapes");
}

TEST(IsStepped, OnlyWhereAGradientReachesTheOwnerOfTheStorage) {
  Parameter p = parameter("p", {4});
  EXPECT_TRUE(is_stepped(p));
  p.has_gradient = false;
  EXPECT_FALSE(is_stepped(p));
  p.has_gradient = true;
  p.requires_grad = false;
  EXPECT_FALSE(is_stepped(p));
  EXPECT_FALSE(is_stepped(parameter("q", {4}, "p")));
}

TEST(Validate, AcceptsAnOrdinaryModel) {
  EXPECT_EQ(error_of({parameter("a", {5, 8}), parameter("b", {5, 8}, "a"), parameter("c", {0})}),
            "no error");
}

TEST(Validate, AcceptsATieToALaterParameter) {
  EXPECT_EQ(error_of({parameter("a", {5}, "b"), parameter("b", {5})}), "no error");
}

TEST(Validate, RefusesBadNames) {
  EXPECT_EQ(error_of({parameter("", {1})}), "m.json: a parameter has an empty name; give it one");
  EXPECT_EQ(error_of({parameter("a\nb", {1})}),
            "m.json: the name \"a\\x0ab\" of a parameter cannot be shown: it holds a control "
            "character or is not UTF-8; rename it");
  EXPECT_EQ(error_of({parameter(std::string(513, 'a'), {1})}),
            "m.json: the name \"" + std::string(100, 'a') +
                "\"... of a parameter is 513 bytes long; use at most 512 bytes");
  EXPECT_EQ(error_of({parameter("a", {1}), parameter("b", {1}), parameter("a", {2})}),
            "m.json: parameter a: the name occurs twice; names must be unique");
}

TEST(Validate, RefusesAModelNameThatWouldSplitABenchmarksName) {
  EXPECT_EQ(
      error_of({parameter("a", {1})}, "x/y"),
      "m.json: the model's name \"x/y\" holds a '/'; leave it out: '/' separates the parts of "
      "a benchmark's name");
  EXPECT_EQ(error_of({parameter("a", {1})}, ""), "m.json: a model has an empty name; give it one");
}

TEST(Validate, RefusesAModelWithoutParameters) {
  EXPECT_EQ(error_of({}), "m.json: model \"m\" has no parameters; there is nothing to measure");
}

TEST(Validate, RefusesSizesThatAreNegativeOrTooLarge) {
  EXPECT_EQ(error_of({parameter("a", {-4})}),
            "m.json: parameter a: a dimension is -4; sizes cannot be negative");
  EXPECT_EQ(error_of({parameter("a", {kMaxModelNumel})}), "no error");
  EXPECT_EQ(error_of({parameter("a", {kMaxModelNumel}), parameter("b", {1})}),
            "m.json: parameter b: with it the model has more than 2^55 elements; check the shapes");
  EXPECT_EQ(error_of({parameter("a", {(1LL << 62) + 1}), parameter("b", {1LL << 62})}),
            "m.json: parameter a: with it the model has more than 2^55 elements; check the shapes");
}

TEST(Validate, RefusesTiesThatShareNoStorage) {
  EXPECT_EQ(
      error_of({parameter("a", {5}, "z")}),
      "m.json: parameter a: it is tied to \"z\", which does not exist; name a parameter of the "
      "same model");
  EXPECT_EQ(
      error_of({parameter("a", {5}, "a")}),
      "m.json: parameter a: it is tied to a, which is tied itself; name the one parameter that "
      "owns the storage");
  EXPECT_EQ(
      error_of({parameter("a", {5}), parameter("b", {5}, "a"), parameter("c", {5}, "b")}),
      "m.json: parameter c: it is tied to b, which is tied itself; name the one parameter that "
      "owns the storage");
  const std::string differs =
      "m.json: parameter b: it is tied to a, whose shape or dtype differs; tied parameters share "
      "one storage, so give both the same";
  EXPECT_EQ(error_of({parameter("a", {5, 8}), parameter("b", {8, 5}, "a")}), differs);
  Parameter half = parameter("b", {5, 8}, "a");
  half.dtype = kernels::DType::bf16;
  EXPECT_EQ(error_of({parameter("a", {5, 8}), half}), differs);
}

TEST(DtypeName, IsWhatParseDtypeReads) {
  for (const auto dtype : {kernels::DType::fp32, kernels::DType::bf16, kernels::DType::fp16}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_name(kernels::DType::bf16), "bf16");
  EXPECT_EQ(error_text([] { parse_dtype("float32"); }),
            "unknown data type \"float32\"; use fp32, bf16 or fp16");
}

}  // namespace
}  // namespace stepscope::topologies
