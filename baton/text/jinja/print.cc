// How Python writes values: str(), repr() and json.dumps().
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "baton/text/jinja/value.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

// str.isprintable for one character: everything but controls, formats, surrogates, unassigned and separators.
bool is_printable(uint32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

void append_text_repr(const Text& text, TextBuilder* out) {
  const std::string_view bytes = text.view();
  const bool double_quotes = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char quote = double_quotes ? '"' : '\'';
  out->append_literal({&quote, 1});
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    const bool content = text.content_at(at);
    if (c.code == static_cast<uint32_t>(quote) || c.code == '\\') {
      out->append(std::string{'\\', static_cast<char>(c.code)}, content);
    } else if (c.code == '\n') {
      out->append("\\n", content);
    } else if (c.code == '\r') {
      out->append("\\r", content);
    } else if (c.code == '\t') {
      out->append("\\t", content);
    } else if (is_printable(c.code)) {
      out->append(bytes.substr(at, c.length), content);
    } else if (c.code < 0x100) {
      out->append(fmt::format("\\x{:02x}", c.code), content);
    } else if (c.code < 0x10000) {
      out->append(fmt::format("\\u{:04x}", c.code), content);
    } else {
      out->append(fmt::format("\\U{:08x}", c.code), content);
    }
    at += c.length;
  }
  out->append_literal({&quote, 1});
}

tl::unexpected<Error> no_text(const Value& value) {
  return fail(Code::kInvalidInput, fmt::format("a {} cannot be printed", type_name(value)));
}

void append_json_text(const Text& text, bool ensure_ascii, TextBuilder* out) {
  const std::string_view bytes = text.view();
  out->append_literal("\"");
  size_t plain_from = 0, at = 0;
  const auto flush = [&](size_t end) {
    if (end > plain_from) out->append(text.slice(plain_from, end - plain_from));
  };
  while (at < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !ensure_ascii)) {
      ++at;
      continue;
    }
    flush(at);
    const Utf8Char c = decode_utf8(bytes, at);
    const bool content = text.content_at(at);
    switch (c.code) {
      case '"':
        out->append("\\\"", content);
        break;
      case '\\':
        out->append("\\\\", content);
        break;
      case '\n':
        out->append("\\n", content);
        break;
      case '\r':
        out->append("\\r", content);
        break;
      case '\t':
        out->append("\\t", content);
        break;
      case '\b':
        out->append("\\b", content);
        break;
      case '\f':
        out->append("\\f", content);
        break;
      default:
        if (c.code < 0x10000) {
          out->append(fmt::format("\\u{:04x}", c.code), content);
        } else {
          const uint32_t rest = c.code - 0x10000;
          out->append(fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff)), content);
        }
    }
    at += c.length;
    plain_from = at;
  }
  flush(bytes.size());
  out->append_literal("\"");
}

std::string json_number(const Value& value) {
  if (value.is(Type::kBool)) return value.boolean ? "true" : "false";
  if (value.is(Type::kInt)) return fmt::format("{}", value.integer);
  if (std::isnan(value.real)) return "NaN";
  if (std::isinf(value.real)) return value.real > 0 ? "Infinity" : "-Infinity";
  return float_repr(value.real);
}

// A line break and the indentation of `depth`, if there is indentation at all.
void append_break(const JsonFormat& format, int depth, TextBuilder* out) {
  if (format.indent < 0 && !format.has_indent_text) return;
  out->append_literal("\n");
  for (int i = 0; i < depth; ++i) {
    if (format.has_indent_text) {
      out->append(format.indent_text);
    } else {
      out->append_literal(std::string(static_cast<size_t>(format.indent), ' '));
    }
  }
}

