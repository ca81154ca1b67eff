#include "vision/train_command.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/time.h"
#include "vision/classify.h"
#include "vision/head.h"
#include "vision/host_probe.h"
#include "vision/incremental.h"
#include "vision/model_files.h"
#include "vision/pretrained.h"
#include "vision/report.h"
#include "vision/run_checkpoints.h"
#include "vision/training_data.h"

namespace atelier::vision {
namespace {

// A classifier that the whole network will go on training needs a start, not the last word.
constexpr std::size_t kWarmStartPictures = 10'000;
constexpr double kSecondsBetweenLines = 3;
// Raised when the meaning of a checkpoint, or what a step computes, changes.
constexpr int kCheckpointFormat = 2;

// One job from hyperparameters to files; each member function is a phase. One thread.
class Job {
 public:
  explicit Job(const TrainCommand& command) : command_(command), started_(system_clock().now()) {}

  Result<void> run() {
    TRY(prepare());
    TRY(make_model());
    TRY(open_checkpoints());
    TRY(choose_host());
    if (!resumed_) TRY(train_head());
    // What was resumed is only in the network once the fine-tuning has taken it over.
    if (resumed_ || (mode_ != FineTune::kHead && !command_.stopped())) TRY(train_trunk());
    TRY(test());
    return save();
  }

 private:
  void print(const std::string& line) const { command_.print(line); }
  void end_phase(const char* name) {
    const double now = budget_->elapsed();
    durations_[name] = now - phase_started_;
    phase_started_ = now;
  }

  Result<void> prepare() {
    TRY(check_job(command_.folders));
    given_ = TRY(read_hyperparameters_file(command_.folders.config("hyperparameters.json")));
    h_ = TRY(parse_hyperparameters(given_));
    budget_.emplace(h_.time_budget_seconds,
                    h_.threads > 0 ? static_cast<int>(h_.threads) : available_processors());
    data_ = TRY(open_training_data(command_.folders, h_));
    for (const std::string& line : h_.warnings) print("warning: " + line);
    for (const std::string& line : data_.warnings) print("warning: " + line);
    const Split split = data_.split();
    print(fmt::format("data: classes={} train_pictures={} validation_pictures={} test_pictures={}",
                      data_.train.classes.size(), split.train.size(), split.validation.size(),
                      data_.test ? data_.test->samples.size() : 0));
    end_phase("index");
    return {};
  }

  // A model of ours in the 'model' channel is trained on, whatever use_pretrained_model says, as
  // SageMaker has it: its network, classes and preprocessing must be those of this job.
  Result<void> look_for_earlier_model() {
    if (!h_.pretrained_weights.empty()) return {};
    const auto channel = command_.folders.channel({"model"});
    if (!channel) return {};
    scratch_.emplace(TRY(TempFolder::create()));
    earlier_ = TRY(find_earlier_model(*channel, scratch_->path(), h_.use_pretrained_model));
    if (!earlier_) return {};
    TRY(continue_model(*earlier_, data_.train, h_));
    print(fmt::format("incremental: backbone={} image_size={} classes={}", earlier_->backbone,
                      earlier_->preprocess.width, earlier_->classes.size()));
    return {};
  }

  Result<void> make_model() {
    TRY(look_for_earlier_model());
    const int size = h_.image_size ? *h_.image_size : TRY(suitable_image_size(data_.train));
    h_.image_size = size;
    model_.classes = data_.train.classes;
    model_.multi_label = h_.multi_label;
    model_.preprocess = earlier_ ? earlier_->preprocess : default_preprocess(h_.backbone, size);
    if (h_.resize) model_.preprocess.resize = *h_.resize;
    model_.flip_average = h_.flip_average && h_.random_flip;
    TRY(check_preprocess(model_.preprocess));
    model_.network =
        TRY(make_network(h_.backbone, static_cast<std::int64_t>(model_.classes.size()), h_.seed));
    if (h_.use_pretrained_model || earlier_) TRY(load_pretrained());
    end_phase("weights");
    return {};
  }

