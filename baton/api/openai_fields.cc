// Values of fields, with bounds.
#include "baton/api/openai_fields.h"

#include <charconv>
#include <unordered_set>

namespace baton::openai {
namespace {

constexpr size_t kBiasesMax = 1024;

}  // namespace

std::string shown(const Json& value) {
  if (value.is_structured() && value.size() > 16) return value.is_array() ? "a long list" : "a large object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text.replace(80, std::string::npos, "...");
  return text;
}

tl::expected<void, ApiError> only_fields(const Json& object, const std::string& where,
                                         std::initializer_list<std::string_view> names) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string field = fmt::format("{}.{}", where, name.substr(0, 80));
    return refuse(field, fmt::format("'{}' is no field that is known here: leave it out", field), "unknown_parameter");
  }
  return {};
}

std::optional<int64_t> Fields::whole_number(const Json& value) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  return fits ? std::optional(value.get<int64_t>()) : std::nullopt;
}

void Fields::number(const char* name, double least, double most, std::optional<float>& to) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const double read = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (read >= least && read <= most) {
    to = static_cast<float>(read);
  } else {
    put(name, fmt::format("'{}' is {}: it takes a number from {} to {}", name, shown(*value), least, most));
  }
}

void Fields::flag(const char* name, bool& to) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (value->is_boolean()) {
    to = value->get<bool>();
  } else {
    put(name, fmt::format("'{}' is {}: it takes true or false", name, shown(*value)));
  }
}

void Fields::text(const char* name, size_t bytes_max, std::string& to) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (value->is_string() && value->get_ref<const std::string&>().size() <= bytes_max) {
    to = value->get<std::string>();
  } else {
    put(name, fmt::format("'{}' is {}: it takes a text of at most {} bytes", name, shown(*value), bytes_max));
  }
}

void Fields::stops(std::optional<std::vector<std::string>>& to) {
  const Json* value = find("stop");
  if (value == nullptr) return;
  const Json list = value->is_string() ? Json::array({*value}) : *value;
  const auto good = [](const Json& stop) {
    return stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
           stop.get_ref<const std::string&>().size() <= StopStrings::kBytesMax;
  };
  if (list.is_array() && list.size() <= StopStrings::kStringsMax && std::all_of(list.begin(), list.end(), good)) {
    to = list.get<std::vector<std::string>>();
  } else {
    put("stop", fmt::format("'stop' is {}: it takes a text of 1 to {} bytes, or a list of at most {}", shown(*value),
                            StopStrings::kBytesMax, StopStrings::kStringsMax));
  }
}

void Fields::ids(const char* name, size_t most, std::vector<int32_t>& to) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const auto good = [](const Json& item) {
    const auto id = whole_number(item);
    return id && *id >= 0 && *id <= INT32_MAX;
  };
  if (value->is_array() && value->size() <= most && std::all_of(value->begin(), value->end(), good)) {
    to = value->get<std::vector<int32_t>>();
  } else {
    put(name, fmt::format("'{}' is {}: it takes a list of at most {} token ids", name, shown(*value), most));
  }
}

void Fields::biases(const char* name, std::vector<std::pair<int32_t, float>>& to) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_object() || value->size() > kBiasesMax) {
    return put(name, fmt::format("'{}' is {}: it takes an object of at most {} token ids, each with a number from "
                                 "-100 to 100",
                                 name, shown(*value), kBiasesMax));
  }
  std::unordered_set<int32_t> seen;
  for (const auto& [key, bias] : value->items()) {
    int32_t id = -1;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = problem == std::errc() && end == key.data() + key.size() && id >= 0;
    const double number = bias.is_number() ? bias.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!whole || !(number >= -100 && number <= 100) || !seen.insert(id).second) {
      return put(name, fmt::format("'{}' has {}: {}: it takes token ids, each once and with a number from -100 to 100",
                                   name, shown(key), shown(bias)));
    }
    to.emplace_back(id, static_cast<float>(number));
  }
}

}  // namespace baton::openai
