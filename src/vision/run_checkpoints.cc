#include "vision/run_checkpoints.h"

#include <fmt/format.h>

#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace atelier::vision {
namespace {

namespace fs = std::filesystem;

// Two, so that a newest one that a disk damaged does not cost the run.
constexpr std::size_t kKeptStates = 2;

// "hyperparameter epochs ('10', here '20')": what of two identities differs, by name.
void add_differences(const json::object& other, const json::object& own, const std::string& within,
                     std::vector<std::string>& found) {
  std::set<std::string> names;
  for (const auto& [name, value] : other) names.insert(std::string(name));
  for (const auto& [name, value] : own) names.insert(std::string(name));
  for (const std::string& name : names) {
    const json::value* a = other.if_contains(name);
    const json::value* b = own.if_contains(name);
    if (a != nullptr && b != nullptr && *a == *b) continue;
    if (a != nullptr && b != nullptr && a->is_object() && b->is_object()) {
      add_differences(a->as_object(), b->as_object(), name + " ", found);
      continue;
    }
    found.push_back(fmt::format("{}{} ({}, here {})", within, name,
                                a == nullptr ? "none" : json::serialize(*a),
                                b == nullptr ? "none" : json::serialize(*b)));
  }
}

// Seconds on the budget's clock at the last thing that was saved; 0 before.
double elapsed_before(const CheckpointFolder& states, const CheckpointFolder& features) {
  for (const CheckpointFolder* folder : {&states, &features}) {
    const std::vector<std::uint64_t> numbers = folder->numbers();
    for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
      const Result<Checkpoint> checkpoint = folder->read(*number);
      if (!checkpoint) {
        ignore_error(checkpoint, "an older one says it, too");
        continue;
      }
      double elapsed = 0;
      StateReader reader(*checkpoint);
      reader("elapsed", elapsed);
      if (reader.finish()) return elapsed;
    }
  }
  return 0;
}

}  // namespace

RunCheckpoints::RunCheckpoints(Options options, std::string key, CheckpointFolder features,
                               CheckpointFolder states)
    : options_(std::move(options)),
      key_(std::move(key)),
      features_(std::move(features)),
      states_(std::move(states)),
      pace_(options_.interval, options_.budget->elapsed()) {}

fs::path RunCheckpoints::run_file() const { return options_.folder / ("run-" + key_ + ".json"); }

Result<RunCheckpoints> RunCheckpoints::open(Options options) {
  const std::string key = sha256_hex(json::serialize(options.identity)).substr(0, 16);
  CheckpointFolder features = TRY(CheckpointFolder::open(options.folder, "features-" + key, 0));
  CheckpointFolder states =
      TRY(CheckpointFolder::open(options.folder, "state-" + key, kKeptStates));
  options.budget->add_earlier(elapsed_before(states, features));
  RunCheckpoints run(std::move(options), key, std::move(features), std::move(states));
  const Result<json::value> kept = read_json_file(run.run_file());
  const json::object* host = kept ? find_object(*kept, "host") : nullptr;
  if (host != nullptr) {
    run.host_ = *host;
  } else {
    run.tell_of_other_runs();
  }
  return run;
}

void RunCheckpoints::tell_of_other_runs() const {
  std::error_code failed;
  for (fs::directory_iterator it(options_.folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("run-") || !name.ends_with(".json")) continue;
    const Result<json::value> other = read_json_file(it->path());
    const json::object* identity = other ? find_object(*other, "identity") : nullptr;
    if (identity == nullptr) continue;
    std::vector<std::string> differences;
    add_differences(*identity, options_.identity, "", differences);
    std::string text;
    for (const std::string& difference : differences) {
      text += (text.empty() ? "" : ", ") + difference;
    }
    options_.print(fmt::format(
        "warning: the checkpoints of {} in '{}' are of another run and are left alone: {}",
        name.substr(0, name.size() - 5), options_.folder.string(), text));
  }
}

const json::object* RunCheckpoints::host() const { return host_ ? &*host_ : nullptr; }

Result<void> RunCheckpoints::begin(json::object host) {
  host_ = std::move(host);
  return write_file_durably(
      run_file(),
      pretty_json(json::object{{"identity", options_.identity}, {"host", *host_}}) + "\n");
}

std::optional<Checkpoint> RunCheckpoints::newest_state() {
  std::vector<std::string> damaged;
  std::optional<Checkpoint> newest = states_.newest(damaged);
  for (const std::string& line : damaged) {
    options_.print(fmt::format("warning: a checkpoint is passed over: {}", line));
  }
  return newest;
}

bool RunCheckpoints::save(CheckpointFolder& folder, StateWriter& state) {
  const double started = options_.budget->elapsed();
  state("elapsed", started);
  const Result<void> saved = folder.save(state);
  if (!saved) {
    options_.print(fmt::format(
        "warning: a checkpoint could not be saved, the one before it is still there: {}",
        saved.error().message));
  }
  // One that failed has taken its time, too, and is not tried again at once.
  pace_.saved(started, options_.budget->elapsed());
  return saved.has_value();
}

void RunCheckpoints::save_state(StateWriter& state) {
  if (save(states_, state)) features_.remove_from(0);
}

}  // namespace atelier::vision