  // All that decides about the weights of this run, and nothing else.
  Result<json::object> identity() const {
    json::object hyperparameters;
    for (const auto& [name, value] : given_) {
      if (name.starts_with("sagemaker_") || name.starts_with("_")) continue;
      if (name.starts_with("checkpoint")) continue;
      hyperparameters[name] = value;
    }
    return json::object{
        {"format", kCheckpointFormat},
        {"backbone", h_.backbone},
        {"image_size", *h_.image_size},
        {"hyperparameters", std::move(hyperparameters)},
        {"data", data_.fingerprint},
        {"validation", data_.validation ? TRY(fingerprint(*data_.validation, false)) : ""},
        {"weights", weights_ ? weights_->sha256 : "random"}};
  }

  Result<void> open_checkpoints() {
    const auto folder = TRY(checkpoint_folder(command_.folders, h_.checkpoint));
    if (!folder) return {};
    json::object own = TRY(identity());
    checkpoints_ = TRY(RunCheckpoints::open({.folder = *folder,
                                             .identity = std::move(own),
                                             .interval = h_.checkpoint_interval_seconds,
                                             .budget = &*budget_,
                                             .print = command_.print}));
    resumed_ = checkpoints_->newest_state();
    if (!resumed_) return {};
    StateReader reader(*resumed_);
    std::string mode;
    reader("mode", mode);
    reader("forward_rate", forward_rate_);
    reader("interruptions", interruptions_);
    TRY(reader.finish());
    ++interruptions_;
    mode_ = mode == fine_tune_name(FineTune::kPartial) ? FineTune::kPartial : FineTune::kFull;
    return {};
  }

  // A run that goes on does so with the arithmetic that it was begun with, or says that it cannot.
  Result<void> choose_host() {
    ProbeOptions options{.backbone = h_.backbone,
                         .image_size = *h_.image_size,
                         .batch_size = h_.mini_batch_size,
                         .precision = h_.precision,
                         .engine = h_.engine,
                         .threads = h_.threads};
    const json::object* begun = checkpoints_ ? checkpoints_->host() : nullptr;
    if (begun != nullptr) {
      const std::string processor = find_string(*begun, "processor").value_or("");
      const std::string torch = find_string(*begun, "torch").value_or("");
      if (processor == processor_name() && torch == torch_version()) {
        options.engine = find_string(*begun, "engine").value_or(options.engine);
        options.threads = find_int(*begun, "threads").value_or(options.threads);
      } else {
        print(fmt::format(
            "warning: this run was begun on '{}' with libtorch {} and goes on on '{}' with {}: "
            "its weights will not equal those of an undisturbed one bit for bit",
            processor, torch, processor_name(), torch_version()));
      }
    }
    host_ = TRY(choose_engine(options));
    if (checkpoints_ && begun == nullptr) {
      TRY(checkpoints_->begin({{"engine", engine_name(host_.engine)},
                               {"threads", host_.threads},
                               {"processor", processor_name()},
                               {"torch", torch_version()}}));
    }
    if (h_.precision == Precision::kBfloat16 && host_.engine != Engine::kAtenBf16) {
      print(
          "warning: precision_dtype asks for 16 bits; this host is faster in float32, which is "
          "used");
    }
    print(fmt::format("model: backbone={} image_size={} engine={} threads={} torch={} probe={}",
                      h_.backbone, *h_.image_size, engine_name(host_.engine), host_.threads,
                      torch_version(), host_.from_cache ? "kept" : "made"));
    end_phase("probe");
    return {};
  }

  Result<void> load_pretrained() {
    const TempFolder scratch = TRY(TempFolder::create());
    const Result<WeightsSource> source = find_weights(
        h_.backbone, h_.pretrained_weights, command_.folders.channel({"model"}), scratch.path());
    if (!source && source.error().code == Code::kNotFound && h_.pretrained_where_there) {
      print(fmt::format("warning: {} starts from random weights: there are none of it here",
                        h_.backbone));
      return {};
    }
    if (!source) return source.error();
    weights_ = TRY(load_weights(model_.network, source->file, source->sha256));
    print(weights_report_line(*weights_));
    return {};
  }

  // Shows where a pass over pictures is, every few seconds; false when the job is to stop.
  std::function<bool(std::size_t, std::size_t)> reporter(const char* phase) {
    return [this, phase, begun = budget_->elapsed(), last = budget_->elapsed()](
               std::size_t done, std::size_t all) mutable {
      const double now = budget_->elapsed();
      if (now - last >= kSecondsBetweenLines) {
        last = now;
        const double rate = static_cast<double>(done) / (now - begun);
        print(fmt::format(
            "progress: phase={} done={}/{} images_per_second={:.0f} eta_seconds={:.0f}", phase,
            done, all, rate, static_cast<double>(all - done) / std::max(1e-9, rate)));
      }
      return !command_.stopped();
    };
  }

