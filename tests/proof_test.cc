// The bridge proof against states that are wrong: every pair of units, every section of every golden prompt's state,
// forged in ways that a faulty bridge or a liar would, with right checksums. And against states that are right: golden
// and random prompts, none of which may fail. The bounds are those that a user would get (api/calibration.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "baton/api/calibration.h"
#include "baton/api/units.h"
#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/bench/runner.h"
#include "baton/bridge/bridge.h"
#include "baton/engine/engine.h"
#include "tests/support/golden.h"
#include "tests/support/reseal.h"
#include "tests/support/smoke.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

constexpr size_t kRowsOfAll = 4;  // logits rows that a proof of `all` is given here

using State = std::unique_ptr<SequenceState>;
using Ids = std::vector<int32_t>;

Ids followed(const Ids& ids, int32_t next) {
  Ids all = ids;
  all.push_back(next);
  return all;
}

// A sealed state open to forgery: its sections as f32 in canonical order.
struct Section {
  SlotKind kind;
  DType dtype;
  Dims dims;
  size_t offset, bytes;

  uint64_t count() const { return dims[0] * dims[1] * dims[2]; }
};

std::vector<float> values_of(const std::vector<std::byte>& block, const Section& section) {
  std::vector<float> values(section.count());
  for (size_t i = 0; i < values.size(); ++i) {
    const std::byte* at = block.data() + section.offset + i * value_bytes(section.dtype);
    values[i] = section.dtype == DType::kF32 ? load_as<float>(at) : f16_to_f32(load_as<uint16_t>(at));
  }
  return values;
}

void put_values(std::vector<std::byte>& block, const Section& section, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* at = block.data() + section.offset + i * value_bytes(section.dtype);
    if (section.dtype == DType::kF32) {
      store_as<float>(at, values[i]);
    } else {
      store_as<uint16_t>(at, f32_to_f16(values[i]));
    }
  }
  reseal(block);
}

// What a forgery is made from, beside the section's own values: those of another prompt of the same length, and those
// of the same prompt one token earlier (empty for keys and values, which are not kept as of then).
struct Material {
  const Section& section;
  const std::vector<float>& own;
  const std::vector<float>& other_prompt;
  const std::vector<float>& one_token_old;
};

// Empty: this forgery does not apply to the section.
using Forge = std::function<std::vector<float>(const Material&)>;

std::vector<float> scaled(const Material& from, float factor) {
  std::vector<float> values = from.own;
  for (float& value : values) value *= factor;
  return values;
}

std::vector<float> noisy(const Material& from, float share) {
  std::vector<float> values = from.own;
  Random random(31);
  for (float& value : values) value *= 1 + share * random.normal();
  return values;
}

std::vector<float> heads_swapped(const Material& from) {
  if (from.section.dims[0] < 2) return {};
  const auto head = static_cast<ptrdiff_t>(from.section.dims[1] * from.section.dims[2]);
  std::vector<float> values = from.own;
  std::swap_ranges(values.begin(), values.begin() + head, values.begin() + head);
  return values;
}

// Each row where the next one belongs: tokens of keys and values, columns of a convolution.
std::vector<float> shifted(const Material& from) {
  const Dims& dims = from.section.dims;
  if (from.section.kind == SlotKind::kRecurrent || dims[1] < 2) return {};
  std::vector<float> values = from.own;
  for (uint64_t head = 0; head < dims[0]; ++head) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(head * dims[1] * dims[2]);
    std::rotate(begin, begin + static_cast<ptrdiff_t>(dims[2]), begin + static_cast<ptrdiff_t>(dims[1] * dims[2]));
  }
  return values;
}

const std::vector<std::pair<std::string, Forge>>& forgeries() {
  static const std::vector<std::pair<std::string, Forge>> list = {
      {"zeroed", [](const Material& from) { return scaled(from, 0); }},
      {"negated", [](const Material& from) { return scaled(from, -1); }},
      {"x 1.1", [](const Material& from) { return scaled(from, 1.1f); }},
      {"20 % noise", [](const Material& from) { return noisy(from, 0.2f); }},
      {"5 % noise", [](const Material& from) { return noisy(from, 0.05f); }},
      {"heads swapped", heads_swapped},
      {"shifted", shifted},
      {"other prompt", [](const Material& from) { return from.other_prompt; }},
      {"one token old", [](const Material& from) { return from.one_token_old; }},
  };
  return list;
}

