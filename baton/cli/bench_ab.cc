// `baton bench --ab A B`: runs of two configurations in turns, each run a process of its own. In one process a
// configuration would keep the memory pages it happened to get, and that luck would look like a difference.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "baton/base/random.h"
#include "baton/bench/ab.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/child.h"
#include "baton/cli/child_memory.h"

namespace baton::cli {
namespace {

constexpr std::string_view kPeer = "cmd:";
// Where neither the flags nor A or B say what to run.
const std::vector<std::string> kDefaultTests = {"-p", "128", "-n", "32", "-r", "3"};

bool names_option(const std::vector<std::string>& words, const CLI::Option& option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    const size_t dashes = name.find_first_not_of('-');
    if (dashes == 0 || dashes == std::string::npos) return false;
    const std::string bare = name.substr(dashes);
    return option.check_lname(bare) || option.check_sname(dashes == 1 ? bare.substr(0, 1) : bare);
  });
}

// The command line of one side. The flags of the whole go to it but for those it sets itself.
Result<std::vector<std::string>> command_of(const std::string& side, const BenchFlags& flags) {
  if (side.starts_with(kPeer)) {
    BATON_TRY(auto words, split_words(std::string_view(side).substr(kPeer.size())));
    if (words.empty()) return fail(Code::kInvalidInput, "--ab: cmd: without a command");
    const bool output = std::any_of(words.begin(), words.end(), [](const std::string& word) {
      return word == "-o" || word == "--output" || word.starts_with("--output=");
    });
    if (!output) words.insert(words.end(), {"-o", "json"});
    return words;
  }
  BATON_TRY(const auto own, split_words(side));
  std::vector<std::string> words = {program_file().string(), "bench", "-o", "json", "--no-limits", "--no-check"};
  for (const char* name : {"--output", "--ab", "--pipelines", "--load"}) {
    if (names_option(own, *flags.app->get_option(name)))
      return fail(Code::kInvalidInput, fmt::format("--ab: {} cannot be part of a side", name));
  }
  bool tests = false;
  for (const char* name : {"--n-prompt", "--n-gen", "--pg"})
    tests = tests || flags.given(name) || names_option(own, *flags.app->get_option(name));
  if (!tests) {
    for (size_t i = 0; i < kDefaultTests.size(); i += 2) {
      const bool repetitions = kDefaultTests[i] == "-r";
      if (repetitions && (flags.given("-r") || names_option(own, *flags.app->get_option("-r")))) continue;
      words.insert(words.end(), {kDefaultTests[i], kDefaultTests[i + 1]});
    }
  }
  if (!flags.model.empty() && !names_option(own, *flags.app->get_option("--model")))
    words.insert(words.end(), {"--model", flags.model});
  for (const char* name : {"--unit", "--prefill-unit", "--decode-unit", "--kv", "--lora", "--n-prompt", "--n-gen",
                           "--pg", "--n-depth", "--sequences", "--repetitions", "--threads"}) {
    const CLI::Option& option = *flags.app->get_option(name);
    if (option.count() == 0 || names_option(own, option)) continue;
    for (const std::string& value : option.results()) words.insert(words.end(), {name, value});
  }
  if (flags.given("--no-warmup")) words.push_back("--no-warmup");
  words.insert(words.end(), own.begin(), own.end());
  return words;
}

struct Side {
  std::string name, text;
  std::vector<std::string> command;
};

struct Test {
  SpeedRow row;
  bool emulated[2] = {};
  std::vector<AbRound> rounds;
  std::vector<double> a, b;
};

struct Judged {
  AbVerdict verdict;
  Summary a, b;
  std::string words;
  bool comparable = true;
};

const char* quality_of(bool emulated) { return emulated ? "emulated" : "measured"; }

class AbRun {
 public:
  AbRun(const BenchFlags& flags, uint64_t seed) : flags_(flags), seed_(seed) {}

  Status prepare() {
    for (size_t i = 0; i < 2; ++i) {
      sides_[i] = {i == 0 ? "A" : "B", flags_.ab[i], {}};
      BATON_TRY(sides_[i].command, command_of(flags_.ab[i], flags_));
    }
    return {};
  }