  [[nodiscard]] at::Tensor class_weights() const {
    if (!h_.use_weighted_loss) return {};
    return loss_weights(data_.trained_counts(), data_.train_order.size(), h_.multi_label);
  }

  Result<void> train_head() {
    // A random trunk has no features to speak of, and weights of ours bring their classifier.
    const bool head_only = h_.fine_tune == FineTune::kHead;
    if (!head_only && (!weights_ || weights_->classifier_loaded)) {
      mode_ = h_.fine_tune == FineTune::kAuto ? FineTune::kFull : h_.fine_tune;
      return {};
    }
    std::vector<std::uint32_t> order = data_.train_order;
    if (!head_only && order.size() > kWarmStartPictures) {
      const auto shuffled = shuffled_order(order.size(), h_.seed, 0);
      order.clear();
      for (std::size_t i = 0; i < kWarmStartPictures; ++i)
        order.push_back(data_.train_order[shuffled[i]]);
    }
    FeatureOptions options;
    options.engine = host_.engine;
    options.mirrored_too = head_only && h_.random_flip;
    options.fail_on_damage = h_.fail_on_corrupt;
    options.progress = reporter("features");
    if (const auto cache = environment("ATELIER_FEATURE_CACHE")) {
      options.cache = *cache;
      options.content_key = TRY(fingerprint(data_.train, true)) +
                            (weights_ ? weights_->sha256 : "random") +
                            json::serialize(preprocess_to_json(model_.preprocess));
    }
    if (checkpoints_) {
      options.parts = &checkpoints_->features();
      options.part_due = [this] { return checkpoints_->due(false); };
      options.save_part = [this](StateWriter& part) { checkpoints_->save_features(part); };
    }
    const double begun = budget_->elapsed();
    const std::size_t pictures = order.size();
    const FeatureSet set = TRY(compute_features(model_.network, data_.train, std::move(order),
                                                model_.preprocess, options));
    const double seconds = std::max(1e-3, budget_->elapsed() - begun);
    forward_rate_ = set.from_cache ? 0 : static_cast<double>(set.samples.size()) / seconds;
    note_damaged(set.damaged);
    print(fmt::format("features: pictures={} seconds={:.1f} images_per_second={:.0f} cache={}",
                      pictures, seconds, static_cast<double>(pictures) / seconds,
                      set.from_cache ? "hit" : "none"));
    end_phase("features");
    HeadOptions head;
    head.passes = head_only ? std::min<std::int64_t>(h_.epochs, 60) : 10;
    head.label_smoothing = h_.label_smoothing;
    head.seed = h_.seed;
    head.class_weights = class_weights();
    const double loss = fit_head(model_.network, data_.train, set, head);
    print(fmt::format("head: passes={} train_loss={:.4f}", head.passes, loss));
    end_phase("head");
    mode_ = choose_mode();
    if (mode_ == FineTune::kHead) TRY(validate_head(head.passes, loss));
    return {};
  }

  // What a budget allows: a full fine-tuning costs about four forward passes a picture, and is
  // worth it when it sees at least half of the pictures once.
  [[nodiscard]] FineTune choose_mode() const {
    if (h_.fine_tune != FineTune::kAuto) return h_.fine_tune;
    if (!budget_->limited() || forward_rate_ == 0) return FineTune::kFull;
    const double left = *budget_->seconds() - budget_->elapsed() - reserve();
    const double passes = left * forward_rate_ / 4 / static_cast<double>(data_.train_order.size());
    if (passes >= 0.5) return FineTune::kFull;
    return passes >= 0.1 ? FineTune::kPartial : FineTune::kHead;
  }

  // Seconds that validation, test and files will take after the last step.
  [[nodiscard]] double reserve() const {
    const std::size_t pictures =
        data_.split().validation.size() + (data_.test ? data_.test->samples.size() : 0);
    const double views = model_.flip_average ? 2 : 1;
    return 1 +
           (forward_rate_ > 0 ? 1.2 * views * static_cast<double>(pictures) / forward_rate_ : 0);
  }

