#include "datasets/import.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "datasets/internal/deepfashion_lists.h"
#include "datasets/internal/idx.h"
#include "datasets/internal/manifest.h"
#include "vision/encode.h"
#include "vision/image_folder.h"

namespace atelier::datasets {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Keeps what it is given in memory.
class MemorySink final : public Sink {
 public:
  Result<std::optional<std::string>> manifest() override { return manifest_; }
  Result<void> put(std::string path, std::string bytes) override {
    EXPECT_TRUE(check_relative_path(path));
    EXPECT_TRUE(files.emplace(std::move(path), std::move(bytes)).second);
    return {};
  }
  Result<void> finish(std::string manifest) override {
    manifest_ = std::move(manifest);
    return {};
  }
  std::map<std::string, std::string> files;
  std::optional<std::string> manifest_;
};

class Imports : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path(const std::string& name) const { return temp_.path() / name; }
  void put(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(make_folders(path(name).parent_path()));
    ASSERT_TRUE(write_file_durably(path(name), bytes));
  }
  static std::string picture(int number = 9, int width = 12, int height = 10) {
    vision::Image image{width, height, 3,
                        std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3),
                                                  static_cast<std::uint8_t>(number))};
    return vision::encode_jpeg(image).value();
  }
  static std::vector<std::string> names(const MemorySink& sink) {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : sink.files) names.push_back(name);
    return names;
  }
  TempFolder temp_ = std::move(TempFolder::create()).value();
};

// --- Fashion-MNIST, from Debian's package dataset-fashion-mnist ---

TEST_F(Imports, OfFashionMnistGiveAll70000PicturesOnce) {
  MemorySink sink;
  std::uint64_t last = 0;
  const auto summary = import_fashion_mnist({}, sink, [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, 70000U);
    EXPECT_EQ(done, ++last);
  });
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(last, 70000U);
  EXPECT_EQ(summary->files, 70000U);
  EXPECT_THAT(summary->classes,
              ElementsAre("ankle-boot", "bag", "coat", "dress", "pullover", "sandal", "shirt",
                          "sneaker", "t-shirt-top", "trouser"));
  for (const auto& [split, each] :
       {std::pair("train", 5500U), std::pair("validation", 500U), std::pair("test", 1000U)}) {
    for (const std::uint64_t count : summary->counts.at(split)) EXPECT_EQ(count, each) << split;
  }
  // The first training picture is an ankle boot; its pixels are those of the source.
  const std::string source =
      read_file("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz").value();
  const Idx idx = parse_idx(source).value();
  const bool in_train = sink.files.contains("train/ankle-boot/00001.png");
  const std::string& png =
      sink.files.at(in_train ? "train/ankle-boot/00001.png" : "validation/ankle-boot/00001.png");
  vision::Image image;
  ASSERT_TRUE(vision::decode_image(std::as_bytes(std::span(png)), {.channels = 1}, image));
  EXPECT_EQ(std::string(image.pixels.begin(), image.pixels.end()), idx.values.substr(0, 784));
}

TEST_F(Imports, OfFashionMnistDependOnTheSeedAlone) {
  const auto run = [](std::uint64_t seed) {
    MemorySink sink;
    EXPECT_TRUE(import_fashion_mnist({.validation = 100, .seed = seed, .limit = 200}, sink));
    return sink.files;
  };
  const auto first = run(1);
  EXPECT_EQ(first.size(), 200 + 100 + 200U);
  EXPECT_EQ(first, run(1));
  EXPECT_NE(first, run(2));
}

TEST_F(Imports, OfFashionMnistSayWhatIsMissingOrWrong) {
  MemorySink sink;
  EXPECT_THAT(import_fashion_mnist({.source = path("none")}, sink).error().message,
              HasSubstr("package dataset-fashion-mnist"));
  EXPECT_THAT(import_fashion_mnist({.validation = 60000}, sink).error().message,
              HasSubstr("60000 training pictures"));
  const std::string images("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01\x05\x06", 18);
  put("train-images-idx3-ubyte", images);
  put("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x02\x00\x0a", 10));
  put("t10k-images-idx3-ubyte", images);
  put("t10k-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x02\x00\x01", 10));
  EXPECT_THAT(import_fashion_mnist({.source = temp_.path(), .validation = 0}, sink).error().message,
              HasSubstr("label 1 of 'train' is 10"));
  put("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x03\x00\x01\x02", 11));
  EXPECT_THAT(import_fashion_mnist({.source = temp_.path(), .validation = 0}, sink).error().message,
              HasSubstr("one label each"));
  put("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x02\x00", 9));
  EXPECT_THAT(import_fashion_mnist({.source = temp_.path(), .validation = 0}, sink).error().message,
              HasSubstr("1 values, its shape says 2"));
}

// --- class folders and archives ---