  // A run of each that does not count: it finds the tests both have, and fills the page cache.
  Status find_tests() {
    std::vector<SpeedRow> rows[2];
    for (size_t i = 0; i < 2; ++i) {
      progress(fmt::format("first run of {}", sides_[i].name));
      BATON_TRY(rows[i], run(sides_[i]));
    }
    const auto in = [](const std::vector<SpeedRow>& all, const SpeedRow& one) {
      return std::find_if(all.begin(), all.end(), [&](const SpeedRow& row) { return row.same_test(one); });
    };
    for (const SpeedRow& row : rows[0]) {
      const auto other = in(rows[1], row);
      if (other == rows[1].end()) {
        notes_.push_back(fmt::format("only A ran {}", row.name()));
        continue;
      }
      tests_.push_back({row, {row.emulated, other->emulated}, {}, {}, {}});
      if (!ab_comparable(row.emulated, other->emulated)) {
        notes_.push_back(
            fmt::format("{}: no verdict: {} is emulated and {} measured. An emulated time is the emulator's, "
                        "not the device's",
                        row.name(), row.emulated ? "A" : "B", row.emulated ? "B" : "A"));
      }
    }
    for (const SpeedRow& row : rows[1]) {
      if (in(rows[0], row) == rows[0].end()) notes_.push_back(fmt::format("only B ran {}", row.name()));
    }
    if (tests_.empty()) return fail(Code::kInvalidInput, "--ab: A and B have no test in common");
    progress("");
    for (const std::string& note : notes_) fmt::print(stderr, "baton: {}\n", note);
    const auto count = static_cast<uint32_t>(tests_.size());
    if (const uint32_t needed = ab_rounds_needed(flags_.confidence / 100, count); flags_.rounds < needed) {
      return fail(Code::kInvalidInput,
                  fmt::format("--rounds {}: {} test{} at {:g} % need{} {}", flags_.rounds, count, count == 1 ? "" : "s",
                              flags_.confidence, count == 1 ? "s" : "", needed));
    }
    return {};
  }

  Status measure() {
    Random coin(seed_);
    for (uint32_t round = 0; round < flags_.rounds; ++round) {
      const bool a_outside = (coin.next() >> 63) != 0;
      for (Test& test : tests_) test.rounds.push_back({a_outside, {}, {}});
      int done[2] = {};
      for (int place = 0; place < 4; ++place) {
        const bool is_a = (place == 0 || place == 3) == a_outside;
        const size_t side = is_a ? 0 : 1;
        progress(fmt::format("round {}/{}, {}", round + 1, flags_.rounds, sides_[side].name));
        std::this_thread::sleep_for(std::chrono::duration<double>(flags_.rest));
        BATON_TRY(const auto rows, run(sides_[side]));
        for (Test& test : tests_) {
          const auto found =
              std::find_if(rows.begin(), rows.end(), [&](const SpeedRow& row) { return row.same_test(test.row); });
          if (found == rows.end())
            return fail(Code::kDevice, fmt::format("{} left out {} this time", sides_[side].name, test.row.name()));
          AbRound& last = test.rounds.back();
          (is_a ? last.a : last.b)[done[side]] = found->tokens_per_second;
          (is_a ? test.a : test.b).push_back(found->tokens_per_second);
        }
        ++done[side];
      }
    }
    progress("");
    return {};
  }

  Status show() {
    OrderedJson json;
    json["a"] = {{"given", sides_[0].text}, {"command", sides_[0].command}};
    json["b"] = {{"given", sides_[1].text}, {"command", sides_[1].command}};
    json["rounds"] = flags_.rounds;
    json["confidence"] = flags_.confidence / 100;
    json["seed"] = seed_;
    json["notes"] = notes_;
    json["tests"] = OrderedJson::array();
    const bool csv = flags_.output == "csv";
    std::string table = csv ? "test,a_ts,b_ts,ratio,low,high,verdict,a_quality,b_quality\n"
                            : "| test | A t/s | B t/s | A / B | interval | verdict |\n|---|--:|--:|--:|---|---|\n";
    for (const Test& test : tests_) {
      BATON_TRY(const Judged judged, judge(test));
      table += csv ? csv_row(test, judged) : md_row(test, judged);
      json["tests"].push_back(test_json(test, judged));
    }
    if (flags_.output == "json" || flags_.output == "jsonl") {
      print_json(json);
      return {};
    }
    if (flags_.output == "md") {
      table +=
          fmt::format("\nA: {}\nB: {}\n{} rounds of four runs, interval at {:g} % for all tests together, seed {}\n",
                      sides_[0].text, sides_[1].text, flags_.rounds, flags_.confidence, seed_);
    }
    print(table);
    return {};
  }

