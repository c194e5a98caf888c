// Facts of the interface: https://huggingface.co/docs/hub/api, and the headers that huggingface_hub reads.
#include "baton/hub/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace baton::hub {
namespace {

using Json = nlohmann::json;

constexpr int kAskHopsMax = 8;
constexpr size_t kListedMax = 20'000;
constexpr uint64_t kFileBytesMax = uint64_t{1} << 50;
constexpr std::chrono::milliseconds kStep{100}, kWaitMax{120'000};

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value)
                                                                                   : std::nullopt;
}

// W/"abc" and "abc" as abc.
std::string plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string host_of(std::string_view url) {
  const std::string origin = origin_of(url);
  return origin.substr(std::min(origin.find("://") + 3, origin.size()));
}

std::string printable(std::string_view text) {
  std::string made;
  for (const char c : text.substr(0, 300)) made += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return made;
}

}  // namespace

bool may_pass(const Exchange& exchange) {
  if (!exchange.error.empty()) return true;
  const int status = exchange.status;
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

std::chrono::milliseconds wait_before(const Exchange& exchange, int tries, uint32_t retry_ms) {
  const auto own = std::chrono::milliseconds(uint64_t{retry_ms} << std::min(tries, 10));
  const auto told = number_of(exchange.header("retry-after"));
  const auto asked = told ? std::chrono::milliseconds(std::min<uint64_t>(*told, 3600) * 1000) : own;
  return std::min(std::max(asked, std::chrono::milliseconds(0)), kWaitMax);
}

std::string what_happened(const Exchange& exchange) {
  const std::string host = host_of(exchange.url);
  if (!exchange.error.empty()) return fmt::format("{}: {}", host, exchange.error);
  const std::string& told = exchange.header("x-error-message");
  return fmt::format("{} answered {}{}", host, exchange.status, told.empty() ? "" : ": " + printable(told));
}

Status pause(std::chrono::milliseconds time, const Watch& watch) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (true) {
    if (watch.stops()) return fail(Code::kCancelled, "interrupted");
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return {};
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kStep));
  }
}

std::string Remote::token_for(std::string_view url) const {
  return origin_of(url) == origin_of(settings_.endpoint) ? settings_.token : "";
}

Result<std::string> Remote::next_url(const Exchange& exchange) {
  std::string next = absolute_url(exchange.url, exchange.header("location"));
  if (next.empty())
    return fail(Code::kInvalidInput, fmt::format("{}, and sends to no address", what_happened(exchange)));
  if (exchange.url.starts_with("https://") && !next.starts_with("https://"))
    return fail(Code::kInvalidInput,
                fmt::format("{} sends from https to http ({}): refused", host_of(exchange.url), host_of(next)));
  return next;
}

Status Remote::run(Exchange& exchange) {
  http_.start(exchange);
  while (!exchange.ended) {
    if (watch_.stops()) {
      http_.take_back(exchange);
      return fail(Code::kCancelled, "interrupted");
    }
    http_.step(static_cast<int>(kStep.count()));
  }
  return {};
}

Result<Exchange> Remote::ask(std::string url, bool head) {
  std::map<std::string, std::string> on_the_way;
  for (int hops = 0, tries = 0; hops < kAskHopsMax;) {
    Exchange exchange;
    exchange.url = url;
    exchange.token = token_for(url);
    exchange.head = head;
    BATON_OK(run(exchange));
    if (exchange.too_large)
      return fail(Code::kInvalidInput, fmt::format("{}: answers with more than any list has", host_of(url)));
    if (may_pass(exchange)) {
      if (++tries >= kTriesMax)
        return fail(Code::kUnavailable, fmt::format("{}, {} times: is the network there? "
                                                    "(HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 asks none)",
                                                    what_happened(exchange), tries));
      const auto wait = wait_before(exchange, tries - 1, watch_.retry_ms);
      watch_.say(
          fmt::format("{}: again in {:.1f} s", what_happened(exchange), static_cast<double>(wait.count()) / 1e3));
      BATON_OK(pause(wait, watch_));
      continue;
    }
    if (!is_redirect(exchange.status)) {
      for (const auto& [name, value] : on_the_way) exchange.headers.try_emplace(name, value);
      return exchange;
    }
    BATON_TRY(url, next_url(exchange));
    for (const auto& [name, value] : exchange.headers) {
      if (name.starts_with("x-")) on_the_way.try_emplace(name, value);
    }
    if (head && origin_of(url) != origin_of(settings_.endpoint) && on_the_way.count("x-linked-size") > 0) {
      for (const auto& [name, value] : on_the_way) exchange.headers.try_emplace(name, value);
      exchange.headers.erase("etag");  // of the answer that sends on, not of the file
      exchange.status = 200;
      exchange.url = std::move(url);
      return exchange;
    }
    ++hops;
  }
  return fail(Code::kInvalidInput, fmt::format("{}: sends on and on", host_of(url)));
}