struct Tally {
  size_t made = 0, by_sample = 0, by_all = 0;
  double least_missed = 0;  // largest share of a bound among those that passed
};

class Proof : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    if (smoke_run() && GetParam().name == "tiny-qwen3.5-multimodal") GTEST_SKIP() << "tiny-qwen3.5 is its text model";
    auto text = load_text_model(GetParam().model);
    ASSERT_TRUE(text) << text.error().message;
    text_ = *std::move(text);
    const bool large = GetParam().name.find("28m") != std::string::npos;
    for (const UnitEntry* entry : unit_entries()) {
      if (large && entry->name != "ref" && entry->name != "cpu") continue;  // an emulator takes minutes
      auto unit = create_unit(entry->name);
      if (!unit || !check_program(entry->name, (*unit)->caps(), text_.model->program)) continue;
      // Bounds of honest states that may have chosen other experts are too wide to be of use (ProofBounds::useful).
      if (may_choose_others(**unit, *text_.model)) {
        if (entry->name != "cpu") continue;
        unit = create_unit("cpu:kernels=exact");
        ASSERT_TRUE(unit) << unit.error().message;
      }
      auto executor = (*unit)->load(text_.model, 1);
      ASSERT_TRUE(executor) << executor.error().message;
      names_.emplace_back(entry->name);
      units_.push_back(std::move(*unit));
      executors_.push_back(std::move(*executor));
    }
    sequences_ = calibration_sequences(text_);
    for (auto& [name, tensor] : read_golden(GetParam().vectors)) {
      if (!name.ends_with("ids") || tensor.integers.size() < 6) continue;
      tensor.integers.resize(std::min<size_t>(tensor.integers.size(), smoke_run() ? 40 : 64));
      prompts_.push_back(tensor.integers);
    }
    ASSERT_FALSE(prompts_.empty());
  }

  size_t vocab() const { return static_cast<size_t>(text_.model->program.vocab); }
  bool decodes(size_t unit) const { return units_[unit]->caps().decode_seats_max > 0; }

  ProofBounds honest(size_t from, size_t to) {
    auto& known = honest_[{from, to}];
    if (known) return *known;
    auto measured = measure_states(*executors_[from], *executors_[to], sequences_);
    EXPECT_TRUE(measured) << measured.error().message;
    known = measured ? *std::move(measured) : ProofBounds();
    return *known;
  }
  // As the runtime gives them for a state of the first `held` of the ids.
  ProofBounds bounds(size_t from, size_t to, std::span<const int32_t> ids, size_t held) {
    ProofBounds made = honest(from, to);
    if (held > 0 && held <= kOwnPositionMax) {
      const auto here = measure_states_at(*executors_[from], *executors_[to], ids, held);
      EXPECT_TRUE(here) << here.error().message;
      if (here) made.cover(*here);
    }
    made.scale(kBoundFactor);
    return made;
  }

  // As `run --save-state` makes it: prefill, the last token decoded.
  State made_by(size_t unit, std::span<const int32_t> ids) {
    auto state = executors_[unit]->new_state(ids.size() + kRowsOfAll + 1);
    EXPECT_TRUE(state);
    if (ids.size() > 1) {
      EXPECT_TRUE(executors_[unit]->prefill(**state, ids.first(ids.size() - 1), {}));
    }
    decode(unit, **state, ids.back(), {});
    return std::move(*state);
  }
  // On a unit that only prefills, in one go.
  State source(size_t unit, std::span<const int32_t> ids) {
    if (decodes(unit)) return made_by(unit, ids);
    auto state = executors_[unit]->new_state(ids.size() + kRowsOfAll + 1);
    EXPECT_TRUE(state);
    EXPECT_TRUE(executors_[unit]->prefill(**state, ids, {}));
    return std::move(*state);
  }
  void decode(size_t unit, SequenceState& state, int32_t token, std::span<float> logits) {
    const Status status = executors_[unit]->decode(state, token, logits);
    EXPECT_TRUE(status) << status.error().message;
  }
  StateIdentity identity() const {
    const auto prints = text_.model->fingerprints();
    EXPECT_TRUE(prints);
    return {prints->model, prints->quantization, 0};
  }
  State opened(size_t unit, const std::vector<std::byte>& block, const Ids& ids) {
    auto state = executors_[unit]->new_state(ids.size() + kRowsOfAll + 1);
    SealExpectation expected;
    expected.identity = identity();
    expected.tokens = &ids;
    const auto filled = unseal_state(SealSource::borrowed(block), expected, **state);
    EXPECT_TRUE(filled) << filled.error().message;
    return std::move(*state);
  }

  // What the engine's proof finds: the rows of logits that it needs to see through the state; 0: the states show it;
  // kRowsOfAll + 1: nothing does.
  size_t rows_to_find(size_t unit, SequenceState& state, const SequenceState& own, const ProofBounds& allowed,
                      int32_t next, double* share = nullptr) {
    const WorstPart worst = worst_part(compare_states(state, own), allowed);
    if (share != nullptr) *share = worst.share();
    if (!worst.passed()) return 0;
    auto beside = executors_[unit]->fork(own, own.position());
    EXPECT_TRUE(beside);
    std::vector<float> theirs(vocab()), mine(vocab());
    for (size_t row = 1; row <= kRowsOfAll; ++row) {
      decode(unit, state, next, theirs);
      decode(unit, **beside, next, mine);
      const LogitsDifference seen = compare_logits(theirs, mine);
      if (!judge(seen, allowed.logits).passed) {
        if (share != nullptr) {
          *share = std::max(
              {seen.rms / allowed.logits.rms, seen.largest / allowed.logits.largest, seen.kl / allowed.logits.kl});
        }
        return row;
      }
      next = argmax(mine);
    }
    return kRowsOfAll + 1;
  }

  std::vector<Section> sections_of(const std::vector<std::byte>& block) {
    SealExpectation expected;
    expected.identity = identity();
    const StateShape layout = state_shape(text_.model->program, DType::kF32);
    expected.shape = &layout;
    expected.position_max = UINT32_MAX;
    const auto view = open_seal(block, expected);
    EXPECT_TRUE(view) << view.error().message;
    std::vector<Section> sections;
    for (const SealedSection& section : view->sections) {
      sections.push_back({section.kind, section.dtype, section.dims,
                          static_cast<size_t>(section.bytes.data() - block.data()), section.bytes.size()});
    }
    return sections;
  }

  void forge_all(size_t from, size_t to, const Ids& ids, std::map<std::string, Tally>& tallies);
  void finds_forged_sections();
  void engine_finds_what_the_figures_show();
  void raises_no_false_alarm();
  void bounds_are_at_most_three_times_honest();
  void bench_refuses_a_choice_of_rank_31();
  void units_are_held_to_their_own_steps();

  TextModel text_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::string> names_;
  std::vector<Ids> sequences_, prompts_;
  std::map<std::pair<size_t, size_t>, std::optional<ProofBounds>> honest_;
};

