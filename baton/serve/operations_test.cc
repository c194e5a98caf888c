// What surrounds requests: traces, pages of other sites, limits of keys. All without a model.
#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "baton/base/temporary_folder.h"
#include "baton/serve/api_keys.h"
#include "baton/serve/config.h"
#include "baton/serve/cors.h"
#include "baton/serve/job_queue.h"
#include "baton/serve/rate_limits.h"
#include "baton/serve/routes.h"
#include "baton/serve/trace_context.h"

namespace baton::serve {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

http::Request request_with(http::Headers headers, std::string method = "GET") {
  http::Request request;
  request.method = std::move(method);
  request.headers = std::move(headers);
  return request;
}

TEST(Trace, OfTheSpecification) {
  const auto context = parse_traceparent(kParent);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(context->parent_id, "b7ad6b7169203331");
  EXPECT_EQ(context->flags, 1);
  // Of versions to come: what is known of them, and no flag that is not.
  for (const char* later : {"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
                            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-more"}) {
    const auto read = parse_traceparent(later);
    ASSERT_TRUE(read) << later;
    EXPECT_EQ(read->flags, 3);
  }
}

TEST(Trace, WhatIsNoTraceparentCountsAsNone) {
  for (const std::string_view bad : {
           std::string_view(""),
           std::string_view("00"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-010"),
           std::string_view("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
           std::string_view("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more"),
           std::string_view("0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-"),
           std::string_view("00-00000000000000000000000000000000-b7ad6b7169203331-01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
           std::string_view("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-B7AD6B7169203331-01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0A"),
           std::string_view("0A-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
           std::string_view("00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01"),
           std::string_view("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\0", 56),
           std::string_view(" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
       })
    EXPECT_FALSE(parse_traceparent(bad)) << bad;
}

TEST(Trace, OfARequest) {
  EXPECT_FALSE(trace_of(request_with({}), 1));
  EXPECT_FALSE(trace_of(request_with({{"tracestate", "a=1"}}), 1));
  EXPECT_FALSE(trace_of(request_with({{"traceparent", kParent}, {"traceparent", kParent}}), 1));
  const auto context =
      trace_of(request_with({{"tracestate", "a=1"}, {"traceparent", kParent}, {"tracestate", "b=2"}}), 255);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->state, "a=1,b=2");
  EXPECT_EQ(context->response(), "00-0af7651916cd43dd8448eb211c80319c-00000000000000ff-01");
  EXPECT_EQ(trace_of(request_with({{"traceparent", kParent}}), 0)->span_id, "0000000000000001");
  // A state that cannot be kept leaves the trace what it is.
  const auto large =
      trace_of(request_with({{"traceparent", kParent}, {"tracestate", "a=" + std::string(511, 'x')}}), 1);
  ASSERT_TRUE(large);
  EXPECT_EQ(large->state, "");
}

TEST(Trace, States) {
  std::string many = "a=1";
  for (int i = 0; i < 31; ++i) many += ",b=1";
  for (const std::string& good : {std::string("a=1"), std::string("a=1 , ,b@c=2"), many, "a=" + std::string(510, 'x')})
    EXPECT_TRUE(plain_tracestate(good)) << good;
  for (const std::string& bad : {std::string(), std::string(" , "), std::string("a"), std::string("=1"), many + ",c=1",
                                 "a=" + std::string(511, 'x'), std::string("a=\x1b"), std::string("a=\xff")})
    EXPECT_FALSE(plain_tracestate(bad)) << bad;
}

std::string header_in(const http::Headers& headers, std::string_view name) {
  for (const auto& [each, value] : headers) {
    if (each == name) return value;
  }
  return "none";
}

TEST(CorsTest, OriginsAreHeldToWhatBrowsersSend) {
  Cors cors;
  for (const char* good : {"https://example.com", "http://localhost:3000", "HTTPS://Example.COM:8443", "null",
                           "http://[::1]:80", "http://127.0.0.1", "app-x+y.z://host_1"})
    EXPECT_TRUE(cors.add(good)) << good;
  for (const char* bad : {"", "example.com", "https://", "https://example.com/", "https://example.com/x", "://a",
                          "https://a:0", "https://a:65536", "https://a:", "https://a:b", "https://*.example.com",
                          "https://a b", "https://a?x", "https://a\r\nx", "h/t://a", "**"}) {
    const auto added = cors.add(bad);
    ASSERT_FALSE(added) << bad;
    EXPECT_NE(added.error().message.find("is no origin"), std::string::npos);
  }
  EXPECT_FALSE(Cors().add("https://" + std::string(600, 'a')));
}

TEST(CorsTest, WhoIsAllowed) {
  struct Case {
    std::vector<const char*> taken;
    const char* origin;
    bool allowed;
  };
  for (const Case& each : std::initializer_list<Case>{{{}, "https://a.com", false},
                                                      {{}, "null", false},
                                                      {{"https://a.com"}, "https://a.com", true},
                                                      {{"https://a.com"}, "HTTPS://A.com", true},
                                                      {{"https://a.com"}, "http://a.com", false},
                                                      {{"https://a.com"}, "https://a.com:443", false},
                                                      {{"https://a.com"}, "https://a.com.evil.org", false},
                                                      {{"https://a.com"}, "https://b.a.com", false},
                                                      {{"https://a.com"}, "null", false},
                                                      {{"https://a.com"}, "", false},
                                                      {{"https://a.com", "null"}, "null", true},
                                                      {{"*"}, "https://any.org", true},
                                                      {{"*"}, "null", true}}) {
    Cors cors;
    for (const char* origin : each.taken) ASSERT_TRUE(cors.add(origin));
    EXPECT_EQ(cors.allows(each.origin), each.allowed) << each.origin;
    const std::string origin = each.origin;
    const auto headers = cors.headers(&origin);
    EXPECT_EQ(header_in(headers, "Access-Control-Allow-Origin"), !each.allowed ? "none" : cors.all() ? "*" : origin);
    // What is for one page is not for another, nor what is for none.
    EXPECT_EQ(header_in(headers, "Vary"), each.taken.empty() || cors.all() ? "none" : "Origin");
    EXPECT_EQ(header_in(headers, "Access-Control-Allow-Credentials"), "none");
  }
  Cors cors;
  ASSERT_TRUE(cors.add("https://a.com"));
  EXPECT_EQ(header_in(cors.headers(nullptr), "Access-Control-Allow-Origin"), "none");
  EXPECT_EQ(header_in(cors.headers(nullptr), "Vary"), "Origin");
}

TEST(CorsTest, Preflights) {
  const http::Headers asked = {{"origin", "https://a.com"}, {"access-control-request-method", "POST"}};
  EXPECT_TRUE(Cors::is_preflight(request_with(asked, "OPTIONS")));
  EXPECT_FALSE(Cors::is_preflight(request_with(asked, "GET")));
  EXPECT_FALSE(Cors::is_preflight(request_with({asked[0]}, "OPTIONS")));
  EXPECT_FALSE(Cors::is_preflight(request_with({asked[1]}, "OPTIONS")));
  Cors cors;
  ASSERT_TRUE(cors.add("https://a.com"));
  const auto answer = [&](const std::string& names) {
    http::Headers headers = asked;
    headers.emplace_back("access-control-request-headers", names);
    return cors.preflight(request_with(headers, "OPTIONS"), "POST");
  };
  const auto plain = answer("authorization,content-type, X-Stainless-Lang");
  EXPECT_EQ(plain.status, 204);
  EXPECT_EQ(header_in(plain.headers, "Access-Control-Allow-Methods"), "POST");
  EXPECT_EQ(header_in(plain.headers, "Access-Control-Allow-Headers"), "authorization,content-type, X-Stainless-Lang");
  EXPECT_EQ(header_in(plain.headers, "Vary"), "Access-Control-Request-Headers");
  for (const std::string& odd :
       {std::string("a: b"), std::string("a\r\nb"), std::string("\xff"), std::string(), std::string(5000, 'a')})
    EXPECT_EQ(header_in(answer(odd).headers, "Access-Control-Allow-Headers"), "none") << odd;
}

TEST(Routes, OfHeadAndMethods) {
  bool known = false;
  EXPECT_EQ(find_route("HEAD", "/health", &known), find_route("GET", "/health", &known));
  EXPECT_EQ(find_route("HEAD", "/v1/chat/completions", &known), nullptr);
  EXPECT_TRUE(known);
  EXPECT_EQ(methods_of("/health"), "GET, HEAD");
  EXPECT_EQ(methods_of("/v1/chat/completions"), "POST");
  EXPECT_EQ(methods_of("/nothing"), "");
}

TEST(RateBucketTest, IsExact) {
  RateBucket bucket(60);  // one a second
  bucket.refill(1000);
  EXPECT_EQ(bucket.remaining(), 60u);
  EXPECT_EQ(bucket.ms_until_full(), 0);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(bucket.has(1));
    bucket.take(1);
  }
  EXPECT_FALSE(bucket.has(1));
  EXPECT_EQ(bucket.ms_until(1), 1000);
  EXPECT_EQ(bucket.ms_until_full(), 60'000);
  bucket.refill(1999);
  EXPECT_FALSE(bucket.has(1));
  EXPECT_EQ(bucket.ms_until(1), 1);
  bucket.refill(2000);
  EXPECT_TRUE(bucket.has(1));
  EXPECT_FALSE(bucket.has(2));
  bucket.refill(500);  // back: nothing comes of it
  EXPECT_EQ(bucket.remaining(), 1u);
  bucket.refill(INT64_MAX);  // and never more than fits in
  EXPECT_EQ(bucket.remaining(), 60u);
}

TEST(RateBucketTest, WhatIsSaidOfTheNextIsEnough) {
  for (const uint32_t rate : {1u, 7u, 59u, 61u, 59'999u, 999'983u}) {
    RateBucket bucket(rate);
    bucket.refill(0);
    bucket.take(rate);
    const int64_t wait = bucket.ms_until(1);
    EXPECT_EQ(wait, (60'000 + rate - 1) / rate) << rate;
    bucket.refill(wait - 1);
    EXPECT_FALSE(bucket.has(1)) << rate;
    bucket.refill(wait);
    EXPECT_TRUE(bucket.has(1)) << rate;
  }
}

TEST(RateBucketTest, ManySmallStepsAreOneLargeOne) {
  for (const uint32_t rate : {1u, 7u, 59u, 61u, 999'983u, 1'000'000'000u}) {
    RateBucket steps(rate), leap(rate);
    steps.refill(0);
    leap.refill(0);
    steps.take(rate);
    leap.take(rate);
    uint64_t taken = 0;
    for (int64_t ms = 1; ms <= 59'999; ++ms) {
      steps.refill(ms);
      if (steps.has(1) && rate < 1000) {
        steps.take(1);
        ++taken;
      }
    }
    leap.refill(59'999);
    EXPECT_EQ(taken + steps.remaining(), leap.remaining()) << rate;
    EXPECT_EQ(leap.remaining(), uint64_t{rate} * 59'999 / 60'000) << rate;
    leap.refill(60'000);
    EXPECT_EQ(leap.remaining(), rate);
  }
}

TEST(RateBucketTest, DebtsArePaidAndBounded) {
  RateBucket bucket(1'000'000'000);
  bucket.refill(0);
  bucket.take(UINT64_MAX);
  EXPECT_EQ(bucket.remaining(), 0u);
  EXPECT_EQ(bucket.ms_until_full(), 61 * 60'000);
  bucket.take(UINT64_MAX);
  EXPECT_EQ(bucket.ms_until_full(), 61 * 60'000);
  bucket.refill(60 * 60'000);
  EXPECT_FALSE(bucket.has(1));
  bucket.refill(60 * 60'000 + 1);
  EXPECT_TRUE(bucket.has(1));
}

ApiKeys keys_from(const std::string& text) {
  EXPECT_GE(sodium_init(), 0);
  const auto folder = TemporaryFolder::create("baton_operations_test");
  const auto file = folder->path() / "keys";
  std::ofstream(file) << text;
  auto keys = ApiKeys::read(file);
  EXPECT_TRUE(keys) << (keys ? "" : keys.error().message);
  return keys ? *std::move(keys) : ApiKeys();
}

TEST(RateLimitsTest, OfKeys) {
  const ApiKeys keys =
      keys_from("a requests_per_minute=2 tokens_per_minute=600 running=3\nb tokens_per_minute=60\nc\n");
  EXPECT_EQ(keys.all()[0].running_max, 3u);
  FakeClock clock;
  RateLimits limits(keys, clock);
  auto verdict = limits.take_request(0);
  EXPECT_TRUE(verdict.allowed);
  EXPECT_EQ(header_in(verdict.headers, "x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(header_in(verdict.headers, "x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(header_in(verdict.headers, "x-ratelimit-reset-requests"), "30s");
  EXPECT_EQ(header_in(verdict.headers, "x-ratelimit-remaining-tokens"), "600");
  EXPECT_TRUE(limits.take_request(0).allowed);
  verdict = limits.take_request(0);
  EXPECT_FALSE(verdict.allowed);
  EXPECT_EQ(verdict.retry_ms, 30'000);
  EXPECT_NE(verdict.message.find("2 requests in a minute"), std::string::npos);
  clock.advance_ns(29'999'000'000);
  EXPECT_EQ(limits.take_request(0).retry_ms, 1);
  clock.advance_ns(1'000'000);
  EXPECT_TRUE(limits.take_request(0).allowed);
  // Tokens: who has any left may ask, and owes the rest.
  limits.take_tokens(1, 59);
  verdict = limits.take_request(1);
  EXPECT_TRUE(verdict.allowed);
  EXPECT_EQ(header_in(verdict.headers, "x-ratelimit-remaining-tokens"), "1");
  EXPECT_EQ(header_in(verdict.headers, "x-ratelimit-limit-requests"), "none");
  limits.take_tokens(1, 121);
  verdict = limits.take_request(1);
  EXPECT_FALSE(verdict.allowed);
  EXPECT_EQ(verdict.retry_ms, 121'000);
  EXPECT_NE(verdict.message.find("60 tokens in a minute"), std::string::npos);
  clock.advance_ns(121'000'000'000);
  EXPECT_TRUE(limits.take_request(1).allowed);
  // One without limits, and none at all.
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(limits.take_request(2).allowed);
  EXPECT_TRUE(limits.take_request(2).headers.empty());
  EXPECT_TRUE(limits.take_request(UINT32_MAX).allowed);
  limits.take_tokens(UINT32_MAX, 5);
}

TEST(RateLimitsTest, Spans) {
  EXPECT_EQ(span_text(0), "0ms");
  EXPECT_EQ(span_text(999), "999ms");
  EXPECT_EQ(span_text(1000), "1s");
  EXPECT_EQ(span_text(1005), "1.005s");
  EXPECT_EQ(span_text(360'000), "6m0s");
  EXPECT_EQ(span_text(3'661'001), "1h1m1.001s");
  EXPECT_EQ(span_text(3'600'000), "1h0m0s");
}

TEST(ApiKeysTest, LimitsThatAreWrongAreNamedByTheirLine) {
  ASSERT_GE(sodium_init(), 0);
  const auto folder = TemporaryFolder::create("baton_operations_test");
  ASSERT_TRUE(folder);
  const auto file = folder->path() / "keys";
  struct Case {
    const char *behind, *word;
  };
  for (const Case& each : std::initializer_list<Case>{{"running=0", "running must be from 1"},
                                                      {"running=-1", "running must"},
                                                      {"requests_per_minute=0", "requests_per_minute must"},
                                                      {"requests_per_minute=1000000001", "requests_per_minute must"},
                                                      {"tokens_per_minute=", "tokens_per_minute must"},
                                                      {"tokens_per_minute=1e3", "tokens_per_minute must"},
                                                      {"tokens_per_minute=99999999999999999999", "tokens_per_minute m"},
                                                      {"weight=0", "weight must be from 1 to 1000"},
                                                      {"waiting", "waiting must"},
                                                      {"hunter2", "tokens_per_minute=N"}}) {
    std::ofstream(file) << "good\n\nsecret " << each.behind << "\n";
    const auto read = ApiKeys::read(file);
    ASSERT_FALSE(read) << each.behind;
    EXPECT_NE(read.error().message.find("line 3"), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find(each.word), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find("secret"), std::string::npos);
    EXPECT_EQ(read.error().message.find("hunter2"), std::string::npos);
  }
}

TEST(Config, OfOperations) {
  const auto read = [](const std::string& text) { return parse_config("[server]\n" + text, "baton.toml", "/etc/b"); };
  const auto config = read(
      "access_log = \"a.log\"\naccess_log_format = \"json\"\naccess_log_prompts = true\ncors = [\"https://a.com\"]");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server.access_log, "/etc/b/a.log");
  EXPECT_EQ(config->server.access_log_format, "json");
  EXPECT_EQ(config->server.access_log_prompts, true);
  EXPECT_EQ(config->server.cors, std::vector<std::string>{"https://a.com"});
  EXPECT_EQ(read("access_log = \"-\"")->server.access_log, "-");
  for (const auto& [text, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"access_log = 1", "baton.toml:2: server.access_log must be a string"},
           {"access_log = \"\"", "baton.toml:2: server.access_log is empty"},
           {"access_log_format = \"xml\"", "baton.toml:2: server.access_log_format must be \"text\" or \"json\""},
           {"access_log_prompts = 1", "baton.toml:2: server.access_log_prompts must be"},
           {"cors = \"*\"", "baton.toml:2: server.cors must be a list"},
           {"cors = [\"https://a.com/\"]", "baton.toml:2: server.cors: 'https://a.com/' is no origin"}}) {
    const auto refused = read(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
  }
}

std::unique_ptr<Job> job_of_key(uint64_t number, uint32_t key, uint32_t running_max) {
  auto job = std::make_unique<Job>();
  job->number = number;
  job->caller.key = key;
  job->caller.running_max = running_max;
  return job;
}

TEST(JobQueueTest, OfAKeyNoMoreRunThanMay) {
  JobQueue queue(100, UINT32_MAX);
  for (uint64_t i = 0; i < 4; ++i) {
    auto job = job_of_key(i, 7, 2);
    ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  }
  auto other = job_of_key(10, 8, UINT32_MAX);
  ASSERT_EQ(queue.push(other), JobQueue::Pushed::kYes);
  std::vector<uint64_t> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(queue.pop()->number);
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(taken, (std::vector<uint64_t>{0, 1, 10}));  // two of the key, and who has none running
  EXPECT_EQ(queue.waiting(), 2u);
  EXPECT_TRUE(queue.waits_for_its_key(*job_of_key(11, 7, 2)));
  EXPECT_FALSE(queue.waits_for_its_key(*job_of_key(11, 7, UINT32_MAX)));
  EXPECT_FALSE(queue.waits_for_its_key(*job_of_key(11, 9, 1)));
  // The third waits until one ended.
  std::atomic<uint64_t> next{0};
  std::thread waiter([&] { next = queue.pop()->number; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(next, 0u);
  queue.done(0, 8);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(next, 0u);
  queue.done(0, 7);
  waiter.join();
  EXPECT_EQ(next, 2u);
  EXPECT_EQ(queue.close().size(), 1u);
  EXPECT_EQ(queue.pop(), nullptr);
}

}  // namespace
}  // namespace baton::serve
