// atelier-vision: the built-in image classification, as a container's program and on the command
// line.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "vision/predict_command.h"
#include "vision/train_command.h"

namespace {

using namespace atelier;
using namespace atelier::vision;

volatile std::sig_atomic_t stop_requested = 0;
void request_stop(int) { stop_requested = 1; }

// Settings that libgomp and OpenBLAS read while they are loaded, so they must be there before main:
// waiting threads sleep (spinning ones take three times the processor when cores are shared,
// reference/training.md part 0). Replaces this process by itself, once; who sets OMP_WAIT_POLICY
// beforehand saves the second loading of libtorch, 0.7 s.
void restart_with_settings(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  execv("/proc/self/exe", argv);
  // Without /proc the defaults must do: slower on a busy host, never wrong.
}

// libtorch 1.13 uses AVX-512 only when told to; it asks at its first operation.
void use_widest_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    setenv("ATEN_CPU_CAPABILITY", "avx512", 0);
  }
#endif
}

// Activations come back in every step: memory that is handed back to the kernel is faulted in again
// each time, at up to two thirds of the whole training time (reference/training.md, part 0).
void keep_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  mallopt(M_TOP_PAD, 64 << 20);
}

void print_line(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// The exit codes of `atelier`, as far as they can come up here.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,    // the machine, or a bug of ours
  kUsage = 2,     // the caller's arguments, settings or data
  kNotThere = 5,  // a file or channel that does not exist
};
ExitCode exit_code(const Error& error) {
  switch (error.code) {
    case Code::kInternal:
    case Code::kIo:
    case Code::kResourceExhausted:
      return kFailed;
    case Code::kNotFound:
      return kNotThere;
    default:
      return kUsage;
  }
}

int train() {
  const TrainCommand command{job_folders_from_environment(), print_line,
                             [] { return stop_requested != 0; }};
  std::signal(SIGTERM, request_stop);
  std::signal(SIGINT, request_stop);
  const Result<void> result = run_training(command);
  if (result) return kOk;
  std::fprintf(stderr, "error: %s\n", result.error().message.c_str());
  write_failure(command.folders, result.error());
  return exit_code(result.error());
}

int predict(const PredictCommand& command) {
  const Result<std::size_t> failed = run_prediction(command);
  if (failed) return *failed == 0 ? kOk : kUsage;
  std::fprintf(stderr, "error: %s\n", failed.error().message.c_str());
  return exit_code(failed.error());
}

}  // namespace

int main(int argc, char** argv) {
  restart_with_settings(argv);
  use_widest_kernels();
  keep_memory();
  CLI::App app{"Atelier's image classification"};
  app.require_subcommand(1);
  CLI::App* train_command = app.add_subcommand(
      "train",
      "Trains as a container does: reads /opt/ml (or SAGEMAKER_BASE_DIR), leaves the model there.\n"
      "Example: SAGEMAKER_BASE_DIR=/tmp/job atelier-vision train");
  CLI::App* predict_command =
      app.add_subcommand("predict",
                         "Prints the classes of pictures, one line of JSON each.\n"
                         "Example: atelier-vision predict --model model.tar.gz shoe.jpg");
  PredictCommand prediction;
  prediction.print = print_line;
  predict_command->add_option("--model", prediction.model, "a model folder or model.tar.gz")
      ->required();
  predict_command->add_option("--top-k", prediction.top_k, "classes to show for each picture")
      ->check(CLI::PositiveNumber);
  predict_command->add_flag("--probabilities", prediction.probabilities,
                            "show the probabilities of all classes");
  predict_command->add_option("files", prediction.files, "picture files")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return *train_command ? train() : predict(prediction);
}
