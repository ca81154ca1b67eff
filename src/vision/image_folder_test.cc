#include "vision/image_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "base/rng.h"
#include "vision/encode.h"

namespace atelier::vision {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageFolders : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path root() const { return temp_.path() / "set"; }
  void put(const std::string& path, const std::string& bytes) const {
    ASSERT_TRUE(make_folders((root() / path).parent_path()));
    ASSERT_TRUE(write_file_durably(root() / path, bytes));
  }
  // A picture of one colour, which says which one it is.
  static std::string picture(int number) {
    Image image{24, 24, 3,
                std::vector<std::uint8_t>(24 * 24 * 3, static_cast<std::uint8_t>(number))};
    return encode_png(image).value();
  }
  // 3 classes of 10 pictures.
  void put_set() const {
    for (int i = 0; i < 30; ++i) put(fmt::format("{}/{:02}.png", "cab"[i % 3], i), picture(i));
  }
  [[nodiscard]] static LoaderOptions small(std::size_t batch) {
    LoaderOptions options;
    options.preprocess = {.width = 16,
                          .height = 16,
                          .mode = ResizeMode::kSquash,
                          .mean = {0, 0, 0},
                          .std = {1, 1, 1}};
    options.batch_size = batch;
    return options;
  }
  struct Epoch {
    std::vector<std::uint32_t> indices;
    std::vector<std::int64_t> labels;
    std::vector<std::size_t> sizes;
    std::vector<float> pixels;
    std::vector<std::string> damaged;
    std::string error;
  };
  static Epoch run(const ImageFolder& folder, const LoaderOptions& options,
                   std::vector<std::uint32_t> order) {
    Epoch epoch;
    auto loader = std::move(BatchLoader::create(folder, std::move(order), options)).value();
    while (true) {
      auto batch = loader->next();
      if (!batch) {
        epoch.error = batch.error().message;
        break;
      }
      if (!batch->has_value()) break;
      Batch& made = **batch;
      epoch.sizes.push_back(made.count);
      epoch.indices.insert(epoch.indices.end(), made.indices.begin(), made.indices.end());
      epoch.labels.insert(epoch.labels.end(), made.labels.begin(), made.labels.end());
      const float* pixels = made.pixels.data();
      epoch.pixels.insert(epoch.pixels.end(), pixels,
                          pixels + made.count * options.preprocess.output_floats());
      loader->recycle(std::move(made));
    }
    for (const DamagedPicture& damaged : loader->damaged()) epoch.damaged.push_back(damaged.path);
    return epoch;
  }
  TempFolder temp_ = std::move(TempFolder::create()).value();
};

TEST_F(ImageFolders, NumberTheirClassesInByteOrder) {
  for (const char* path :
       {"10/a.png", "2/a.png", "1/a.png", "Z/a.JPG", "a/b.jpeg", "\xc3\xa9/x.webp"})
    put(path, "x");
  const auto folder = index_image_folder(root());
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_THAT(folder->classes, ElementsAre("1", "10", "2", "Z", "a", "\xc3\xa9"));
  EXPECT_THAT(folder->class_counts, ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_EQ(folder->samples[4].path, "a/b.jpeg");
  EXPECT_EQ(folder->samples[4].label, 4U);
}

TEST_F(ImageFolders, LeaveOutWhatIsNoPicture) {
  put("bag/1.png", "x");
  put("bag/deep/er/2.png", "x");
  for (const char* path : {"bag/.hidden.png", "bag/._1.png", "bag/Thumbs.db", "bag/notes.txt",
                           ".ipynb_checkpoints/1.png", "__MACOSX/bag/1.png", "loose.png",
                           "bag/.ipynb_checkpoints/3.png"}) {
    put(path, "x");
  }
  ASSERT_TRUE(make_folders(root() / "empty"));
  const auto folder = index_image_folder(root());
  EXPECT_THAT(folder->classes, ElementsAre("bag", "empty"));
  EXPECT_THAT(folder->class_counts, ElementsAre(2, 0));
  const std::string warnings = fmt::format("{}", fmt::join(folder->warnings, "; "));
  EXPECT_THAT(warnings, HasSubstr("'bag/notes.txt' is no picture"));
  EXPECT_THAT(warnings, HasSubstr("'loose.png' lies in no class folder"));
  EXPECT_THAT(warnings, HasSubstr("class 'empty' has no pictures"));
}

TEST_F(ImageFolders, FollowLinksOnlyWithin) {
  put("bag/1.png", "x");
  put("boot/1.png", "x");
  ASSERT_TRUE(write_file_durably(temp_.path() / "secret.png", "x"));
  fs::create_symlink("1.png", root() / "bag/2.png");
  fs::create_symlink("../../secret.png", root() / "bag/3.png");
  fs::create_directory_symlink(temp_.path(), root() / "outside");
  fs::create_directory_symlink("../bag", root() / "boot/loop");
  const auto folder = index_image_folder(root());
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_THAT(folder->classes, ElementsAre("bag", "boot"));
  EXPECT_THAT(folder->class_counts, ElementsAre(2, 1));
  EXPECT_EQ(folder->warnings.size(), 3U);
}

TEST_F(ImageFolders, OfValidationUseTheClassesOfTheModel) {
  put("bag/1.png", "x");
  IndexOptions options{.classes = std::vector<std::string>{"ankle-boot", "bag", "coat"}};
  const auto folder = index_image_folder(root(), options);
  EXPECT_EQ(folder->samples[0].label, 1U);
  EXPECT_EQ(folder->classes.size(), 3U);
  put("hat/1.png", "x");
  const auto unknown = index_image_folder(root(), options);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message,
              HasSubstr("a class 'hat' that the 3 classes of the model lack"));
}

