// The small parts of the agent, without a process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "agent/archive.h"
#include "agent/gzip_writer.h"
#include "agent/instances.h"
#include "agent/line_cutter.h"
#include "agent/metric_matcher.h"
#include "agent/ml_tree.h"
#include "agent/outcome.h"
#include "agent/program.h"
#include "agent/volume_watch.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class LineCutterTest : public testing::Test {
 protected:
  std::vector<std::string> feed(std::string_view bytes, int at = 0) {
    lines_.clear();
    cutter_.feed(bytes, LineCutter::Clock::time_point{std::chrono::hours{1} + milliseconds{at}},
                 emit_);
    return lines_;
  }
  std::vector<std::string> give_out() {
    lines_.clear();
    cutter_.give_out(emit_);
    return lines_;
  }
  std::vector<std::string> lines_;
  LineCutter::Emit emit_ = [this](std::string_view line) { lines_.emplace_back(line); };
  LineCutter cutter_;
};

TEST_F(LineCutterTest, LinesAreCutWhereverTheBytesAre) {
  EXPECT_THAT(feed("one\ntwo\nth"), ElementsAre("one", "two"));
  EXPECT_THAT(feed("ree\n\nx\r"), ElementsAre("three", ""));
  EXPECT_THAT(feed("\ny\r\n"), ElementsAre("x", "y"));
  EXPECT_FALSE(cutter_.deadline());
}

TEST_F(LineCutterTest, ALineWithoutEndIsGivenOutAfterAMoment) {
  EXPECT_TRUE(feed("Password: ").empty());
  EXPECT_TRUE(cutter_.deadline());
  EXPECT_THAT(give_out(), ElementsAre("Password: "));
  EXPECT_FALSE(cutter_.deadline());
  EXPECT_TRUE(feed("\n").empty());  // the end alone adds nothing
  EXPECT_THAT(feed("next\n"), ElementsAre("next"));
}

TEST_F(LineCutterTest, OfAProgressBarOneStateASecondAndTheLastAreKept) {
  EXPECT_THAT(feed("\r 1%\r 2%\r", 0), ElementsAre(" 1%"));
  EXPECT_TRUE(feed(" 3%\r 4%\r", 500).empty());
  EXPECT_THAT(feed(" 5%\r 6%\r", 1100), ElementsAre(" 4%"));
  EXPECT_THAT(feed("100%\ndone\n", 1200), ElementsAre("100%", "done"));
}

TEST_F(LineCutterTest, AProgressBarThatPausesShowsItsLastState) {
  feed("\r 1%\r 2%\r 3%", 0);
  EXPECT_THAT(give_out(), ElementsAre(" 3%"));
}

TEST_F(LineCutterTest, ALineWithoutBoundIsCut) {
  const std::string huge(LineCutter::kMaxLine * 2 + 5, 'x');
  EXPECT_EQ(feed(huge).size(), 2U);
  EXPECT_THAT(feed("\n"), ElementsAre("xxxxx"));
}

std::vector<std::pair<std::string, double>> matches(MetricMatcher& matcher, std::string_view line) {
  std::vector<MetricMatcher::Match> found;
  matcher.match(line, found);
  std::vector<std::pair<std::string, double>> out;
  for (const auto& match : found) out.emplace_back(match.name, match.value);
  return out;
}

TEST(MetricMatcher, PatternsAsPeopleWriteThemMatch) {
  MetricMatcher matcher{{{"loss", R"re(loss: ([0-9\.]+))re"},
                         {"acc", R"(acc=(?P<value>[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?))"},
                         {"epoch", R"(epoch\s+(\S+))"}}};
  EXPECT_TRUE(matcher.warnings().empty());
  EXPECT_THAT(
      matches(matcher, "epoch 3 loss: 0.25 acc=1e-3"),
      ElementsAre(std::pair{"loss", 0.25}, std::pair{"acc", 1e-3}, std::pair{"epoch", 3.0}));
  EXPECT_TRUE(matches(matcher, "nothing here").empty());
  EXPECT_THAT(matches(matcher, "caf\xe9 \xff loss: 1.5 ,"), ElementsAre(std::pair{"loss", 1.5}));
}

TEST(MetricMatcher, WhatIsNoFiniteNumberIsNoMatchAndIsSaid) {
  MetricMatcher matcher{{{"loss", "loss: (\\S+)"}}};
  EXPECT_TRUE(matches(matcher, "loss: nan").empty());
  EXPECT_TRUE(matches(matcher, "loss: high").empty());
  EXPECT_THAT(matcher.unmatched(), ElementsAre(HasSubstr("matched 'nan', which is no finite")));
}