  [[nodiscard]] EvaluationOptions evaluation_options(const char* phase) {
    EvaluationOptions options;
    options.engine = host_.engine;
    options.flip_average = model_.flip_average;
    options.k = static_cast<std::size_t>(h_.top_k);
    options.fail_on_damage = h_.fail_on_corrupt;
    options.progress = reporter(phase);
    return options;
  }

  Result<void> validate_head(std::int64_t passes, double loss) {
    const Split split = data_.split();
    Result<EvaluationRun> run = evaluate(model_.network, *split.validation_folder, split.validation,
                                         model_.preprocess, evaluation_options("validation"));
    if (!run && run.error().code == Code::kCancelled) return {};
    if (!run) return run.error();
    validation_ = *std::move(run);
    print(fmt::format("Epoch[{}] Train-loss={:.6f}", passes, loss));
    print(fmt::format("train-loss: {:.6f}", loss));
    for (const std::string& line : validation_lines(passes, validation_.evaluation)) print(line);
    end_phase("validation");
    return {};
  }

  Result<void> train_trunk() {
    const Split split = data_.split();
    FineTunePlan plan;
    plan.h = h_;
    plan.frozen_units = mode_ == FineTune::kPartial ? model_.network.partial_boundary() : 0;
    plan.engine = host_.engine;
    plan.preprocess = model_.preprocess;
    plan.flip_average = model_.flip_average;
    plan.class_weights = class_weights();
    plan.budget = &*budget_;
    // Validation keeps back what its last round took; the first is guessed with the rest.
    plan.reserve_seconds = reserve();
    plan.stopped = command_.stopped;
    plan.print = command_.print;
    if (resumed_) plan.resume = &*resumed_;
    if (checkpoints_) {
      plan.checkpoint_due = [this](bool end_of_epoch) { return checkpoints_->due(end_of_epoch); };
      plan.save_checkpoint = [this](StateWriter& state) {
        state("mode", std::string(fine_tune_name(mode_)));
        state("forward_rate", forward_rate_);
        state("interruptions", interruptions_);
        checkpoints_->save_state(state);
      };
    }
    print(fmt::format("fine-tune: mode={} optimizer={} learning_rate={} batch={}",
                      fine_tune_name(mode_), optimizer_name(h_.optimizer.kind), h_.learning_rate,
                      h_.mini_batch_size));
    tuned_ = TRY(fine_tune(model_.network, split, plan));
    resumed_.reset();
    validation_ = std::move(tuned_->best);
    for (const auto& [path, reason] : tuned_->damaged) damaged_[path] = reason;
    end_phase("fine-tune");
    return {};
  }

