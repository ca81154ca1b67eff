#include "objects/internal/upload_sweeper.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "objects/internal/bucket_rules.h"

namespace atelier::objects::internal {
namespace {

Result<std::size_t> sweep_rule(LocalStore& store, const std::string& bucket,
                               const AbandonRule& rule, Time now, const std::stop_token& stop) {
  UploadQuery query{.bucket = bucket, .prefix = rule.prefix};
  query.created_before = now - rule.after;
  std::size_t aborted = 0;
  while (!stop.stop_requested()) {
    const UploadPage page = TRY(store.list_uploads(query));
    for (const UploadRecord& upload : page.uploads) {
      if (stop.stop_requested()) break;
      Result<void> done = store.abort_upload(bucket, upload.key, upload.id);
      // Completed or aborted by its client meanwhile.
      if (!done && done.error().code == Code::kNotFound) continue;
      TRY(std::move(done));
      ++aborted;
    }
    if (!page.truncated) break;
    query.after_key = page.last_key;
    query.after_id = page.last_id;
  }
  return aborted;
}

}  // namespace

Result<std::size_t> sweep_uploads(LocalStore& store, Time now, std::chrono::days usual,
                                  const std::stop_token& stop) {
  std::size_t aborted = 0;
  for (const BucketRecord& bucket : TRY(store.list_buckets())) {
    const Result<std::string> document = store.bucket_document(bucket.name, "lifecycle");
    // Deleted meanwhile.
    if (!document && document.error().code == Code::kNotFound) continue;
    TRY(Result<std::string>{document});
    std::vector<AbandonRule> rules = {{"", usual}};
    if (!document->empty()) rules = TRY(parse_lifecycle(*document));
    for (const AbandonRule& rule : rules) {
      const Result<std::size_t> swept = sweep_rule(store, bucket.name, rule, now, stop);
      if (!swept && swept.error().code == Code::kNotFound) break;
      aborted += TRY(Result<std::size_t>{swept});
    }
  }
  return aborted;
}

UploadSweeper::UploadSweeper(LocalStore& store, const Clock& clock, std::chrono::days usual,
                             std::chrono::seconds period)
    : store_(store),
      clock_(clock),
      usual_(usual),
      period_(period),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void UploadSweeper::run(const std::stop_token& stop) {
  // Not at once: a server that starts has better things to do.
  auto pause = std::min(period_, std::chrono::seconds{60});
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
    if (stop.stop_requested()) return;
    sweep(stop);
    pause = period_;
  }
}

void UploadSweeper::sweep(const std::stop_token& stop) {
  const Result<std::size_t> swept = sweep_uploads(store_, clock_.now(), usual_, stop);
  if (!swept) {
    log::warning("object store: abandoned uploads: " + swept.error().message);
  } else if (*swept > 0) {
    log::info(fmt::format("object store: {} uploads were given up that nobody completed", *swept));
  }
  while (!stop.stop_requested()) {
    const Result<bool> shrunk = store_.shrink();
    if (!shrunk) log::warning("object store: give room back: " + shrunk.error().message);
    if (!shrunk || !*shrunk) return;
  }
}

}  // namespace atelier::objects::internal
