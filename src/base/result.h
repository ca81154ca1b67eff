// A value or an Error. Spelled like C++23's std::expected, so that it can become that one day.
//
//   Result<std::string> text = read_file(path);
//   if (!text) return text.error();
//   use(*text);
//
//   std::string text = TRY(read_file(path));   // the same, in one line
//   TRY(remove_file(path));                    // Result<void>
//
// A debug build aborts when a Result that holds an Error is destroyed unread.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.h"

namespace atelier {

namespace internal {
// Remembers whether somebody looked at the outcome; costs nothing in a release build.
class ReadMark {
 public:
#ifndef NDEBUG
  ReadMark() = default;
  ReadMark(ReadMark&& other) noexcept : read_(std::exchange(other.read_, true)) {}
  ReadMark& operator=(ReadMark&& other) noexcept {
    read_ = std::exchange(other.read_, true);
    return *this;
  }
  ReadMark(const ReadMark&) = default;
  ReadMark& operator=(const ReadMark&) = default;
  ~ReadMark() = default;
  void set() const { read_ = true; }
  bool get() const { return read_; }

 private:
  mutable bool read_ = false;
#else
  void set() const {}
  bool get() const { return true; }
#endif
};
}  // namespace internal

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit
  Result(Result&&) noexcept = default;
  Result& operator=(Result&&) noexcept = default;
  Result(const Result&) = default;
  Result& operator=(const Result&) = default;
  ~Result() {
    if (!mark_.get() && state_.index() == 1) {
      fail_check(__FILE__, __LINE__, "an Error was dropped unread: " + std::get<1>(state_).message);
    }
  }

  [[nodiscard]] bool has_value() const {
    mark_.set();
    return state_.index() == 0;
  }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    require();
    return std::get<0>(state_);
  }
  const T& value() const& {
    require();
    return std::get<0>(state_);
  }
  T&& value() && {
    require();
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) && { return has_value() ? std::get<0>(std::move(state_)) : std::move(other); }

  const Error& error() const& {
    mark_.set();
    return std::get<1>(state_);
  }
  Error&& error() && {
    mark_.set();
    return std::get<1>(std::move(state_));
  }

 private:
  void require() const {
    mark_.set();
    if (state_.index() != 0) {
      fail_check(__FILE__, __LINE__, "value of a failed Result: " + std::get<1>(state_).message);
    }
  }

  std::variant<T, Error> state_;
  [[no_unique_address]] internal::ReadMark mark_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit
  Result(Result&&) noexcept = default;
  Result& operator=(Result&&) noexcept = default;
  Result(const Result&) = default;
  Result& operator=(const Result&) = default;
  ~Result() {
    if (!mark_.get() && error_) {
      fail_check(__FILE__, __LINE__, "an Error was dropped unread: " + error_->message);
    }
  }

  [[nodiscard]] bool has_value() const {
    mark_.set();
    return !error_;
  }
  explicit operator bool() const { return has_value(); }
  void value() const {
    mark_.set();
    if (error_) fail_check(__FILE__, __LINE__, "value of a failed Result: " + error_->message);
  }
  const Error& error() const& {
    mark_.set();
    return *error_;
  }
  Error&& error() && {
    mark_.set();
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
  [[no_unique_address]] internal::ReadMark mark_;
};

// Says in the code that an Error is known and does not matter here, with the reason.
template <typename T>
void ignore_error(const Result<T>& result, [[maybe_unused]] const char* because) {
  static_cast<void>(result.has_value());
}

}  // namespace atelier

// The value of `expression`, or a return of its Error from the function around it. The counter
// keeps nested uses from shadowing one another.
#define ATELIER_TRY_IMPL(result, expression) \
  ({                                         \
    auto&& result = (expression);            \
    if (!result.has_value()) {               \
      return std::move(result).error();      \
    }                                        \
    std::move(result).value();               \
  })
#define ATELIER_TRY_CONCAT(a, b) a##b
#define ATELIER_TRY_NAME(counter) ATELIER_TRY_CONCAT(atelier_try_result_, counter)
#define TRY(expression) ATELIER_TRY_IMPL(ATELIER_TRY_NAME(__COUNTER__), expression)
