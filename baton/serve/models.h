// A model that writes, loaded: a runtime, and what requests of it begin with.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "baton/api/openai.h"
#include "baton/api/runtime.h"
#include "baton/api/unit_speeds.h"
#include "baton/serve/model_lease.h"
#include "baton/state/shape.h"

namespace baton::serve {

// What is said of a model at its opening.
struct ModelSetup {
  std::string name;                       // what the interface calls it: never a path
  std::vector<std::string> aliases = {};  // other names it answers to
  std::string fingerprint = {};           // of what answers follow: file, units, context
  std::function<void(Request&)> prepare;  // units, strategy, and the defaults of draws
  std::vector<std::string> stops = {};    // default stop strings
  std::optional<bool> thinking = {};      // enable_thinking where a request does not say
  bool reuse = true;                      // prefixes
  bool dispatch = false;                  // each request runs where it is predicted to end first
  uint64_t state_bytes_max = 0;           // of the engine's limits, for gauges; 0: none
  // Hears of a unit that takes no work any more, once, when a request was refused for it. Any thread.
  std::function<void(const LostUnit& unit)> on_lost = {};
};

class ServedModel final : public Served {
 public:
  ServedModel(ModelSetup setup, std::unique_ptr<Runtime> runtime);

  const ModelSetup& setup() const { return setup_; }
  const std::string& name() const { return setup_.name; }
  const Runtime& runtime() const { return *runtime_; }
  // Units as requests ask for them, and the strategy.
  const Request& defaults() const { return defaults_; }

  // What routes of a request rest on: the units, what finished requests showed of them, and what runs now.
  RouteFacts route_facts(uint64_t prompt_tokens, uint64_t cached_tokens, uint64_t answer_tokens) const;
  // A request ended well.
  void learn(const RequestStats& stats) { speeds_.learn(stats); }
  // Two small requests on each unit, see measure_speeds: before the first real one.
  Status measure();
  // Its prompt is on the way to a unit, until `prefilled` with what this returns.
  uint64_t prefill_begins(const Request& request);
  void prefilled(uint64_t load) { loads_.prefilled(load); }
  // A request with the defaults of this model; draws that no seed was given for differ each time.
  CompletionRequest make_request(std::vector<int32_t> tokens) const;
  // Any thread; the answer is its caller's.
  Result<Answer> start(CompletionRequest request);
  EngineUsage usage() const;
  // Units that take no work any more.
  std::vector<LostUnit> lost_units() const;
  // Whether a request that asks for no unit can be answered, where these are lost.
  bool takes_requests(const std::vector<LostUnit>& lost) const;
  // To ModelSetup::on_lost, of each that is lost once.
  void tell_lost_units();
  uint64_t device_bytes() const override;
  // What the request's answer may be: a format, or calls of the tools that it must make; null: anything.
  // `in_reasoning`: the prompt ends in it, and what was asked for comes behind. Fresh for each answer. Any thread; slow
  // the first time.
  Result<std::shared_ptr<TokenConstraint>> constraint(const openai::ApiRequest& request, bool in_reasoning) const;
  // Of the state behind so many tokens, as the model keeps it.
  uint64_t state_bytes(uint64_t tokens) const;
  // Writes what it keeps into its cache, where it has one.
  Status save() override;

 private:
  ModelSetup setup_;
  std::unique_ptr<Runtime> runtime_;
  StateShape shape_;
  Request defaults_;
  const RouteModel route_model_;
  std::map<std::string, uint64_t, std::less<>> token_bytes_;  // of units: RouteUnit::token_bytes
  UnitSpeeds speeds_;
  LaneLoads loads_;
  std::atomic<uint64_t> load_ids_{1};
  mutable std::mutex formats_mutex_;
  mutable std::shared_ptr<FormatCompiler> formats_;  // made when it is asked for
  mutable std::mutex engine_mutex_;                  // Runtime::start may begin the engine anew
  std::mutex told_mutex_;
  std::set<std::string> told_;  // lost units
};

}  // namespace baton::serve
