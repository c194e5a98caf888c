// Rank statistics of rounds, and what peers print.
#include "baton/bench/ab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "baton/bench/runner.h"
#include "baton/model/container.h"

namespace baton {
namespace {

// How many of the smallest and of the largest pair means lie outside the interval: the largest k with
// 2 P(rank sum <= k - 1) <= alpha; 0: none does.
size_t outside_count(size_t n, double alpha) {
  // P(rank sum = s), one value after another: its rank is in the sum with probability 1/2.
  std::vector<double> probability(n * (n + 1) / 2 + 1, 0.0);
  probability[0] = 1;
  size_t largest = 0;
  for (size_t rank = 1; rank <= n; ++rank) {
    largest += rank;
    for (size_t s = largest + 1; s-- > 0;) {
      probability[s] = 0.5 * (probability[s] + (s >= rank ? probability[s - rank] : 0.0));
    }
  }
  size_t k = 0;
  double below = 0;
  while (k < probability.size() / 2) {
    below += probability[k];
    if (2 * below > alpha * (1 + 1e-12)) break;
    ++k;
  }
  return k;
}

double per_test_alpha(double confidence, uint32_t tests) { return (1 - confidence) / std::max(tests, 1u); }

Result<uint32_t> count_in(const Json& row, const char* name, std::string_view source, bool needed) {
  const auto found = row.find(name);
  if (found == row.end() && !needed) return 0u;
  if (found == row.end() || !found->is_number_integer() || found->get<int64_t>() < 0 ||
      found->get<int64_t>() > (1 << 30)) {
    return fail(Code::kInvalidInput, fmt::format("{}: a row without '{}'", source, name));
  }
  return found->get<uint32_t>();
}

Result<SpeedRow> parse_row(const Json& row, std::string_view source) {
  SpeedRow speed;
  BATON_TRY(speed.prefill_tokens, count_in(row, "n_prompt", source, true));
  BATON_TRY(speed.decode_tokens, count_in(row, "n_gen", source, true));
  BATON_TRY(speed.depth, count_in(row, "n_depth", source, false));
  BATON_TRY(const uint32_t sequences, count_in(row, "n_sequences", source, false));
  speed.sequences = std::max(sequences, 1u);
  std::vector<double> samples;
  if (const auto found = row.find("samples_ts"); found != row.end() && found->is_array()) {
    for (const Json& sample : *found) {
      if (sample.is_number()) samples.push_back(sample.get<double>());
    }
  }
  if (const auto mean = row.find("avg_ts"); samples.empty() && mean != row.end() && mean->is_number())
    samples.push_back(mean->get<double>());
  if (samples.empty()) return fail(Code::kInvalidInput, fmt::format("{}: a row without speeds", source));
  speed.tokens_per_second = summarize(samples).median;
  if (!(speed.tokens_per_second > 0) || !std::isfinite(speed.tokens_per_second))
    return fail(Code::kInvalidInput, fmt::format("{}: {} has no speed above 0", source, speed.name()));
  if (const auto quality = row.find("quality"); quality != row.end() && quality->is_string())
    speed.emulated = quality->get<std::string>() == "emulated";
  return speed;
}

}  // namespace

std::optional<CentreInterval> signed_rank_interval(std::span<const double> values, double alpha) {
  std::vector<double> means;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i; j < values.size(); ++j) means.push_back((values[i] + values[j]) / 2);
  }
  const size_t outside = outside_count(values.size(), alpha);
  if (outside == 0) return std::nullopt;
  std::sort(means.begin(), means.end());
  return CentreInterval{quantile(means, 0.5), means[outside - 1], means[means.size() - outside]};
}

uint32_t ab_rounds_needed(double confidence, uint32_t tests) {
  uint32_t rounds = kAbRoundsMin;
  while (rounds < kAbRoundsMax && outside_count(rounds, per_test_alpha(confidence, tests)) == 0) ++rounds;
  return rounds;
}

Result<AbVerdict> ab_verdict(std::span<const AbRound> rounds, double confidence, uint32_t tests, uint64_t seed) {
  std::vector<double> logs, ratios, ones;
  for (const AbRound& round : rounds) {
    logs.push_back((std::log(round.a[0]) + std::log(round.a[1]) - std::log(round.b[0]) - std::log(round.b[1])) / 2);
    ratios.push_back(std::exp(logs.back()));
    ones.push_back(1);
  }
  const double alpha = per_test_alpha(confidence, tests);
  const auto exact = signed_rank_interval(logs, alpha);
  if (rounds.size() < kAbRoundsMin || !exact) {
    return fail(Code::kInvalidInput,
                fmt::format("{} rounds cannot show a difference in {} tests at {:g} %: at least {}", rounds.size(),
                            tests, 100 * confidence, ab_rounds_needed(confidence, tests)));
  }
  AbVerdict verdict;
  verdict.exact = {std::exp(exact->centre), std::exp(exact->low), std::exp(exact->high)};
  verdict.bootstrap = paired_ratio(ratios, ones, 1 - alpha, seed);
  verdict.interval = {verdict.exact.ratio, std::min(verdict.exact.low, verdict.bootstrap.low),
                      std::max(verdict.exact.high, verdict.bootstrap.high)};
  return verdict;
}

bool ab_comparable(bool a_emulated, bool b_emulated) { return a_emulated == b_emulated; }

std::string ab_words(const AbVerdict& verdict, bool a_emulated, bool b_emulated) {
  if (!ab_comparable(a_emulated, b_emulated))
    return fmt::format("none: {} is emulated and {} measured", a_emulated ? "A" : "B", a_emulated ? "B" : "A");
  const char* const words = !verdict.differs()         ? "no difference shown"
                            : verdict.interval.low > 1 ? "A is faster"
                                                       : "B is faster";
  return fmt::format("{}{}", words, a_emulated ? " (emulated)" : "");
}

std::string SpeedRow::name() const { return SpeedTest{prefill_tokens, decode_tokens, depth, sequences}.name(); }

bool SpeedRow::same_test(const SpeedRow& other) const {
  return prefill_tokens == other.prefill_tokens && decode_tokens == other.decode_tokens && depth == other.depth &&
         sequences == other.sequences;
}

Result<std::vector<SpeedRow>> parse_speed_rows(std::string_view text, std::string_view source) {
  std::vector<SpeedRow> rows;
  const auto add = [&](const Json& row) -> Status {
    BATON_TRY(SpeedRow speed, parse_row(row, source));
    rows.push_back(speed);
    return {};
  };
  // A list starts a line; what comes before it are logs.
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text[at] == '[') {
      const size_t last = text.rfind(']');
      if (last != std::string_view::npos && last > at) {
        const Json list = Json::parse(text.substr(at, last - at + 1), nullptr, false);
        if (list.is_array() && !list.empty() && list[0].is_object()) {
          for (const Json& row : list) BATON_OK(add(row));
          return rows;
        }
      }
    } else if (text[at] == '{') {
      const Json row = Json::parse(text.substr(at, end - at), nullptr, false);
      if (row.is_object()) BATON_OK(add(row));
    }
    at = end + 1;
  }
  if (rows.empty()) return fail(Code::kInvalidInput, fmt::format("{}: printed no JSON rows of llama-bench", source));
  return rows;
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return fail(Code::kInvalidInput, fmt::format("'{}': a quote has no end", text));
  if (in_word) words.push_back(std::move(word));
  return words;
}

}  // namespace baton
