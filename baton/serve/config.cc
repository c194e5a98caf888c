// The keys of the file, each with what reads it.
#include "baton/serve/config.h"

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <utility>

#include "baton/api/units.h"
#include "baton/base/file.h"
#include "baton/engine/request.h"
#include "baton/engine/strategy.h"
#include "baton/hub/name.h"
#include "baton/hub/resolve.h"
#include "baton/sample/sampler.h"
#include "baton/serve/cors.h"
#include "baton/state/rows.h"

namespace baton::serve {
namespace {

constexpr int64_t kYearSeconds = 366 * 86400;

// Of the file that is read.
struct Place {
  std::string_view file;
  const std::filesystem::path& folder;

  tl::unexpected<Error> refuse(const toml::node& at, const std::string& what) const {
    return refuse(static_cast<int>(at.source().begin.line), what);
  }
  tl::unexpected<Error> refuse(int line, const std::string& what) const {
    return fail(Code::kInvalidInput, fmt::format("{}:{}: {}", file, line, what));
  }
};

// What a key's value is read by; `key`: its whole name.
template <class To>
struct Key {
  const char* name;
  Status (*read)(const toml::node& value, const std::string& key, const Place& place, To& to);
};

Result<std::string> string_of(const toml::node& value, const std::string& key, const Place& place) {
  const auto text = value.value_exact<std::string>();
  if (!text) return place.refuse(value, key + " must be a string");
  if (text->find('\0') != std::string::npos) return place.refuse(value, key + " must not hold a NUL");
  return *text;
}

template <class Number>
Status number_of(const toml::node& value, const std::string& key, const Place& place, Number low, Number high,
                 std::optional<Number>& to) {
  if constexpr (std::is_floating_point_v<Number>) {
    const auto number = value.is_number() ? value.value<double>() : std::nullopt;
    if (!number) return place.refuse(value, key + " must be a number");
    if (!(*number >= static_cast<double>(low) && *number <= static_cast<double>(high)))
      return place.refuse(value, fmt::format("{} is {}: must be from {} to {}", key, *number, low, high));
    to = static_cast<Number>(*number);
  } else {
    const auto number = value.value_exact<int64_t>();
    if (!number) return place.refuse(value, key + " must be a whole number");
    const bool below = *number < 0 ? std::is_unsigned_v<Number> || *number < static_cast<int64_t>(low)
                                   : static_cast<uint64_t>(*number) < static_cast<uint64_t>(std::max(low, Number{0}));
    if (below || (*number > 0 && static_cast<uint64_t>(*number) > static_cast<uint64_t>(high)))
      return place.refuse(value, fmt::format("{} is {}: must be from {} to {}", key, *number, low, high));
    to = static_cast<Number>(*number);
  }
  return {};
}

Status flag_of(const toml::node& value, const std::string& key, const Place& place, std::optional<bool>& to) {
  to = value.value_exact<bool>();
  return to ? Status() : Status(place.refuse(value, key + " must be true or false"));
}

Status path_of(const toml::node& value, const std::string& key, const Place& place, std::filesystem::path& to) {
  BATON_TRY(const std::string text, string_of(value, key, place));
  if (text.empty()) return place.refuse(value, key + " is empty: leave it out");
  to = place.folder / text;
  return {};
}

// A file or folder, or a model of the hub's cache by its name.
Status model_of(const toml::node& value, const std::string& key, const Place& place, std::filesystem::path& to) {
  BATON_OK(path_of(value, key, place, to));
  std::error_code error;
  const std::string text = value.value_or(std::string());
  if (std::filesystem::exists(to, error) || !hub::like_repo(text)) return {};
  if (std::string cached = hub::model_path(text); cached != text) to = std::move(cached);
  return {};
}

Status strings_of(const toml::node& value, const std::string& key, const Place& place, std::vector<std::string>& to) {
  const toml::array* list = value.as_array();
  if (list == nullptr) return place.refuse(value, key + " must be a list of strings");
  for (const toml::node& each : *list) {
    BATON_TRY(std::string text, string_of(each, key, place));
    if (text.empty()) return place.refuse(each, key + " has an empty string");
    to.push_back(std::move(text));
  }
  return {};
}

Status keep_alive_of(const toml::node& value, const std::string& key, const Place& place,
                     std::optional<std::chrono::seconds>& to) {
  if (const auto number = value.value_exact<int64_t>())
    to = std::chrono::seconds(std::min(*number, kYearSeconds + 1));
  else if (const auto text = value.value_exact<std::string>())
    to = parse_seconds(*text);
  if (!to) return place.refuse(value, key + " must be seconds, or a time like \"5m\" or \"1h30m\"");
  if (to->count() > kYearSeconds) return place.refuse(value, key + " is more than a year: below 0 it stays for ever");
  to = std::max(*to, std::chrono::seconds(-1));
  return {};
}

Status bytes_of(const toml::node& value, const std::string& key, const Place& place, std::optional<uint64_t>& to) {
  if (const auto number = value.value_exact<int64_t>(); number && *number > 0) to = static_cast<uint64_t>(*number);
  if (const auto text = value.value_exact<std::string>()) to = parse_bytes(*text);
  return to ? Status() : Status(place.refuse(value, key + " must be bytes, or a size like \"500M\" or \"8GiB\""));
}

// A member of the section, read as it is declared.
#define BATON_CONFIG_KEY(to_type, name, ...)                                       \
  {                                                                                \
#name, [](const toml::node& value, const std::string& key, const Place& place, \
              to_type& to) -> Status { __VA_ARGS__; }                              \
  }
#define BATON_CONFIG_NUMBER(to_type, name, type, low, high) \
  BATON_CONFIG_KEY(to_type, name, return number_of<type>(value, key, place, low, high, to.name))

Status log_of(const toml::node& value, const std::string& key, const Place& place, std::filesystem::path& to) {
  BATON_OK(path_of(value, key, place, to));
  if (value.value_or(std::string_view()) == "-") to = "-";
  return {};
}

Status log_format_of(const toml::node& value, const std::string& key, const Place& place, std::string& to) {
  BATON_TRY(to, string_of(value, key, place));
  if (to == "text" || to == "json") return {};
  return place.refuse(value, key + " must be \"text\" or \"json\"");
}

Status origins_of(const toml::node& value, const std::string& key, const Place& place, std::vector<std::string>& to) {
  BATON_OK(strings_of(value, key, place, to));
  Cors cors;
  for (const std::string& origin : to) {
    if (const auto added = cors.add(origin); !added) return place.refuse(value, key + ": " + added.error().message);
  }
  return {};
}

const Key<ServerConfig> kServerKeys[] = {
    BATON_CONFIG_KEY(ServerConfig, host, BATON_TRY(to.host, string_of(value, key, place)); return {}),
    BATON_CONFIG_NUMBER(ServerConfig, port, uint16_t, 0, 65535),
    BATON_CONFIG_NUMBER(ServerConfig, parallel, uint32_t, 1, 256),
    BATON_CONFIG_NUMBER(ServerConfig, queue, uint32_t, 0, 16384),
    BATON_CONFIG_NUMBER(ServerConfig, drain_seconds, uint32_t, 0, 86400),
    BATON_CONFIG_NUMBER(ServerConfig, step_tokens, uint32_t, 0, 65536),
    BATON_CONFIG_KEY(ServerConfig, dispatch, return flag_of(value, key, place, to.dispatch)),
    BATON_CONFIG_KEY(ServerConfig, reuse, return flag_of(value, key, place, to.reuse)),
    BATON_CONFIG_KEY(ServerConfig, quiet, return flag_of(value, key, place, to.quiet)),
    BATON_CONFIG_NUMBER(ServerConfig, state_cache_bytes, uint64_t, 1, INT64_MAX),
    BATON_CONFIG_KEY(ServerConfig, memory_budget, return bytes_of(value, key, place, to.memory_budget)),
    BATON_CONFIG_KEY(ServerConfig, keep_alive, return keep_alive_of(value, key, place, to.keep_alive)),
    BATON_CONFIG_KEY(ServerConfig, unix_socket, return path_of(value, key, place, to.unix_socket)),
    BATON_CONFIG_KEY(ServerConfig, tls_cert, return path_of(value, key, place, to.tls_cert)),
    BATON_CONFIG_KEY(ServerConfig, tls_key, return path_of(value, key, place, to.tls_key)),
    BATON_CONFIG_KEY(ServerConfig, api_key_file, return path_of(value, key, place, to.api_key_file)),
    BATON_CONFIG_KEY(ServerConfig, state_cache, return path_of(value, key, place, to.state_cache)),
    BATON_CONFIG_KEY(ServerConfig, state_key, return path_of(value, key, place, to.state_key)),
    BATON_CONFIG_KEY(ServerConfig, access_log, return log_of(value, key, place, to.access_log)),
    BATON_CONFIG_KEY(ServerConfig, access_log_format, return log_format_of(value, key, place, to.access_log_format)),
    BATON_CONFIG_KEY(ServerConfig, access_log_prompts, return flag_of(value, key, place, to.access_log_prompts)),
    BATON_CONFIG_KEY(ServerConfig, allow_hosts, return strings_of(value, key, place, to.allow_hosts)),
    BATON_CONFIG_KEY(ServerConfig, cors, return origins_of(value, key, place, to.cors)),
};

Status unit_of(const toml::node& value, const std::string& key, const Place& place, std::string& to) {
  BATON_TRY(to, string_of(value, key, place));
  if (const auto unit = parse_unit(to); !unit) return place.refuse(value, key + ": " + unit.error().message);
  return {};
}

Status kv_of(const toml::node& value, const std::string& key, const Place& place, std::string& to) {
  BATON_TRY(to, string_of(value, key, place));
  if (const auto type = kv_type(to); !type) return place.refuse(value, key + ": " + type.error().message);
  return {};
}

Status strategy_of(const toml::node& value, const std::string& key, const Place& place, std::string& to) {
  BATON_TRY(to, string_of(value, key, place));
  if (find_strategy(to) != nullptr) return {};
  std::string names;
  for (const Strategy* each : strategies()) names += (names.empty() ? "" : ", ") + std::string(each->name);
  return place.refuse(value, key + " '" + to + "' does not exist; there are: " + names);
}

Status verify_of(const toml::node& value, const std::string& key, const Place& place, std::string& to) {
  BATON_TRY(to, string_of(value, key, place));
  if (const auto mode = parse_verify_mode(to); !mode) return place.refuse(value, key + ": " + mode.error().message);
  return {};
}

const Key<ModelConfig> kDefaultKeys[] = {
    BATON_CONFIG_NUMBER(ModelConfig, temperature, float, 0.0f, 100.0f),
    BATON_CONFIG_NUMBER(ModelConfig, top_p, float, 1e-6f, 1.0f),
    BATON_CONFIG_NUMBER(ModelConfig, min_p, float, 0.0f, 1.0f),
    BATON_CONFIG_NUMBER(ModelConfig, repeat_penalty, float, 0.01f, 100.0f),
    BATON_CONFIG_NUMBER(ModelConfig, presence_penalty, float, -100.0f, 100.0f),
    BATON_CONFIG_NUMBER(ModelConfig, frequency_penalty, float, -100.0f, 100.0f),
    BATON_CONFIG_NUMBER(ModelConfig, top_k, int32_t, 0, INT32_MAX),
    BATON_CONFIG_NUMBER(ModelConfig, seed, int64_t, 0, INT64_MAX),
    BATON_CONFIG_NUMBER(ModelConfig, max_tokens, uint32_t, 1, INT32_MAX),
    BATON_CONFIG_KEY(ModelConfig, thinking, return flag_of(value, key, place, to.thinking)),
    BATON_CONFIG_KEY(ModelConfig, stop, return strings_of(value, key, place, to.stop)),
};

// Each key of the table is one of those known.
template <class To>
Status read_table(const toml::node& node, const std::string& section, std::span<const Key<To>> keys, const Place& place,
                  To& to) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return place.refuse(node, section + " must be a table");
  for (auto&& [name, value] : *table) {
    const std::string key(name.str());
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const Key<To>& each) { return key == each.name; });
    if (found == keys.end()) {
      std::string names;
      for (const Key<To>& each : keys) names += (names.empty() ? "" : ", ") + std::string(each.name);
      return place.refuse(static_cast<int>(name.source().begin.line),
                          fmt::format("{} has no key '{}'; it has: {}", section, key, names));
    }
    BATON_OK(found->read(value, section + "." + key, place, to));
  }
  return {};
}