Error Remote::refused(const RepoName& name, const std::string& revision, const Exchange& exchange) const {
  const std::string& code = exchange.header("x-error-code");
  const std::string token = settings_.token.empty() ? "no token was sent (HF_TOKEN)" : "a token was sent";
  if (code == "GatedRepo" || exchange.status == 403) {
    return {Code::kInvalidInput,
            fmt::format("{}: who fetches it must be let in first: ask at {}/{}, then set HF_TOKEN; {}", name.id(),
                        settings_.endpoint, name.id(), token)};
  }
  if (code == "RevisionNotFound") return {Code::kNotFound, fmt::format("{} has no revision '{}'", name.id(), revision)};
  if (exchange.status == 401 || exchange.status == 404) {
    return {Code::kNotFound, fmt::format("{} has no model {}, or does not show it: look at the name; {}",
                                         host_of(settings_.endpoint), name.id(), token)};
  }
  return {Code::kUnavailable, fmt::format("{}: {}", name.id(), what_happened(exchange))};
}

Result<Listing> Remote::list(const RepoName& name, const std::string& revision) {
  const std::string url =
      fmt::format("{}/api/models/{}/revision/{}", settings_.endpoint, url_path(name.id()), url_path(revision));
  BATON_TRY(const Exchange answer, ask(url, false));
  if (answer.status != 200) return fail(refused(name, revision, answer));
  const Json told = Json::parse(answer.body, nullptr, false);
  const auto bad = [&](std::string_view what) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: what answers for {} is no hub: {}", host_of(settings_.endpoint), name.id(), what));
  };
  if (!told.is_object()) return bad("it sends no JSON");
  const auto sha = told.find("sha");
  const auto siblings = told.find("siblings");
  if (sha == told.end() || !sha->is_string() || !good_commit(sha->get<std::string>())) return bad("it tells no commit");
  if (siblings == told.end() || !siblings->is_array()) return bad("it tells no files");
  if (siblings->size() > kListedMax) return bad(fmt::format("{} files", siblings->size()));
  Listing made{sha->get<std::string>(), {}};
  for (const Json& each : *siblings) {
    const auto file = each.is_object() ? each.find("rfilename") : each.end();
    if (!each.is_object() || file == each.end() || !file->is_string()) return bad("a file has no name");
    if (good_file(file->get<std::string>())) made.files.push_back(file->get<std::string>());
  }
  std::sort(made.files.begin(), made.files.end());
  made.files.erase(std::unique(made.files.begin(), made.files.end()), made.files.end());
  return made;
}

Result<RemoteFile> Remote::look(const RepoName& name, const std::string& commit, const std::string& file) {
  const std::string url =
      fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, url_path(name.id()), commit, url_path(file));
  BATON_TRY(const Exchange answer, ask(url, true));
  if (answer.status != 200) return fail(refused(name, commit, answer).in(file));
  RemoteFile made;
  made.path = file;
  made.url = answer.url;
  const std::string& linked = answer.header("x-linked-etag");
  made.etag = plain_etag(linked.empty() ? answer.header("etag") : linked);
  const std::string& linked_size = answer.header("x-linked-size");
  const auto bytes = number_of(linked_size.empty() ? answer.header("content-length") : linked_size);
  if (!good_etag(made.etag) || !bytes)
    return fail(Code::kInvalidInput,
                fmt::format("{}: {} tells no {} of it: it is no hub", file, host_of(url), bytes ? "ETag" : "size"));
  if (*bytes > kFileBytesMax)
    return fail(Code::kInvalidInput,
                fmt::format("{}: {} tells a size of {} bytes: no file is so large", file, host_of(url), *bytes));
  made.bytes = *bytes;
  if (const std::string& told = answer.header("x-repo-commit"); !told.empty() && told != commit)
    return fail(Code::kMismatch, fmt::format("{}: is of commit {}, not of {}: it changed just now, pull again", file,
                                             printable(told), commit));
  return made;
}

}  // namespace baton::hub
