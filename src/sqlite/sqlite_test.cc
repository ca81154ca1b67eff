#include "sqlite/sqlite.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"

namespace atelier::sqlite {
namespace {

TEST(Database, TextAndBlobsComeBackByteForByteAndAreDifferentThings) {
  const TempFolder folder = *TempFolder::create();
  auto database = *Database::open(folder.path() / "db");
  ASSERT_TRUE(database.script("CREATE TABLE t(a, b, c, d, e, f)"));
  const std::string bytes{"a\0\xFF", 3};
  ASSERT_TRUE(database.run("INSERT INTO t VALUES(?, ?, ?, ?, ?, ?)",
                           {bytes, Blob{bytes}, Blob{{}}, nullptr, std::int64_t{-1}, 0.5}));
  auto rows = *database.query("SELECT *, typeof(a), typeof(b), typeof(c) FROM t");
  ASSERT_TRUE(*rows.step());
  EXPECT_EQ(rows.text(0), bytes);
  EXPECT_EQ(rows.bytes(1), bytes);
  EXPECT_EQ(rows.bytes(2), "");
  EXPECT_FALSE(rows.null(2));
  EXPECT_TRUE(rows.null(3));
  EXPECT_EQ(rows.integer(4), -1);
  EXPECT_EQ(rows.number(5), 0.5);
  EXPECT_EQ(rows.text(6) + rows.text(7) + rows.text(8), "textblobblob");
  EXPECT_FALSE(*rows.step());
}

TEST(Database, AFullOneSaysSoAndChangesNothing) {
  const TempFolder folder = *TempFolder::create();
  auto database = *Database::open(folder.path() / "db", {.name = "the shelf", .max_pages = 4});
  ASSERT_TRUE(database.script("CREATE TABLE t(x)"));
  const std::string large(100'000, 'x');
  const auto outcome = database.run("INSERT INTO t VALUES(?)", {large});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kResourceExhausted);
  EXPECT_EQ(outcome.error().message.find("the shelf: "), 0u);
  auto rows = *database.query("SELECT count(*) FROM t");
  ASSERT_TRUE(*rows.step());
  EXPECT_EQ(rows.integer(0), 0);
}

TEST(Database, AConstraintAndAWrongStatementAreErrorsThatNameTheStatement) {
  const TempFolder folder = *TempFolder::create();
  auto database = *Database::open(folder.path() / "db");
  ASSERT_TRUE(database.script("CREATE TABLE t(x UNIQUE); INSERT INTO t VALUES(1)"));
  const auto twice = database.run("INSERT INTO t VALUES(?)", {std::int64_t{1}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kAlreadyExists);
  const auto wrong = database.query("SELECT y FROM t");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("SELECT y FROM t"), std::string::npos);
}

TEST(Transaction, WhatIsNotCommittedIsUndone) {
  const TempFolder folder = *TempFolder::create();
  auto database = *Database::open(folder.path() / "db");
  ASSERT_TRUE(database.script("CREATE TABLE t(x)"));
  for (const bool commit : {false, true}) {
    auto transaction = *Transaction::begin(database);
    ASSERT_TRUE(database.run("INSERT INTO t VALUES(1)"));
    if (commit) {
      ASSERT_TRUE(transaction.commit());
    }
  }
  auto rows = *database.query("SELECT count(*) FROM t");
  ASSERT_TRUE(*rows.step());
  EXPECT_EQ(rows.integer(0), 1);
}

TEST(Migration, EachStepIsMadeOnceAndAFailedOneLeavesTheVersionBefore) {
  const TempFolder folder = *TempFolder::create();
  auto database = *Database::open(folder.path() / "db");
  const std::string one = "CREATE TABLE a(x); INSERT INTO a VALUES(1);";
  const std::string two = "INSERT INTO a VALUES(2);";
  ASSERT_TRUE(migrate(database, {one}));
  ASSERT_TRUE(migrate(database, {one, two}));
  ASSERT_TRUE(migrate(database, {one, two}));
  EXPECT_FALSE(migrate(database, {one, two, "INSERT INTO a VALUES(3); nonsense;"}));
  auto rows = *database.query("SELECT sum(x), (SELECT * FROM pragma_user_version) FROM a");
  ASSERT_TRUE(*rows.step());
  EXPECT_EQ(rows.integer(0), 3);
  EXPECT_EQ(rows.integer(1), 2);
}

}  // namespace
}  // namespace atelier::sqlite
