// `baton bench -m MODEL`: tests in the columns of llama-bench, and to the right of them who did it, the shares of this
// machine's limits, joules, and whether the tokens were right.
#include <fmt/format.h>

#include <charconv>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "baton/bench/probes.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/speed_table.h"

namespace baton::cli {
namespace {

// kInvalidInput for a --pg that is not two counts.
Result<std::vector<SpeedTest>> tests_of(const BenchFlags& flags) {
  std::vector<SpeedTest> kinds;
  for (const uint32_t tokens : flags.prefill) kinds.push_back({.prefill_tokens = tokens});
  for (const uint32_t tokens : flags.decode) kinds.push_back({.decode_tokens = tokens});
  for (const std::string& both : flags.both) {
    SpeedTest test;
    const char* const end = both.data() + both.size();
    auto [at, error] = std::from_chars(both.data(), end, test.prefill_tokens);
    if (error == std::errc() && at != end && *at == ',')
      std::tie(at, error) = [&, from = at + 1] {
        const auto second = std::from_chars(from, end, test.decode_tokens);
        return std::pair(second.ptr, second.ec);
      }();
    if (error != std::errc() || at != end || test.prefill_tokens == 0 || test.decode_tokens == 0)
      return fail(Code::kInvalidInput, fmt::format("--pg {}: two counts above 0, as in 512,128", both));
    kinds.push_back(test);
  }
  std::vector<SpeedTest> tests;
  for (const uint32_t depth : flags.depth) {
    for (const uint32_t sequences : flags.sequences) {
      for (SpeedTest test : kinds) {
        test.depth = depth;
        test.sequences = sequences;
        if (test.tokens() > 0) tests.push_back(test);
      }
    }
  }
  return tests;
}

int run_tests(const BenchFlags& flags, const std::vector<SpeedTest>& tests, SpeedTable& table) {
  SpeedRunner bench(flags);
  if (const auto code = bench.open()) return *code;
  if (const Status can = bench.check(tests); !can) return report(can.error()), kUsage;
  if (const auto busy = busy_machine()) fmt::print(stderr, "baton: warning: {}\n", *busy);
  for (const SpeedTest& test : tests) {
    auto row = bench.run(test);
    if (!row) {
      progress("");
      return report(row.error());
    }
    if (!row->check.why.empty() && !flags.no_check)
      fmt::print(stderr, "baton: {}: tokens unchecked: {}\n", test.name(), row->check.why);
    for (const ClockFall& fall : row->clocks) fmt::print(stderr, "baton: warning: {}: {}\n", test.name(), fall.text());
    table.add(*row, bench);
  }
  for (const std::string& text : bench.limit_texts()) fmt::print(stderr, "baton: limit: {}\n", text);
  if (const std::string warning = bench.warnings(); !warning.empty())
    fmt::print(stderr, "baton: warning: {}\n", warning);
  return kOk;
}

}  // namespace

int bench_speed(const BenchFlags& given) {
  BenchFlags flags = given;
  if (flags.model.empty()) {
    const auto bundled = bundled_model();
    if (!bundled) return report(bundled.error());
    flags.model = bundled->string();
  }
  const auto tests = tests_of(flags);
  if (!tests) return report(tests.error()), kUsage;
  if (tests->empty() && !flags.load) {
    fmt::print(stderr, "baton: no test: -p 0 and -n 0 leave nothing\n");
    return kUsage;
  }
  SpeedTable table(flags);
  if (flags.load) {  // first: while this process is small
    const auto load = measure_load(flags);
    if (!load) return report(load.error());
    table.add(*load);
  }
  if (!tests->empty()) {
    if (const int code = run_tests(flags, *tests, table); code != kOk) return code;
  }
  table.finish();
  return kOk;
}

}  // namespace baton::cli