TEST_F(ImageFolders, WithoutClassesOrPicturesSaySo) {
  EXPECT_EQ(index_image_folder(root()).error().code, Code::kNotFound);
  ASSERT_TRUE(make_folders(root()));
  EXPECT_THAT(index_image_folder(root()).error().message, HasSubstr("has no class folders"));
  ASSERT_TRUE(make_folders(root() / "bag"));
  EXPECT_THAT(index_image_folder(root()).error().message,
              HasSubstr("1 class folders and no picture"));
}

TEST_F(ImageFolders, HaveAFingerprintOfNamesSizesAndContents) {
  put_set();
  const auto folder = index_image_folder(root());
  const std::string names = fingerprint(*folder, false).value();
  const std::string contents = fingerprint(*folder, true).value();
  EXPECT_EQ(names, fingerprint(*index_image_folder(root()), false).value());
  put("a/01.png", picture(77));
  const auto changed = index_image_folder(root());
  EXPECT_EQ(fingerprint(*changed, false).value(), names);  // the same size
  EXPECT_NE(fingerprint(*changed, true).value(), contents);
  put("a/31.png", picture(31));
  EXPECT_NE(fingerprint(*index_image_folder(root()), false).value(), names);
}

TEST(ShuffledOrders, ArePermutationsByThemselves) {
  const std::vector<std::uint32_t> order = shuffled_order(1000, 5, 1);
  EXPECT_EQ(order, shuffled_order(1000, 5, 1));
  EXPECT_NE(order, shuffled_order(1000, 5, 2));
  EXPECT_NE(order, shuffled_order(1000, 6, 1));
  std::vector<std::uint32_t> sorted = order;
  std::ranges::sort(sorted);
  std::vector<std::uint32_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  // Every place is as likely: the mean place of sample 0 over many epochs.
  double sum = 0;
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch) {
    const auto shuffled = shuffled_order(11, 9, epoch);
    sum += static_cast<double>(std::ranges::find(shuffled, 0U) - shuffled.begin());
  }
  EXPECT_NEAR(sum / 2000, 5.0, 0.25);
}

