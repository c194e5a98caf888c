// The page at "/": files of baton/serve/page/, which are part of the program. It asks nobody but the server that it
// comes from, and its headers forbid it to.
#pragma once

#include <string_view>

#include "baton/http/server.h"

namespace baton::serve {

// Lives for ever.
struct PageFile {
  std::string_view content_type;
  std::string_view etag;  // with its quotes; of the content
  std::string_view body;
};

// Of "/", "/index.html" and "/page/<name>"; null: the page has no such file. Names are compared, never opened.
const PageFile* page_file(std::string_view path);
// Answers GET and HEAD of a path that `page_file` knows, 304 where the client has it; else 404 or 405, without a body.
http::Response page_response(const http::Request& request);

}  // namespace baton::serve