const Key<ModelConfig> kModelKeys[] = {
    BATON_CONFIG_KEY(ModelConfig, name, BATON_TRY(to.name, string_of(value, key, place)); return {}),
    BATON_CONFIG_KEY(ModelConfig, path, return model_of(value, key, place, to.path)),
    BATON_CONFIG_KEY(ModelConfig, aliases, return strings_of(value, key, place, to.aliases)),
    BATON_CONFIG_KEY(ModelConfig, embed, std::optional<bool> flag; BATON_OK(flag_of(value, key, place, flag));
                     to.embed = *flag; return {}),
    BATON_CONFIG_KEY(ModelConfig, preload, return flag_of(value, key, place, to.preload)),
    BATON_CONFIG_KEY(ModelConfig, prefill, return unit_of(value, key, place, to.prefill)),
    BATON_CONFIG_KEY(ModelConfig, via, return unit_of(value, key, place, to.via)),
    BATON_CONFIG_KEY(ModelConfig, decode, return unit_of(value, key, place, to.decode)),
    BATON_CONFIG_KEY(ModelConfig, kv, return kv_of(value, key, place, to.kv)),
    BATON_CONFIG_KEY(ModelConfig, strategy, return strategy_of(value, key, place, to.strategy)),
    BATON_CONFIG_KEY(ModelConfig, verify, return verify_of(value, key, place, to.verify)),
    BATON_CONFIG_NUMBER(ModelConfig, threads, uint32_t, 1, 1024),
    BATON_CONFIG_NUMBER(ModelConfig, context, uint32_t, 0, INT32_MAX),
    BATON_CONFIG_KEY(ModelConfig, keep_alive, return keep_alive_of(value, key, place, to.keep_alive)),
    BATON_CONFIG_KEY(ModelConfig, defaults, return read_table<ModelConfig>(value, key, kDefaultKeys, place, to)),
};

