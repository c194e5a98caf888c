// One multi handle, HTTP/1.1: several connections are what they are for.
#include "baton/hub/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#ifdef BATON_HUB_FETCHES
#include <curl/curl.h>
#endif

#include "baton/hub/name.h"

namespace baton::hub {

std::string origin_of(std::string_view url) {
  const bool tls = url.starts_with("https://");
  if (!tls && !url.starts_with("http://")) return "";
  std::string_view rest = url.substr(tls ? 8 : 7);
  rest = rest.substr(0, rest.find_first_of("/?#"));
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) rest.remove_prefix(at + 1);
  std::string host = lower_case(rest);
  const size_t colon = host.rfind(':');
  if (colon == std::string::npos || host.find(']', colon) != std::string::npos) host += tls ? ":443" : ":80";
  return (tls ? "https://" : "http://") + host;
}

std::string absolute_url(std::string_view from, std::string_view location) {
  const auto bad = [](char c) { return c <= ' ' || c == 0x7f; };
  if (location.empty() || std::any_of(location.begin(), location.end(), bad)) return "";
  if (location.starts_with("https://") || location.starts_with("http://")) return std::string(location);
  const size_t scheme = from.find("://");
  if (scheme == std::string_view::npos || location.find("://") < location.find('/')) return "";
  if (location.starts_with("//")) return std::string(from.substr(0, scheme + 1)) + std::string(location);
  const size_t path = std::min(from.find('/', scheme + 3), from.size());
  if (location.starts_with('/')) return std::string(from.substr(0, path)) + std::string(location);
  const std::string_view without = from.substr(0, from.find_first_of("?#"));
  const size_t last = without.rfind('/');
  return std::string(last > scheme + 2 ? without.substr(0, last + 1) : without) + std::string(location);
}

const std::string& Exchange::header(const std::string& name) const {
  static const std::string none;
  const auto found = headers.find(name);
  return found == headers.end() ? none : found->second;
}

#ifdef BATON_HUB_FETCHES

namespace {

constexpr size_t kHeadersMax = 256, kHeaderBytesMax = 16 << 10;

size_t on_body(char* data, size_t, size_t count, void* to) {
  auto& exchange = *static_cast<Exchange*>(to);
  if (exchange.body.size() + count > exchange.body_max) {
    exchange.too_large = true;
    return 0;
  }
  exchange.body.append(data, count);
  exchange.received += count;
  return count;
}

size_t on_header(char* data, size_t, size_t count, void* to) {
  auto& exchange = *static_cast<Exchange*>(to);
  const std::string_view line(data, count);
  if (line.starts_with("HTTP/")) {  // of the answer, behind those of a proxy or "100 Continue"
    exchange.headers.clear();
    return count;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return count;
  if (exchange.headers.size() >= kHeadersMax || count > kHeaderBytesMax) return 0;
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && static_cast<unsigned char>(value.front()) <= ' ') value.remove_prefix(1);
  while (!value.empty() && static_cast<unsigned char>(value.back()) <= ' ') value.remove_suffix(1);
  exchange.headers[lower_case(line.substr(0, colon))] = value;
  return count;
}

class CurlHttp final : public Http {
 public:
  explicit CurlHttp(CURLM* multi) : multi_(multi) {
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, long{CURLPIPE_NOTHING});
  }
  ~CurlHttp() override {
    for (auto& [exchange, running] : running_) drop(running);
    curl_multi_cleanup(multi_);
  }

  void start(Exchange& exchange) override {
    Running made;
    made.easy = curl_easy_init();
    if (made.easy != nullptr && !exchange.token.empty()) {
      made.headers = curl_slist_append(nullptr, ("Authorization: Bearer " + exchange.token).c_str());
    }
    if (made.easy == nullptr || (!exchange.token.empty() && made.headers == nullptr)) {
      drop(made);
      exchange.ended = true;
      exchange.error = "out of memory";
      return;
    }
    set_options(made, exchange);
    curl_multi_add_handle(multi_, made.easy);
    running_[&exchange] = made;
  }

  void take_back(Exchange& exchange) override {
    const auto found = running_.find(&exchange);
    if (found == running_.end()) return;
    drop(found->second);
    running_.erase(found);
  }

  void step(int wait_ms) override {
    int running = 0, left = 0;
    curl_multi_perform(multi_, &running);
    bool ended = false;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      end(message->easy_handle, message->data.result);
      ended = true;
    }
    if (!ended && wait_ms > 0) curl_multi_poll(multi_, nullptr, 0, wait_ms, nullptr);
    for (auto& [exchange, each] : running_) {
      long status = 0;
      curl_easy_getinfo(each.easy, CURLINFO_RESPONSE_CODE, &status);
      exchange->status = static_cast<int>(status);
    }
  }

 private:
  struct Running {
    CURL* easy = nullptr;
    curl_slist* headers = nullptr;
  };

  static void set_options(const Running& made, Exchange& exchange) {
    CURL* const easy = made.easy;
    curl_easy_setopt(easy, CURLOPT_URL, exchange.url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 30L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "baton/" BATON_VERSION);
    if (exchange.head) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (made.headers != nullptr) curl_easy_setopt(easy, CURLOPT_HTTPHEADER, made.headers);
    if (exchange.range)
      curl_easy_setopt(easy, CURLOPT_RANGE,
                       fmt::format("{}-{}", exchange.range->first, exchange.range->second).c_str());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  }

  void end(CURL* easy, CURLcode result) {
    for (auto& [exchange, running] : running_) {
      if (running.easy != easy) continue;
      long status = 0;
      curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
      exchange->status = static_cast<int>(status);
      if (result != CURLE_OK && !exchange->too_large) exchange->error = curl_easy_strerror(result);
      exchange->ended = true;
      drop(running);
      running_.erase(exchange);
      return;
    }
  }

  void drop(Running& running) {
    if (running.easy != nullptr) {
      curl_multi_remove_handle(multi_, running.easy);
      curl_easy_cleanup(running.easy);
    }
    curl_slist_free_all(running.headers);
    running = {};
  }

  CURLM* const multi_;
  std::map<Exchange*, Running> running_;
};

}  // namespace

Result<std::unique_ptr<Http>> Http::create() {
  static std::once_flag once;
  static CURLcode ready = CURLE_FAILED_INIT;
  std::call_once(once, [] { ready = curl_global_init(CURL_GLOBAL_DEFAULT); });
  CURLM* const multi = ready == CURLE_OK ? curl_multi_init() : nullptr;
  if (multi == nullptr) return fail(Code::kInternal, "libcurl does not start");
  return std::unique_ptr<Http>(std::make_unique<CurlHttp>(multi));
}

#else

Result<std::unique_ptr<Http>> Http::create() {
  return fail(Code::kUnsupported,
              "this build of baton fetches nothing: libcurl or OpenSSL was not there when it was built "
              "(scripts/setup.sh installs both); models that are in the cache are found all the same");
}

#endif

}  // namespace baton::hub