std::vector<GoldenCase> cases_of_states() {
  std::vector<GoldenCase> cases = golden_cases();
  std::erase_if(cases, [](const GoldenCase& item) { return item.copy; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, Proof, testing::ValuesIn(cases_of_states()), [](const auto& item) {
  std::string name = item.param.name;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

void Proof::forge_all(size_t from, size_t to, const Ids& ids, std::map<std::string, Tally>& tallies) {
  const ProofBounds allowed = bounds(from, to, followed(ids, ids.front()), ids.size());
  Ids others = ids;
  Random random(5);
  for (int32_t& id : others) id = static_cast<int32_t>(random.below(vocab()));
  const auto sealed = [&](std::span<const int32_t> tokens) {
    auto block = seal_state(*source(from, tokens), identity(), tokens);
    EXPECT_TRUE(block) << block.error().message;
    return *std::move(block);
  };
  const std::vector<std::byte> block = sealed(ids), other = sealed(others),
                               old = sealed(std::span(ids).first(ids.size() - 1));
  const std::vector<Section> sections = sections_of(block), old_sections = sections_of(old);
  const State own = made_by(to, ids);
  for (size_t i = 0; i < sections.size(); ++i) {
    const std::vector<float> values = values_of(block, sections[i]), other_prompt = values_of(other, sections[i]);
    const std::vector<float> earlier =
        has_tokens_dim(sections[i].kind) ? std::vector<float>() : values_of(old, old_sections[i]);
    for (const auto& [name, forge] : forgeries()) {
      const std::vector<float> forged = forge({sections[i], values, other_prompt, earlier});
      if (forged.empty()) continue;
      std::vector<std::byte> bad = block;
      put_values(bad, sections[i], forged);
      if (bad == block) continue;  // nothing to forge: zeros, or the same in both
      double share = 0;
      const State state = opened(to, bad, ids);
      const size_t rows = rows_to_find(to, *state, *own, allowed, ids.front(), &share);
      Tally& tally = tallies[name];
      ++tally.made;
      tally.by_sample += rows <= 1 ? 1 : 0;
      tally.by_all += rows <= kRowsOfAll ? 1 : 0;
      if (rows > kRowsOfAll) tally.least_missed = std::max(tally.least_missed, share);
    }
  }
}

// No bound hides a forgery of size: what is not found must be 5 % noise, or one token less of a long memory, and lie
// below the honest differences times three.
void Proof::finds_forged_sections() {
  std::string table =
      fmt::format("{}: forgeries found by the proof of sample and all, of those made\n", GetParam().name);
  for (size_t from = 0; from < names_.size(); ++from) {
    for (size_t to = 0; to < names_.size(); ++to) {
      if (from == to || !decodes(to)) continue;
      std::map<std::string, Tally> tallies;
      const bool one = smoke_run() || GetParam().name.find("28m") != std::string::npos;
      const size_t prompts = one ? 1 : std::min<size_t>(prompts_.size(), 2);
      for (size_t i = 0; i < prompts; ++i) forge_all(from, to, prompts_[i], tallies);
      for (const auto& [name, tally] : tallies) {
        table += fmt::format("  {:>4} -> {:<4} {:<14} {:>4} {:>4} of {:>4}", names_[from], names_[to], name,
                             tally.by_sample, tally.by_all, tally.made);
        if (tally.by_all < tally.made)
          table += fmt::format("   below the bounds: at most {:.2f} of one", tally.least_missed);
        table += "\n";
        EXPECT_LE(tally.least_missed, 1) << name;
        EXPECT_GT(tally.made, 0u);
        const bool may_hide = name == "5 % noise";
        if (!may_hide) {
          EXPECT_EQ(tally.by_sample, tally.made) << names_[from] << " -> " << names_[to] << " " << name;
        }
      }
    }
  }
  fmt::print("{}", table);
}

// The whole way: sealed, forged, started from in the engine.
void Proof::engine_finds_what_the_figures_show() {
  EngineOptions options;
  for (size_t i = 0; i < names_.size(); ++i) {
    options.units.push_back({names_[i], &units_[i]->caps(), executors_[i].get()});
  }
  const Ids& ids = prompts_[0];
  struct Case {
    size_t from, to;
    std::vector<std::byte> block;
    ProofBounds allowed;
    bool forged;
  };
  std::vector<Case> cases;
  for (size_t from = 0; from < names_.size(); ++from) {
    for (size_t to = 0; to < names_.size(); ++to) {
      if (from == to || !decodes(to)) continue;
      const ProofBounds allowed = bounds(from, to, ids, ids.size() - 1);
      const std::span<const int32_t> held = std::span(ids).first(ids.size() - 1);
      const auto block = seal_state(*source(from, held), identity(), held);
      ASSERT_TRUE(block) << block.error().message;
      cases.push_back({from, to, *block, allowed, false});
      const std::vector<Section> sections = sections_of(*block);
      const size_t section = (from * 7 + to * 3) % sections.size();
      std::vector<float> values = values_of(*block, sections[section]);
      for (float& value : values) value *= 1.1f;
      std::vector<std::byte> bad = *block;
      put_values(bad, sections[section], values);
      cases.push_back({from, to, bad, allowed, bad != *block});
    }
  }
  auto engine = Engine::create(std::move(options));
  ASSERT_TRUE(engine) << engine.error().message;
  for (const Case& item : cases) {
    for (const VerifyMode mode : {VerifyMode::kSample, VerifyMode::kAll}) {
      Request request;
      request.tokens = ids;
      request.max_new_tokens = 4;
      request.decode_unit = names_[item.to];
      request.strategy = "single";
      request.verify = mode;
      request.start_state = SealSource::borrowed(item.block);
      request.start_bounds = item.allowed;
      auto ticket = (*engine)->submit(std::move(request));
      ASSERT_TRUE(ticket) << ticket.error().message;
      std::optional<Event> event;
      do {
        event = ticket->next_event(std::chrono::minutes(5));
        ASSERT_TRUE(event);
      } while (std::holds_alternative<TokenEvent>(*event));
      const auto& finished = std::get<FinishedEvent>(*event);
      const std::string label = fmt::format("{} -> {} {}", names_[item.from], names_[item.to], to_string(mode));
      EXPECT_NE(finished.reason, FinishReason::kError) << label << finished.error.message;
      EXPECT_EQ(finished.stats.bridge.proof_failed, item.forged) << label << ": " << finished.stats.fallback;
      EXPECT_EQ(finished.stats.bridge.level, item.forged ? BridgeLevel::kNone : BridgeLevel::kProven) << label;
      if (item.forged) {
        EXPECT_EQ(finished.stats.fallback.rfind("the bridge proof failed at the starting state", 0), 0u) << label;
      }
    }
  }
}

// Honest states, of golden and random prompts, of random ids and of random text, all pass; and no bound is more than
// three times what was seen of honest states.
void Proof::raises_no_false_alarm() {
  const bool large = GetParam().name.find("28m") != std::string::npos;
  const bool of_family = GetParam().model.parent_path().filename() == "families";
  const size_t count = smoke_run() ? 20 : large ? 50 : of_family ? 90 : 390;
  const size_t longest = std::min<size_t>(160, static_cast<size_t>(text_.model->spec.context_max) - 2 * kRowsOfAll);
  std::vector<Ids> prompts = prompts_;
  Random random(11);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = 1 + random.below(i % 12 == 0 ? longest : i % 3 == 0 ? 40 : 8);
    if (text_.tokenizer && i % 2 == 0) {
      std::string words;
      while (words.size() < 4 * length) words += static_cast<char>(random.below(5) == 0 ? ' ' : 'a' + random.below(26));
      auto ids = encode_text(text_, words, false, TextPlace::kStart);
      ASSERT_TRUE(ids);
      prompts.push_back(*std::move(ids));
      continue;
    }
    Ids& ids = prompts.emplace_back(length);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(vocab()));
  }
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t from = 0; from < names_.size(); ++from) {
    for (size_t to = 0; to < names_.size(); ++to) {
      if (from != to && decodes(to)) pairs.emplace_back(from, to);
    }
  }
  std::map<std::pair<size_t, size_t>, double> nearest;
  size_t alarms = 0;
  const auto look = [&](const Ids& ids, const std::pair<size_t, size_t>& pair) {
    const auto& [from, to] = pair;
    auto block = seal_state(*source(from, ids), identity(), ids);
    ASSERT_TRUE(block) << block.error().message;
    const State state = opened(to, *block, ids), own = made_by(to, ids);
    double share = 0;
    const auto next = static_cast<int32_t>(random.below(vocab()));
    const size_t rows = rows_to_find(to, *state, *own, bounds(from, to, followed(ids, next), ids.size()), next, &share);
    nearest[pair] = std::max(nearest[pair], share);
    if (rows > kRowsOfAll) return;
    ++alarms;
    fmt::print("{} -> {}: a false alarm over {} tokens after {} rows, share {:.2f}\n", names_[from], names_[to],
               ids.size(), rows, share);
  };
  // Golden prompts through every pair, the random ones through one after the other.
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t at = 0; at < pairs.size(); ++at) {
      if (i < prompts_.size() || i % pairs.size() == at) look(prompts[i], pairs[at]);
    }
  }
  for (const auto& [pair, share] : nearest) {
    fmt::print("{}: {} -> {}: of {} honest prompts, nearest a bound: {:.2f}\n", GetParam().name, names_[pair.first],
               names_[pair.second], prompts.size(), share);
  }
  EXPECT_EQ(alarms, 0u);
}