TEST_F(ImageFolders, GiveTheSameBatchesWithAnyNumberOfThreads) {
  put_set();
  const ImageFolder folder = index_image_folder(root()).value();
  LoaderOptions options = small(7);
  options.augmentation = Augmentation{.brightness = 0.5};
  options.seed = 3;
  options.epoch = 4;
  options.threads = 0;
  const auto order = shuffled_order(folder.samples.size(), 3, 4);
  const Epoch inline_epoch = run(folder, options, order);
  EXPECT_THAT(inline_epoch.sizes, ElementsAre(7, 7, 7, 7, 2));
  EXPECT_EQ(inline_epoch.indices, order);
  for (const unsigned threads : {1U, 2U, 5U, 16U}) {
    for (const std::size_t prefetch : {0U, 1U, 3U, 100U}) {
      options.threads = threads;
      options.prefetch = prefetch;
      const Epoch epoch = run(folder, options, order);
      EXPECT_EQ(epoch.indices, inline_epoch.indices);
      EXPECT_EQ(epoch.labels, inline_epoch.labels);
      EXPECT_EQ(epoch.pixels, inline_epoch.pixels) << threads << " threads, prefetch " << prefetch;
    }
  }
  // What remains after a resume is the rest of the same epoch, picture by picture.
  options.threads = 2;
  const Epoch rest = run(folder, options, {order.begin() + 14, order.end()});
  EXPECT_TRUE(std::equal(rest.pixels.begin(), rest.pixels.end(),
                         inline_epoch.pixels.begin() + 14 * 16 * 16 * 3));
}

TEST_F(ImageFolders, HaveTheirOwnPictureInEveryRow) {
  put_set();
  const ImageFolder folder = index_image_folder(root()).value();
  LoaderOptions options = small(4);
  options.threads = 3;
  const Epoch epoch = run(folder, options, shuffled_order(30, 1, 1));
  for (std::size_t i = 0; i < 30; ++i) {
    const Sample& sample = folder.samples[epoch.indices[i]];
    const float expected = std::stof(sample.path.substr(2, 2)) / 255.0F;
    EXPECT_NEAR(epoch.pixels[i * 16 * 16 * 3 + 100], expected, 1e-6F);
    EXPECT_EQ(epoch.labels[i], sample.label);
  }
}

TEST_F(ImageFolders, CountAndNameDamagedPictures) {
  put_set();
  put("a/01.png", "no picture at all");
  put("b/02.png", picture(2).substr(0, 60));
  put("c/00.png", "");
  const ImageFolder folder = index_image_folder(root()).value();
  std::vector<std::uint32_t> order(30);
  std::iota(order.begin(), order.end(), 0);
  for (const unsigned threads : {0U, 2U}) {
    LoaderOptions options = small(10);
    options.threads = threads;
    const Epoch epoch = run(folder, options, order);
    EXPECT_THAT(epoch.damaged, ElementsAre("a/01.png", "b/02.png", "c/00.png"));
    EXPECT_THAT(epoch.sizes, ElementsAre(9, 9, 9));
    EXPECT_EQ(std::ranges::count(epoch.indices, 0U), 0);
    options.fail_on_damage = true;
    EXPECT_THAT(run(folder, options, order).error, HasSubstr("picture 'a/01.png': not a picture"));
  }
  fs::remove(root() / "a/04.png");
  EXPECT_THAT(run(folder, small(10), order).error, HasSubstr("04.png': No such file"));
}

TEST_F(ImageFolders, CanDropOrMergeTheLastBatch) {
  put_set();
  const ImageFolder folder = index_image_folder(root()).value();
  std::vector<std::uint32_t> order = shuffled_order(29, 1, 1);
  LoaderOptions options = small(7);
  options.last = LastBatch::kMergeSingle;
  EXPECT_THAT(run(folder, options, order).sizes, ElementsAre(7, 7, 7, 8));
  options.last = LastBatch::kDrop;
  EXPECT_THAT(run(folder, options, order).sizes, ElementsAre(7, 7, 7, 7));
  options.batch_size = 100;
  EXPECT_THAT(run(folder, options, order).sizes, ElementsAre(29));
}

TEST_F(ImageFolders, CanBeLeftInTheMiddleOfAnEpoch) {
  put_set();
  const ImageFolder folder = index_image_folder(root()).value();
  for (int given = 0; given < 4; ++given) {
    LoaderOptions options = small(2);
    options.threads = 4;
    auto loader = std::move(BatchLoader::create(folder, shuffled_order(30, 1, 1), options)).value();
    for (int i = 0; i < given; ++i) ASSERT_TRUE(loader->next()->has_value());
  }
}

}  // namespace
}  // namespace atelier::vision