TEST(MetricMatcher, PatternsThatCannotBeUsedAreSaid) {
  MetricMatcher matcher{{{"a", "(?=x)(y)"}, {"b", "("}, {"c", "no group"}}};
  ASSERT_EQ(matcher.warnings().size(), 3U);
  EXPECT_THAT(matcher.warnings()[2], HasSubstr("has no group"));
}

TEST(MetricMatcher, AHostilePatternOnAHostileLineTakesLinearTime) {
  MetricMatcher matcher{{{"evil", "(a+)+b([0-9])"}, {"wide", "(x?){500}x{500}(1)"}}};
  const std::string line(1 << 18, 'a');
  EXPECT_TRUE(matches(matcher, line).empty());
}

constexpr auto go_on = [] { return Result<void>{}; };

class TreeTest : public testing::Test {
 protected:
  TempFolder folder_ = TempFolder::create().value();
  fs::path path_ = folder_.path() / "ml";
  MlTree tree_ = MlTree::open(path_, {getuid(), getgid()}).value();

  UniqueFd archive_of(const std::string& shell) {
    const std::string file = (folder_.path() / "a.tar").string();
    const std::string command = "cd " + folder_.path().string() + " && (" + shell + ")";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return open_file(file, O_RDONLY).value();
  }
};

TEST_F(TreeTest, ConfigurationIsWhatTheContractSays) {
  AgentSpec spec;
  spec.instance_type = "ml.g5.xlarge";
  spec.hyperparameters = {{"lr", "0.1"}, {"opt", "\"adam\""}};
  spec.channels = {{.name = "train", .s3_uri = "s3://b/p", .content_type = "image/jpeg"},
                   {.name = "model", .s3_uri = "s3://b/m"},
                   {.name = "lines",
                    .s3_uri = "s3://b/l",
                    .s3_data_type = "AugmentedManifestFile",
                    .attribute_names = {"source-ref", "class"}}};
  spec.metrics = {{"loss", "l=(.)"}};
  prepare_ml_tree(tree_, spec).value();
  const auto config = [&](const char* name) {
    return read_file(path_ / "input/config" / name).value();
  };
  EXPECT_EQ(config("hyperparameters.json"), R"({"lr":"0.1","opt":"\"adam\""})");
  EXPECT_EQ(config("inputdataconfig.json"),
            R"({"train":{"TrainingInputMode":"File","S3DistributionType":"FullyReplicated",)"
            R"("RecordWrapperType":"None","ContentType":"image/jpeg"},)"
            R"("model":{"TrainingInputMode":"File","S3DistributionType":"FullyReplicated",)"
            R"("RecordWrapperType":"None"},)"
            R"("lines":{"TrainingInputMode":"File","S3DistributionType":"FullyReplicated",)"
            R"("RecordWrapperType":"None","AttributeNames":["source-ref","class"]}})");
  EXPECT_EQ(config("resourceconfig.json"),
            R"({"current_host":"algo-1","current_instance_type":"ml.g5.xlarge",)"
            R"("current_group_name":"homogeneousCluster","hosts":["algo-1"],)"
            R"("instance_groups":[{"instance_group_name":"homogeneousCluster",)"
            R"("instance_type":"ml.g5.xlarge","hosts":["algo-1"]}],)"
            R"("network_interface_name":"lo","topology":null})");
  EXPECT_EQ(config("metric-definition-regex.json"), R"re([{"Name":"loss","Regex":"l=(.)"}])re");
  EXPECT_TRUE(fs::is_directory(path_ / "output/data"));
}

TEST_F(TreeTest, NothingIsOpenedThroughALinkOrOutside) {
  std::ofstream{folder_.path() / "secret"} << "x";
  fs::create_symlink(folder_.path(), path_ / "out");
  fs::create_symlink("../secret", path_ / "failure");
  EXPECT_FALSE(tree_.open_file("out/secret"));
  EXPECT_FALSE(tree_.open_file("failure"));
  EXPECT_FALSE(tree_.open_file("../secret"));
  EXPECT_FALSE(tree_.open_folder("out"));
  EXPECT_FALSE(tree_.write_file("out/new", "x"));
  EXPECT_FALSE(tree_.make_executable("failure"));
  ASSERT_EQ(mkfifo((path_ / "pipe").c_str(), 0644), 0);
  EXPECT_EQ(tree_.open_file("pipe").error().code, Code::kInvalidArgument);
  EXPECT_EQ(tree_.open_file("none").error().code, Code::kNotFound);
}