void Proof::bounds_are_at_most_three_times_honest() {
  ASSERT_LE(kBoundFactor, 3);
  for (size_t to = 0; to < names_.size(); ++to) {
    for (size_t from = 0; from < names_.size(); ++from) {
      if (!decodes(to) || from == to) continue;
      const ProofBounds seen = honest(from, to), allowed = bounds(from, to, {}, 0);
      ASSERT_EQ(allowed.segments.size(), text_.model->program.slots.size());
      for (size_t slot = 0; slot < allowed.segments.size(); ++slot) {
        EXPECT_LE(allowed.of(slot).rms, 3 * seen.of(slot).rms);
        EXPECT_LE(allowed.of(slot).head.rms, 3 * seen.of(slot).head.rms);
        EXPECT_LE(allowed.of(slot).head.largest, 3 * seen.of(slot).head.largest);
        EXPECT_GT(allowed.of(slot).rms, 0) << "units whose arithmetic differs are not held to the same bits";
        // What the units are known to do: 8-bit activations, 16-bit storage. A bound far above would hide faults.
        EXPECT_LT(seen.of(slot).rms, 0.05) << names_[from] << " -> " << names_[to] << " slot " << slot;
      }
      EXPECT_LE(allowed.logits.largest, 3 * seen.logits.largest);
      EXPECT_LE(allowed.logits.kl, 9 * seen.logits.kl) << "of second order";
    }
  }
}

