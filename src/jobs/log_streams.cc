#include "jobs/log_streams.h"

#include <algorithm>
#include <map>

#include "agent/spec.h"
#include "jobs/logs.h"

namespace atelier::jobs {
namespace {

// An agent may note something after its last event.
constexpr std::chrono::minutes kAfterTheEnd{1};

// The best of what was offered, one more than a page: that one says whether there is another page.
class PageInTheMaking {
 public:
  explicit PageInTheMaking(const LogStreamQuery& query)
      : query_(query), best_(Before{query.descending}) {}

  void offer(LogStreamPlace place, LogStream stream) {
    if (query_.after && !best_.key_comp()(*query_.after, place)) return;
    best_.insert_or_assign(std::move(place), std::move(stream));
    if (best_.size() > query_.limit + 1) best_.erase(std::prev(best_.end()));
  }
  // Nothing at `time` or behind it in the order can come into the page any more.
  [[nodiscard]] bool complete(Time time) const {
    if (best_.size() <= query_.limit) return false;
    const Time last = best_.rbegin()->first.last_event;
    return query_.descending ? time < last : time > last;
  }
  [[nodiscard]] bool full() const { return best_.size() > query_.limit; }

  LogStreamPage take() {
    LogStreamPage page;
    if (full()) {
      best_.erase(std::prev(best_.end()));
      page.next = best_.rbegin()->first;
    }
    for (auto& [place, stream] : best_) page.streams.push_back(std::move(stream));
    return page;
  }

 private:
  struct Before {
    bool descending;
    bool operator()(const LogStreamPlace& a, const LogStreamPlace& b) const {
      return descending ? b < a : a < b;
    }
  };
  const LogStreamQuery& query_;
  std::map<LogStreamPlace, LogStream, Before> best_;
};

class Finder {
 public:
  Finder(Store& store, const std::function<std::filesystem::path(const std::string&)>& folder_of,
         const LogStreamQuery& query)
      : store_(store), folder_of_(folder_of), query_(query), page_(query) {}

  Result<LogStreamPage> by_name() {
    // Those of one job stand together: they differ behind the slash.
    const auto of_the_job = [](const std::string& name) {
      return name.substr(
          0, name.find('/') == std::string::npos ? std::string::npos : name.find('/') + 1);
    };
    StreamScan scan{.order = StreamScan::Order::kName, .descending = query_.descending};
    scan.first = of_the_job(query_.prefix);
    // Names are ASCII: the highest character is past all that follows.
    scan.last = scan.first + '\x7f';
    if (query_.after) {
      const std::string from = of_the_job(query_.after->name);
      if (query_.descending) {
        scan.last = std::min(scan.last, from + '\x7f');
      } else {
        scan.first = std::max(scan.first, from);
      }
    }
    TRY(store_.scan_log_streams(scan, [&](const StreamRow& row) -> Result<bool> {
      TRY(look_at(row));
      return !page_.full();
    }));
    return page_.take();
  }

  // Of a job that has not ended the log alone says when its last line was written.
  Result<LogStreamPage> by_time() {
    TRY(store_.scan_log_streams({.order = StreamScan::Order::kActive},
                                [&](const StreamRow& row) -> Result<bool> {
                                  TRY(look_at(row));
                                  return true;
                                }));
    StreamScan scan{.order = query_.descending ? StreamScan::Order::kEndedLastFirst
                                               : StreamScan::Order::kEndedFirstFirst};
    if (query_.after) {
      // What lies whole on the side of the pages before is passed over.
      scan.created_by = query_.after->last_event;
      scan.modified_from = query_.after->last_event - kAfterTheEnd;
      if (query_.descending) scan.modified_from.reset();
      if (!query_.descending) scan.created_by.reset();
    }
    TRY(store_.scan_log_streams(scan, [&](const StreamRow& row) -> Result<bool> {
      const Time bound = query_.descending ? row.modified + kAfterTheEnd : row.created;
      if (page_.complete(bound)) return false;
      TRY(look_at(row));
      return true;
    }));
    return page_.take();
  }

 private:
  Result<void> look_at(const StreamRow& row) {
    TrainingJob job;
    job.name = row.job;
    job.log_stream = row.log_stream;
    const std::filesystem::path folder = folder_of_(row.job);
    for (const std::string& host : agent::instance_hosts(folder)) {
      if (!log_stream_of(job, host).starts_with(query_.prefix)) continue;
      auto stream = TRY(read_log_stream(job, folder, host));
      if (!stream) continue;
      LogStreamPlace place{{}, stream->name};
      if (query_.by_time) {
        place.last_event = stream->last_event.value_or(row.created);
        // What is beyond, by a clock that jumped, stands where the bounds of the search put it.
        if (row.ended) {
          place.last_event = std::clamp(place.last_event, row.created, row.modified + kAfterTheEnd);
        }
      }
      page_.offer(std::move(place), *std::move(stream));
    }
    return {};
  }

  Store& store_;
  const std::function<std::filesystem::path(const std::string&)>& folder_of_;
  const LogStreamQuery& query_;
  PageInTheMaking page_;
};

}  // namespace

Result<LogStreamPage> find_log_streams(
    Store& store, const std::function<std::filesystem::path(const std::string&)>& folder_of,
    const LogStreamQuery& query) {
  Finder finder{store, folder_of, query};
  return query.by_time ? finder.by_time() : finder.by_name();
}

}  // namespace atelier::jobs
