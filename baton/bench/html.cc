// Text in HTML, and the frame of a page.
#include "baton/bench/html.h"

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::string_view kPageStyle =
    ":root{color-scheme:light dark;--ink:#222;--soft:#666;--line:#ccc;--faint:#eee;--mark:#1b6ca8;--other:#b3690f;"
    "--rest:#999;--wrong:#a33;--paper:#fff;--box:#f4f7fa}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#aaa;--line:#444;--faint:#2a2a2a;--mark:#6db8f2;"
    "--other:#e0a050;--rest:#888;--wrong:#ff8a80;--paper:#161616;--box:#20262c}}"
    "*{box-sizing:border-box}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:1.5em auto;padding:0 1em;color:var(--ink);"
    "background:var(--paper);overflow-wrap:anywhere}"
    "h1{font-size:1.6em;line-height:1.25;margin:.5em 0}h2{font-size:1.25em;margin:1.6em 0 .4em}"
    ".facts{color:var(--soft);font-size:13px;border-left:3px solid var(--line);padding-left:.8em;margin:1em 0}"
    ".facts code{color:var(--ink)}.note{color:var(--soft)}.wrong{color:var(--wrong)}"
    ".take{background:var(--box);border-left:4px solid var(--mark);padding:.7em 1em;margin:1em 0}"
    ".scroll{overflow-x:auto;margin:1em 0}"
    "table{border-collapse:collapse}td,th{border:1px solid var(--line);padding:.25em .6em;text-align:left;"
    "font-size:13px;white-space:nowrap;overflow-wrap:normal}th{background:var(--faint)}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}td.w{white-space:normal;min-width:16em}"
    "summary{cursor:pointer}details{margin:1em 0}";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_head(std::string_view title, std::string_view style, const std::vector<std::string>& facts,
                      const PageInfo& info) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"/><title>{0}</title>\n<style>{1}{2}</style></head>\n<body>\n"
      "<h1>{0}</h1>\n<p class=\"facts\">",
      html_escaped(title), kPageStyle, style);
  for (const std::string& fact : facts) html += html_escaped(fact) + "<br/>\n";
  std::string made;
  if (!info.version.empty()) made = "Made by " + html_escaped(info.version);
  if (!info.made.empty()) made += (made.empty() ? "Made " : ", ") + html_escaped(info.made);
  if (!made.empty()) html += made + "<br/>\n";
  if (!info.command.empty()) html += fmt::format("<code>{}</code>", html_escaped(info.command));
  return html + "</p>\n";
}

std::string html_tail() { return "</body></html>\n"; }

std::string html_scroll(const std::string& inside) { return "<div class=\"scroll\">" + inside + "</div>\n"; }

}  // namespace baton
