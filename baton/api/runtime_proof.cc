// What a request's bridge proof is held to: bounds from the model's file, or measured between two runs of the engine.
#include <fmt/format.h>

#include <algorithm>

#include "baton/api/runtime.h"
#include "baton/api/units.h"

namespace baton {
namespace {

using Note = std::function<void(const std::string&)>;

bool any_shared(const Provenance& provenance) {
  for (const StateStep& step : provenance.steps) {
    if (step.shared) return true;
  }
  return false;
}

// How it is asked for here: with what its arithmetic tells of its options.
std::string text_of(const StateMaker& maker) {
  const std::string text = with_kv(maker.unit, kv_word_of(maker.arithmetic)).value_or(maker.unit);
  const auto choice = parse_unit(text);
  if (!choice || choice->entry->stand_in.empty() || !is_emulated(maker.arithmetic)) return text;
  return fmt::format("{}{}{}", text, text.find(':') == std::string::npos ? ":" : ",", choice->entry->stand_in);
}

}  // namespace

Runtime::Loaded* Runtime::find_unit(std::string_view name) {
  for (auto& [known, loaded] : units_) {
    if (known == name) return &loaded;
  }
  return nullptr;
}

// The maker's executor, of those loaded or made for now; null, with a note, when the maker cannot run here.
Executor* Runtime::maker_here(const StateMaker& maker, Loaded& decode, Loaded& fresh, const Note& note) {
  const auto is_it = [&](const Loaded& loaded) { return loaded.executor->arithmetic() == maker.arithmetic; };
  if (is_it(decode)) return decode.executor.get();
  for (const auto& [name, loaded] : units_) {
    if (is_it(loaded)) return loaded.executor.get();
  }
  const std::string name = with_emulated(maker.unit, maker.arithmetic);
  auto unit = create_unit(text_of(maker));
  if (!unit) {
    note(fmt::format("unit {} cannot run here: {}", name, unit.error().message));
    return nullptr;
  }
  fresh.unit = std::move(*unit);
  auto executor = fresh.unit->load(text_.model, threads_);
  if (!executor) {
    note(fmt::format("unit {} cannot load the model: {}", name, executor.error().message));
    return nullptr;
  }
  fresh.executor = std::move(*executor);
  if (is_it(fresh)) return fresh.executor.get();
  const std::string here = fresh.executor->arithmetic();
  note(fmt::format("the state was made by {}, unit {} computes as {} here", maker.arithmetic,
                   with_emulated(maker.unit, here), here));
  return nullptr;
}

Status Runtime::open_store(const Note& note) {
  if (sequences_.empty()) sequences_ = calibration_sequences(text_);
  if (store_) return {};
  BATON_TRY(const Fingerprints prints, model().fingerprints());
  store_ = BoundsStore::open(path_, prints, digest_sequences(sequences_));
  if (!store_->note().empty()) note(store_->note());
  return {};
}

Result<std::optional<ProofBounds>> Runtime::bounds_of(const StateMaker& maker, const std::string& decode_unit,
                                                      std::span<const int32_t> tokens, uint64_t position,
                                                      const Note& note, const ProofEvents& events) {
  Loaded& decode = *find_unit(decode_unit);
  const std::string to = decode.executor->arithmetic();
  const std::string between =
      fmt::format("{} -> {}", with_emulated(maker.unit, maker.arithmetic), with_emulated(decode_unit, to));
  BATON_OK(open_store(note));
  std::optional<ProofBounds> honest = store_->find(BoundsStore::kStates, maker.arithmetic, to);
  const bool known = honest && honest->segments.size() == model().program.slots.size() &&
                     largest_share(*honest) < kNothingInCommon;  // a faulty unit's, of an earlier program
  const bool near = position > 0 && position < tokens.size() && position <= kOwnPositionMax;
  if (!known || (near && !honest->exact())) {
    Loaded fresh;
    Executor* made = maker_here(maker, decode, fresh, note);
    if (made == nullptr && !known) return std::optional<ProofBounds>();
    const auto telling = [&](bool kept) -> CalibrationProgress {
      if (!events.on_progress) return nullptr;
      return [&events, &between, kept](double share) { return events.on_progress({between, kept, share}); };
    };
    const auto measure = [&]() -> Status {
      if (!known) {
        BATON_TRY(honest, measure_states(*made, *decode.executor, sequences_, telling(true)));
        if (const Status kept = store_->add(BoundsStore::kStates, maker.arithmetic, to, *honest); !kept) {
          note("the measured bounds could not be kept: " + kept.error().message);
        }
      }
      if (honest->exact() || !near) return {};
      BATON_TRY(const ProofBounds here, measure_states_at(*made, *decode.executor, tokens, position, telling(false)));
      honest->cover(here);
      return {};
    };
    // Without the maker the bounds of the model's file serve, of text alone.
    if (made != nullptr) {
      // Its lanes own the executors.
      if (!end_engine()) return fail(Code::kUnavailable, "a unit hangs in a step: nothing can be measured on it");
      const Status measured = measure();
      BATON_TRY(engine_, Engine::create(engine_options_));
      if (!measured) return fail(Error(measured.error()).in("measuring " + between));
    }
  }
  // A segment of zeros would pass: the units do not compute the same (values that F16 cannot hold are one way).
  if (const auto text = store_->find(BoundsStore::kStates, maker.arithmetic, to)) {
    if (const double share = largest_share(*text); share * kBoundFactor >= 1) {
      note(fmt::format(
          "{}: honest states of this model differ by {:.0f} % of their size: bounds that wide prove nothing", between,
          share * 100));
      return std::optional<ProofBounds>();
    }
  }
  ProofBounds bounds = *std::move(honest);
  bounds.scale(kBoundFactor);
  bounds.between = between;
  return std::optional(std::move(bounds));
}

Result<std::optional<ProofBounds>> Runtime::prepare_start(Request& request, const StateMaker& prefill, const Note& note,
                                                          const ProofEvents& events) {
  const std::optional<ProofBounds> nothing;
  SealExpectation expected;
  BATON_TRY(expected.identity, identity());
  const StateShape shape = state_shape(model().program, DType::kF32);
  expected.shape = &shape;
  expected.position_max = static_cast<uint64_t>(model().spec.context_max);
  // One that is refused here is refused by the engine, with its own words.
  const auto view = verify_seal(request.start_state, expected);
  if (!view) return nothing;
  const Loaded& decode = *find_unit(request.decode_unit);
  const Provenance& made = view->provenance;
  const bool same = made.makers.size() == 1 && made.makers[0].arithmetic == decode.executor->arithmetic();
  if (same && made.replayable() && (!any_shared(made) || decode.unit->caps().shared_prefills_exact)) {
    ProofBounds exact;
    const StateMaker& maker = made.makers[0];
    exact.between = fmt::format("{} -> {}, the same steps and bits", with_emulated(maker.unit, maker.arithmetic),
                                with_emulated(request.decode_unit, maker.arithmetic));
    request.start_bounds = std::move(exact);
    return nothing;
  }
  const uint64_t held = view->tokens.size();
  // Each hand adds what it differs by.
  std::optional<ProofBounds> sum, of_prefill;
  for (const StateMaker& maker : made.makers) {
    if (maker.unit == kMakerUnknown || maker.unit == kMakerForeign) {
      note(fmt::format("who made the starting state is {}",
                       maker.unit == kMakerUnknown ? "not known" : "another project's program"));
      return nothing;
    }
    BATON_TRY(const auto bounds, bounds_of(maker, request.decode_unit, request.tokens, held, note, events));
    if (!bounds) return nothing;
    if (maker == prefill) of_prefill = bounds;
    sum ? sum->add(*bounds) : static_cast<void>(sum = *bounds);
  }
  request.start_bounds = std::move(sum);
  return of_prefill;
}

// Both hands that a state went through when it comes to the decode unit count, each over the whole of it. Of a prompt
// of one token (`held` 0) the prefill unit makes nothing.
Status Runtime::prepare_via(Request& request, const StateMaker& prefill, const StateMaker& via, uint64_t held,
                            const Note& note, const ProofEvents& events) {
  if (held > 0 && request.prefill_unit != request.via_unit && !request.via_bounds) {
    BATON_TRY(request.via_bounds, bounds_of(prefill, request.via_unit, request.tokens, held, note, events));
  }
  if (request.move_bounds) return {};
  std::optional<ProofBounds> sum, more;
  BATON_TRY(sum, bounds_of(via, request.decode_unit, request.tokens, held, note, events));
  if (!sum || held == 0 || prefill == via) {
    request.move_bounds = std::move(sum);
    return {};
  }
  if (request.prefill_unit != request.decode_unit) {
    BATON_TRY(more, bounds_of(prefill, request.decode_unit, request.tokens, held, note, events));
    if (!more) return {};
    sum->add(*more);
  }
  request.move_bounds = std::move(sum);
  return {};
}

Status Runtime::prepare_proof(Request& request, const ProofEvents& events) {
  if (request.verify == VerifyMode::kOff) return {};
  const Note note = [&](const std::string& text) {
    if (events.on_note) events.on_note(text);
  };
  const std::string prefill = request.prefill_unit.empty() ? request.decode_unit : request.prefill_unit;
  // Units that are not loaded are refused at submit.
  const std::string via = request.via_unit.empty() ? request.decode_unit : request.via_unit;
  for (const std::string& name : {prefill, via, request.decode_unit}) {
    if (find_unit(name) == nullptr) return {};
  }
  const auto maker_of = [&](const std::string& name) {
    const Loaded& loaded = *find_unit(name);
    return StateMaker{std::string(loaded.unit->name()), loaded.executor->arithmetic()};
  };
  // The engine proves no start that is handed over twice.
  if (!request.start_state.empty() && via != request.decode_unit) return {};
  const StateMaker maker = maker_of(prefill);
  std::optional<ProofBounds> counted;
  if (!request.start_state.empty() && !request.start_bounds) {
    BATON_TRY(counted, prepare_start(request, maker, note, events));
  }
  const uint64_t held = request.tokens.empty() ? 0 : request.tokens.size() - 1;
  if (via != request.decode_unit) return prepare_via(request, maker, maker_of(via), held, note, events);
  if (held > 0 && prefill != request.decode_unit && !request.move_bounds) {
    BATON_TRY(request.move_bounds, bounds_of(maker, request.decode_unit, request.tokens, held, note, events));
    // Measured over whole lengths, which covers any of their tokens: a unit with two hands in a state counts once.
    if (request.move_bounds && counted) request.move_bounds = request.move_bounds->beyond(*counted);
  }
  return {};
}

}  // namespace baton
