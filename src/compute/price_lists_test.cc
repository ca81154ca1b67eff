#include "compute/price_lists.h"

#include <gtest/gtest.h>

namespace atelier::compute {
namespace {

TEST(PriceLists, AUsersListsAreReadInTheirOrder) {
  const auto lists = parse_price_lists(R"(
    [[list]]
    name = "one"
    currency = "EUR"
    date = "2026-11-30"
    prices = { "ml.a" = 1, "ml.b" = 0.5 }
    [[list]]
    name = "two"
    currency = "USD"
    date = "2026-11"
    prices = {}
  )");
  ASSERT_TRUE(lists) << lists.error().message;
  ASSERT_EQ(lists->size(), 2u);
  EXPECT_EQ(lists->front().price_per_hour.find("ml.b")->second, 0.5);
  EXPECT_EQ(lists->back().date, "2026-11");
  EXPECT_TRUE(parse_price_lists("")->empty()) << "nothing to compare with is an answer, too";
}

TEST(PriceLists, WrongOnesAreRefusedByPlaceAndName) {
  const auto message = [](std::string_view text) {
    const auto lists = parse_price_lists(text);
    return lists ? std::string{} : lists.error().message;
  };
  const std::string head = "[[list]]\nname = 'x'\ncurrency = 'USD'\n";
  EXPECT_NE(message("[[list]]\nname = ").find("line 2"), std::string::npos);
  EXPECT_NE(message(head + "prices = {}").find("without a date"), std::string::npos);
  EXPECT_NE(message(head + "date = '2026'").find("lacks prices"), std::string::npos);
  EXPECT_NE(message(head + "date = '2026'\nprices = { a = -1 }").find("price of 'a'"),
            std::string::npos);
  EXPECT_NE(message(head + "date = '2026'\nprices = { a = nan }").find("price of 'a'"),
            std::string::npos);
  EXPECT_NE(message(head + "dat = '2026'").find("'dat' is not known"), std::string::npos);
  EXPECT_NE(message("lists = 3").find("only [[list]]"), std::string::npos);
}

TEST(PriceLists, TheBuiltInOneHasTheDateOfItsPrices) {
  ASSERT_EQ(builtin_price_lists().size(), 1u);
  EXPECT_FALSE(builtin_price_lists().front().date.empty());
  EXPECT_TRUE(builtin_price_lists().front().price_per_hour.contains("ml.m5.xlarge"));
}

}  // namespace
}  // namespace atelier::compute
