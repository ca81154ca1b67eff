#include "compute/runtimes.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::compute {
namespace {

namespace fs = std::filesystem;

// A Python prefix that has PyTorch 2.1.0, as pip leaves it.
class RuntimesTest : public testing::Test {
 protected:
  RuntimesTest() {
    make_folders(prefix_ / "lib/python3.11/site-packages/torch-2.1.0.dist-info").value();
    make_folders(prefix_ / "lib/python3.11/site-packages/torchvision-0.9.dist-info").value();
    make_folders(prefix_ / "bin").value();
    write_file_durably(prefix_ / "bin/python3", "", 0755).value();
    table_.python = (prefix_ / "bin/python3").string();
    table_.vision_program = "/usr/bin/atelier-vision";
  }
  TempFolder folder_ = TempFolder::create().value();
  fs::path prefix_ = fs::canonical(folder_.path()) / "venv";
  RuntimeTable table_;
};

TEST_F(RuntimesTest, APyTorchImageOfAnyRegionRunsScripts) {
  const Runtime runtime =
      find_runtime(table_,
                   "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.1.0-cpu-py310")
          .value();
  EXPECT_EQ(runtime.kind, RuntimeKind::kScript);
  EXPECT_EQ(runtime.name, "pytorch-training");
  EXPECT_EQ(runtime.program, std::vector<std::string>{table_.python});
  EXPECT_EQ(runtime.framework_module, "sagemaker_pytorch_container.training:main");
  EXPECT_EQ(runtime.folders, std::vector<std::string>{prefix_.string()});
  EXPECT_EQ(runtime.framework_version, "2.1.0");
  EXPECT_EQ(runtime.note, "");
}

TEST_F(RuntimesTest, AnotherVersionThanAskedForIsSaid) {
  const Runtime runtime =
      find_runtime(table_, "1.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:1.6.0-gpu-py3")
          .value();
  EXPECT_EQ(runtime.note, "the image asks for PyTorch 1.6.0; this host runs 2.1.0");
}

TEST_F(RuntimesTest, AMissingFrameworkIsSaidOrRefused) {
  fs::remove_all(prefix_ / "lib");
  EXPECT_EQ(find_runtime(table_, "huggingface-pytorch-training:1.7.1-transformers4.6.1")->note,
            "PyTorch is not installed for " + table_.python + ": an import of it will fail");
  const auto refused = find_runtime(table_, "x/sagemaker-scikit-learn:0.23-1-cpu-py3");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("needs scikit-learn"), std::string::npos);
}

TEST_F(RuntimesTest, EveryFormOfImageClassificationIsTheBuiltInAlgorithm) {
  for (const char* uri :
       {"825641698319.dkr.ecr.us-east-2.amazonaws.com/image-classification:1",
        "433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:latest",
        "atelier/image-classification", "image-classification@sha256:00"}) {
    const Runtime runtime = find_runtime(table_, uri).value();
    EXPECT_EQ(runtime.kind, RuntimeKind::kBuiltIn) << uri;
    EXPECT_EQ(runtime.program, (std::vector<std::string>{"/usr/bin/atelier-vision", "train"}));
  }
}

TEST_F(RuntimesTest, ARefusalNamesTheImageAndTheKnownOnes) {
  for (const char* uri : {"1.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.9",
                          "my/own-image:3", "image-classification-neo:1", ""}) {
    const auto refused = find_runtime(table_, uri);
    ASSERT_FALSE(refused) << uri;
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_NE(refused.error().message.find(uri), std::string::npos);
    EXPECT_NE(refused.error().message.find("pytorch-training"), std::string::npos);
  }
}

TEST_F(RuntimesTest, ScriptsRunOnThePythonThatHasPyTorchAndElseOnTheSystems) {
  const fs::path project = fs::canonical(folder_.path()) / "project";
  const fs::path program = project / "build/release/bin/atelier";
  const fs::path environment = project / ".venv";
  const std::string bare = (fs::canonical(folder_.path()) / "bare/bin/python3").string();
  EXPECT_EQ(choose_python(bare, program), bare);
  make_folders(environment / "bin").value();
  write_file_durably(environment / "bin/python", "", 0755).value();
  EXPECT_EQ(choose_python(bare, program), bare);
  make_folders(environment / "lib/python3.12/site-packages/torch-2.13.0.dist-info").value();
  EXPECT_EQ(choose_python(bare, program), (environment / "bin/python").string());
  EXPECT_EQ(choose_python(table_.python, program), table_.python);
}

TEST(Runtimes, TheDistributionsPythonNeedsNoFolderOfItsOwn) {
  EXPECT_TRUE(find_runtime({}, "pytorch-training:1.13.1")->folders.empty());
}

}  // namespace
}  // namespace atelier::compute
