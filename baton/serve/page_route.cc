// The page's files, as an answer of the table of routes.
#include "baton/serve/page.h"
#include "baton/serve/routes.h"

namespace baton::serve {

void show_page(App& /*app*/, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const http::Request& request = exchange->request();
  if (page_file(request.path) == nullptr) {
    return respond_error(*exchange, nullptr,
                         {.status = 404, .message = "the page has no such file", .code = "not_found"});
  }
  exchange->respond(page_response(request));
}

}  // namespace baton::serve
