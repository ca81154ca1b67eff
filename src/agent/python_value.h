// JSON exactly as Python sees it: integers of any size, 1E400 as infinity, NaN, unpaired
// surrogates, members in their order. The official training toolkit passes hyperparameters through
// json.loads, str() and json.dumps; a script must meet the same characters here, and Boost.JSON
// keeps neither big integers nor the order of duplicates.
//
//   PythonValue v = TRY(parse_python_json("[1e-05, true, {\"a\": null}]"));
//   python_str(v);    // [1e-05, True, {'a': None}]
//   python_dumps(v);  // [1e-05,true,{"a":null}]
//
// Strings hold UTF-8; an unpaired surrogate from a \uD800 escape is kept as its three-byte form.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace atelier::agent {

struct PythonValue;
using PythonList = std::vector<PythonValue>;

// A dict: keys are unique, in the order in which they came first.
struct PythonDict {
  std::vector<std::pair<std::string, PythonValue>> items;

  [[nodiscard]] const PythonValue* find(std::string_view key) const;
  void set(std::string key, PythonValue value);
};

struct PythonNone {};
struct PythonInt {
  std::string digits;  // as str() prints it: "-12"
};

struct PythonValue {
  std::variant<PythonNone, bool, PythonInt, double, std::string, PythonList, PythonDict> data;

  PythonValue() = default;
  PythonValue(bool value) : data(value) {}                      // NOLINT: implicit
  PythonValue(int value);                                       // NOLINT: implicit
  PythonValue(double value) : data(value) {}                    // NOLINT: implicit
  PythonValue(PythonInt value) : data(std::move(value)) {}      // NOLINT: implicit
  PythonValue(std::string value) : data(std::move(value)) {}    // NOLINT: implicit
  PythonValue(const char* value) : data(std::string(value)) {}  // NOLINT: implicit
  PythonValue(PythonList value) : data(std::move(value)) {}     // NOLINT: implicit
  PythonValue(PythonDict value) : data(std::move(value)) {}     // NOLINT: implicit

  [[nodiscard]] bool is_none() const { return std::holds_alternative<PythonNone>(data); }
  [[nodiscard]] const std::string* string() const { return std::get_if<std::string>(&data); }
  [[nodiscard]] const PythonList* list() const { return std::get_if<PythonList>(&data); }
  [[nodiscard]] const PythonDict* dict() const { return std::get_if<PythonDict>(&data); }
  // bool(value)
  [[nodiscard]] bool truthy() const;
};

// json.loads(text). The text must be UTF-8. More than 900 levels are refused (Python gives up at
// about a thousand), and so are integers of more than 4,300 digits, as Python refuses them.
Result<PythonValue> parse_python_json(std::string_view text);

// str(value), and repr(value) of the same.
std::string python_str(const PythonValue& value);
std::string python_repr(const PythonValue& value);
// json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
std::string python_dumps(const PythonValue& value);

// str.upper(), by the Unicode tables of Python 3.11.
std::string python_upper(std::string_view text);
// len(text): characters, not bytes.
std::size_t python_length(std::string_view text);
// shlex.quote(text)
std::string shell_quote(std::string_view text);

}  // namespace atelier::agent