Status append_json_dict(const Dict& dict, const JsonFormat& format, TextBuilder* out, int depth) {
  if (dict.count == 0) {
    out->append_literal("{}");
    return {};
  }
  std::vector<Dict::Entry> entries(dict.span().begin(), dict.span().end());
  if (format.sort_keys) {
    for (const Dict::Entry& entry : entries) {
      if (entry.key.type != entries[0].key.type) return fail(Code::kInvalidInput, "tojson: keys have no order");
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Dict::Entry& a, const Dict::Entry& b) {
      const Result<int> order = compare(a.key, b.key);
      return order.has_value() && *order < 0;
    });
  }
  out->append_literal("{");
  bool first = true;
  for (const Dict::Entry& entry : entries) {
    if (!first) out->append_literal(format.item_separator);
    first = false;
    append_break(format, depth + 1, out);
    if (entry.key.is_text()) {
      append_json_text(*entry.key.text, format.ensure_ascii, out);
    } else {
      out->append_literal(fmt::format("\"{}\"", entry.key.is_none() ? "null" : json_number(entry.key)));
    }
    out->append_literal(format.key_separator);
    BATON_OK(append_json(entry.value, format, out, depth + 1));
    if (out->overflowed()) return {};
  }
  append_break(format, depth, out);
  out->append_literal("}");
  return {};
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  // The shortest digits that read back, as d.ddde+XX; then Python's choice between fixed and exponent notation.
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_text = text.data() + e + 1 + (text[e + 1] == '+' ? 1 : 0);
  std::from_chars(exponent_text, end, exponent);
  if (exponent >= -4 && exponent < 16) {
    const auto fixed_end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
    std::string fixed(buffer, static_cast<size_t>(fixed_end - buffer));
    if (fixed.find('.') == std::string::npos) fixed += ".0";
    return fixed;
  }
  std::string digits(text.substr(0, e));
  return fmt::format("{}e{}{:02}", digits, exponent < 0 ? '-' : '+', std::abs(exponent));
}

Status append_str(const Value& value, TextBuilder* out) {
  if (value.is_undefined()) return {};
  if (value.is_text()) {
    out->append(*value.text);
    return {};
  }
  return append_repr(value, out);
}

Status append_repr(const Value& value, TextBuilder* out, int depth) {
  if (depth > kDepthMax) return fail(Code::kInvalidInput, fmt::format("values nested deeper than {}", kDepthMax));
  switch (value.type) {
    case Type::kUndefined:
      out->append_literal("Undefined");
      return {};
    case Type::kNone:
      out->append_literal("None");
      return {};
    case Type::kBool:
      out->append_literal(value.boolean ? "True" : "False");
      return {};
    case Type::kInt:
      out->append_literal(fmt::format("{}", value.integer));
      return {};
    case Type::kFloat:
      out->append_literal(float_repr(value.real));
      return {};
    case Type::kText:
      if (value.text->markup) out->append_literal("Markup(");
      append_text_repr(*value.text, out);
      if (value.text->markup) out->append_literal(")");
      return {};
    case Type::kList: {
      const List& list = *value.list;
      if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) return no_text(value);
      const bool is_tuple = list.kind == ListKind::kTuple;
      out->append_literal(is_tuple ? "(" : "[");
      for (size_t i = 0; i < list.count && !out->overflowed(); ++i) {
        if (i > 0) out->append_literal(", ");
        BATON_OK(append_repr(list.items[i], out, depth + 1));
      }
      out->append_literal(is_tuple ? (list.count == 1 ? ",)" : ")") : "]");
      return {};
    }
    case Type::kDict: {
      out->append_literal("{");
      bool first = true;
      for (const Dict::Entry& entry : value.dict->span()) {
        if (!first) out->append_literal(", ");
        first = false;
        BATON_OK(append_repr(entry.key, out, depth + 1));
        out->append_literal(": ");
        BATON_OK(append_repr(entry.value, out, depth + 1));
        if (out->overflowed()) return {};
      }
      out->append_literal("}");
      return {};
    }
    default:
      return no_text(value);
  }
}

Status append_json(const Value& value, const JsonFormat& format, TextBuilder* out, int depth) {
  if (depth > kDepthMax) return fail(Code::kInvalidInput, fmt::format("values nested deeper than {}", kDepthMax));
  switch (value.type) {
    case Type::kNone:
      out->append_literal("null");
      return {};
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      out->append_literal(json_number(value));
      return {};
    case Type::kText:
      append_json_text(*value.text, format.ensure_ascii, out);
      return {};
    case Type::kDict:
      return append_json_dict(*value.dict, format, out, depth);
    case Type::kList: {
      const List& list = *value.list;
      if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) break;
      if (list.count == 0) {
        out->append_literal("[]");
        return {};
      }
      out->append_literal("[");
      for (size_t i = 0; i < list.count && !out->overflowed(); ++i) {
        if (i > 0) out->append_literal(format.item_separator);
        append_break(format, depth + 1, out);
        BATON_OK(append_json(list.items[i], format, out, depth + 1));
      }
      append_break(format, depth, out);
      out->append_literal("]");
      return {};
    }
    default:
      break;
  }
  return fail(Code::kInvalidInput, fmt::format("tojson: a {} is not JSON", type_name(value)));
}

}  // namespace baton::jinja
