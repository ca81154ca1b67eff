#include "compute/packages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::compute {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Kind = PackageSource::Kind;

class Packages : public ::testing::Test {
 protected:
  Packages() : folder_(std::make_unique<TempFolder>(must(TempFolder::create()))) {}
  template <typename T>
  static T must(Result<T> result) {
    EXPECT_TRUE(result) << result.error().message;
    return *std::move(result);
  }
  std::unique_ptr<TempFolder> folder_;
};

PipSetup setup_of(const std::string& words, bool isolated = false) {
  const Result<PackageSource> source = parse_package_source(words);
  EXPECT_TRUE(source);
  return pip_setup(*source, "/usr/bin/python3", "/opt/ml", isolated);
}

TEST_F(Packages, AreKeptForTheNextStart) {
  EXPECT_EQ(must(load_package_source(folder_->path())).kind, Kind::kNone);
  for (const char* words : {"none", "host", "https://u:p@index.example/simple", "/srv/wheels"}) {
    ASSERT_TRUE(store_package_source(folder_->path(), must(parse_package_source(words))));
    EXPECT_EQ(to_words(must(load_package_source(folder_->path()))), words);
  }
}

TEST_F(Packages, OfAnotherKindAreRefusedWithWhatThereIs) {
  for (const char* words : {"", "pypi", "wheels", "ftp://x/", "https://", "/a\nno-index = false"}) {
    const Result<PackageSource> source = parse_package_source(words);
    ASSERT_FALSE(source) << words;
    EXPECT_THAT(source.error().message, HasSubstr("use none, host"));
  }
}

TEST_F(Packages, ComeFromNowhereUnlessTheOperatorSaysWhere) {
  const PipSetup none = setup_of("none");
  EXPECT_THAT(none.configuration, HasSubstr("no-index = true"));
  EXPECT_THAT(none.advice, HasSubstr("atelier serve --packages"));
  EXPECT_EQ(setup_of("https://index.example/simple").configuration,
            "[global]\nindex-url = https://index.example/simple\n");
  // A network that the job does not have is not asked.
  const PipSetup isolated = setup_of("https://index.example/simple", true);
  EXPECT_THAT(isolated.configuration, HasSubstr("no-index = true"));
  EXPECT_THAT(isolated.advice, HasSubstr("EnableNetworkIsolation"));
}

TEST_F(Packages, OfAFolderAreItsWheelsOrItsIndex) {
  const std::string folder = folder_->path().string();
  const PipSetup wheels = setup_of(folder, true);
  EXPECT_EQ(wheels.configuration, "[global]\nno-index = true\nfind-links = /opt/packages\n");
  ASSERT_EQ(wheels.mounts.size(), 1U);
  EXPECT_EQ(wheels.mounts[0].host, folder);
  EXPECT_FALSE(wheels.mounts[0].writable);
  fs::create_directory(folder_->path() / "simple");
  EXPECT_EQ(setup_of(folder).configuration, "[global]\nindex-url = file:///opt/packages/simple\n");
  const PipSetup gone = setup_of(folder + "/no-such");
  EXPECT_TRUE(gone.mounts.empty());
  EXPECT_THAT(gone.advice, HasSubstr("is not there"));
}

TEST_F(Packages, GoToTheUsersFolderOrForAVirtualEnvironmentToAPrefix) {
  EXPECT_EQ(setup_of("none").environment.at("PYTHONUSERBASE"), "/opt/ml/.python");
  fs::create_directories(folder_->path() / "lib/python3.12/site-packages");
  ASSERT_TRUE(write_file_durably(folder_->path() / "pyvenv.cfg", ""));
  const PipSetup setup = pip_setup({}, folder_->path() / "bin/python", "/opt/ml", false);
  EXPECT_EQ(setup.environment.at("PIP_PREFIX"), "/opt/ml/.python");
  EXPECT_EQ(setup.environment.at("PYTHONPATH"), "/opt/ml/.python/lib/python3.12/site-packages");
  EXPECT_FALSE(setup.environment.contains("PIP_USER"));
}

}  // namespace
}  // namespace atelier::compute