class ImageFolderImports : public Imports {
 protected:
  static ImageFolderOptions from(const fs::path& source) {
    ImageFolderOptions options;
    options.source = source;
    return options;
  }
};

TEST_F(ImageFolderImports, KeepClassFoldersAsTheyAre) {
  put("set/bag/1.jpg", picture());
  put("set/bag/more/2.JPG", picture());
  put("set/boot/1.jpg", picture());
  put("set/boot/.hidden.jpg", picture());
  put("set/readme.txt", "x");
  MemorySink sink;
  const auto summary = import_image_folder(from(path("set")), sink);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(names(sink), ElementsAre("bag/1.jpg", "bag/more/2.JPG", "boot/1.jpg"));
  EXPECT_EQ(sink.files.at("bag/1.jpg"), picture());
  EXPECT_THAT(summary->counts.at(""), ElementsAre(2, 1));
  EXPECT_THAT(summary->warnings, ElementsAre("'readme.txt' is no picture; left out"));
}

TEST_F(ImageFolderImports, FindSplitsWithinWrappers) {
  for (const char* name : {"main/data/train/bag/1.jpg", "main/data/val/bag/2.jpg",
                           "main/data/test/boot/3.jpg", "main/data/train/loose.jpg"}) {
    put(std::string("set/") + name, picture());
  }
  MemorySink sink;
  const auto summary = import_image_folder(from(path("set")), sink);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(names(sink),
              ElementsAre("test/boot/3.jpg", "train/bag/1.jpg", "validation/bag/2.jpg"));
  EXPECT_THAT(summary->warnings, ElementsAre(HasSubstr("loose.jpg' lies in no class folder")));
}

TEST_F(ImageFolderImports, ReadTarAndZip) {
  put("set/bag/1.jpg", picture(1));
  put("set/boot/n\xc3\xa4me %.jpg", picture(2));
  const std::string folder = temp_.path().string();
  ASSERT_EQ(std::system(("cd '" + folder +
                         "' && tar czf a.tar.gz set && tar cf b.tar -C set . && "
                         "python3 -c \"import shutil; shutil.make_archive('c','zip','set')\"")
                            .c_str()),
            0);
  for (const std::string archive : {"a.tar.gz", "b.tar", "c.zip"}) {
    MemorySink sink;
    const auto summary = import_image_folder(from(path(archive)), sink);
    ASSERT_TRUE(summary) << archive << ": " << summary.error().message;
    EXPECT_THAT(names(sink), ElementsAre("bag/1.jpg", "boot/n\xc3\xa4me %.jpg")) << archive;
    EXPECT_EQ(sink.files.at("bag/1.jpg"), picture(1));
  }
}

TEST_F(ImageFolderImports, OfHostileArchivesStayInside) {
  const std::string script =
      "import io, tarfile\n"
      "t = tarfile.open('evil.tar', 'w')\n"
      "data = open('p.jpg', 'rb').read()\n"
      "def add(name, **more):\n"
      "    i = tarfile.TarInfo(name); i.size = len(data)\n"
      "    for k, v in more.items(): setattr(i, k, v)\n"
      "    t.addfile(i, io.BytesIO(data) if not more else None)\n"
      "add('bag/1.jpg'); add('../out/2.jpg'); add('/abs/3.jpg'); add('bag/../../4.jpg')\n"
      "add('bag/5.jpg', type=tarfile.SYMTYPE, linkname='/etc/passwd', size=0)\n"
      "add('bag/6.jpg', type=tarfile.LNKTYPE, linkname='bag/1.jpg', size=0)\n"
      "t.close()\n";
  put("p.jpg", picture());
  put("make.py", script);
  ASSERT_EQ(std::system(("cd '" + temp_.path().string() + "' && python3 make.py").c_str()), 0);
  MemorySink sink;
  const auto summary = import_image_folder(from(path("evil.tar")), sink);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(names(sink), ElementsAre("bag/1.jpg"));
  put("cut.tar", read_file(path("evil.tar")).value().substr(0, 700));
  EXPECT_FALSE(import_image_folder(from(path("cut.tar")), sink));
  auto limited = from(path("evil.tar"));
  limited.max_file_bytes = 10;
  MemorySink other;
  EXPECT_EQ(import_image_folder(limited, other).error().code, Code::kResourceExhausted);
}

TEST_F(ImageFolderImports, LeaveOutPicturesThatCannotBeDecoded) {
  put("set/bag/1.jpg", picture());
  put("set/bag/2.jpg", "<html>");
  MemorySink sink;
  const auto summary = import_image_folder(from(path("set")), sink);
  EXPECT_THAT(names(sink), ElementsAre("bag/1.jpg"));
  EXPECT_THAT(summary->warnings, ElementsAre(HasSubstr("'bag/2.jpg' left out: not a picture")));
}