TEST_F(TreeTest, PackingIsDeterministicAndTarReadsIt) {
  for (const char* name : {"model/b", "model/a/z", "model/a/caf\xc3\xa9"}) {
    tree_.write_file(name, std::string(3 << 20, name[6])).value();
  }
  for (const char* name : {"model/b", "model/a/z", "model/a/caf\xc3\xa9", "model/a"}) {
    const timespec times[2] = {{1000, 0}, {1000, 0}};
    utimensat(AT_FDCWD, (path_ / name).c_str(), times, 0);
  }
  std::string packed[2];
  for (std::string& bytes : packed) {
    const fs::path file = folder_.path() / "model.tar.gz";
    const UniqueFd fd = open_file(file, O_WRONLY | O_CREAT | O_TRUNC).value();
    pack_folders({&tree_}, "model", fd.get(), go_on).value();
    bytes = read_file(file).value();
  }
  EXPECT_EQ(packed[0], packed[1]);
  const std::string check = "cd " + folder_.path().string() +
                            " && gzip -t model.tar.gz && mkdir x && tar -C x -xzf model.tar.gz && "
                            "diff -r x ml/model && "
                            "python3 -c \"import tarfile; print(sorted(tarfile.open("
                            "'model.tar.gz').getnames()))\" > names";
  EXPECT_EQ(std::system(check.c_str()), 0);
  EXPECT_EQ(read_file(folder_.path() / "names").value(), "['a', 'a/caf\xc3\xa9', 'a/z', 'b']\n");
}

TEST_F(TreeTest, WhereTheHostGivesNoMoreThreadsTheArchiveIsTheSame) {
  const auto write_gzip = [&](const char* name) {
    const UniqueFd fd = open_file(folder_.path() / name, O_WRONLY | O_CREAT).value();
    return [fd = std::make_shared<UniqueFd>(UniqueFd{dup(fd.get())})] {
      GzipWriter gzip{fd->get(), 4};
      for (int i = 0; i < 300'000; ++i) {
        if (!gzip.write("a line " + std::to_string(i) + "\n")) return false;
      }
      return gzip.finish().has_value();
    };
  };
  ASSERT_TRUE(write_gzip("usual.gz")());
  const auto without_threads = write_gzip("alone.gz");
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit none { 0, 0 };
    bool ready = setrlimit(RLIMIT_NPROC, &none) == 0;
    if (geteuid() == 0) ready = ready && setresuid(65534, 65534, 65534) == 0;  // root has no limit
    _exit(ready && without_threads() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_file(folder_.path() / "alone.gz").value(),
            read_file(folder_.path() / "usual.gz").value());
}

TEST_F(TreeTest, AnEmptyFolderIsAnArchiveThatTarReads) {
  const UniqueFd fd = open_file(folder_.path() / "e.tar.gz", O_WRONLY | O_CREAT).value();
  pack_folders({&tree_}, "model", fd.get(), go_on).value();
  EXPECT_EQ(std::system(("tar -tzf " + (folder_.path() / "e.tar.gz").string()).c_str()), 0);
}

TEST_F(TreeTest, UnpackingKeepsFilesFoldersAndModes) {
  const UniqueFd fd = archive_of(
      "mkdir -p s/sub && echo 1 > s/train.py && echo 2 > s/sub/x.sh && chmod 755 s/sub/x.sh && "
      "ln -s train.py s/link && tar -C s -cf a.tar .");
  unpack_archive(fd.get(), tree_, "code").value();
  EXPECT_EQ(read_file(path_ / "code/train.py").value(), "1\n");
  EXPECT_EQ(fs::read_symlink(path_ / "code/link"), "train.py");
  struct stat info {};
  stat((path_ / "code/sub/x.sh").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777U, 0755U);
}

TEST_F(TreeTest, HostileArchivesWriteNothingOutside) {
  const char* shells[] = {
      "echo x > f && tar -cf a.tar --transform 's,f,../escaped,' -P f",
      "echo x > f && tar -cf a.tar --transform 's,f,/tmp/atelier-escaped,' -P f",
      "ln -sfn .. l && mkdir -p d && echo x > d/escaped && tar -cf a.tar l && "
      "tar -rf a.tar --transform 's,^d,l,' d/escaped",
      "echo x > f && ln -f f g && tar -cf a.tar f g",
      "rm -f p && mkfifo p && tar -cf a.tar p",
      "head -c 3000 /dev/urandom > a.tar",
  };
  for (const char* shell : shells) {
    const UniqueFd fd = archive_of(shell);
    EXPECT_FALSE(unpack_archive(fd.get(), tree_, "code")) << shell;
    EXPECT_FALSE(fs::exists(path_ / "escaped")) << shell;
    EXPECT_FALSE(fs::exists(folder_.path() / "escaped")) << shell;
    EXPECT_FALSE(fs::exists("/tmp/atelier-escaped")) << shell;
    fs::remove_all(path_ / "code");
  }
}

