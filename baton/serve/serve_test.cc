// Bodies, keys, the queue, and what writers make of parts: all without a model.
#include <gtest/gtest.h>
#include <sodium.h>

#include <fstream>
#include <limits>

#include "baton/base/temporary_folder.h"
#include "baton/serve/answer_figures.h"
#include "baton/serve/api_keys.h"
#include "baton/serve/body.h"
#include "baton/serve/job_queue.h"
#include "baton/serve/metrics.h"
#include "baton/serve/openapi.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

TEST(Body, Bounds) {
  EXPECT_TRUE(parse_body(R"({"a": [1, {"b": "x\"]}"}], "c": null})"));
  const auto nested = [](size_t levels) {
    return R"({"a": )" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_TRUE(parse_body(nested(64)));
  EXPECT_FALSE(parse_body(nested(65)));
  EXPECT_FALSE(parse_body(nested(100'000)));
  BodyLimits few{.fields_max = 2, .values_max = 5};
  EXPECT_TRUE(parse_body(R"({"a": 1, "b": 2})", few));
  EXPECT_FALSE(parse_body(R"({"a": 1, "b": 2, "c": 3})", few));
  EXPECT_TRUE(parse_body(R"({"a": [1, 2, 3]})", few));
  EXPECT_FALSE(parse_body(R"({"a": [1, 2, 3, 4]})", few));
  EXPECT_TRUE(parse_body(R"({"a": "x\",,,,,,:::[[["})", few)) << "all behind the mark is text, too";
  EXPECT_FALSE(parse_body(R"({"a": "\\", "b": 2, "c": 3})", few)) << "the text ends there";
}

TEST(Body, WhatIsRefused) {
  for (const std::string_view text :
       {std::string_view(""), std::string_view("[]"), std::string_view("5"), std::string_view("{"),
        std::string_view("{}}"), std::string_view("\xEF\xBB\xBF{}"), std::string_view(R"({"a": 1, "a": 2})"),
        std::string_view(R"({"a": "\u0000"})"), std::string_view("{\"a\": \"\xff\"}"),
        std::string_view(R"({"a": "\ud800"})"), std::string_view(R"({"a": 1e999})"),
        std::string_view("{\"a\0\": 1}", 9), std::string_view(R"({"a": NaN})")}) {
    const auto body = parse_body(text);
    ASSERT_FALSE(body) << text;
    EXPECT_EQ(body.error().status, 400);
    EXPECT_EQ(body.error().code, "invalid_json");
  }
  // In another object it is another field.
  EXPECT_TRUE(parse_body(R"({"a": {"b": 1}, "c": {"b": 1, "a": 2}})"));
}

TEST(ApiKeysTest, LinesAndHashes) {
  ASSERT_GE(sodium_init(), 0);
  const auto folder = TemporaryFolder::create("baton_serve_test");
  ASSERT_TRUE(folder);
  const auto file = folder->path() / "keys";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  // SHA-256 of "abc".
  write(
      "# comment\n\nsecret name=one weight=3 waiting=7\n"
      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n");
  const auto keys = ApiKeys::read(file);
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->find("secret"), 0u);
  EXPECT_EQ(keys->find("abc"), 1u);
  EXPECT_EQ(keys->all()[0].weight, 3u);
  EXPECT_EQ(keys->all()[0].waiting_max, 7u);
  EXPECT_EQ(keys->all()[0].name, "one");
  for (const std::string& wrong :
       {std::string(), std::string("secre"), std::string("secret "), std::string(1 << 20, 'x')})
    EXPECT_FALSE(keys->find(wrong)) << wrong.size();
  for (const char* bad : {"", "# none\n", "key weight=0\n", "key weight=1001\n", "key colour=red\n", "key name=a\"b\n",
                          "sha256:00\n", "sha256:zz7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"}) {
    write(bad);
    const auto read = ApiKeys::read(file);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().message.find("key weight"), std::string::npos);
  }
}

std::unique_ptr<Job> job_of(uint64_t number, uint32_t key, uint32_t weight = 1, uint32_t waiting_max = UINT32_MAX) {
  auto job = std::make_unique<Job>();
  job->number = number;
  job->caller = {key, 0, weight, waiting_max};
  return job;
}

TEST(JobQueueTest, InTurnOfOneAndByWeightBetween) {
  JobQueue queue(100, 100);
  for (uint64_t i = 0; i < 20; ++i) {
    auto job = job_of(i, 0);
    ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
    EXPECT_EQ(job, nullptr);
  }
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(queue.pop()->number, i);
  // One that comes later does not wait behind the ten, and has its share: three of four.
  for (uint64_t i = 100; i < 130; ++i) {
    auto job = job_of(i, 1, 3);
    ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  }
  uint64_t of_first = 0, last = 99;
  for (int i = 0; i < 20; ++i) {
    const auto job = queue.pop();
    if (job->caller.key == 0) {
      ++of_first;
    } else {
      EXPECT_EQ(job->number, last + 1);
      last = job->number;
    }
  }
  EXPECT_GE(of_first, 4u);
  EXPECT_LE(of_first, 6u);
  EXPECT_EQ(queue.waiting(), 20u);
}

TEST(JobQueueTest, AModelWithNothingRunningIsNext) {
  ModelPool pool;
  for (const char* name : {"a", "b", "c"}) pool.add(ModelSource{.facts = {.name = name}, .open = {}});
  const auto job_for = [&](uint64_t number, size_t model) {
    auto job = job_of(number, 0);
    job->pooled = pool.all()[model].get();
    return job;
  };
  JobQueue queue(100, 2);
  for (uint64_t i = 0; i < 10; ++i) {
    auto job = job_for(i, 0);
    ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  }
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(queue.pop()->number, i);
  for (uint64_t i = 100; i < 103; ++i) {
    auto job = job_for(i, 1);
    ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  }
  // Two run, as many as may: one beyond of a model that has none.
  EXPECT_EQ(queue.pop()->number, 100u);
  auto job = job_for(200, 2);
  ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  EXPECT_EQ(queue.pop()->number, 200u);
  queue.done(2, 0);
  queue.done(0, 0);
  // Two again, one of each: nothing beyond; then the one that has had its turn longer ago.
  queue.done(1, 0);
  EXPECT_EQ(queue.pop()->number, 101u);
  queue.done(0, 0);
  EXPECT_EQ(queue.pop()->number, 2u);
  EXPECT_EQ(queue.waiting(), 8u);
}

TEST(JobQueueTest, Bounds) {
  JobQueue queue(1, 2);  // two may be on their way to workers
  const auto of_small_key = [](uint64_t number) {
    auto job = job_of(number, 0, 1, 0);
    job->caller.running_max = 1;
    return job;
  };
  auto job = of_small_key(1);  // none may wait; this one need not
  ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  job = of_small_key(2);
  EXPECT_EQ(queue.push(job), JobQueue::Pushed::kKeyFull);
  ASSERT_NE(job, nullptr);
  for (uint64_t i = 3; i < 5; ++i) {
    job = job_of(i, 1);
    ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  }
  job = job_of(9, 2);
  EXPECT_EQ(queue.push(job), JobQueue::Pushed::kFull);
  EXPECT_EQ(queue.remove(3)->number, 3u);
  EXPECT_EQ(queue.remove(3), nullptr);
  ASSERT_EQ(queue.push(job), JobQueue::Pushed::kYes);
  EXPECT_EQ(queue.close().size(), 3u);
  EXPECT_EQ(queue.pop(), nullptr);
  job = job_of(10, 2);
  EXPECT_EQ(queue.push(job), JobQueue::Pushed::kClosed);
}

TEST(MetricsTest, HistogramsAddUp) {
  Metrics metrics;
  RequestStats stats;
  stats.token_ms = {1, 30};
  stats.generated_tokens = 3;
  stats.bridge.kind = BridgeKind::kMove;
  stats.bridge.bytes = 77;
  const RequestStats* const choices[] = {&stats};
  metrics.count_answer("a \"model\"",
                       {.finished = "stop", .first_token_s = 0.03, .total_s = 0.1, .generated_tokens = 3}, choices);
  Gauges gauges{.running = 2, .waiting = 3};
  gauges.models = {{.name = "a \"model\"", .requests_running = 2},
                   {.name = "one", .bytes = 7, .loads = 2, .loaded = true},
                   {.name = "two", .evictions = 5, .vectors = true}};
  const std::string text = metrics.text(gauges);
  EXPECT_EQ(text.find("vllm:prompt_tokens_total{model_name=\"two\"}"), std::string::npos);
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"a \\\"model\\\"\"} 2\n",
        "vllm:num_requests_running{model_name=\"one\"} 0\n", "vllm:generation_tokens_total{model_name=\"one\"} 0\n",
        "vllm:generation_tokens_total{model_name=\"a \\\"model\\\"\"} 3\n",
        "vllm:inter_token_latency_seconds_bucket{model_name=\"a \\\"model\\\"\",le=\"0.001\"} 1\n",
        "vllm:inter_token_latency_seconds_bucket{model_name=\"a \\\"model\\\"\",le=\"0.05\"} 2\n",
        "vllm:inter_token_latency_seconds_bucket{model_name=\"a \\\"model\\\"\",le=\"+Inf\"} 2\n",
        "baton_bridge_bytes_total{model_name=\"a \\\"model\\\"\"} 77\n", "baton_models_loaded 1\n",
        "baton_model_bytes{model_name=\"one\"} 7\n", "baton_model_loads_total{model_name=\"one\"} 2\n",
        "baton_model_evictions_total{model_name=\"two\"} 5\n",
        "vllm:request_success_total{model_name=\"a \\\"model\\\"\",finished_reason=\"stop\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(MetricsTest, WhatAnEmulatedUnitHadAPartInCarriesTheWord) {
  Metrics metrics;
  RequestStats stats;
  stats.generated_tokens = 3;
  const RequestStats* const choices[] = {&stats};
  metrics.count_answer("m", {.finished = "stop", .generated_tokens = 3}, choices);
  Gauges gauges;
  gauges.models = {{.name = "m", .prefill_unit = "cuda", .decode_unit = "cpu", .emulated_units = {"cuda"}},
                   {.name = "new", .prefill_unit = "ane", .decode_unit = "ane", .emulated_units = {"ane"}},
                   {.name = "real", .prefill_unit = "cpu", .decode_unit = "cpu"}};
  const std::string before = metrics.text(gauges);
  metrics.count_answer("m", {.finished = "stop", .emulated = true, .generated_tokens = 4}, choices);
  const std::string text = metrics.text(gauges);
  EXPECT_EQ(before.find("generation_tokens_total{model_name=\"m\",emulated"), std::string::npos) << before;
  for (const char* line :
       {"vllm:generation_tokens_total{model_name=\"m\"} 3\n",
        "vllm:generation_tokens_total{model_name=\"m\",emulated=\"true\"} 4\n",
        "vllm:generation_tokens_total{model_name=\"new\",emulated=\"true\"} 0\n",
        "vllm:generation_tokens_total{model_name=\"real\"} 0\n",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"m\",emulated=\"true\",le=\"+Inf\"} 1\n",
        "baton_state_bytes{model_name=\"m\",emulated=\"true\"} 0\n", "baton_state_bytes{model_name=\"real\"} 0\n",
        "baton_unit_info{model_name=\"m\",phase=\"prefill\",unit=\"cuda\",emulated=\"true\"} 1\n",
        "baton_unit_info{model_name=\"m\",phase=\"decode\",unit=\"cpu\",emulated=\"false\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(AnswerFigures, PathsOfTheMachineStayHere) {
  EXPECT_EQ(without_paths("/models/secret/m.gguf: no"), "m.gguf: no");
  EXPECT_EQ(without_paths("open '/a/b c'"), "open 'b c'");
  EXPECT_EQ(without_paths("1/2 of it, GET (/v1/models)"), "1/2 of it, GET (models)");
  EXPECT_EQ(without_paths("ane:cache=/caches/mine/a.b,device=emulator"), "ane:cache=a.b,device=emulator");
}

TEST(AnswerFigures, PhasesFollowEachOther) {
  RequestStats stats;
  stats.prefill.ran = "ref";
  stats.decode.ran = "cpu";
  stats.first_token = {.queue_ms = 1, .prefill_ms = 10, .move_ms = 2, .first_decode_ms = 3};
  stats.token_ms = {4, 5};
  const auto phases = phases_json(stats, 100, 105);
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0]["end_ms"], 106);
  EXPECT_EQ(phases[2]["name"], "move");
  EXPECT_EQ(phases[2]["unit"], "ref -> cpu");
  EXPECT_EQ(phases[3]["end_ms"], 130);
}

TEST(Routes, AreFound) {
  bool known = false;
  ASSERT_NE(find_route("GET", "/v1/models", &known), nullptr);
  EXPECT_EQ(find_route("GET", "/v1/models/a/b", &known)->handle, show_model);
  EXPECT_EQ(find_route("GET", "/v1/models/", &known), nullptr);
  EXPECT_EQ(find_route("PUT", "/v1/models", &known), nullptr);
  EXPECT_TRUE(known);
  EXPECT_EQ(find_route("GET", "/v1", &known), nullptr);
  EXPECT_FALSE(known);
  // Each has an answer, and none hides another.
  for (const Route& route : routes()) {
    EXPECT_TRUE(route.handle != nullptr || route.protocol != nullptr) << route.path;
    EXPECT_EQ(find_route(route.method, route.path, &known), &route) << route.path;
  }
}

TEST(OpenApi, TheCopyInTheDocumentsIsOfThisTable) {
  std::ifstream file(BATON_SOURCE_DIR "/docs/openapi.json");
  const auto copy = nlohmann::ordered_json::parse(file, nullptr, false);
  EXPECT_EQ(copy, openapi_document()) << "write it anew: baton serve --openapi > docs/openapi.json\n";
}

}  // namespace
}  // namespace baton::serve
