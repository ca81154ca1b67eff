#include "objects/local_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "base/own_folder.h"
#include "objects/internal/local_store_impl.h"

namespace atelier::objects {

Result<std::unique_ptr<LocalStore>> LocalStore::open(const std::filesystem::path& folder,
                                                     const Clock& clock) {
  std::unique_ptr<LocalStore> store = TRY(internal::StoreImpl::open(folder, clock));
  return store;
}

namespace internal {
namespace {

// Of the log of the index, in pages of 4 KiB, before it is moved into the database.
constexpr int kLogPages = 1000;
// Twice what the log grows to: so that a removal can be noted and the log be moved.
constexpr off_t kReserveBytes = off_t{2} * kLogPages * 4096;
// With less room than this on the disk, every removal gives back what it has freed in the index.
constexpr std::uint64_t kTightBytes = std::uint64_t{64} << 20;
// What one call of shrink() gives back.
constexpr int kShrinkPages = 1000;

// `modified` and `created` are milliseconds since 1970. Bodies are in a table of their own, so that
// a page of the index holds many keys and listings touch few pages. What is there already when a
// database without a version is opened is of the time when `meta` held the version.
const std::vector<std::string>& schema() {
  static const std::vector<std::string> steps = {
      R"sql(
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS buckets(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, region TEXT NOT NULL,
  created INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS objects(
  bucket INTEGER NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
  etag TEXT NOT NULL, checksum TEXT NOT NULL, headers TEXT NOT NULL, tags TEXT NOT NULL,
  part_sizes TEXT NOT NULL, body INTEGER NOT NULL, file TEXT,
  PRIMARY KEY(bucket, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS objects_by_file ON objects(file) WHERE file IS NOT NULL;
CREATE TABLE IF NOT EXISTS bodies(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS uploads(
  bucket INTEGER NOT NULL, key BLOB NOT NULL, id TEXT NOT NULL, created INTEGER NOT NULL,
  headers TEXT NOT NULL, tags TEXT NOT NULL, checksum TEXT NOT NULL, composite INTEGER NOT NULL,
  finished INTEGER, etag TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(bucket, key, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uploads_by_end ON uploads(finished) WHERE finished IS NOT NULL;
CREATE TABLE IF NOT EXISTS parts(
  upload TEXT NOT NULL, number INTEGER NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
  etag TEXT NOT NULL, checksum TEXT NOT NULL, body INTEGER NOT NULL, file TEXT,
  PRIMARY KEY(upload, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parts_by_file ON parts(file) WHERE file IS NOT NULL;
CREATE TABLE IF NOT EXISTS garbage(file TEXT PRIMARY KEY) WITHOUT ROWID;
)sql",
      // Parts side by side in a file of the upload, each at its place; documents about buckets.
      R"sql(
ALTER TABLE uploads ADD COLUMN file TEXT;
ALTER TABLE uploads ADD COLUMN slot_bytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX uploads_by_file ON uploads(file) WHERE file IS NOT NULL;
ALTER TABLE parts ADD COLUMN place INTEGER;
CREATE TABLE bucket_documents(
  bucket INTEGER NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY(bucket, name)) WITHOUT ROWID;
INSERT OR REPLACE INTO meta(name, value) VALUES('format', 2);
)sql"};
  return steps;
}

Result<std::optional<std::int64_t>> find_meta(Database& db, std::string_view name) {
  Rows find = TRY(db.query("SELECT value FROM meta WHERE name = ?", {name}));
  if (!TRY(find.step())) return std::optional<std::int64_t>{};
  return std::optional{find.integer(0)};
}

Result<void> set_meta(Database& db, std::string_view name, std::int64_t value) {
  TRY(db.run("INSERT OR REPLACE INTO meta(name, value) VALUES(?, ?)", {name, value}));
  return {};
}

Result<bool> has_row(Database& db, const std::string& file) {
  Rows find =
      TRY(db.query("SELECT 1 FROM objects WHERE file = ?1 UNION ALL SELECT 1 FROM parts WHERE file "
                   "= ?1 UNION ALL "
                   "SELECT 1 FROM uploads WHERE file = ?1",
                   {file}));
  return find.step();
}

}  // namespace

Result<std::unique_ptr<StoreImpl>> StoreImpl::open(const std::filesystem::path& folder,
                                                   const Clock& clock) {
  TRY(check_own_folder(folder));
  TRY(make_folders(folder, 0700));
  std::unique_ptr<StoreImpl> store{new StoreImpl{folder, clock}};
  Result<UniqueFd> lock = lock_file(folder / "lock");
  if (!lock) return lock.error().within("object store '" + folder.string() + "'");
  store->lock_ = *std::move(lock);
  store->files_ = TRY(BodyFiles::open(folder / "bodies"));
  store->slots_ = std::make_unique<PartSlots>(*store->files_);
  store->reserve_ = TRY(open_file(folder / "reserve", O_RDWR | O_CREAT, 0600));
  TRY(store->check_index());
  const bool cut_short = store->begin_run();
  Result<void> recovered = store->recover(cut_short);
  if (!recovered && recovered.error().code == Code::kResourceExhausted) {
    store->release_reserve();
    recovered = store->recover(cut_short);
  }
  TRY(std::move(recovered));
  store->keep_reserve();
  return store;
}

StoreImpl::~StoreImpl() {
  if (writer_ != nullptr && ftruncate(lock_.get(), 0) != 0) {
    log::warning("the lock of the object store does not say that it was closed");
  }
}

// A new index over bodies would take all of them for leftovers.
Result<void> StoreImpl::check_index() const {
  const std::filesystem::path index = folder_ / "index.db";
  struct stat info {};
  const bool there = stat(index.c_str(), &info) == 0;
  if (there && info.st_size > 0) return {};
  if (!there && errno != ENOENT) return error_from_errno("stat '" + index.string() + "'", errno);
  if (!TRY(files_->any())) return {};
  return Error{Code::kFailedPrecondition,
               fmt::format("object store '{}': there are bodies of objects and their index "
                           "'index.db' is {}: restore index.db, with index.db-wal where there is "
                           "one, or move 'bodies' away to begin with an empty store",
                           folder_.string(), there ? "empty" : "missing")};
}

// The lock's file says "open" until the store is closed in order; true when it was not the last
// time. On a full disk it may not be said: then what this run leaves is kept at the next start.
bool StoreImpl::begin_run() const {
  struct stat info {};
  const bool cut_short = fstat(lock_.get(), &info) == 0 && info.st_size > 0;
  if (pwrite(lock_.get(), "open\n", 5, 0) != 5 || fdatasync(lock_.get()) != 0) {
    log::warning("the lock of the object store does not say that it is open");
  }
  return cut_short;
}

Result<void> StoreImpl::recover(bool cut_short) {
  std::unique_ptr<Database> db = TRY(connect());
  TRY(sqlite::migrate(*db, schema()));
  TRY(sync_folder(folder_));
  // Removed from the index before the crash, but perhaps not from the disk.
  {
    Rows dropped = TRY(db->query("SELECT file FROM garbage"));
    while (TRY(dropped.step())) files_->remove(dropped.text(0));
  }
  TRY(db->script("DELETE FROM garbage"));
  // Written before the crash, but not in the index.
  const std::int64_t low_water = TRY(find_meta(*db, "low_water")).value_or(0);
  const BodyFiles::Swept swept = TRY(files_->sweep(
      static_cast<std::uint64_t>(low_water),
      [&](const std::string& file) { return has_row(*db, file); }, cut_short, folder_ / "aside"));
  if (swept.removed > 0) {
    log::info(fmt::format("object store '{}': removed {} bodies of writes that a crash cut short",
                          folder_.string(), swept.removed));
  }
  if (swept.aside > 0) {
    log::warning(fmt::format(
        "object store '{}': {} bodies belong to no object, more than a crash explains, and were "
        "moved to 'aside': if index.db is an older copy, stop the server, restore the newer one "
        "and move them back to 'bodies'; if nobody misses them, remove 'aside'",
        folder_.string(), swept.aside));
  }
  const auto new_low_water = static_cast<std::int64_t>(files_->low_water());
  if (new_low_water != low_water) TRY(set_meta(*db, "low_water", new_low_water));
  writer_ = std::make_unique<GroupCommit>(std::move(*db));
  return {};
}

Result<std::unique_ptr<Database>> StoreImpl::connect() const {
  // The lock on the folder keeps other processes away: what is waited for is only that the log is
  // recovered or moved into the database.
  return std::make_unique<Database>(TRY(Database::open(
      folder_ / "index.db",
      {.name = "object index",
       .busy_timeout_ms = 10'000,
       .pragmas = fmt::format("PRAGMA auto_vacuum=INCREMENTAL; PRAGMA wal_autocheckpoint={};"
                              "PRAGMA journal_size_limit=67108864; PRAGMA temp_store=MEMORY;"
                              "PRAGMA cell_size_check=ON;",
                              kLogPages)})));
}

StoreImpl::Reader::~Reader() {
  const std::lock_guard lock{store_.readers_mutex_};
  store_.readers_.push_back(std::move(connection_));
}

Result<std::unique_ptr<StoreImpl::Reader>> StoreImpl::reader() {
  {
    const std::lock_guard lock{readers_mutex_};
    if (!readers_.empty()) {
      std::unique_ptr<Database> connection = std::move(readers_.back());
      readers_.pop_back();
      return std::make_unique<Reader>(*this, std::move(connection));
    }
  }
  return std::make_unique<Reader>(*this, TRY(connect()));
}

Result<void> StoreImpl::commit(const Change& change) {
  Garbage garbage;
  Garbage forgotten;
  TRY(writer_->run([&](Database& db) -> Result<void> {
    garbage.clear();
    TRY(change(db, garbage));
    if (garbage.empty()) return {};
    for (const std::string& file : garbage) {
      TRY(db.run("INSERT OR IGNORE INTO garbage(file) VALUES(?)", {file}));
    }
    // What earlier changes threw away is gone from the disk: forget it on this occasion.
    {
      const std::lock_guard lock{collected_mutex_};
      forgotten = collected_;
    }
    for (const std::string& file : forgotten) {
      TRY(db.run("DELETE FROM garbage WHERE file = ?", {file}));
    }
    return set_meta(db, "low_water", static_cast<std::int64_t>(files_->low_water()));
  }));
  if (!forgotten.empty()) {
    const std::lock_guard lock{collected_mutex_};
    std::erase_if(collected_, [&](const std::string& file) {
      return std::find(forgotten.begin(), forgotten.end(), file) != forgotten.end();
    });
  }
  collect(garbage);
  return {};
}

Result<void> StoreImpl::commit_removal(const Change& change) {
  Result<void> done = commit(change);
  const bool was_full = !done && done.error().code == Code::kResourceExhausted;
  if (!was_full && !(done && is_tight())) return done;
  const std::lock_guard lock{reserve_mutex_};
  if (was_full) {
    release_reserve();
    done = commit(change);
  }
  if (done) {
    ignore_error(give_back_pages(), "the index stays as large as it is; what it holds is right");
  }
  keep_reserve();
  return done;
}

bool StoreImpl::is_tight() const {
  struct statvfs disk {};
  return statvfs(folder_.c_str(), &disk) == 0 && disk.f_bavail * disk.f_frsize < kTightBytes;
}

Result<void> StoreImpl::give_back_pages() {
  TRY(writer_->run([](Database& db) {
    return db.script(fmt::format("PRAGMA incremental_vacuum({})", kShrinkPages));
  }));
  // Only now the file becomes shorter.
  return TRY(connect())->script("PRAGMA wal_checkpoint(TRUNCATE)");
}

Result<bool> StoreImpl::shrink() {
  {
    const auto db = TRY(reader());
    const auto pragma = [&](const char* sql) -> Result<std::int64_t> {
      Rows row = TRY((**db).query(sql));
      TRY(row.step());
      return row.integer(0);
    };
    // 2: incremental. Databases of format 1 were made without it; they keep their free pages.
    const bool can = TRY(pragma("PRAGMA auto_vacuum")) == 2;
    const std::int64_t free_pages = TRY(pragma("PRAGMA freelist_count"));
    const std::int64_t pages = TRY(pragma("PRAGMA page_count"));
    // Some are kept: the next small objects will want them.
    if (!can || free_pages < std::max<std::int64_t>(pages / 4, 4 * kShrinkPages)) return false;
  }
  TRY(give_back_pages());
  return true;
}

void StoreImpl::keep_reserve() {
  // On a disk that is full it stays small, until a removal has made room.
  static_cast<void>(posix_fallocate(reserve_.get(), 0, kReserveBytes));
}

void StoreImpl::release_reserve() {
  if (ftruncate(reserve_.get(), 0) != 0) log::warning("the reserve of the object store stays");
}

void StoreImpl::collect(const Garbage& garbage) {
  for (const std::string& file : garbage) files_->remove(file);
  const std::lock_guard lock{collected_mutex_};
  collected_.insert(collected_.end(), garbage.begin(), garbage.end());
}

Result<void> StoreImpl::drop_body(Database& db, Garbage& garbage, const BodyRef& ref) const {
  if (!ref.file.empty() && !ref.place) garbage.push_back(ref.file);
  if (ref.inline_id == 0) return {};
  TRY(db.run("DELETE FROM bodies WHERE id = ?", {ref.inline_id}));
  return {};
}

Result<bool> StoreImpl::create_bucket(const std::string& name, const std::string& region) {
  bool created = false;
  TRY(commit([&](Database& db, Garbage&) -> Result<void> {
    const std::int64_t before = db.total_changes();
    TRY(db.run("INSERT INTO buckets(name, region, created) VALUES(?, ?, ?) ON CONFLICT DO NOTHING",
               {name, region, to_epoch_milliseconds(clock_.now())}));
    created = db.total_changes() != before;
    return {};
  }));
  return created;
}

Result<BucketRecord> StoreImpl::find_bucket(const std::string& name) {
  const auto db = TRY(reader());
  Rows find = TRY((**db).query("SELECT region, created FROM buckets WHERE name = ?", {name}));
  if (!TRY(find.step())) return no_such_bucket(name);
  return BucketRecord{name, find.text(0), from_epoch_milliseconds(find.integer(1))};
}

Result<std::vector<BucketRecord>> StoreImpl::list_buckets() {
  const auto db = TRY(reader());
  Rows rows = TRY((**db).query("SELECT name, region, created FROM buckets ORDER BY name"));
  std::vector<BucketRecord> buckets;
  while (TRY(rows.step())) {
    buckets.push_back({rows.text(0), rows.text(1), from_epoch_milliseconds(rows.integer(2))});
  }
  return buckets;
}

Result<std::string> StoreImpl::bucket_document(const std::string& bucket, const std::string& name) {
  const auto db = TRY(reader());
  const std::int64_t id = TRY(bucket_id(**db, bucket));
  Rows find = TRY((**db).query(
      "SELECT document FROM bucket_documents WHERE bucket = ? AND name = ?", {id, name}));
  if (!TRY(find.step())) return std::string{};
  return find.text(0);
}

Result<void> StoreImpl::set_bucket_document(const std::string& bucket, const std::string& name,
                                            const std::string& document) {
  return commit([&](Database& db, Garbage&) -> Result<void> {
    const std::int64_t id = TRY(bucket_id(db, bucket));
    if (document.empty()) {
      TRY(db.run("DELETE FROM bucket_documents WHERE bucket = ? AND name = ?", {id, name}));
    } else {
      TRY(db.run("INSERT OR REPLACE INTO bucket_documents(bucket, name, document) VALUES(?, ?, ?)",
                 {id, name, document}));
    }
    return {};
  });
}

Result<void> StoreImpl::delete_bucket(const std::string& name) {
  return commit_removal([&](Database& db, Garbage& garbage) -> Result<void> {
    const std::int64_t id = TRY(bucket_id(db, name));
    Rows any = TRY(db.query("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", {id}));
    if (TRY(any.step())) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("BucketNotEmpty: the bucket '{}' holds objects", name)};
    }
    // Uploads that nobody completed do not keep a bucket alive.
    std::vector<std::string> uploads;
    {
      Rows rows = TRY(db.query("SELECT id, file FROM uploads WHERE bucket = ?", {id}));
      while (TRY(rows.step())) {
        uploads.push_back(rows.text(0));
        if (!rows.null(1)) garbage.push_back(rows.text(1));
      }
    }
    for (const std::string& upload : uploads) TRY(drop_parts(db, garbage, upload));
    TRY(db.run("DELETE FROM bucket_documents WHERE bucket = ?", {id}));
    TRY(db.run("DELETE FROM uploads WHERE bucket = ?", {id}));
    TRY(db.run("DELETE FROM buckets WHERE id = ?", {id}));
    return {};
  });
}

}  // namespace internal
}  // namespace atelier::objects