  Result<void> test() {
    if (!data_.test || command_.stopped()) return {};
    std::vector<std::uint32_t> order(data_.test->samples.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    Result<EvaluationRun> run = evaluate(model_.network, *data_.test, std::move(order),
                                         model_.preprocess, evaluation_options("test"));
    if (!run && run.error().code == Code::kCancelled) return {};
    if (!run) return run.error();
    test_ = *std::move(run);
    print(fmt::format("Test-accuracy={:.6f}", test_->evaluation.top_1));
    print(h_.multi_label ? fmt::format("Test-f1={:.6f}", test_->evaluation.micro_f1)
                         : fmt::format("Test-top_k_accuracy_{}={:.6f}", test_->evaluation.k,
                                       test_->evaluation.top_k));
    end_phase("test");
    return {};
  }

  void note_damaged(const std::vector<DamagedPicture>& damaged) {
    for (const DamagedPicture& picture : damaged) damaged_[picture.path] = picture.reason.message;
  }

  Result<void> save() {
    print_summary();
    TRY(save_model(command_.folders.model(), model_, card()));
    if (validation_.evaluation.count > 0) {
      std::vector<NamedEvaluation> parts;
      if (test_) parts.push_back({"test", &*data_.test, &*test_});
      parts.push_back({"validation", data_.split().validation_folder, &validation_});
      const Result<void> written =
          write_reports(command_.folders.output_data(), parts, model_.classes);
      // Only the model is worth failing for: of a failed job it would not be kept.
      if (!written) print("warning: the reports are not whole: " + written.error().message);
    }
    print(fmt::format("model: {}", command_.folders.model().string()));
    return {};
  }

  void print_summary() const {
    std::size_t shown = 0;
    for (const auto& [path, reason] : damaged_) {
      if (++shown > 20) break;
      print(fmt::format("damaged: {}: {}", path, reason));
    }
    const std::size_t damaged =
        damaged_.size() + validation_.damaged.size() + (test_ ? test_->damaged.size() : 0);
    const Evaluation& e = test_ ? test_->evaluation : validation_.evaluation;
    for (const Confusion& c : e.count > 0 ? most_confused(e, 5) : std::vector<Confusion>{}) {
      print(fmt::format("confused: {} taken for {}: {}", model_.classes[c.truth],
                        model_.classes[c.prediction], c.count));
    }
    if (checkpoints_ && checkpoints_->pace().count() > 0) {
      print(fmt::format("checkpoints: saved={} seconds={:.2f}", checkpoints_->pace().count(),
                        checkpoints_->pace().cost()));
    }
    print(fmt::format("done: stopped={} damaged={} seconds={:.1f} processor_seconds={:.1f}",
                      command_.stopped(), damaged, budget_->elapsed(), process_seconds()));
  }

  [[nodiscard]] json::object training_card() const {
    json::object training{{"fine_tune", fine_tune_name(mode_)},
                          {"stopped", command_.stopped()},
                          {"interruptions", interruptions_}};
    json::object durations;
    for (const auto& [phase, seconds] : durations_) durations[phase] = seconds;
    training["seconds"] = std::move(durations);
    training["processor_seconds"] = process_seconds();
    if (!tuned_) return training;
    training["epochs"] = epochs_to_json(tuned_->epochs, h_.multi_label);
    training["best_epoch"] = tuned_->best_epoch;
    training["pictures"] = tuned_->pictures;
    training["images_per_second"] = tuned_->images_per_second;
    training["images_per_processor_second"] = tuned_->images_per_processor_second;
    training["out_of_time"] = tuned_->out_of_time;
    return training;
  }

  [[nodiscard]] json::object card() const {
    json::object given;
    for (const auto& [name, value] : given_) given[name] = value;
    json::object damaged;
    for (const auto& [path, reason] : damaged_) damaged[path] = reason;
    json::object evaluations;
    if (validation_.evaluation.count > 0) {
      evaluations["validation"] = evaluation_to_json(validation_.evaluation, model_.classes);
    }
    if (test_) evaluations["test"] = evaluation_to_json(test_->evaluation, model_.classes);
    json::object card{
        {"format", 1},
        {"backbone", model_.network.name()},
        {"created", format_iso8601(system_clock().now())},
        {"started", format_iso8601(started_)},
        {"hyperparameters", std::move(given)},
        {"learning_rate", h_.learning_rate},
        {"seed", h_.seed},
        {"data",
         {{"fingerprint", data_.fingerprint},
          {"fingerprint_of", data_.fingerprint_of_contents ? "contents" : "paths and sizes"},
          {"train_pictures", data_.train_order.size()},
          {"validation_pictures", data_.split().validation.size()},
          {"damaged", std::move(damaged)}}},
        {"evaluation", std::move(evaluations)},
        {"training", training_card()},
        {"host", host_choice_to_json(host_)},
        {"processor", processor_name()},
        {"torch", torch_version()}};
    if (weights_) card["weights"] = weights_report_to_json(*weights_);
    return card;
  }

  const TrainCommand& command_;
  Time started_;
  std::map<std::string, std::string> given_;
  Hyperparameters h_;
  std::optional<Budget> budget_;
  TrainingData data_;
  Model model_;
  std::optional<TempFolder> scratch_;
  std::optional<ModelFacts> earlier_;
  std::optional<WeightsReport> weights_;
  HostChoice host_;
  FineTune mode_ = FineTune::kHead;
  double forward_rate_ = 0;  // pictures a second
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<Checkpoint> resumed_;
  std::uint64_t interruptions_ = 0;  // after which it went on from a state of the fine-tuning
  double phase_started_ = 0;
  std::map<std::string, double> durations_;
  std::map<std::string, std::string> damaged_;
  std::optional<FineTuneResult> tuned_;
  EvaluationRun validation_;
  std::optional<EvaluationRun> test_;
};

}  // namespace

Result<void> run_training(const TrainCommand& command) {
  try {
    return Job(command).run();
  } catch (const c10::Error& error) {
    return Error{Code::kInternal, fmt::format("libtorch: {}", error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return Error{Code::kInternal, error.what()};
  }
}

}  // namespace atelier::vision
