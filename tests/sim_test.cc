// The engine's scheduler under simulation: thousands of seeded runs, and the scenarios a seed would seldom meet.
// A failing seed is printed; BATON_SIM_SEED=<seed> runs that one alone, BATON_SIM_SEEDS=<count> another number of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/support/simulation.h"
#include "tests/support/smoke.h"

namespace baton::fake {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 4000;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr uint64_t kSeeds = 4000;
#else
constexpr uint64_t kSeeds = 40000;
#endif
#else
constexpr uint64_t kSeeds = 40000;
#endif
constexpr uint64_t kShards = 4;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void run_seed(uint64_t seed, SimulationCounts& counts) {
  Simulation simulation(seed);
  const Status status = simulation.run();
  ASSERT_TRUE(status) << status.error().message << "\nreplay: BATON_SIM_SEED=" << seed;
  counts.add(simulation.counts());
}

class Seeds : public testing::TestWithParam<uint64_t> {};

TEST_P(Seeds, EveryRunHoldsEveryInvariant) {
  SimulationCounts counts;
  if (std::getenv("BATON_SIM_SEED") != nullptr) return run_seed(number_from("BATON_SIM_SEED", 0), counts);
  const uint64_t each = number_from("BATON_SIM_SEEDS", kSeeds) / kShards;
  for (uint64_t i = 0; i < each; ++i) {
    run_seed(GetParam() * each + i, counts);
    if (HasFatalFailure()) return;
  }
  std::cout << each << " seeds: " << counts.requests << " requests, " << counts.steps << " steps ("
            << counts.shared_steps << " decodes and " << counts.shared_prefills << " prefills shared), "
            << counts.answered << " answered, " << counts.cancelled << " cancelled, " << counts.errors << " errors, "
            << counts.refused << " refused, " << counts.fallbacks << " fall-backs, " << counts.rebuilt << " rebuilt, "
            << counts.moved << " moved, " << counts.adopted << " adopted, " << counts.proved << " proved, "
            << counts.proofs_failed << " proofs failed, " << counts.start_refused << " starting states refused, "
            << counts.sealed << " sealed, " << counts.sealed_answers << " answers sealed (" << counts.sealed_cancelled
            << " cancelled), " << counts.kept << " checkpoints kept, " << counts.reused << " reused, "
            << counts.reuse_failed << " not usable, " << counts.stored << " stored (" << counts.stored_before_end
            << " while requests ran), " << counts.from_files << " begun from files, " << counts.files_refused
            << " files refused, " << counts.not_stored << " not written, " << counts.streamed << " steps streamed, "
            << counts.preempted << " times set aside, of them " << counts.prefilled_again << " prefilled again, "
            << counts.late << " late, " << counts.cut_short << " works cut short, " << counts.marks
            << " states looked at for whose they are, " << static_cast<int>(100 * counts.bound_used_max)
            << " % of the bytes allowed taken at most; cancels took "
            << static_cast<double>(counts.cancel_ns_max) * 1e-6 << " ms at most (";
  for (size_t i = 0; i < kCancelPhases.size(); ++i)
    std::cout << (i > 0 ? ", " : "") << counts.cancels_in[i] << ' ' << kCancelPhases[i];
  std::cout << ")\n";
  if (each < kSeeds / kShards) return;
  // The runs must reach what they are there for.
  for (const uint64_t seen :
       {counts.answered,      counts.cancelled, counts.errors,         counts.refused,          counts.fallbacks,
        counts.moved,         counts.proved,    counts.proofs_failed,  counts.shared_steps,     counts.shared_prefills,
        counts.start_refused, counts.sealed,    counts.sealed_answers, counts.sealed_cancelled, counts.kept,
        counts.reused,        counts.late,      counts.cut_short,      counts.preempted,        counts.streamed}) {
    EXPECT_GT(seen, each / 250);
  }
  for (const uint64_t seen : counts.cancels_in) EXPECT_GT(seen, each / 5000);
  EXPECT_GT(counts.adopted, each / 250);
  EXPECT_GT(counts.reuse_failed, each / 1000);
  EXPECT_EQ(counts.from_files_by.size(), strategies().size());
  EXPECT_GT(counts.stored_before_end, each / 1000);
  for (const uint64_t seen : {counts.stored, counts.from_files}) EXPECT_GT(seen, each / 250);
  for (const uint64_t seen : {counts.files_refused, counts.not_stored}) EXPECT_GT(seen, each / 1000);
  EXPECT_GT(counts.rebuilt, each / 1000);  // one in a hundred, several at a time: few of 1,000 seeds
}
INSTANTIATE_TEST_SUITE_P(Shard, Seeds, testing::Range<uint64_t>(0, kShards));

// Each fault at one time of each run, and every 16th time.
TEST(Faults, HitOneRequestAndNoOther) {
  SimulationCounts counts;
  for (const FaultPoint point : kSimulatedFaults) {
    for (const bool once : {true, false}) {
      uint64_t reached = 0, fired = 0;
      for (uint64_t seed = 0; seed < static_cast<uint64_t>(scaled(120, 90)); ++seed) {
        Simulation simulation(
            seed, {point, once ? FaultPlan{.at = reached + 1 + seed % 9} : FaultPlan{.every = 16}, reached});
        const Status status = simulation.run();
        ASSERT_TRUE(status) << to_string(point) << (once ? " once: " : " every 16th time: ") << status.error().message;
        counts.add(simulation.counts());
        reached = simulation.fault().reached();
        fired += simulation.fault().fired();
      }
      std::cout << to_string(point) << (once ? " once" : " every 16th time") << ": reached " << reached << ", fired "
                << fired << "\n";
      EXPECT_GT(fired, 4u) << to_string(point);
    }
  }
  std::cout << counts.requests << " requests: " << counts.answered << " answered, " << counts.errors << " errors, "
            << counts.restarted << " restarted from checkpoints, " << counts.fallbacks << " fall-backs\n";
  EXPECT_GT(counts.restarted, 10u);
}

TEST(Replay, TheSameSeedIsTheSameRun) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Simulation first(seed), second(seed);
    ASSERT_TRUE(first.run());
    ASSERT_TRUE(second.run());
    EXPECT_EQ(first.trace(), second.trace()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace baton::fake
