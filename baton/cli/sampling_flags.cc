// Flags of draws, and the checks that the parser lacks.
#include "baton/cli/sampling_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "baton/cli/shared_flags.h"
#include "baton/text/detokenizer.h"
#include "baton/text/utf8.h"

namespace baton::cli {
namespace {

// The parser takes a number past its type's end for the end.
std::string check_seed(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= -1) return "";
  return fmt::format("'{}' is not a whole number from -1 to {}", text, INT64_MAX);
}

std::string check_stop(const CLI::Option& option, const std::string& text) {
  if (text.empty()) return "an empty text is in every answer";
  if (!is_utf8(text)) return "not UTF-8, which every answer is";
  if (text.size() > StopStrings::kBytesMax) return fmt::format("longer than {} bytes", StopStrings::kBytesMax);
  const size_t count = option.count();
  return count <= StopStrings::kStringsMax ? "" : fmt::format("{} times: at most {}", count, StopStrings::kStringsMax);
}

}  // namespace

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("-n,--predict,--n-predict", predict,
                 "tokens to generate at most; -1: until the end of the answer or the context")
      ->capture_default_str()
      ->check(CLI::Range(-1, 1 << 30));
  app.add_option("--temp", temperature, "temperature; 0: greedy")->capture_default_str()->check(real_range(0.0, 100.0));
  app.add_option("--top-k", top_k, "keep the k likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--top-p", top_p, "keep the likeliest tokens up to this sum; 1: all")
      ->capture_default_str()
      ->check(real_range(0.0001, 1.0));
  app.add_option("--min-p", min_p, "keep tokens at least this likely, relative to the likeliest; 0: all")
      ->capture_default_str()
      ->check(real_range(0.0, 1.0));
  app.add_option("--repeat-penalty", repeat_penalty, "logits of tokens drawn lately are divided by this; 1: off")
      ->capture_default_str()
      ->check(real_range(0.01, 100.0));
  app.add_option("--repeat-last-n", repeat_last_n,
                 "tokens of the answer that the penalties look at; 0: none, -1: all (the prompt does not count)")
      ->capture_default_str()
      ->check(CLI::Range(-1, 1 << 20));
  app.add_option("--presence-penalty", presence_penalty, "taken off the logits of tokens drawn lately; 0: off")
      ->capture_default_str()
      ->check(real_range(-100.0, 100.0));
  app.add_option("--frequency-penalty", frequency_penalty, "the same, for each time a token was drawn; 0: off")
      ->capture_default_str()
      ->check(real_range(-100.0, 100.0));
  app.add_option("-s,--seed", seed, "seed of the draws; -1: a new one each time")
      ->capture_default_str()
      ->check(CLI::Validator(check_seed, "", "seed"));
  app.add_flag("--ignore-eos", ignore_eos, "stop tokens do not stop the answer: they are tokens like others");
  CLI::Option* stop = app.add_option(
      "--stop", stops, fmt::format("text that ends the answer (repeatable; {} at most)", StopStrings::kStringsMax));
  stop->allow_extra_args(false)->check(
      CLI::Validator([stop](const std::string& text) { return check_stop(*stop, text); }, "", "stop"));
}

uint64_t SamplingFlags::settled_seed() {
  if (seed < 0) seed = std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffff;
  return static_cast<uint64_t>(seed);
}

void SamplingFlags::apply(Request& request) const {
  request.max_new_tokens = predict < 0 ? 1u << 30 : static_cast<uint32_t>(predict);
  request.ignore_eos = ignore_eos;
  request.sampler.temperature = temperature;
  request.sampler.top_k = top_k;
  request.sampler.top_p = top_p;
  request.sampler.min_p = min_p;
  request.sampler.repeat_penalty = repeat_penalty;
  request.sampler.presence_penalty = presence_penalty;
  request.sampler.frequency_penalty = frequency_penalty;
  request.sampler.repeat_last_n = repeat_last_n;
  request.sampler.seed = static_cast<uint64_t>(seed);
}

OrderedJson SamplingFlags::json() const {
  // Through text: 0.8 is not to be 0.800000011920929.
  const auto number = [](float value) { return OrderedJson::parse(fmt::format("{}", value)); };
  return {{"temp", number(temperature)},
          {"top_k", top_k},
          {"top_p", number(top_p)},
          {"min_p", number(min_p)},
          {"repeat_penalty", number(repeat_penalty)},
          {"repeat_last_n", repeat_last_n},
          {"presence_penalty", number(presence_penalty)},
          {"frequency_penalty", number(frequency_penalty)},
          {"seed", seed}};
}

}  // namespace baton::cli