TEST_F(ImageFolderImports, WithoutPicturesOrClassesSaySo) {
  MemorySink sink;
  EXPECT_EQ(import_image_folder(from(path("none")), sink).error().code, Code::kNotFound);
  put("empty/readme.txt", "x");
  EXPECT_THAT(import_image_folder(from(path("empty")), sink).error().message,
              HasSubstr("has no pictures"));
  put("flat/1.jpg", picture());
  EXPECT_THAT(import_image_folder(from(path("flat")), sink).error().message,
              HasSubstr("no class folders"));
}

// --- into a folder ---

TEST_F(ImageFolderImports, IntoAFolderAppearAtOnceAndAreNotRepeated) {
  put("set/bag/1.jpg", picture());
  {
    auto sink = std::move(folder_sink(path("made"))).value();
    EXPECT_FALSE(folder_sink(path("made")));  // a second import at the same time
    const auto summary = import_image_folder(
        from(path("set")), *sink,
        [&](std::uint64_t, std::uint64_t) { EXPECT_FALSE(fs::exists(path("made"))); });
    ASSERT_TRUE(summary) << summary.error().message;
    EXPECT_FALSE(summary->repeated);
  }
  EXPECT_FALSE(fs::exists(path(".made.importing")));
  EXPECT_EQ(vision::index_image_folder(path("made"))->samples.size(), 1U);
  const auto again = import_image_folder(from(path("set")), *folder_sink(path("made")).value());
  EXPECT_TRUE(again->repeated);
  EXPECT_THAT(again->counts.at(""), ElementsAre(1));
  // A changed source is imported anew, in the place of the old.
  put("set/boot/2.jpg", picture());
  const auto changed = import_image_folder(from(path("set")), *folder_sink(path("made")).value());
  EXPECT_FALSE(changed->repeated);
  EXPECT_TRUE(fs::exists(path("made/boot/2.jpg")));
}

TEST_F(ImageFolderImports, ThatFailLeaveNothingBehind) {
  put("set/bag/1.jpg", "no picture");
  EXPECT_THAT(
      import_image_folder(from(path("set")), *folder_sink(path("made")).value()).error().message,
      HasSubstr("no picture could be imported"));
  EXPECT_FALSE(fs::exists(path("made")));
  EXPECT_FALSE(fs::exists(path(".made.importing")));
}

TEST_F(Imports, LeaveAFolderAloneThatIsNoImport) {
  put("mine/letter.txt", "x");
  const auto sink = folder_sink(path("mine"));
  ASSERT_FALSE(sink);
  EXPECT_EQ(sink.error().code, Code::kAlreadyExists);
  EXPECT_TRUE(fs::exists(path("mine/letter.txt")));
}

TEST(RelativePaths, StayBelowTheirFolder) {
  EXPECT_TRUE(check_relative_path("a/b..c/ d.png"));
  for (const char* bad : {"", "/a", "a//b", "a/", "./a", "../a", "a/../b", "a\nb"})
    EXPECT_FALSE(check_relative_path(bad)) << bad;
}

// --- DeepFashion: a small look-alike of the published layout, traps included ---

class DeepFashionImports : public Imports {
 protected:
  // Categories 2 and 4 of 5 are empty.
  void put_benchmark(const std::string& anno = "Anno", const std::string& eol = "\n") const {
    const auto lines = [&](std::initializer_list<std::string> rows) {
      std::string text;
      for (const std::string& row : rows) text += row + eol;
      return text;
    };
    put("df/" + anno + "/list_category_cloth.txt",
        lines({"5", "category_name  category_type", "Tee     1", "Cape    3", "Jeans   2",
               "Sundress   3", "Dress  3"}));
    put("df/" + anno + "/list_category_img.txt",
        lines({"5", "image_name  category_label", "img/Red_Tee/img_00000001.jpg     1",
               "img/Red_Tee/img_00000002.jpg     1", "img/Blue Jeans/img_00000001.jpg   3",
               "img/Long_Dress/img_00000001.jpg  5", "img/Long_Dress/img_00000002.jpg  5"}));
    put("df/" + anno + "/list_bbox.txt",
        lines({"5", "image_name  x_1  y_1  x_2  y_2", "img/Red_Tee/img_00000001.jpg  2 3 8 9",
               "img/Red_Tee/img_00000002.jpg  0 0 900 900",
               "img/Blue Jeans/img_00000001.jpg  5 5 5 5",
               "img/Long_Dress/img_00000001.jpg  1 1 3 4",
               "img/Long_Dress/img_00000002.jpg 1 1 2 2"}));
    put("df/Eval/list_eval_partition.txt",
        lines({"5", "image_name  evaluation_status", "img/Red_Tee/img_00000001.jpg  train",
               "img/Red_Tee/img_00000002.jpg  val", "img/Blue Jeans/img_00000001.jpg  train",
               "img/Long_Dress/img_00000001.jpg  test", "img/Long_Dress/img_00000002.jpg  train"}));
    for (const char* name :
         {"Red_Tee/img_00000001", "Red_Tee/img_00000002", "Blue Jeans/img_00000001",
          "Long_Dress/img_00000001", "Long_Dress/img_00000002"}) {
      put(fmt::format("df/Img/img/{}.jpg", name), picture());
    }
  }
  [[nodiscard]] DeepFashionOptions options() const {
    DeepFashionOptions options;
    options.source = path("df");
    return options;
  }
  std::string error(const DeepFashionOptions& options) const {
    MemorySink sink;
    const auto summary = import_deepfashion(options, sink);
    return summary ? "no error" : summary.error().message;
  }
};