Status read_models(const toml::node& node, const Place& place, std::vector<ModelConfig>& to) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return place.refuse(node, "models must be a list of tables: [[models]]");
  if (list->size() > kConfigModelsMax)
    return place.refuse(node, fmt::format("{} models, at most {} are served", list->size(), kConfigModelsMax));
  std::set<std::string> names;
  for (const toml::node& each : *list) {
    ModelConfig& model = to.emplace_back();
    model.line = static_cast<int>(each.source().begin.line);
    BATON_OK(read_table<ModelConfig>(each, "models", kModelKeys, place, model));
    if (model.name.empty()) return place.refuse(each, "a model has no name");
    if (model.embed && model.path.empty()) return place.refuse(each, "a model that makes vectors has no path");
    std::vector<std::string> own = model.aliases;
    own.push_back(model.name);
    for (const std::string& name : own) {
      if (!names.insert(name).second) return place.refuse(each, "the name '" + name + "' is given twice");
    }
  }
  return {};
}

}  // namespace

std::optional<std::chrono::seconds> parse_seconds(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int64_t sum = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    int64_t number = 0;
    size_t digits = 0;
    for (; digits < text.size() && digits < 9 && text[digits] >= '0' && text[digits] <= '9'; ++digits)
      number = number * 10 + (text[digits] - '0');
    if (digits == 0 || digits == text.size()) return std::nullopt;
    const char unit = text[digits];
    if (unit != 's' && unit != 'm' && unit != 'h') return std::nullopt;
    sum = std::min(sum + number * (unit == 's' ? 1 : unit == 'm' ? 60 : 3600), kYearSeconds + 1);
    text.remove_prefix(digits + 1);
  }
  return std::chrono::seconds(negative ? -sum : sum);
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  uint64_t factor = 1;
  if (const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.front());
      unit != std::string_view::npos) {
    factor = uint64_t{1} << (10 * (unit + 1));
    text.remove_prefix(1);
    if (text.starts_with('i') && text.size() > 1) text.remove_prefix(1);
  }
  if (text == "B") text = {};
  if (!text.empty() || number > INT64_MAX / factor) return std::nullopt;
  return number * factor;
}

