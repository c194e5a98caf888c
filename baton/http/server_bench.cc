// What the server costs: a request on an open connection, a piece of an answer, and the memory of connections that are
// only there (counter bytes_each: of the process, with a client's own few).
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "baton/http/server.h"
#include "tests/support/http_client.h"

namespace baton::http {
namespace {

void request_on_an_open_connection(benchmark::State& state) {
  const auto server = test_server(echo);
  TestClient client(server->port());
  for (auto _ : state) {
    client.send(kGet);
    benchmark::DoNotOptimize(client.read_answer());
  }
}
BENCHMARK(request_on_an_open_connection)->UseRealTime();

void piece_of_an_answer(benchmark::State& state) {
  std::mutex mutex;
  std::shared_ptr<Exchange> open;
  const auto server = test_server([&](std::shared_ptr<Exchange> exchange) {
    exchange->begin(200, {});
    const std::lock_guard lock(mutex);
    open = std::move(exchange);
  });
  TestClient client(server->port());
  client.send(kGet);
  client.read_until("\r\n\r\n");
  const std::lock_guard lock(mutex);
  for (auto _ : state) {
    open->write("data: {\"choices\":[{\"delta\":{\"content\":\" the\"}}]}\n\n");
    benchmark::DoNotOptimize(client.read_until("\n\n\r\n"));
  }
}
BENCHMARK(piece_of_an_answer)->UseRealTime();

double resident_bytes() {
  double pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*s %lf", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void idle_streams(benchmark::State& state) {
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> open;
  const auto server = test_server([&](std::shared_ptr<Exchange> exchange) {
    exchange->begin(200, {{"Content-Type", "text/event-stream"}});
    exchange->keep_alive(": here\n\n", std::chrono::seconds(15));
    const std::lock_guard lock(mutex);
    open.push_back(std::move(exchange));
  });
  const auto count = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    const double before = resident_bytes();
    std::vector<TestClient> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.emplace_back(server->port());
      clients.back().send(kGet);
      clients.back().read_until("\r\n\r\n");
    }
    state.counters["bytes_each"] = (resident_bytes() - before) / static_cast<double>(count);
    clients.clear();
    eventually([&] { return server->counts().connections == 0; });
    const std::lock_guard lock(mutex);
    open.clear();
  }
}
BENCHMARK(idle_streams)->Arg(1000)->Arg(9000)->Iterations(1)->UseRealTime();

}  // namespace
}  // namespace baton::http
