#include "archives/archive_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/file.h"

namespace atelier::archives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class ArchiveReaderTest : public testing::Test {
 protected:
  TempFolder folder_ = TempFolder::create().value();

  // The file that the shell command leaves as `name`.
  std::filesystem::path made(const std::string& shell, const std::string& name = "a") {
    const std::string command = "cd " + folder_.path().string() + " && (" + shell + ")";
    EXPECT_EQ(std::system(command.c_str()), 0) << shell;
    return folder_.path() / name;
  }
};

Result<std::string> contents(ArchiveReader& reader) {
  std::string all;
  std::string block(1000, '\0');
  while (const std::size_t got = TRY(reader.read(block))) all.append(block, 0, got);
  return all;
}

Result<std::map<std::string, std::string>> files_of(const std::filesystem::path& path,
                                                    Formats formats, const Limits& limits = {}) {
  std::map<std::string, std::string> files;
  ArchiveReader reader = TRY(ArchiveReader::open(path, formats, limits));
  while (const std::optional<Member> member = TRY(reader.next())) {
    if (member->kind == Member::Kind::kFile) files[member->name] = TRY(contents(reader));
  }
  return files;
}

TEST_F(ArchiveReaderTest, NamesThatAreNotAsciiAreReadInTheCLocale) {
  // "ä" in both encodings: the second is no UTF-8 and comes as it is stored.
  const auto utf8 = made("printf x > \"$(printf '\\303\\244')\" && tar --format=pax -czf a *", "a");
  EXPECT_THAT(files_of(utf8, Formats::kTarGz).value(), ElementsAre(Pair("\xc3\xa4", "x")));
  const auto latin1 = made("rm * && printf x > \"$(printf '\\344')\" && tar --format=gnu -czf a *");
  EXPECT_THAT(files_of(latin1, Formats::kTarGz).value(), ElementsAre(Pair("\xe4", "x")));
}

TEST_F(ArchiveReaderTest, EachMemberSaysWhatItIs) {
  const auto path = made(
      "mkdir s && cd s && mkdir d && echo 1 > d/f && chmod 640 d/f && ln -s d/f l && ln d/f h && "
      "mkfifo p && tar --sort=name -cf ../a d h l p");
  ArchiveReader reader = ArchiveReader::open(path, Formats::kTar, {}).value();
  std::map<std::string, Member> members;
  while (const std::optional<Member> member = reader.next().value())
    members[member->name] = *member;
  EXPECT_EQ(members.at("d/").kind, Member::Kind::kFolder);
  EXPECT_EQ(members.at("d/f").kind, Member::Kind::kFile);
  EXPECT_EQ(members.at("d/f").size, 2U);
  EXPECT_EQ(members.at("d/f").mode, 0640U);
  EXPECT_EQ(members.at("h").kind, Member::Kind::kHardLink);
  EXPECT_EQ(members.at("l").kind, Member::Kind::kLink);
  EXPECT_EQ(members.at("l").target, "d/f");
  EXPECT_EQ(members.at("p").kind, Member::Kind::kOther);
}

TEST_F(ArchiveReaderTest, ASparseFileIsWrittenWithItsHolesToItsFullLength) {
  const auto path = made(
      "truncate -s 300000 f && printf x | dd of=f bs=1 seek=100000 conv=notrunc status=none && "
      "tar --sparse -cf a f");
  ArchiveReader reader = ArchiveReader::open(path, Formats::kTar, {}).value();
  ASSERT_TRUE(reader.next().value());
  const UniqueFd out = open_file(folder_.path() / "out", O_WRONLY | O_CREAT).value();
  reader.copy_to(out.get()).value();
  EXPECT_EQ(read_file(folder_.path() / "out").value(), read_file(folder_.path() / "f").value());
}

TEST_F(ArchiveReaderTest, ATornArchiveIsDataLoss) {
  const auto path =
      made("head -c 200000 /dev/urandom > f && tar -czf whole f && head -c 9000 whole > a");
  EXPECT_EQ(files_of(path, Formats::kTarGz).error().code, Code::kDataLoss);
  EXPECT_EQ(files_of(made("head -c 3000 /dev/urandom > a"), Formats::kTarOrZip).error().code,
            Code::kDataLoss);
  EXPECT_EQ(files_of(folder_.path() / "absent", Formats::kTar).error().code, Code::kDataLoss);
}

TEST_F(ArchiveReaderTest, TheLimitsHoldForTheWholeArchive) {
  const auto path = made("head -c 600 /dev/zero > f && cp f g && tar -czf a f g");
  EXPECT_EQ(files_of(path, Formats::kTarGz, {.max_bytes = 1200, .max_members = 2}).value().size(),
            2U);
  const auto large = files_of(path, Formats::kTarGz, {.max_bytes = 1199});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kResourceExhausted);
  EXPECT_THAT(large.error().message, HasSubstr("more than 1199 bytes"));
  const auto many = files_of(path, Formats::kTarGz, {.max_members = 1});
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, Code::kResourceExhausted);
}

TEST_F(ArchiveReaderTest, OnlyTheFormatsThatWereAskedForAreRead) {
  const auto bzip2 = made("echo 1 > f && tar -cjf a f");
  EXPECT_FALSE(files_of(bzip2, Formats::kTarGz));
  EXPECT_TRUE(files_of(bzip2, Formats::kTar));
  const auto zip = made("python3 -m zipfile -c a f");
  EXPECT_FALSE(files_of(zip, Formats::kTar));
  EXPECT_THAT(files_of(zip, Formats::kTarOrZip).value(), ElementsAre(Pair("f", "1\n")));
  const auto empty = made(": > a");
  EXPECT_FALSE(files_of(empty, Formats::kTarGz));
  EXPECT_TRUE(files_of(empty, Formats::kTar));
}

}  // namespace
}  // namespace atelier::archives
