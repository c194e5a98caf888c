// A compute unit of your own: custom_unit MODEL. This one hands its work to `cpu` and counts the prompt's tokens; a
// real one would have arithmetic of its own. It prefills, `cpu` decodes, and the state crosses the bridge between them.
#include <baton/baton.h>

#include <cstdio>

namespace {

using baton::Model;

struct CountingExecutor final : baton::Executor {
  std::unique_ptr<baton::Executor> cpu;
  uint64_t counted = 0;

  const baton::Model& model() const override { return cpu->model(); }
  const baton::StateShape& shape() const override { return cpu->shape(); }
  baton::Result<std::unique_ptr<baton::SequenceState>> new_state(uint64_t n) override { return cpu->new_state(n); }
  baton::Status step(std::span<const baton::Seat> seats, std::span<float> out,
                     const baton::StepContext& context) override {
    for (const baton::Seat& seat : seats) counted += seat.tokens.size();
    return cpu->step(seats, out, context);
  }
  baton::Placement placement() const override { return {"counting", "cpu, " + std::to_string(counted) + " counted"}; }
  std::string arithmetic() const override { return cpu->arithmetic(); }
};

struct CountingUnit final : baton::Unit {
  std::unique_ptr<baton::Unit> cpu;
  std::string_view name() const override { return "counting"; }
  const baton::Caps& caps() const override { return cpu->caps(); }
  baton::Result<std::unique_ptr<baton::Executor>> make_executor(std::shared_ptr<const Model> m,
                                                                uint32_t threads) override {
    auto executor = std::make_unique<CountingExecutor>();
    BATON_TRY(executor->cpu, cpu->load(std::move(m), threads));
    return executor;
  }
};

baton::Result<std::unique_ptr<baton::Unit>> create(const baton::UnitOptions&) {
  auto unit = std::make_unique<CountingUnit>();
  BATON_TRY(unit->cpu, baton::create_unit("cpu"));
  return unit;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: custom_unit MODEL\n"), 2;
  const baton::UnitEntry counting{"counting", create, nullptr};
  baton::RuntimeOptions options;
  options.model = argv[1];
  options.units = {"counting", "cpu"};
  options.own_units = {&counting};
  auto runtime = baton::Runtime::open(options);
  if (!runtime) return std::fprintf(stderr, "%s\n", runtime.error().message.c_str()), 1;
  auto tokens = (*runtime)->encode("The definition of a bridge is", true, baton::TextPlace::kStart);
  if (!tokens) return std::fprintf(stderr, "%s\n", tokens.error().message.c_str()), 1;
  baton::CompletionRequest request{(*runtime)->make_request(std::move(*tokens)), {}};
  request.request.max_new_tokens = 20;
  auto answer = (*runtime)->complete(std::move(request), {}, {});
  if (!answer) return std::fprintf(stderr, "%s\n", answer.error().message.c_str()), 1;
  std::printf("%s\nprefill: %s (%s)\ndecode: %s\nbridge: %s, %llu bytes\n", answer->text.c_str(),
              answer->stats.prefill.ran.c_str(), answer->stats.prefill.evidence.c_str(),
              answer->stats.decode.ran.c_str(), answer->stats.bridge.kind.c_str(),
              static_cast<unsigned long long>(answer->stats.bridge.bytes));
}
