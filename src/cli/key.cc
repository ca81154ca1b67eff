#include <fmt/core.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "cli/connection.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "http/key_file.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;
using http::KeyStore;
using Entries = std::vector<KeyStore::Entry>;

struct KeyOptions {
  std::string data_folder;
  std::string name;
  std::string policy_file;
  bool may_do_everything = false;
  bool as_json = false;
  int keep_old_minutes = 0;
};

constexpr std::string_view kUser = ":user/";

std::string name_of(const KeyStore::Entry& entry) {
  const std::size_t at = entry.principal.arn.find(kUser);
  return at == std::string::npos ? entry.principal.arn
                                 : entry.principal.arn.substr(at + kUser.size());
}

bool has_expired(const KeyStore::Entry& entry) {
  return entry.expires && *entry.expires <= system_clock().now();
}

// The folder that the server of this machine has its data in: keys are files, not calls.
Result<fs::path> key_file_of(const KeyOptions& options) {
  const fs::path folder =
      options.data_folder.empty() ? default_data_folder() : fs::path{options.data_folder};
  const fs::path path = folder / "keys.json";
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  return Error{Code::kNotFound,
               fmt::format("'{}' is not there: name the folder of a server that was started once "
                           "with --data-dir",
                           path.string())};
}

// As IAM has them.
Result<void> check_name(const std::string& name) {
  const bool good =
      !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view{"+=,.@_-"}.find(static_cast<char>(c)) != std::string_view::npos;
      });
  if (good) return {};
  return Error{Code::kInvalidArgument,
               fmt::format("--name '{}': 1 to 64 letters, digits and any of +=,.@_-", name)};
}

Result<access::Authority> read_authority(const KeyOptions& options) {
  if (options.may_do_everything == !options.policy_file.empty()) {
    return Error{Code::kInvalidArgument,
                 "give either --policy FILE or --everything: a key has to say what it may do"};
  }
  if (options.may_do_everything) return access::Authority::everything();
  std::string text;
  if (options.policy_file == "-") {
    text.assign(std::istreambuf_iterator<char>{std::cin}, {});
  } else {
    text = TRY(read_file(options.policy_file, std::size_t{1} << 20));
  }
  Result<access::Policy> policy = access::Policy::parse(text);
  if (!policy) return policy.error().within(options.policy_file);
  return access::Authority{{{*std::move(policy)}}};
}

// Shown this once: the file has it, and nothing else ever prints it.
void show(const KeyStore::Entry& entry, bool as_json) {
  if (as_json) {
    std::cout << pretty_json(json::object{{"name", name_of(entry)},
                                          {"access_key", entry.credentials.access_key},
                                          {"secret_key", entry.credentials.secret_key}})
              << '\n';
    return;
  }
  std::cout << fmt::format("# {}\nexport AWS_ACCESS_KEY_ID={}\nexport AWS_SECRET_ACCESS_KEY={}\n",
                           entry.principal.arn, entry.credentials.access_key,
                           entry.credentials.secret_key);
}

Result<void> create(const KeyOptions& options) {
  const fs::path path = TRY(key_file_of(options));
  TRY(check_name(options.name));
  KeyStore::Entry made = http::make_key(options.name, kAccount);
  made.principal.authority = TRY(read_authority(options));
  TRY(http::change_keys(path, [&](Entries& entries) -> Result<void> {
    for (const KeyStore::Entry& entry : entries) {
      if (entry.principal.arn != made.principal.arn) continue;
      return Error{Code::kAlreadyExists,
                   fmt::format("'{}' has a key already; another one in its place: atelier key "
                               "rotate --name {}",
                               options.name, options.name)};
    }
    entries.push_back(made);
    return {};
  }));
  show(made, options.as_json);
  return {};
}

Result<void> rotate(const KeyOptions& options) {
  const fs::path path = TRY(key_file_of(options));
  KeyStore::Entry made = http::make_key(options.name, kAccount);
  const Time until = system_clock().now() + std::chrono::minutes{options.keep_old_minutes};
  TRY(http::change_keys(path, [&](Entries& entries) -> Result<void> {
    const auto is_theirs = [&](const KeyStore::Entry& entry) {
      return name_of(entry) == options.name;
    };
    const auto old = std::ranges::find_if(entries, is_theirs);
    if (old == entries.end()) {
      return Error{Code::kNotFound, fmt::format("nobody is called '{}'", options.name)};
    }
    made.principal = old->principal;
    made.principal.access_key = made.credentials.access_key;
    if (options.keep_old_minutes == 0) {
      std::erase_if(entries, is_theirs);
    } else {
      for (KeyStore::Entry& entry : entries) {
        if (is_theirs(entry)) entry.expires = std::min(entry.expires.value_or(until), until);
      }
    }
    std::erase_if(entries, has_expired);
    entries.push_back(made);
    return {};
  }));
  show(made, options.as_json);
  return {};
}

