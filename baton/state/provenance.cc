// Bookkeeping of makers and steps, in a bounded list of one form.
#include "baton/state/provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace baton {
namespace {

constexpr uint64_t kCallsMax = std::numeric_limits<uint32_t>::max();

bool continues(const StateStep& last, const StateStep& next) {
  return last.maker == next.maker && last.kind == next.kind && last.shared == next.shared &&
         (last.kind == StepKind::kMixed || last.tokens == next.tokens);
}

// kMixed grows in tokens, the others in calls. Nothing overflows: contexts are counted in i32.
void extend(StateStep& last, const StateStep& next) {
  if (last.kind == StepKind::kMixed) {
    last.tokens += next.tokens;
  } else {
    last.count += next.count;
  }
}

void mix(Provenance& provenance) {
  std::vector<StateStep> mixed;
  for (uint32_t maker = 0; maker < provenance.makers.size(); ++maker) {
    const uint64_t tokens = provenance.tokens_of(maker);
    if (tokens > 0) mixed.push_back({maker, StepKind::kMixed, false, static_cast<uint32_t>(tokens), 1});
  }
  provenance.steps = std::move(mixed);
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

tl::unexpected<Error> bad_provenance(std::string what) {
  return fail(Code::kCorrupt, "provenance: " + std::move(what));
}

Status check_makers(const std::vector<StateMaker>& makers) {
  if (makers.size() > kMakersMax)
    return bad_provenance(fmt::format("{} makers, there are at most {}", makers.size(), kMakersMax));
  for (size_t i = 0; i < makers.size(); ++i) {
    const StateMaker& maker = makers[i];
    const bool named = !maker.unit.empty() && maker.arithmetic.empty() == (maker.unit == kMakerUnknown);
    if (!named || maker.unit.size() > kMakerUnitMax || maker.arithmetic.size() > kMakerArithmeticMax ||
        !printable(maker.unit) || !printable(maker.arithmetic)) {
      return bad_provenance(
          fmt::format("maker {}: a name of 1 to {} printable characters and an arithmetic of at most {}", i,
                      kMakerUnitMax, kMakerArithmeticMax));
    }
    if (std::find(makers.begin(), makers.begin() + static_cast<ptrdiff_t>(i), maker) !=
        makers.begin() + static_cast<ptrdiff_t>(i))
      return bad_provenance(fmt::format("maker {} is there twice", i));
  }
  return {};
}

bool sound(const StateStep& step) {
  const bool kind = step.kind == StepKind::kPrefill || (step.kind == StepKind::kDecode && step.tokens == 1) ||
                    (step.kind == StepKind::kMixed && step.count == 1);
  return kind && (step.kind == StepKind::kPrefill || !step.shared) && step.tokens > 0 && step.count > 0;
}

}  // namespace

bool is_emulated(std::string_view arithmetic) {
  const size_t slash = arithmetic.find('/');
  return slash != std::string_view::npos && arithmetic.substr(slash + 1).starts_with("emulated");
}

std::string with_emulated(std::string_view unit, std::string_view arithmetic) {
  return fmt::format("{}{}", unit, is_emulated(arithmetic) ? " (emulated)" : "");
}

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kPrefill:
      return "prefill";
    case StepKind::kDecode:
      return "decode";
    case StepKind::kMixed:
      break;
  }
  return "mixed";
}

void Provenance::add(const StateMaker& maker, StepKind kind, uint64_t tokens, uint64_t count, bool shared) {
  if (tokens == 0 || count == 0) return;
  BATON_CHECK(tokens <= kCallsMax && count <= kCallsMax);
  const auto known = std::find(makers.begin(), makers.end(), maker);
  StateStep step{static_cast<uint32_t>(known - makers.begin()), kind, shared && kind == StepKind::kPrefill,
                 static_cast<uint32_t>(tokens), static_cast<uint32_t>(count)};
  if (known == makers.end()) {
    // The last place is for all that are too many.
    const StateMaker unknown{std::string(kMakerUnknown), ""};
    if (makers.size() + 1 >= kMakersMax && maker != unknown) return add(unknown, kind, tokens, count, shared);
    makers.push_back(maker);
  }
  if (!steps.empty() && continues(steps.back(), step)) return extend(steps.back(), step);
  if (steps.size() >= kStepsMax) mix(*this);
  if (!steps.empty() && continues(steps.back(), step)) return extend(steps.back(), step);
  steps.push_back(step);
}

