#include "vision/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace atelier::vision {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

float half_to_float(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const float mantissa = static_cast<float>(bits & 1023) / 1024.0F;
  const float value =
      exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0F + mantissa, exponent - 15);
  return (bits & 0x8000) != 0 ? -value : value;
}

template <typename T>
T load(const NamedTensor& tensor, std::size_t i) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double element(const NamedTensor& tensor, std::size_t i) {
  switch (tensor.dtype) {
    case Dtype::kF64:
      return load<double>(tensor, i);
    case Dtype::kF32:
      return load<float>(tensor, i);
    case Dtype::kF16:
      return half_to_float(load<std::uint16_t>(tensor, i));
    case Dtype::kBF16:
      return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(tensor, i)} << 16);
    case Dtype::kI64:
      return static_cast<double>(load<std::int64_t>(tensor, i));
    case Dtype::kI32:
      return load<std::int32_t>(tensor, i);
    case Dtype::kI16:
      return load<std::int16_t>(tensor, i);
    case Dtype::kI8:
      return load<std::int8_t>(tensor, i);
    case Dtype::kU8:
    case Dtype::kBool:
      return load<std::uint8_t>(tensor, i);
  }
  return 0;
}

std::string torch_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return "float64";
    case Dtype::kF32:
      return "float32";
    case Dtype::kF16:
      return "float16";
    case Dtype::kBF16:
      return "bfloat16";
    case Dtype::kI64:
      return "int64";
    case Dtype::kI32:
      return "int32";
    case Dtype::kI16:
      return "int16";
    case Dtype::kI8:
      return "int8";
    case Dtype::kU8:
      return "uint8";
    case Dtype::kBool:
      return "bool";
  }
  return "";
}

void expect_equal(const NamedTensor& tensor, const json::value& expected) {
  SCOPED_TRACE(tensor.name);
  EXPECT_EQ(torch_name(tensor.dtype), *find_string(expected, "dtype"));
  std::vector<std::int64_t> shape;
  std::size_t count = 1;
  for (const json::value& size : *find_array(expected, "shape")) {
    shape.push_back(size.as_int64());
    count *= static_cast<std::size_t>(size.as_int64());
  }
  EXPECT_EQ(tensor.shape, shape);
  ASSERT_EQ(tensor.bytes.size(), count * dtype_size(tensor.dtype));
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += element(tensor, i);
  EXPECT_NEAR(sum, *find_number(expected, "sum"), 1e-6 * (1 + std::abs(sum)));
  const json::array& head = *find_array(expected, "head");
  for (std::size_t i = 0; i < head.size(); ++i)
    EXPECT_EQ(element(tensor, i), head[i].to_number<double>());
}

// Files that the real PyTorch writes, once for all tests.
class TorchFiles : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder(std::move(TempFolder::create()).value());
    const std::string command = ATELIER_TEST_PYTHON " " ATELIER_SOURCE_DIR
                                                    "/src/vision/weights_test_files.py " +
                                folder_->path().string();
    ASSERT_EQ(std::system(command.c_str()), 0) << "PyTorch is needed: scripts/setup run";
  }
  static void TearDownTestSuite() { delete folder_; }
  static fs::path path(const std::string& name) { return folder_->path() / name; }

  static void expect_file(const std::string& name, const std::string& suffix) {
    SCOPED_TRACE(name + suffix);
    const auto file = read_weights(path(name + suffix));
    ASSERT_TRUE(file) << file.error().message;
    const json::value expected = read_json_file(path(name + ".json")).value();
    EXPECT_EQ(file->tensors().size(), expected.as_object().size());
    for (const auto& [key, value] : expected.as_object()) {
      const NamedTensor* tensor = file->find(key);
      ASSERT_NE(tensor, nullptr) << std::string(key);
      expect_equal(*tensor, value);
    }
  }
  static std::string error_of(const std::string& name) {
    const auto file = read_weights(path(name));
    return file ? "no error" : file.error().message;
  }

  static TempFolder* folder_;
};
TempFolder* TorchFiles::folder_ = nullptr;

TEST_F(TorchFiles, HaveTheValuesThatPyTorchWroteInBothContainers) {
  for (const std::string suffix : {".zip.pth", ".legacy.pth"}) {
    for (const std::string name : {"net", "parameters", "kinds"}) expect_file(name, suffix);
  }
}

TEST_F(TorchFiles, WithStridesComeInRowMajorOrder) {
  expect_file("shapes", ".zip.pth");
  expect_file("shapes", ".legacy.pth");
}

TEST_F(TorchFiles, OfTrainingFrameworksAreUnwrapped) {
  expect_file("checkpoint", ".zip.pth");
  expect_file("checkpoint", ".legacy.pth");
  const auto file = read_weights(path("checkpoint.zip.pth"));
  EXPECT_THAT(file->notes(),
              ElementsAre("taken from its entry 'state_dict'", "prefix 'module.' taken off"));
}

TEST_F(TorchFiles, ThatWouldRunSomethingAreRefusedByName) {
  for (const std::string name : {"evil.zip.pth", "evil.legacy.pth"}) {
    EXPECT_THAT(error_of(name), HasSubstr("it asks for 'posix.system'")) << name;
  }
  EXPECT_FALSE(fs::exists(path("was-run")));
  EXPECT_THAT(error_of("whole.zip.pth"), HasSubstr("torch.nn.modules.container.Sequential"));
}