TEST_F(TreeTest, AStopEndsTheUnpackingAtTheNextEntry) {
  const UniqueFd fd = archive_of("mkdir -p m && touch m/1 m/2 m/3 && tar -cf a.tar m");
  int asked = 0;
  const Result<void> stopped =
      unpack_archive(fd.get(), tree_, "code", {}, [&] { return ++asked > 2; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_EQ(list_tree(tree_, "code")->size(), 2U);
}

TEST_F(TreeTest, AnArchiveBeyondTheLimitsIsRefused) {
  const UniqueFd bytes = archive_of("head -c 200000 /dev/zero > f && tar -czf a.tar f");
  const Result<void> large = unpack_archive(bytes.get(), tree_, "code", {.max_bytes = 100000});
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("more than 100000 bytes"));
  const UniqueFd many = archive_of("mkdir -p m && touch m/1 m/2 m/3 && tar -cf a.tar m");
  EXPECT_FALSE(unpack_archive(many.get(), tree_, "code2", {.max_members = 2}));
}

TEST(ProgramEnvironment, HasATicketForKeysAndNoKeys) {
  AgentSpec spec;
  spec.job_name = "job-1";
  spec.s3.url = "http://127.0.0.1:1";
  spec.s3.credentials = {"ASIA1", "agents-secret", "agents-token"};
  spec.credentials_uri = "http://127.0.0.1:1/keys";
  spec.credentials_ticket = "ticket";
  const auto environment = platform_environment(spec);
  EXPECT_EQ(environment.at("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "http://127.0.0.1:1/keys");
  EXPECT_EQ(environment.at("AWS_CONTAINER_AUTHORIZATION_TOKEN"), "ticket");
  for (const auto& [name, value] : environment) {
    EXPECT_EQ(value.find("agents-"), std::string::npos) << name;
  }
  spec.network_isolation = true;
  EXPECT_FALSE(platform_environment(spec).contains("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
}

TEST(ProgramEnvironment, GivesTorchrunOfTorch1WordsThatItCanRead) {
  AgentSpec spec;
  spec.runtime.framework_version = "1.13.0a0+gitunknown";
  EXPECT_EQ(platform_environment(spec).at("PET_REDIRECTS"), "9:1");
  EXPECT_EQ(platform_environment(spec).at("PET_TEE"), "9:1");
  spec.runtime.framework_version = "2.6.0";
  EXPECT_FALSE(platform_environment(spec).contains("PET_REDIRECTS"));
}

TEST(VolumeWatch, TheReasonNamesThePoolThatHoldsMost) {
  const TempFolder folder = TempFolder::create().value();
  AgentSpec spec;
  spec.volume_gib = 1;
  const std::uint64_t written = std::uint64_t{5} << 28;
  EXPECT_THAT(beyond_volume_words(written, spec), testing::EndsWith("ask for a larger volume"));
  spec.warm_pool = (folder.path() / "first.f00d").string();
  make_folders(folder.path() / "first.f00d" / spec.host / "cache").value();
  EXPECT_THAT(beyond_volume_words(written, spec), testing::EndsWith("ask for a larger volume"));
  const UniqueFd file =
      open_file(folder.path() / "first.f00d" / spec.host / "cache/x", O_WRONLY | O_CREAT).value();
  ASSERT_EQ(posix_fallocate(file.get(), 0, 200 << 20), 0);
  const std::string words = beyond_volume_words(written, spec);
  EXPECT_THAT(words, testing::StartsWith("the program wrote 1.2 GiB to "));
  EXPECT_THAT(words, testing::HasSubstr("0.2 GiB of it are in the pool of job 'first'"));
  Outcome outcome = failed(words);
  EXPECT_FALSE(parse_outcome(to_json(outcome)).beyond_volume);
  outcome.beyond_volume = true;
  EXPECT_TRUE(parse_outcome(to_json(outcome)).beyond_volume);
  Outcome other;
  other.kind = "stopped";
  EXPECT_TRUE(outcome_of_job({{"algo-1", other, {}}, {"algo-2", outcome, {}}}).beyond_volume);
}

TEST(VolumeWatch, SeesWhatIsWrittenAndFollowsNoLink) {
  const TempFolder folder = TempFolder::create().value();
  make_folders(folder.path() / "a/b").value();
  const std::uint64_t before = disk_use(folder.path());
  write_file_durably(folder.path() / "a/b/file", std::string(1 << 20, 'x')).value();
  std::filesystem::create_symlink("/usr", folder.path() / "a/link");
  const std::uint64_t after = disk_use(folder.path());
  EXPECT_GE(after, before + (1 << 20));
  EXPECT_LE(after, before + (1 << 20) + 65536);
  EXPECT_EQ(disk_use(folder.path() / "no-such"), 0U);
  EXPECT_GE(disk_use(folder.path() / "a/b/file"), 1U << 20);
  for (int i = 0; i < 100; ++i) std::ofstream{folder.path() / std::to_string(i)};
  EXPECT_GE(disk_use(folder.path()), after + 100 * 4096);
}

}  // namespace
}  // namespace atelier::agent