// What `bench` calls checked: the reference's 31st choice is never a near tie, the honest first one always is.
void Proof::bench_refuses_a_choice_of_rank_31() {
  const auto unit = [&](const char* name) {
    return executors_[static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin())].get();
  };
  Executor &ref = *unit("ref"), &cpu = *unit("cpu");
  const auto sequences = calibration_sequences(text_);
  const auto honest = measure_margins(cpu, cpu, ref, sequences);
  ASSERT_TRUE(honest) << honest.error().message;
  EXPECT_TRUE(honest->useful()) << honest->largest << " of " << honest->wrong_choice;
  const double lead_max = kBoundFactor * honest->largest;
  const SpeedTest test{.prefill_tokens = 24, .text = sequences[0]};
  SpeedOptions once;
  once.repetitions = 1;
  once.warm_up = false;
  const auto own = measure_speed({cpu, cpu, 1}, test, once);
  ASSERT_TRUE(own) << own.error().message;
  const auto checked = check_generated(ref, test, *own, lead_max);
  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_EQ(checked->checked, 1u);
  const auto ids = prompt_ids(test, 0, static_cast<int32_t>(vocab()));
  const auto state = ref.new_state(ids.size());
  std::vector<float> logits(vocab());
  ASSERT_TRUE(ref.prefill(**state, ids, logits));
  std::vector<int32_t> order(vocab());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  SpeedResult wrong = *own;
  wrong.generated = {{order[30]}};
  const auto refused = check_generated(ref, test, wrong, lead_max);
  ASSERT_FALSE(refused) << "lead " << logits[order[0]] - logits[order[30]] << " of " << lead_max;
  EXPECT_EQ(refused.error().code, Code::kMismatch);
}

// `ref` gives the same bits in whatever steps: it is held to them. `cpu` sums a prefill another way than a decode.
void Proof::units_are_held_to_their_own_steps() {
  if (GetParam().name.find("28m") != std::string::npos) return;  // as the smaller ones, for half a minute
  for (size_t unit = 0; unit < names_.size(); ++unit) {
    if (names_[unit] == "ref") {
      EXPECT_TRUE(honest(unit, unit).exact());
    }
    if (names_[unit] == "cpu") {
      EXPECT_FALSE(honest(unit, unit).exact());
    }
  }
}

// One test of all: measuring the bounds is most of the time.
TEST_P(Proof, HoldsAgainstForgedAndHonestStates) {
  finds_forged_sections();
  engine_finds_what_the_figures_show();
  raises_no_false_alarm();
  bounds_are_at_most_three_times_honest();
  bench_refuses_a_choice_of_rank_31();
  units_are_held_to_their_own_steps();
}

}  // namespace
}  // namespace baton::test