TEST_F(TorchFiles, ThatAreNotStateDictionariesSayWhatTheyAre) {
  EXPECT_THAT(error_of("script.pt"), HasSubstr("TorchScript"));
  EXPECT_THAT(error_of("expanded.zip.pth"), HasSubstr("repeat elements"));
}

TEST_F(TorchFiles, ThatAreCutShortOrChangedAreRefused) {
  for (const std::string name : {"net.zip.pth", "net.legacy.pth"}) {
    const std::string whole = read_file(path(name)).value();
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
      EXPECT_FALSE(parse_weights(std::as_bytes(std::span(whole.data(), size))))
          << name << " " << size;
    }
  }
  std::string flipped = read_file(path("net.zip.pth")).value();
  const auto stem = read_weights(path("net.zip.pth"));
  const std::size_t at =
      flipped.find(std::string(reinterpret_cast<const char*>(stem->find("0.weight")->bytes.data()),
                               stem->find("0.weight")->bytes.size()));
  flipped[at + 5] = static_cast<char>(flipped[at + 5] ^ 1);
  const auto damaged = parse_weights(std::as_bytes(std::span(flipped)));
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, Code::kDataLoss);
}

TEST_F(TorchFiles, SurviveBeingWrittenAsSafetensorsAndReadBack) {
  for (const std::string name : {"net", "kinds", "shapes"}) {
    const auto file = read_weights(path(name + ".zip.pth"));
    const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                         {"naïve \"key\"", "value\n"}};
    const fs::path target = path(name + ".safetensors");
    ASSERT_TRUE(write_safetensors(target, file->tensors(), metadata));
    const auto again = read_weights(target);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->format(), WeightFormat::kSafetensors);
    EXPECT_EQ(again->metadata(), metadata);
    expect_file(name, ".safetensors");
  }
}

std::string safetensors(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0');
}
std::string parse_error(const std::string& bytes) {
  const auto file = parse_weights(std::as_bytes(std::span(bytes)));
  return file ? "no error" : file.error().message;
}

TEST(Safetensors, AreCheckedStrictly) {
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(parse_error(safetensors("{\"x\":{" + good + "}}", 8)), "no error");
  EXPECT_EQ(parse_error(safetensors("{\"x\":{" + good + "}}   ", 8)), "no error");
  EXPECT_THAT(parse_error(safetensors("{\"x\":{" + good + "}}", 9)),
              HasSubstr("behind the last tensor"));
  EXPECT_THAT(parse_error(safetensors("{\"x\":{" + good + "}}", 7)),
              HasSubstr("outside of the file"));
  EXPECT_THAT(parse_error(safetensors("{\"x\":{" + good + "},\"x\":{" + good + "}}", 8)),
              HasSubstr("twice"));
  EXPECT_THAT(parse_error(safetensors("{\"x\":{" + good + "},\"y\":{" + good + "}}", 8)),
              HasSubstr("overlap"));
  EXPECT_THAT(
      parse_error(safetensors(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8)),
      HasSubstr("which its shape"));
  EXPECT_THAT(
      parse_error(safetensors(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12)),
      HasSubstr("gap"));
  EXPECT_THAT(
      parse_error(safetensors(R"({"x":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8)),
      HasSubstr("F8_E4M3"));
  EXPECT_THAT(
      parse_error(safetensors(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8)),
      HasSubstr("no count"));
  EXPECT_THAT(
      parse_error(safetensors(
          R"({"x":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,8]}})",
          8)),
      HasSubstr("which its shape"));
  EXPECT_THAT(parse_error(safetensors(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("no string"));
  EXPECT_THAT(parse_error("\xff\xff\xff\xff\xff\xff\xff\x7f{"), HasSubstr("the limit is"));
}

TEST(WeightFiles, ThatAreSomethingElseSayWhatTheyAre) {
  EXPECT_THAT(parse_error("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
              HasSubstr("Git LFS"));
  EXPECT_THAT(parse_error("<html>"), HasSubstr("neither"));
  EXPECT_THAT(parse_error(""), HasSubstr("neither"));
  EXPECT_FALSE(read_weights("/nowhere/at.all"));
}

TEST(PublishedWeights, OfEfficientNetLite0AreReadWhole) {
  const fs::path path = ATELIER_SOURCE_DIR "/.cache/weights/efficientnet-lite0.pth";
  ASSERT_EQ(std::system(ATELIER_SOURCE_DIR "/scripts/fetch-weights"), 0);
  const auto file = read_weights(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->format(), WeightFormat::kTorchLegacy);
  const NamedTensor* stem = file->find("_conv_stem.weight");
  ASSERT_NE(stem, nullptr);
  EXPECT_THAT(stem->shape, ElementsAre(32, 3, 3, 3));
  std::uint64_t parameters = 0;
  for (const NamedTensor& tensor : file->tensors()) {
    if (!tensor.name.ends_with("running_mean") && !tensor.name.ends_with("running_var") &&
        !tensor.name.ends_with("num_batches_tracked")) {
      parameters += tensor.bytes.size() / dtype_size(tensor.dtype);
    }
  }
  EXPECT_EQ(parameters, 4'652'008U);  // the published count of EfficientNet-Lite0
}

}  // namespace
}  // namespace atelier::vision