 private:
  Result<std::vector<SpeedRow>> run(const Side& side) {
    auto ran = run_child(side.command);
    if (!ran) return fail(std::move(ran).error().in(side.name));
    return parse_speed_rows(ran->output, side.name);
  }

  Result<Judged> judge(const Test& test) const {
    Judged judged;
    BATON_TRY(judged.verdict,
              ab_verdict(test.rounds, flags_.confidence / 100, static_cast<uint32_t>(tests_.size()), seed_));
    judged.a = summarize(test.a);
    judged.b = summarize(test.b);
    judged.words = ab_words(judged.verdict, test.emulated[0], test.emulated[1]);
    judged.comparable = ab_comparable(test.emulated[0], test.emulated[1]);
    return judged;
  }

  static std::string md_row(const Test& test, const Judged& judged) {
    const auto speed = [](const Summary& summary, bool emulated) {
      return fmt::format("{:.2f}{}", summary.median, emulated ? " emulated" : "");
    };
    const RatioInterval& interval = judged.verdict.interval;
    const std::string ratio =
        judged.comparable ? fmt::format("{:.4f} | {:.4f} to {:.4f}", interval.ratio, interval.low, interval.high)
                          : "- | -";
    return fmt::format("| {} | {} | {} | {} | {} |\n", test.row.name(), speed(judged.a, test.emulated[0]),
                       speed(judged.b, test.emulated[1]), ratio, judged.words);
  }

  static std::string csv_row(const Test& test, const Judged& judged) {
    const RatioInterval& interval = judged.verdict.interval;
    const std::string ratio =
        judged.comparable ? fmt::format("{:.4f},{:.4f},{:.4f}", interval.ratio, interval.low, interval.high) : ",,";
    return fmt::format("{},{:.3f},{:.3f},{},{},{},{}\n", test.row.name(), judged.a.median, judged.b.median, ratio,
                       judged.words, quality_of(test.emulated[0]), quality_of(test.emulated[1]));
  }

  static OrderedJson interval_json(const RatioInterval& interval) {
    return {{"ratio", interval.ratio}, {"low", interval.low}, {"high", interval.high}};
  }
  static OrderedJson test_json(const Test& test, const Judged& judged) {
    const auto when_comparable = [&](OrderedJson value) { return judged.comparable ? value : OrderedJson(nullptr); };
    const AbVerdict& verdict = judged.verdict;
    OrderedJson rounds = OrderedJson::array();
    for (const AbRound& round : test.rounds) {
      rounds.push_back({{"order", round.a_outside ? "ABBA" : "BAAB"},
                        {"a_ts", {round.a[0], round.a[1]}},
                        {"b_ts", {round.b[0], round.b[1]}}});
    }
    return {{"test", test.row.name()},
            {"a_ts", judged.a.median},
            {"b_ts", judged.b.median},
            {"a_quality", quality_of(test.emulated[0])},
            {"b_quality", quality_of(test.emulated[1])},
            {"ratio", when_comparable(verdict.interval.ratio)},
            {"low", when_comparable(verdict.interval.low)},
            {"high", when_comparable(verdict.interval.high)},
            {"exact", when_comparable(interval_json(verdict.exact))},
            {"bootstrap", when_comparable(interval_json(verdict.bootstrap))},
            {"differs", when_comparable(verdict.differs())},
            {"verdict", judged.words},
            {"rounds", rounds}};
  }

  const BenchFlags& flags_;
  const uint64_t seed_;
  Side sides_[2];
  std::vector<Test> tests_;
  std::vector<std::string> notes_;
};

}  // namespace

int bench_ab(const BenchFlags& flags) {
  const auto seed =
      flags.seed >= 0 ? static_cast<uint64_t>(flags.seed)
                      : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffff);
  AbRun comparison(flags, seed);
  const auto ended = [](const Error& error) {
    progress("");
    return error.code == Code::kInvalidInput ? (report(error), kUsage) : report(error);
  };
  if (const auto status = comparison.prepare(); !status) return ended(status.error());
  if (const auto status = comparison.find_tests(); !status) return ended(status.error());
  if (const auto status = comparison.measure(); !status) return ended(status.error());
  if (const auto status = comparison.show(); !status) return ended(status.error());
  return kOk;
}

}  // namespace baton::cli
