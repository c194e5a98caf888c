// Units, model and meter of a bench, and one row after the other.
#include "baton/cli/speed_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/api/calibration.h"
#include "baton/api/text_model.h"
#include "baton/bench/probes.h"
#include "baton/cli/child_memory.h"
#include "baton/cli/progress.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"
#include "baton/unit/host/kernel_sets.h"

namespace baton::cli {
namespace {

// A check may take about this long, at the rate of the reference on a modest core.
constexpr double kCheckSecondsMax = 5, kReferenceOperations = 10e9;
constexpr double kBoundsSecondsMax = 30;  // of measuring the check's bounds, once for a model

std::string lower_word(const Placement& placement) {
  if (placement.ran.empty()) return "-";
  return fmt::format("{}: {}", placement.ran, placement.arithmetic);
}

}  // namespace

std::optional<int> SpeedRunner::open() {
  std::vector<UnitChoice> choices;
  for (const std::string& text : {flags_.prefill_on(), flags_.decode_on()}) {
    auto choice = parse_unit(text);
    if (!choice) return report_unit(choice.error());
    choices.push_back(*std::move(choice));
  }
  names_ = names_of(choices);
  if (const auto code = create(choices[0], prefill_unit_)) return code;
  if (split()) {
    if (const auto code = create(choices[1], decode_unit_)) return code;
  }
  if (const Status there = hub::check_model(flags_.model); !there) return report(there.error());
  const auto adapters = settle_lora(flags_.lora);
  if (!adapters) return report_usage(adapters.error());
  auto text = load_text_model(flags_.model, 0, ModelUse::kText, *adapters);
  if (!text) return report(text.error());
  model_ = text->model;
  sequences_ = calibration_sequences(*text);
  auto prefill = load(*prefill_unit_);
  if (!prefill) return report(prefill.error());
  prefill_ = *std::move(prefill);
  if (split()) {
    auto decode = load(*decode_unit_);
    if (!decode) return report(decode.error());
    decode_ = *std::move(decode);
  }
  if (!meter_.available()) fmt::print(stderr, "baton: J/tok unknown: {}\n", meter_.reason());
  return std::nullopt;
}

Status SpeedRunner::check(const std::vector<SpeedTest>& tests) {
  for (const SpeedTest& test : tests) BATON_OK(check_test(units(), test));
  return {};
}

Result<SpeedRow> SpeedRunner::run(SpeedTest test) {
  test.text = sequences_[0];  // what the check's bounds were measured over
  SpeedRow row;
  row.test = test;
  const SpeedUnits units = this->units();
  SpeedOptions options;
  options.warm_up = false;
  options.settle = !flags_.no_warmup;
  options.repetitions = 1;
  SpeedResult first;
  if (!flags_.no_warmup) {
    BATON_TRY(first, measure_speed(units, test, options));
    BATON_TRY(row.check, check(test, first));
  }
  options.repetitions = flags_.repetitions;
  options.meter = &meter_;
  options.on_run = [&](uint32_t done) { progress(fmt::format("{} {}/{}", test.name(), done, flags_.repetitions)); };
  const bool watched = on_device(test);
  if (watched) clocks_.start();
  BATON_TRY(row.result, measure_speed(units, test, options));
  if (watched) row.clocks = clocks_.stop();
  progress("");
  row.peak_memory_bytes = peak_memory_bytes();
  if (flags_.no_warmup) {
    BATON_TRY(row.check, check(test, row.result));
  } else if (row.result.tokens_hash != first.tokens_hash) {
    return fail(Code::kInternal, fmt::format("{}: the timed runs generated other tokens than the first", test.name()));
  }
  row.speed = summarize(row.result.tokens_per_second);
  if (test.prefill_tokens > 0) row.prefill = prefill_->placement();
  if (test.decode_tokens > 0) row.decode = decode().placement();
  row.emulated = row.prefill.emulated || row.decode.emulated;
  if (row.emulated) {  // the host's energy says nothing of the device
    row.result.energy.clear();
    row.result.joules_per_token.reset();
  }
  if (!row.result.joules_per_token) row.energy_reason = row.emulated ? "the unit is emulated" : meter_.reason();
  BATON_OK(add_shares(row));
  return row;
}

bool SpeedRunner::on_device(const SpeedTest& test) const {
  const auto has = [](const Unit& unit) { return unit.caps().device && !unit.caps().emulated; };
  return (test.prefill_tokens > 0 && has(*prefill_unit_)) ||
         (test.decode_tokens > 0 && has(split() ? *decode_unit_ : *prefill_unit_));
}

uint32_t SpeedRunner::threads(const SpeedRow& row) const {
  const uint32_t said = std::max(row.prefill.threads, row.decode.threads);
  return said > 0 ? said : flags_.threads > 0 ? flags_.threads : physical_cores();
}

std::string SpeedRunner::placed() const {
  const std::string prefill = lower_word(prefill_->placement());
  const std::string decode = split() ? lower_word(decode_->placement()) : "the same";
  return fmt::format("prefill on {}; decode on {}", prefill, decode);
}

std::string SpeedRunner::warnings() const {
  std::string text = prefill_->placement().warning;
  if (split() && !decode_->placement().warning.empty())
    text += (text.empty() ? "" : "; ") + decode_->placement().warning;
  return text;
}

Result<std::unique_ptr<Executor>> SpeedRunner::load(Unit& unit) {
  Progress meter(fmt::format("loading weights on {}, MB", unit.name()));
  unit.tell_progress([&](uint64_t done, uint64_t all) { meter.show(done / 1'000'000, all / 1'000'000); });
  auto loaded = unit.load(model_, flags_.threads);
  unit.tell_progress(nullptr);
  return loaded;
}

std::optional<int> SpeedRunner::create(const UnitChoice& choice, std::unique_ptr<Unit>& unit) {
  auto created = choice.create();
  if (!created) return report_unit(created.error());
  unit = *std::move(created);
  return std::nullopt;
}

Result<SpeedCheck> SpeedRunner::check(const SpeedTest& test, const SpeedResult& result) {
  const auto unchecked = [](std::string why) { return SpeedCheck{"unchecked", std::move(why), {}, 0}; };
  if (flags_.no_check) return unchecked("--no-check");
  if (prefill_name() == kSpeedReference && !split()) return unchecked("it is the reference");
  if (decode_caps().decode_seats_max == 0)
    return unchecked("the unit only prefills, and choices are compared by decodes");
  const double tokens = static_cast<double>(test.sequences) *
                        (static_cast<double>(test.depth) + test.prefill_tokens + test.decode_tokens);
  const double seconds = 2 * static_cast<double>(model_->parameter_count()) * tokens / kReferenceOperations;
  if (seconds > kCheckSecondsMax)
    return unchecked(fmt::format("about {:.0f} s of ref, more than {:.0f}", seconds, kCheckSecondsMax));
  progress(fmt::format("{}: checking the tokens", test.name()));
  BATON_TRY(const auto unit, create_unit(kSpeedReference));
  BATON_TRY(const auto reference, unit->load(model_, flags_.threads));
  BATON_OK(measure_lead(*reference));
  if (!lead_max_) return unchecked(why_no_lead_);
  BATON_TRY(const TokenCheck tokens_checked, check_generated(*reference, test, result, *lead_max_));
  return SpeedCheck{"checked", "", tokens_checked, *lead_max_};
}

Status SpeedRunner::measure_lead(Executor& reference) {
  if (lead_max_ || !why_no_lead_.empty()) return {};
  BATON_TRY(const Fingerprints prints, model_->fingerprints());
  auto store = BoundsStore::open(flags_.model, prints, digest_sequences(sequences_));
  const std::string from = split() ? prefill_->arithmetic() + "+" + decode_->arithmetic() : prefill_->arithmetic();
  auto honest = store.find(BoundsStore::kMargins, from, reference.arithmetic());
  if (!honest) {
    double tokens = 0;
    for (const auto& ids : sequences_) tokens += static_cast<double>(std::min(ids.size(), kAnswerTokensMax));
    if (2 * static_cast<double>(model_->parameter_count()) * tokens / kReferenceOperations > kBoundsSecondsMax) {
      why_no_lead_ = fmt::format("bounds not measured, and ref would take more than {:.0f} s", kBoundsSecondsMax);
      return {};
    }
    progress("");
    fmt::print(stderr, "baton: measuring what honest choices differ by, once for this model: it is kept\n");
    BATON_TRY(const MarginBounds margins, measure_margins(*prefill_, decode(), reference, sequences_));
    if (!margins.useful()) {
      why_no_lead_ =
          fmt::format("a logit's lead differs from ref's by up to {:.3g}: times {}, no wrong choice would show",
                      margins.largest, kBoundFactor);
      return {};
    }
    honest.emplace().logits.largest = margins.largest;
    if (const auto kept = store.add(BoundsStore::kMargins, from, reference.arithmetic(), *honest); !kept) {
      fmt::print(stderr, "baton: the measured bounds could not be kept: {}\n", kept.error().message);
    }
  }
  lead_max_ = kBoundFactor * honest->logits.largest;
  return {};
}

Result<LimitShares> SpeedRunner::shares_of(Unit& unit, const Placement& placement, const SpeedTest& test,
                                           double seconds, uint32_t threads) {
  if (placement.emulated) return LimitShares();
  auto shares = device_shares(*model_, test, seconds, unit);
  if (shares) return shares;
  if (shares.error().code != Code::kUnsupported) {
    // Speeds are right all the same.
    limit_texts_.insert(fmt::format("unknown: {}", shares.error().message));
    return LimitShares();
  }
  const host::Kernels* kernels = host::kernels_by_name(placement.kernels);
  if (kernels == nullptr) return LimitShares();
  if (!limits_ || limits_->threads() != threads) limits_ = std::make_unique<Limits>(threads);
  return limit_shares(*model_, test, seconds, *kernels, *limits_);
}

void SpeedRunner::note_limits(const LimitShares& shares) {
  const auto note = [&](const Rate& rate, const char* what) {
    limit_texts_.insert(fmt::format("{} {:.1f} G{}/s ({:.1f} to {:.1f})", rate.what, rate.median * 1e-9, what,
                                    rate.low * 1e-9, rate.high * 1e-9));
  };
  if (shares.bandwidth) note(shares.read, "B");
  for (const Rate& rate : shares.arithmetic) note(rate, "OP");
}

Status SpeedRunner::add_shares(SpeedRow& row) {
  if (flags_.no_limits || row.emulated) return {};
  progress("measuring limits");
  const SpeedTest& test = row.test;
  Unit& decode_unit = split() ? *decode_unit_ : *prefill_unit_;
  if (split() && test.prefill_tokens > 0 && test.decode_tokens > 0) {
    SpeedTest prefill = test, decode = test;
    prefill.decode_tokens = decode.prefill_tokens = 0;
    decode.depth += test.prefill_tokens;
    const auto threads = [&](const Placement& of) { return of.threads > 0 ? of.threads : this->threads(row); };
    BATON_TRY(row.prefill_shares, shares_of(*prefill_unit_, row.prefill, prefill,
                                            summarize(row.result.prefill_seconds).median, threads(row.prefill)));
    BATON_TRY(row.decode_shares, shares_of(decode_unit, row.decode, decode, summarize(row.result.decode_seconds).median,
                                           threads(row.decode)));
    row.shares.bandwidth = row.decode_shares.bandwidth;
    row.shares.read = row.decode_shares.read;
    row.shares.peak = row.prefill_shares.peak;
    row.shares.arithmetic = row.prefill_shares.arithmetic;
    note_limits(row.prefill_shares);
    note_limits(row.decode_shares);
  } else {
    const bool decodes = row.prefill.ran.empty();
    const double seconds = static_cast<double>(test.tokens()) / row.speed.median;
    BATON_TRY(row.shares, shares_of(decodes ? decode_unit : *prefill_unit_, decodes ? row.decode : row.prefill, test,
                                    seconds, threads(row)));
    note_limits(row.shares);
  }
  progress("");
  return {};
}

}  // namespace baton::cli