Provenance Provenance::rounded() const {
  Provenance all;
  for (const StateStep& step : steps) {
    StateMaker maker = makers[step.maker];
    if (maker.unit != kMakerUnknown && !maker.arithmetic.ends_with(kRoundedAtRest)) {
      const bool fits = maker.arithmetic.size() + kRoundedAtRest.size() <= kMakerArithmeticMax;
      maker = fits ? StateMaker{maker.unit, maker.arithmetic + std::string(kRoundedAtRest)}
                   : StateMaker{std::string(kMakerUnknown), ""};
    }
    all.add(maker, step.kind, step.tokens, step.count, step.shared);
  }
  return all;
}

bool Provenance::is_rounded() const {
  return std::any_of(makers.begin(), makers.end(),
                     [](const StateMaker& maker) { return maker.arithmetic.ends_with(kRoundedAtRest); });
}

bool Provenance::replayable() const {
  const auto known = [](const StateMaker& maker) {
    return maker.unit != kMakerUnknown && maker.unit != kMakerForeign && !maker.arithmetic.ends_with(kRoundedAtRest);
  };
  return std::all_of(makers.begin(), makers.end(), known) &&
         std::all_of(steps.begin(), steps.end(), [](const StateStep& step) { return step.kind != StepKind::kMixed; });
}

uint64_t Provenance::tokens() const {
  uint64_t sum = 0;
  for (const StateStep& step : steps) sum += uint64_t{step.tokens} * step.count;
  return sum;
}

uint64_t Provenance::tokens_of(size_t maker) const {
  uint64_t sum = 0;
  for (const StateStep& step : steps) sum += step.maker == maker ? uint64_t{step.tokens} * step.count : 0;
  return sum;
}

Provenance Provenance::of(std::string_view unit, std::string_view arithmetic, uint64_t tokens) {
  Provenance provenance;
  provenance.add({std::string(unit), std::string(arithmetic)}, StepKind::kMixed, tokens);
  return provenance;
}

Status check_provenance(const Provenance& provenance, uint64_t tokens) {
  BATON_OK(check_makers(provenance.makers));
  if (provenance.steps.size() > kStepsMax)
    return bad_provenance(fmt::format("{} steps, there are at most {}", provenance.steps.size(), kStepsMax));
  size_t makers_seen = 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < provenance.steps.size(); ++i) {
    const StateStep& step = provenance.steps[i];
    const std::string name = fmt::format("step {}", i);
    if (step.maker > makers_seen || step.maker >= provenance.makers.size())
      return bad_provenance(fmt::format("{}: maker {} of {}, of which {} came before", name, step.maker,
                                        provenance.makers.size(), makers_seen));
    makers_seen = std::max<size_t>(makers_seen, step.maker + 1);
    if (!sound(step))
      return bad_provenance(
          fmt::format("{}: {} x {} tokens of kind {}", name, step.count, step.tokens, static_cast<int>(step.kind)));
    if (i > 0 && continues(provenance.steps[i - 1], step))
      return bad_provenance(fmt::format("{} continues the one before, as one step would", name));
    sum += uint64_t{step.tokens} * step.count;
    if (sum > tokens) break;
  }
  if (makers_seen != provenance.makers.size())
    return bad_provenance(fmt::format("{} makers, {} of them with steps", provenance.makers.size(), makers_seen));
  if (sum != tokens)
    return bad_provenance(fmt::format("the steps make {} tokens or more, the state holds {}", sum, tokens));
  return {};
}

std::vector<std::string> to_lines(const Provenance& provenance) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < provenance.steps.size(); ++i) {
    const StateStep& step = provenance.steps[i];
    if (i == 0 || provenance.steps[i - 1].maker != step.maker) {
      const StateMaker& maker = provenance.makers[step.maker];
      lines.push_back(maker.arithmetic.empty()
                          ? maker.unit + ":"
                          : fmt::format("{} ({}{}):", maker.unit, is_emulated(maker.arithmetic) ? "emulated, " : "",
                                        maker.arithmetic));
    } else {
      lines.back() += ",";
    }
    std::string& line = lines.back();
    if (step.kind == StepKind::kDecode) {
      line += fmt::format(" decode {}", step.count);
    } else {
      line += fmt::format(" {} {}", to_string(step.kind), step.tokens);
      if (step.count > 1) line += fmt::format(" x{}", step.count);
    }
    if (step.shared) line += " (shared)";
  }
  return lines;
}

}  // namespace baton
