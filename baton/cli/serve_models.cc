// From flags to models, loaded or described.
#include "baton/cli/serve_models.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "baton/api/embed_spec.h"
#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/cli/command.h"
#include "baton/cli/figures.h"
#include "baton/cli/prompt.h"
#include "baton/hub/resolve.h"
#include "baton/state/checksum.h"

namespace baton::cli {
namespace {

constexpr uint64_t kSharesMax = 4;
constexpr std::chrono::minutes kKeepAlive{5};

// What all models share.
struct Shares {
  uint64_t budget = 0;  // 0: as much as there is
  EngineLimits limits;  // of each
};

// Of the smallest memory that a model lies in; 0: not known.
uint64_t memory_of(const ServeFlags& flags) {
  uint64_t bytes = flags.model.memory_bytes();
  for (const auto& other : flags.others) bytes = std::min(bytes, other->model.memory_bytes());
  return bytes;
}

// Of what models may take a quarter is for states, shared by those that may be loaded together, but at most by four:
// they need not be. Of that a quarter is for those at rest.
Shares shares_of(const ServeFlags& flags) {
  Shares shares;
  shares.budget = flags.memory_budget.value_or(memory_of(flags));
  shares.limits.requests_active_max = flags.parallel;
  shares.limits.requests_queued_max = 4096;  // further choices of those that run
  shares.limits.step_tokens_max = flags.step_tokens;
  shares.limits.checkpoints_stored_early = true;
  shares.limits.state_bytes_max = shares.budget / 4 / std::min<uint64_t>(flags.others.size() + 1, kSharesMax);
  if (!flags.no_reuse) shares.limits.checkpoint_bytes_max = shares.limits.state_bytes_max / 4;
  return shares;
}

// What answers follow, beside their requests.
std::string fingerprint_of_server(const ServedFlags& flags, const Runtime& runtime) {
  const OrderedJson facts = {{"model", name_of_path(flags.model.model)},
                             {"parameters", runtime.model().parameter_count()},
                             {"bytes", runtime.model().weight_bytes()},
                             {"units", {flags.model.prefill_unit, flags.model.via_unit, flags.model.decode_unit}},
                             {"options", flags.model.units_that_show()},
                             {"context", runtime.context_tokens()},
                             {"strategy", flags.model.strategy}};
  const std::string text = facts.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return fmt::format("fp_{:016x}", checksum(std::as_bytes(std::span(text))));
}

serve::ModelSetup setup_of(const ServeFlags& server, const ServedFlags& flags, const serve::ModelFacts& facts,
                           const Runtime& runtime, std::atomic<uint64_t>& draws) {
  serve::ModelSetup setup;
  setup.name = facts.name;
  setup.aliases = facts.aliases;
  setup.fingerprint = fingerprint_of_server(flags, runtime);
  setup.stops = flags.sampling.stops;
  setup.thinking = flags.thinking.asked();
  setup.reuse = !server.no_reuse && flags.model.verify == "off";
  setup.dispatch = server.dispatch;
  setup.state_bytes_max = facts.state_bytes_max;
  setup.on_lost = [name = facts.name](const LostUnit& unit) {
    spdlog::warn("model '{}': unit '{}' is lost ({}): nothing runs there any more", name, unit.name, unit.why);
  };
  setup.prepare = [&flags, &draws](Request& request) {
    flags.sampling.apply(request);
    flags.model.apply(request);
    // Without a seed of its own each request has another one.
    if (flags.sampling.seed < 0) request.sampler.seed = Random(draws++).next() >> 1;
  };
  return setup;
}

// A folder of each model, below the one that was given; names are anything.
Result<StateCacheFlags> cache_of(const ServeFlags& flags, const std::string& name) {
  StateCacheFlags cache = flags.cache;
  if (cache.folder.empty() || flags.others.empty()) return cache;
  std::string folder;
  for (const char c : name.substr(0, 64)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    folder += plain ? c : '_';
  }
  folder += fmt::format("_{:08x}", checksum(std::as_bytes(std::span(name))) & 0xffffffff);
  std::error_code error;
  if (std::filesystem::create_directories(cache.folder, error))
    std::filesystem::permissions(cache.folder, std::filesystem::perms::owner_all, error);
  if (error) return fail(Code::kInvalidInput, fmt::format("{}: {}", cache.folder, error.message()));
  cache.folder = (std::filesystem::path(cache.folder) / folder).string();
  cache.bytes = std::max<uint64_t>(cache.bytes / (flags.others.size() + 1), 1);
  return cache;
}

std::chrono::milliseconds keep_alive_of(const ServeFlags& server, const std::optional<std::chrono::seconds>& own,
                                        bool at_start) {
  if (own) return *own;
  return at_start ? std::chrono::seconds(-1) : server.keep_alive_default.value_or(kKeepAlive);
}

Result<std::unique_ptr<serve::Served>> open_model(const ServeFlags& server, const ServedFlags& flags,
                                                  const EngineLimits& limits, const serve::ModelFacts& facts,
                                                  std::atomic<uint64_t>& draws) {
  BATON_TRY(const StateCacheFlags cache, cache_of(server, facts.name));
  BATON_TRY(auto runtime, flags.model.open(limits, cache));
  // Bounds are measured by one request at a time, for its own tokens: baton run does, a server does not.
  if (flags.model.verify != "off" && flags.model.prefill_unit != flags.model.decode_unit)
    spdlog::warn(
        "{}: --verify-bridge {}: a server has no bounds to prove a hand-over by: hand-overs are sealed, and "
        "answers say why they are not proven; prove this pair by `baton run --verify-bridge all`",
        facts.name, flags.model.verify);
  for (const std::string& unit : runtime->emulated_units())
    spdlog::warn("{}: {} is emulated: its times, in answers and in metrics, are the emulator's", facts.name, unit);
  auto setup = setup_of(server, flags, facts, *runtime, draws);
  auto served = std::make_unique<serve::ServedModel>(std::move(setup), std::move(runtime));
  if (server.dispatch) {
    progress("measuring the units");
    const auto measured = served->measure();
    progress("");
    BATON_OK(measured);
  }
  return served;
}

Result<serve::ModelSource> describe(const ServeFlags& server, const ServedFlags& flags, const EngineLimits& limits,
                                    std::atomic<uint64_t>& draws) {
  BATON_OK(flags.model.check_file());
  BATON_TRY(const TextModel text, load_text_model(flags.model.model, flags.model.context));
  if (!text.tokenizer) return no_tokenizer(text);
  flags.thinking.warn(text);
  serve::ModelSource source{.facts = serve::facts_of(text, flags.model.context), .open = {}};
  serve::ModelFacts& facts = source.facts;
  facts.name = flags.name.empty() ? name_of_path(flags.model.model) : flags.name;
  facts.aliases = flags.aliases;
  facts.stops = flags.sampling.stops;
  UnitsFacts units = flags.model.units_facts(*text.model);
  facts.state_bytes_max = limits.state_bytes_max;
  if (units.state_room && facts.state_bytes_max > 0)
    facts.state_bytes_max = std::clamp<uint64_t>(*units.state_room, 1, facts.state_bytes_max);
  facts.kept_bytes = units.kept_bytes;
  facts.device_kept_bytes = units.device_kept_bytes;
  facts.emulated_units = std::move(units.emulated);
  facts.prefill_unit = flags.model.prefill_unit;
  facts.decode_unit = flags.model.decode_unit;
  facts.strategy = flags.model.strategy;
  source.keep_alive = keep_alive_of(server, flags.keep_alive, flags.at_start);
  source.open = [&server, &flags, limits, facts, &draws] { return open_model(server, flags, limits, facts, draws); };
  return source;
}

Result<serve::ModelSource> describe(const ServeFlags& server, const ServedEmbedFlags& flags) {
  BATON_OK(hub::check_model(flags.path));
  BATON_TRY(const TextModel text, load_text_model(flags.path, 0, ModelUse::kVectors));
  BATON_TRY(const EmbedSpec spec, read_embed_spec(*text.model));
  serve::ModelSource source{.facts = serve::facts_of(text, spec.tokens_max), .open = {}};
  source.facts.vectors = true;
  source.facts.kept_bytes = units_facts(*text.model, std::vector<std::string>{"cpu"}).kept_bytes;  // the usual one
  source.facts.tools = source.facts.thinking = false;
  source.facts.name = flags.name.empty() ? name_of_path(flags.path) : flags.name;
  source.facts.aliases = flags.aliases;
  source.facts.width = static_cast<uint64_t>(text.model->program.output_width);
  if (spec.dimensions > 0) source.facts.width = std::min<uint64_t>(source.facts.width, spec.dimensions);
  source.keep_alive = keep_alive_of(server, flags.keep_alive, flags.at_start);
  EmbedderOptions options;
  options.model = flags.path;
  options.threads = flags.threads;
  source.open = [options, quiet = server.quiet, name = source.facts.name]() -> Result<std::unique_ptr<serve::Served>> {
    BATON_TRY(auto embedder, Embedder::open(options));
    if (!quiet) fmt::print(stderr, "baton: {} makes vectors on {}\n", name, embedder->placed());
    BATON_TRY(auto served, serve::ServedEmbedder::create(std::move(embedder)));
    return served;
  };
  return source;
}

void say(const serve::PoolEvent& event, bool quiet) {
  using Kind = serve::PoolEvent::Kind;
  const std::string& name = event.model.name();
  if (event.kind == Kind::kFailed) {
    spdlog::warn("model '{}' could not be loaded: {}", name, event.error->message);
  } else if (event.kind == Kind::kUnloaded && event.error != nullptr) {
    spdlog::warn("--state-cache: not all states of '{}' were saved: {}", name, event.error->message);
  }
  if (quiet) return;
  if (event.kind == Kind::kLoaded) {
    fmt::print(stderr, "baton: loaded {}: {} bytes of weights, {} for states, in {:.0f} ms\n", name,
               event.model.facts().weight_bytes, event.model.facts().state_bytes_max, event.ms);
  } else if (event.kind == Kind::kUnloaded && event.why != serve::UnloadReason::kEnd) {
    fmt::print(stderr, "baton: unloaded {}: {}\n", name,
               event.why == serve::UnloadReason::kRoom ? "its room is needed" : "nobody asked");
  }
}

Status check_names(const std::vector<DescribedModels::Model>& models) {
  std::set<std::string> names;
  for (const auto& [source, path, at_start] : models) {
    std::vector<std::string> own = source.facts.aliases;
    own.push_back(source.facts.name);
    for (const std::string& name : own) {
      // One that writes and one that makes vectors may be the same file.
      if (!names.insert((source.facts.vectors ? "v:" : "t:") + name).second) {
        return fail(Code::kInvalidInput,
                    fmt::format("two models are called '{}': give them names in a baton.toml (--config)", name));
      }
    }
  }
  return {};
}

}  // namespace

Result<DescribedModels> describe_models(const ServeFlags& flags, std::atomic<uint64_t>& draws) {
  const Shares shares = shares_of(flags);
  DescribedModels described;
  const auto add = [&](const ServedFlags& served) -> Status {
    BATON_TRY(auto source, describe(flags, served, shares.limits, draws));
    described.models.push_back({std::move(source), served.model.model, served.at_start});
    return {};
  };
  BATON_OK(add(flags));
  for (const auto& other : flags.others) BATON_OK(add(*other));
  for (const ServedEmbedFlags& embedder : flags.embedders) {
    BATON_TRY(auto source, describe(flags, embedder));
    described.models.push_back({std::move(source), embedder.path, embedder.at_start});
  }
  BATON_OK(check_names(described.models));
  described.budget_bytes = shares.budget == 0 ? UINT64_MAX : shares.budget;
  // A bound that nobody gave keeps no model out.
  for (const auto& model : described.models) {
    if (!flags.memory_budget) described.budget_bytes = std::max(described.budget_bytes, model.source.facts.bytes());
  }
  return described;
}

Result<std::unique_ptr<serve::ModelPool>> open_pool(const ServeFlags& flags, DescribedModels described) {
  serve::PoolOptions options;
  options.budget = described.budget_bytes;
  auto pool = std::make_unique<serve::ModelPool>(options);
  pool->watch([quiet = flags.quiet](const serve::PoolEvent& event) { say(event, quiet); });
  for (auto& model : described.models) pool->add(std::move(model.source));
  for (size_t i = 0; i < described.models.size(); ++i) {
    if (described.models[i].at_start) BATON_OK(pool->load(*pool->all()[i]));
  }
  if (!flags.quiet) say_bundled_model(flags.model);
  return pool;
}

}  // namespace baton::cli
