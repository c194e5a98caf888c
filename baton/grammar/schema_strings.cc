// Strings: lengths, patterns and formats.
#include <fmt/format.h>

#include "baton/grammar/regex.h"
#include "baton/grammar/schema_compiler.h"

namespace baton::grammar {
namespace {

constexpr uint32_t kStringStatesMax = 20'000;

#define BATON_DATE                                                                                                   \
  "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[" \
  "0-8]))|([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|1[26]|[3579][26])00)-02-29)"
#define BATON_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BATON_LABEL "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}"  // two hyphens would begin what is encoded
#define BATON_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define BATON_H "[0-9A-Fa-f]{1,4}"

struct Format {
  std::string_view name, pattern;
};
// Subsets of what the formats' standards (RFC 3339, 4122, 5321, 1123, 2673, 4291, 3986) let through.
constexpr Format kFormats[] = {
    {"date", BATON_DATE},
    {"time", BATON_TIME},
    {"date-time", BATON_DATE "T" BATON_TIME},
    {"duration",
     "P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}H)?|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}"
     "D)?)?|T([0-9]{1,4}S|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?))"},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,24}(\\.[A-Za-z0-9_+-]{1,24}){0,1}@" BATON_LABEL "(\\." BATON_LABEL "){1,3}"},
    {"hostname", BATON_LABEL "(\\." BATON_LABEL "){0,4}"},
    {"ipv4", BATON_OCTET "(\\." BATON_OCTET "){3}"},
    {"ipv6", "(" BATON_H "(:" BATON_H "){7}|::|::" BATON_H "(:" BATON_H "){0,5}|" BATON_H "::(" BATON_H "(:" BATON_H
             "){0,4})?|" BATON_H ":" BATON_H "::(" BATON_H "(:" BATON_H "){0,3})?|" BATON_H "(:" BATON_H
             "){2}::(" BATON_H "(:" BATON_H "){0,2})?|" BATON_H "(:" BATON_H "){3}::(" BATON_H "(:" BATON_H
             ")?)?|" BATON_H "(:" BATON_H "){4}::(" BATON_H ")?)"},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" BATON_LABEL "(\\." BATON_LABEL "){0,4}(:[1-9][0-9]{0,3})?(/"
            "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}"
            ")*)?(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"},
};

#undef BATON_DATE
#undef BATON_TIME
#undef BATON_LABEL
#undef BATON_OCTET
#undef BATON_H

Result<ByteDfa> quoted_dfa(RegexId inner, Draft* draft) {
  RegexPool& regex = draft->regex();
  const RegexId quote = regex.text("\"");
  return determinise(regex, regex.cat({quote, inner, quote}), kStringStatesMax, &draft->budget());
}

uint32_t count_of(const Json& schema, const char* name, uint32_t otherwise) {
  return schema.contains(name) ? static_cast<uint32_t>(schema[name].get<double>()) : otherwise;
}

}  // namespace

Result<RegexId> format_regex(const std::string& format, const std::string& path, Draft* draft) {
  std::string known;
  for (const Format& one : kFormats) {
    if (one.name == format) return parse_regex(one.pattern, Spelling::kText, RegexReach::kWhole, &draft->regex());
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  return schema_error(Code::kUnsupported, path + "/format", fmt::format("'{}': only {}", format, known));
}

Result<ByteDfa> format_dfa(const std::string& format, const std::string& path, Draft* draft) {
  BATON_TRY(const RegexId inner, format_regex(format, path, draft));
  return quoted_dfa(inner, draft);
}

Result<ByteDfa> pattern_dfa(const std::string& pattern, const std::string& path, Draft* draft) {
  const auto inner = parse_regex(pattern, Spelling::kJsonString, RegexReach::kSearch, &draft->regex());
  if (!inner) return schema_error(inner.error().code, path, inner.error().message);
  auto dfa = quoted_dfa(*inner, draft);
  if (dfa) return *std::move(dfa);
  const bool large = dfa.error().code == Code::kOutOfMemory;
  return schema_error(large ? Code::kUnsupported : dfa.error().code, path, dfa.error().message);
}

// Of one with a pattern or a format.
Result<ByteDfa> SchemaCompiler::string_dfa(const Json& schema, const std::string& path) {
  std::optional<ByteDfa> all;
  const auto narrow = [&](ByteDfa dfa, const std::string& where) -> Status {
    if (all) {
      auto both = product(*all, dfa, Product::kBoth, kStringStatesMax, &draft_.budget());
      if (!both) return schema_error(Code::kUnsupported, where, both.error().message);
      dfa = *std::move(both);
    }
    all = std::move(dfa);
    return {};
  };
  if (schema.contains("format")) {
    BATON_TRY(ByteDfa dfa, format_dfa(schema["format"], path, &draft_));
    BATON_OK(narrow(std::move(dfa), path + "/format"));
  }
  if (schema.contains("pattern")) {
    const Json& given = schema["pattern"];
    for (const Json& pattern : given.is_array() ? given : Json::array({given})) {
      BATON_TRY(ByteDfa dfa, pattern_dfa(pattern, path + "/pattern", &draft_));
      BATON_OK(narrow(std::move(dfa), path + "/pattern"));
    }
  }
  const uint32_t min = count_of(schema, "minLength", 0), max = count_of(schema, "maxLength", kUnbounded);
  if (min > 0 || max != kUnbounded) {
    uint32_t loop = 0;
    const ByteDfa any = json_string_dfa(&loop);
    auto both = product(*all, any, Counted{loop, min, max}, kStringStatesMax, &draft_.budget());
    if (!both) {
      return schema_error(Code::kUnsupported, path,
                          "minLength or maxLength with this pattern: " + both.error().message);
    }
    all = *std::move(both);
  }
  return *std::move(all);
}

Result<ExprId> SchemaCompiler::string_value(const Json& schema, const std::string& path) {
  const uint32_t min = count_of(schema, "minLength", 0), max = count_of(schema, "maxLength", kUnbounded);
  if (!schema.contains("pattern") && !schema.contains("format")) return pieces_.string(min, max);
  BATON_TRY(ByteDfa dfa, string_dfa(schema, path));
  return draft_.terminal(std::move(dfa));
}

}  // namespace baton::grammar