Result<Config> parse_config(std::string_view text, std::string_view name, const std::filesystem::path& folder) {
  const Place place{name, folder};
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return place.refuse(static_cast<int>(parsed.error().source().begin.line),
                        std::string(parsed.error().description()));
  }
  Config config;
  for (auto&& [key, value] : parsed.table()) {
    if (key == "server") {
      BATON_OK(read_table<ServerConfig>(value, "server", kServerKeys, place, config.server));
    } else if (key == "models") {
      BATON_OK(read_models(value, place, config.models));
    } else {
      return place.refuse(static_cast<int>(key.source().begin.line),
                          fmt::format("there is no '{}' here; there are [server] and [[models]]", key.str()));
    }
  }
  const ServerConfig& server = config.server;
  if (server.tls_cert.empty() != server.tls_key.empty())
    return fail(Code::kInvalidInput, fmt::format("{}: server.tls_cert and server.tls_key go together", name));
  if (!server.unix_socket.empty() && !server.tls_cert.empty())
    return fail(Code::kInvalidInput, fmt::format("{}: server.unix_socket goes without server.tls_cert", name));
  return config;
}

Result<Config> read_config(const std::filesystem::path& file) {
  BATON_TRY(const std::string text, read_file(file, kConfigBytesMax));
  return parse_config(text, file.filename().string(), file.parent_path());
}

}  // namespace baton::serve
