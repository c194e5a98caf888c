// Keywords: which there are, and two schemas as one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "baton/grammar/schema_compiler.h"

namespace baton::grammar {
namespace {

// What a keyword's value must be.
enum class Holds : uint8_t { kAny, kSchema, kSchemas, kSchemaMap, kCount, kNumber, kText, kTexts, kFlag, kRefused };
struct Keyword {
  std::string_view name;
  Holds holds;
  std::string_view type;  // what values it speaks of; empty: of all
};
constexpr Keyword kKeywords[] = {
    {"type", Holds::kAny, ""},
    {"enum", Holds::kAny, ""},
    {"const", Holds::kAny, ""},
    {"$ref", Holds::kText, ""},
    {"allOf", Holds::kSchemas, ""},
    {"anyOf", Holds::kSchemas, ""},
    {"oneOf", Holds::kSchemas, ""},
    {"nullable", Holds::kFlag, ""},
    {"properties", Holds::kSchemaMap, "object"},
    {"patternProperties", Holds::kSchemaMap, "object"},
    {"additionalProperties", Holds::kSchema, "object"},
    {"required", Holds::kTexts, "object"},
    {"minProperties", Holds::kCount, "object"},
    {"maxProperties", Holds::kCount, "object"},
    {"items", Holds::kSchema, "array"},
    {"prefixItems", Holds::kSchemas, "array"},
    {"minItems", Holds::kCount, "array"},
    {"maxItems", Holds::kCount, "array"},
    {"uniqueItems", Holds::kFlag, "array"},
    {"minLength", Holds::kCount, "string"},
    {"maxLength", Holds::kCount, "string"},
    {"pattern", Holds::kText, "string"},
    {"format", Holds::kText, "string"},
    {"minimum", Holds::kNumber, "number"},
    {"maximum", Holds::kNumber, "number"},
    {"exclusiveMinimum", Holds::kNumber, "number"},
    {"exclusiveMaximum", Holds::kNumber, "number"},
    {"multipleOf", Holds::kNumber, "number"},
    {"not", Holds::kRefused, ""},
    {"if", Holds::kRefused, ""},
    {"then", Holds::kRefused, ""},
    {"else", Holds::kRefused, ""},
    {"contains", Holds::kRefused, ""},
    {"minContains", Holds::kRefused, ""},
    {"maxContains", Holds::kRefused, ""},
    {"additionalItems", Holds::kRefused, ""},
    {"unevaluatedItems", Holds::kRefused, ""},
    {"unevaluatedProperties", Holds::kRefused, ""},
    {"propertyNames", Holds::kRefused, ""},
    {"dependencies", Holds::kRefused, ""},
    {"dependentRequired", Holds::kRefused, ""},
    {"dependentSchemas", Holds::kRefused, ""},
    {"$dynamicRef", Holds::kRefused, ""},
    {"$recursiveRef", Holds::kRefused, ""},
};
constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

bool is_schema(const Json& value) { return value.is_object() || value.is_boolean(); }

// What is wrong with it; empty: nothing.
std::string_view fault_of(Holds holds, const Json& value) {
  const auto all = [&value](auto holds_of) { return std::all_of(value.begin(), value.end(), holds_of); };
  switch (holds) {
    case Holds::kSchema:
      return is_schema(value) ? "" : "must be a schema";
    case Holds::kSchemas:
      return value.is_array() && !value.empty() && all(is_schema) ? "" : "must be a list of schemas";
    case Holds::kSchemaMap:
      return value.is_object() && all(is_schema) ? "" : "must be an object of schemas";
    case Holds::kCount:
      return value.is_number() && value >= 0 && value <= 1e9 && std::floor(value.get<double>()) == value.get<double>()
                 ? ""
                 : "must be a whole number from 0 to 1e9";
    case Holds::kNumber:
      return value.is_number() ? "" : "must be a number";
    case Holds::kText:
      return value.is_string() ? "" : "must be a string";
    case Holds::kTexts:
      return value.is_array() && all([](const Json& v) { return v.is_string(); }) ? "" : "must be a list of strings";
    case Holds::kFlag:
      return value.is_boolean() ? "" : "must be true or false";
    case Holds::kAny:
    case Holds::kRefused:
      break;
  }
  return "";
}

Status check_type(const Json& type, const std::string& path) {
  const auto known = [](const Json& t) {
    return t.is_string() && std::ranges::find(kTypes, t.get<std::string>()) != std::end(kTypes);
  };
  const bool good = type.is_array() ? !type.empty() && std::all_of(type.begin(), type.end(), known) : known(type);
  if (good) return {};
  return schema_error(Code::kInvalidInput, path + "/type",
                      "must be null, boolean, integer, number, string, array or object, or a list of them");
}

Json both_of(const Json& a, const Json& b) {
  if (a == b) return a;
  return Json{{"allOf", Json::array({a, b})}};
}

// What the schema says of a property that it does not list: null, nothing.
const Json* of_others(const Json& schema) {
  const auto found = schema.find("additionalProperties");
  return found == schema.end() || *found == true ? nullptr : &*found;
}

// `out` has a's properties; b's are put in.
Status merge_properties(const Json& a, const Json& b, const std::string& path, Json* out) {
  const Json none = Json::object();
  const Json& mine = a.contains("properties") ? a["properties"] : none;
  const Json& yours = b.contains("properties") ? b["properties"] : none;
  const Json *a_others = of_others(a), *b_others = of_others(b);
  if ((a_others != nullptr && a.contains("patternProperties")) ||
      (b_others != nullptr && b.contains("patternProperties"))) {
    return schema_error(Code::kUnsupported, path, "patternProperties with additionalProperties within allOf");
  }
  Json merged = Json::object();
  for (const auto& [name, schema] : mine.items()) {
    if (yours.contains(name)) {
      merged[name] = both_of(schema, yours[name]);
    } else {
      merged[name] = b_others == nullptr ? schema : both_of(schema, *b_others);
    }
  }
  for (const auto& [name, schema] : yours.items()) {
    if (!mine.contains(name)) merged[name] = a_others == nullptr ? schema : both_of(schema, *a_others);
  }
  if (!merged.empty() || a.contains("properties") || b.contains("properties")) (*out)["properties"] = std::move(merged);
  if (a_others != nullptr && b_others != nullptr) {
    (*out)["additionalProperties"] = both_of(*a_others, *b_others);
  } else if (a_others != nullptr || b_others != nullptr) {
    (*out)["additionalProperties"] = a_others != nullptr ? *a_others : *b_others;
  }
  return {};
}

// Of one keyword that both have; false: nothing fits.
Result<bool> merge_keyword(const std::string& name, const Json& a, const Json& b, const std::string& path, Json* to) {
  if (a == b) return true;
  const bool upper = name == "maximum" || name == "exclusiveMaximum" || name == "maxLength" || name == "maxItems" ||
                     name == "maxProperties";
  const bool lower = name == "minimum" || name == "exclusiveMinimum" || name == "minLength" || name == "minItems" ||
                     name == "minProperties";
  if (upper || lower) {
    *to = (a < b) == upper ? a : b;
    return true;
  }
  if (name == "required") {
    for (const Json& item : b) {
      if (std::find(a.begin(), a.end(), item) == a.end()) to->push_back(item);
    }
    return true;
  }
  if (name == "enum") {
    *to = Json::array();
    for (const Json& item : a) {
      if (std::find(b.begin(), b.end(), item) != b.end()) to->push_back(item);
    }
    return !to->empty();
  }
  if (name == "const") return false;
  if (name == "uniqueItems") {
    *to = true;
    return true;
  }
  if (name == "items") {
    *to = both_of(a, b);
    return true;
  }
  if (name == "pattern") {  // a list of all
    Json all = a.is_array() ? a : Json::array({a});
    for (const Json& item : b.is_array() ? b : Json::array({b})) all.push_back(item);
    *to = std::move(all);
    return true;
  }
  if (name == "patternProperties") {
    for (const auto& [pattern, schema] : b.items()) {
      (*to)[pattern] = a.contains(pattern) ? both_of(a[pattern], schema) : schema;
    }
    return true;
  }
  if (name == "multipleOf" && a.is_number_integer() && b.is_number_integer() && a > 0 && b > 0 && a < 1'000'000 &&
      b < 1'000'000) {
    *to = std::lcm(a.get<int64_t>(), b.get<int64_t>());
    return true;
  }
  return schema_error(Code::kUnsupported, path + "/" + name, "two of them within allOf that differ");
}

}  // namespace

bool digits_are_lost(const Json& number) {
  constexpr double kLimit = 0x1p63;
  return number.is_number_float() && std::abs(number.get<double>()) >= kLimit;
}

namespace {

// Of const and enum, at any depth.
Status check_digits(const Json& value, const std::string& where) {
  if (digits_are_lost(value)) {
    return schema_error(Code::kUnsupported, where, "a number beyond 64 bits: its digits are not kept, give a text");
  }
  if (!value.is_structured()) return {};
  for (const auto& [name, item] : value.items()) BATON_OK(check_digits(item, where + "/" + name));
  return {};
}

}  // namespace

tl::unexpected<Error> schema_error(Code code, const std::string& path, std::string_view what) {
  return fail(code, fmt::format("{}: {}", path, what));
}

Status check_keywords(const Json& schema, const std::string& path) {
  for (const auto& [name, value] : schema.items()) {
    const auto found = std::ranges::find(kKeywords, name, &Keyword::name);
    if (found == std::end(kKeywords)) continue;
    if (name == "type") BATON_OK(check_type(value, path));
    const std::string where = path + "/" + name;
    if (found->holds == Holds::kRefused) return schema_error(Code::kUnsupported, where, "not supported");
    if (name == "items" && value.is_array()) {
      return schema_error(Code::kUnsupported, where, "a list is not supported: use prefixItems");
    }
    if (name.starts_with("exclusiveM") && value.is_boolean()) {
      return schema_error(Code::kUnsupported, where, "as a flag it is not supported: use the number");
    }
    if (name == "enum" && (!value.is_array() || value.empty())) {
      return schema_error(Code::kInvalidInput, where, "must be a list of values");
    }
    const std::string_view fault = fault_of(found->holds, value);
    if (!fault.empty()) return schema_error(Code::kInvalidInput, where, fault);
    if (name == "const" || name == "enum") BATON_OK(check_digits(value, where));
  }
  return {};
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  if (const auto given = schema.find("type"); given != schema.end()) {
    if (given->is_array()) {
      for (const Json& type : *given) types.push_back(type);
    } else {
      types.push_back(*given);
    }
  } else if (!schema.contains("enum") && !schema.contains("const")) {
    // A schema that speaks of values of some types is taken to mean these.
    for (const Keyword& keyword : kKeywords) {
      if (!keyword.type.empty() && schema.contains(keyword.name) &&
          std::ranges::find(types, keyword.type) == types.end()) {
        types.emplace_back(keyword.type);
      }
    }
  }
  const bool number = std::ranges::find(types, "number") != types.end();
  if (number) std::erase(types, "integer");
  if (!types.empty() && schema.value("nullable", false) && std::ranges::find(types, "null") == types.end()) {
    types.emplace_back("null");
  }
  return types;
}

Result<std::optional<Json>> merge_schemas(const Json& a, const Json& b, const std::string& path) {
  Json out = a;
  for (const auto& [name, value] : b.items()) {
    if (name == "type" || name == "nullable" || name == "properties" || name == "additionalProperties") continue;
    const auto mine = out.find(name);
    const bool known = std::ranges::find(kKeywords, name, &Keyword::name) != std::end(kKeywords);
    if (mine == out.end()) {
      out[name] = value;
    } else if (name == "prefixItems" && value != *mine) {
      return schema_error(Code::kUnsupported, path + "/prefixItems", "two of them within allOf");
    } else if (known) {
      const Json before = *mine;
      BATON_TRY(const bool fits, merge_keyword(name, before, value, path, &*mine));
      if (!fits) return std::nullopt;
    }
  }
  if ((a.contains("prefixItems") && b.contains("items")) || (b.contains("prefixItems") && a.contains("items"))) {
    if (a.value("items", Json()) != b.value("items", Json())) {
      return schema_error(Code::kUnsupported, path + "/prefixItems", "with items of another schema within allOf");
    }
  }
  BATON_OK(merge_properties(a, b, path, &out));
  if (a.contains("type") && b.contains("type")) {
    Json types = Json::array();
    const auto yours = types_of(b);
    const auto has = [](const std::vector<std::string>& all, std::string_view type) {
      return std::ranges::find(all, type) != all.end();
    };
    for (const std::string& type : types_of(a)) {
      if (has(yours, type)) types.push_back(type);
      if (type == "integer" && has(yours, "number")) types.push_back(type);
      if (type == "number" && has(yours, "integer")) types.push_back("integer");
    }
    if (types.empty()) return std::nullopt;
    out["type"] = std::move(types);
    out.erase("nullable");
  } else if (b.contains("type")) {
    out["type"] = Json(types_of(b));
    out.erase("nullable");
  } else if (a.contains("type")) {
    out["type"] = Json(types_of(a));
    out.erase("nullable");
  }
  return out;
}

}  // namespace baton::grammar
