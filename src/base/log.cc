#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace atelier::log {
namespace {

std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "atelier", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return instance;
}

}  // namespace

void set_level(Level level) {
  switch (level) {
    case Level::kDebug:
      logger()->set_level(spdlog::level::debug);
      break;
    case Level::kInfo:
      logger()->set_level(spdlog::level::info);
      break;
    case Level::kWarning:
      logger()->set_level(spdlog::level::warn);
      break;
    case Level::kError:
      logger()->set_level(spdlog::level::err);
      break;
  }
}

Result<void> to_file(const std::filesystem::path& path) {
  try {
    logger()->sinks() = {std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string())};
    logger()->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  } catch (const spdlog::spdlog_ex& failure) {
    return Error{Code::kIo, failure.what()};
  }
  return {};
}

// "{}" keeps braces in the message from being read as a format.
void debug(std::string_view message) { logger()->debug("{}", message); }
void info(std::string_view message) { logger()->info("{}", message); }
void warning(std::string_view message) { logger()->warn("{}", message); }
void error(std::string_view message) { logger()->error("{}", message); }

}  // namespace atelier::log