// Another policy for all keys of a name; jobs that these made lose at once what it takes away.
Result<void> change(const KeyOptions& options) {
  const fs::path path = TRY(key_file_of(options));
  const access::Authority authority = TRY(read_authority(options));
  std::size_t changed = 0;
  TRY(http::change_keys(path, [&](Entries& entries) -> Result<void> {
    for (KeyStore::Entry& entry : entries) {
      if (name_of(entry) != options.name) continue;
      entry.principal.authority = authority;
      ++changed;
    }
    if (changed > 0) return {};
    return Error{
        Code::kNotFound,
        fmt::format("nobody is called '{}'; who is there: atelier key list", options.name)};
  }));
  if (options.as_json) {
    std::cout << pretty_json(json::object{{"name", options.name}, {"changed", changed}}) << '\n';
  } else {
    std::cout << fmt::format("{} key{} of '{}' may do {} from now on\n", changed,
                             changed == 1 ? "" : "s", options.name,
                             options.may_do_everything ? "everything" : "what the policy says");
  }
  return {};
}

Result<void> revoke(const KeyOptions& options) {
  const fs::path path = TRY(key_file_of(options));
  std::size_t removed = 0;
  TRY(http::change_keys(path, [&](Entries& entries) -> Result<void> {
    removed = std::erase_if(entries, [&](const KeyStore::Entry& entry) {
      return name_of(entry) == options.name || entry.credentials.access_key == options.name;
    });
    if (removed > 0) return {};
    return Error{Code::kNotFound, fmt::format("no key and nobody is called '{}'", options.name)};
  }));
  if (options.as_json) {
    std::cout << pretty_json(json::object{{"revoked", removed}}) << '\n';
  } else {
    std::cout << fmt::format("revoked {} key{}; a running server refuses it from now on\n", removed,
                             removed == 1 ? "" : "s");
  }
  return {};
}

Result<void> list(const KeyOptions& options) {
  http::MemoryKeyStore store;
  const http::KeyFile file = TRY(http::KeyFile::open(TRY(key_file_of(options)), store));
  json::array all;
  for (const KeyStore::Entry& entry : file.entries()) {
    const std::string until = entry.expires ? format_iso8601(*entry.expires) : "";
    const bool everything = http::is_unrestricted(entry);
    if (!options.as_json) {
      std::cout << fmt::format("{:<24}  {}  {}{}\n", name_of(entry), entry.credentials.access_key,
                               everything ? "everything" : "by policy",
                               until.empty() ? "" : "  until " + until);
      continue;
    }
    json::object one = {{"name", name_of(entry)},
                        {"arn", entry.principal.arn},
                        {"access_key", entry.credentials.access_key},
                        {"everything", everything}};
    if (!until.empty()) one["expires"] = until;
    if (!everything) {
      one["policy"] = TRY(parse_json(entry.principal.authority.grants().front().front().text()));
    }
    all.emplace_back(std::move(one));
  }
  if (options.as_json) std::cout << pretty_json(all) << '\n';
  return {};
}

}  // namespace

void add_key(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<KeyOptions>();
  CLI::App* verb = program.add_subcommand("key", "Who may use the server, and for what");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, const char* example,
                       Result<void> (*run)(const KeyOptions&)) {
    CLI::App* sub = verb->add_subcommand(name, help);
    sub->footer(std::string{"Example: atelier key "} + example);
    sub->add_option("--data-dir", options->data_folder, "Data folder of the server");
    sub->add_flag("--json", options->as_json, "As JSON");
    sub->callback([options, run, &outcome] {
      const Result<void> done = run(*options);
      outcome.exit_code = done ? kOk : report_error(done.error());
    });
    return sub;
  };
  const auto add_authority = [&](CLI::App* sub) {
    sub->add_option("--name", options->name, "Who")->required();
    sub->add_option("--policy", options->policy_file,
                    "What they may do: a policy of AWS IAM as JSON ('-': standard input)");
    sub->add_flag("--everything", options->may_do_everything, "They may do everything, as you may");
  };
  add_authority(add("create", "A key for somebody; its secret is printed this once",
                    "create --name ann --policy ann.json", create));
  add_authority(add("change", "Another policy for somebody, whose keys stay",
                    "change --name ann --policy ann.json", change));
  add("list", "Every key, without its secret", "list --json", list);
  CLI::App* gone =
      add("revoke", "Ends all keys of a name, or one key by its id", "revoke --name ann", revoke);
  gone->add_option("--name", options->name, "Who, or an access key")->required();
  CLI::App* turned = add("rotate", "Another key in the place of the old one",
                         "rotate --name ann --keep-old 60", rotate);
  turned->add_option("--name", options->name, "Who")->required();
  turned
      ->add_option("--keep-old", options->keep_old_minutes, "Minutes that the old one still counts")
      ->check(CLI::Range(0, 7 * 24 * 60));
  verb->footer(
      "Works on the data folder; a running server takes changes over at once.\n"
      "Example: atelier key create --name ann --policy ann.json --data-dir ./data");
}

}  // namespace atelier::cli
