// The page's files, compiled in (build.cmake), and the headers that they go out with.
#include "baton/serve/page.h"

#include <array>
#include <cstddef>
#include <iterator>
#include <string>

namespace baton::serve {
namespace {

struct PageData {
  std::string_view name, etag;
  const unsigned char* bytes;
  size_t size;
};

#include "baton/serve/page_data.inc"

// Nothing runs but the page's own files, nothing is asked but this server, nothing may frame it, and no text becomes
// markup (trusted types: the page has no use for innerHTML).
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

using Files = std::array<PageFile, std::size(k_page_table)>;
const Files& files() {
  static const Files all = [] {
    Files made;
    for (size_t i = 0; i < made.size(); ++i) {
      const PageData& data = k_page_table[i];
      made[i] = {content_type_of(data.name), data.etag,
                 std::string_view(reinterpret_cast<const char*>(data.bytes), data.size)};
    }
    return made;
  }();
  return all;
}

// If-None-Match: "*", or a list with our tag in it, weak or not.
bool has_tag(std::string_view list, std::string_view tag) { return list == "*" || list.find(tag) != list.npos; }

}  // namespace

const PageFile* page_file(std::string_view path) {
  constexpr std::string_view kFolder = "/page/";
  std::string_view name = "index.html";
  if (path.starts_with(kFolder)) {
    name = path.substr(kFolder.size());
  } else if (path != "/" && path != "/index.html") {
    return nullptr;
  }
  for (size_t i = 0; i < std::size(k_page_table); ++i) {
    if (k_page_table[i].name == name) return &files()[i];
  }
  return nullptr;
}

http::Response page_response(const http::Request& request) {
  const PageFile* file = page_file(request.path);
  const http::Headers text = {{"Content-Type", "text/plain; charset=utf-8"}};
  if (file == nullptr) return {.status = 404, .headers = text, .body = "the page has no such file\n"};
  if (request.method != "GET" && request.method != "HEAD") return {.status = 405, .headers = {{"Allow", "GET, HEAD"}}};
  http::Response response;
  response.headers = {{"Content-Type", std::string(file->content_type)},
                      {"ETag", std::string(file->etag)},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}};
  const std::string* known = request.header("if-none-match");
  if (known != nullptr && has_tag(*known, file->etag)) {
    response.status = 304;
  } else {
    response.body = std::string(file->body);  // of HEAD the server sends the length
  }
  return response;
}

}  // namespace baton::serve