TEST_F(DeepFashionImports, KeepTheClassesOfTheClassFile) {
  for (const char* anno : {"Anno", "Anno_coarse"}) {
    ASSERT_TRUE(remove_tree(path("df")));
    put_benchmark(anno, std::string(anno) == "Anno" ? "\n" : "\r\n");
    MemorySink sink;
    const auto summary = import_deepfashion(options(), sink);
    ASSERT_TRUE(summary) << summary.error().message;
    EXPECT_THAT(names(sink), ElementsAre("test/Dress/Long_Dress__img_00000001.jpg",
                                         "train/Dress/Long_Dress__img_00000002.jpg",
                                         "train/Jeans/Blue Jeans__img_00000001.jpg",
                                         "train/Tee/Red_Tee__img_00000001.jpg",
                                         "validation/Tee/Red_Tee__img_00000002.jpg"));
    EXPECT_THAT(summary->classes, ElementsAre("Dress", "Jeans", "Tee"));
    EXPECT_THAT(summary->warnings, ElementsAre("category 2 'Cape' has no pictures",
                                               "category 4 'Sundress' has no pictures"));
    const json::value manifest = parse_json(*sink.manifest_).value();
    EXPECT_EQ(find_int(*find_member(manifest, "category_ids"), "Dress"), 5);
    EXPECT_EQ(find_int(*find_member(manifest, "category_ids"), "Tee"), 1);
    EXPECT_TRUE(import_deepfashion(options(), sink)->repeated);
  }
}

TEST_F(DeepFashionImports, OfTheUpperBodyHaveTypeOneOnly) {
  put_benchmark();
  MemorySink sink;
  DeepFashionOptions upper = options();
  upper.upper_body_only = true;
  const auto summary = import_deepfashion(upper, sink);
  EXPECT_THAT(summary->classes, ElementsAre("Tee"));
  EXPECT_EQ(summary->files, 2U);
}

TEST_F(DeepFashionImports, CropToTheirBoxes) {
  put_benchmark();
  MemorySink sink;
  DeepFashionOptions cropped = options();
  cropped.crop_to_box = true;
  const auto summary = import_deepfashion(cropped, sink);
  ASSERT_TRUE(summary) << summary.error().message;
  const auto size = [&](const std::string& name) {
    const auto info = vision::read_image_info(std::as_bytes(std::span(sink.files.at(name))));
    return std::pair(info->width, info->height);
  };
  EXPECT_EQ(size("train/Tee/Red_Tee__img_00000001.jpg"), std::pair(6, 6));
  EXPECT_EQ(size("validation/Tee/Red_Tee__img_00000002.jpg"), std::pair(12, 10));
  EXPECT_THAT(summary->warnings.back(), HasSubstr("its box 5,5 5,5 is empty"));
}

TEST_F(DeepFashionImports, SayWhichListIsWrongAndWhere) {
  put_benchmark();
  put("df/Eval/list_eval_partition.txt",
      "5\nimage_name  evaluation_status\nimg/Red_Tee/img_00000001.jpg  train\n");
  EXPECT_THAT(error(options()),
              HasSubstr("list_eval_partition.txt: line 1 says 5 rows and there are 1"));
  put_benchmark();
  put("df/Anno/list_category_img.txt", "1\nx y\nimg/Red_Tee/img_00000001.jpg 51\n");
  EXPECT_THAT(error(options()),
              HasSubstr("list_category_img.txt: line 3: category id 51 is not within 1 and 5"));
  put("df/Anno/list_category_img.txt", "1\nx y\n../../etc/passwd 1\n");
  EXPECT_THAT(error(options()), HasSubstr("is no path of a picture"));
  put_benchmark();
  fs::remove(path("df/Img/img/Long_Dress/img_00000002.jpg"));
  EXPECT_THAT(error(options()), HasSubstr("Long_Dress/img_00000002.jpg': No such file"));
  EXPECT_THAT(error({}), HasSubstr("it is not DeepFashion's"));
}

}  // namespace
}  // namespace atelier::datasets
