// Core ML packages of the models of this repository, executed by the interpreter, against `ref`: the states of exactly
// the prompt's tokens and the residual stream behind the last layer, for prompts shorter than the package and equal to
// it, from the start and after a state, whatever the padding columns hold.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "baton/api/units.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/tools/convert.h"
#include "baton/unit/apple/mlpackage/export.h"
#include "baton/unit/apple/mlpackage/interpreter.h"
#include "baton/unit/apple/mlpackage/prefill_feed.h"
#include "baton/unit/host/host_state.h"
#include "baton/unit/ref/ops.h"
#include "tests/support/golden.h"
#include "tests/support/state_values.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;
using apple::HalfArrays;
using apple::LayerRange;
using apple::PrefillShape;

// Root of the mean squared difference over the root of the mean square: what fp16 activations, weights and states may
// cost against f32 on these models. The largest that was seen is printed.
constexpr double kDifferenceAllowed = 0.02;

struct Difference {
  double error = 0, energy = 1e-20;
  void add(float got, float wanted) {
    error += (static_cast<double>(got) - wanted) * (static_cast<double>(got) - wanted);
    energy += static_cast<double>(wanted) * wanted;
  }
  double relative() const { return std::sqrt(error / energy); }
};

Difference difference(const SequenceState& got, const SequenceState& wanted, size_t slot) {
  Difference out;
  const std::vector<float> values = segment_values(got, slot), others = segment_values(wanted, slot);
  for (size_t i = 0; i < values.size(); ++i) out.add(values[i], others[i]);
  return out;
}

// What run_chunks fills, of a state of a host unit; and the state behind it.
std::vector<apple::SlotMemory> memories_of(SequenceState& state) {
  auto& own = static_cast<host::HostState&>(state);
  std::vector<apple::SlotMemory> memories;
  BATON_CHECK(own.make_room(own.tokens_max()));
  for (SlotId slot = 0; slot < static_cast<SlotId>(own.shape().segments.size()); ++slot) {
    const Segment& segment = own.shape().segments[static_cast<size_t>(slot)];
    memories.push_back({segment.dtype, dims_at(segment, own.tokens_max()),
                        [&own, slot](uint64_t a, uint64_t b) { return own.row(slot, a, b); }});
  }
  return memories;
}
void filled(SequenceState& state, size_t tokens) { static_cast<host::HostState&>(state).advance(tokens); }

// Packages of one shape, written to a folder and opened from it.
struct Packages {
  std::vector<LayerRange> chunks;
  std::vector<std::unique_ptr<apple::PackageInterpreter>> interpreters;
  apple::PackageCall call() {
    return [this](size_t chunk, const HalfArrays& inputs) { return interpreters[chunk]->predict(inputs); };
  }
};

class CoreMl : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    auto model = load_model(GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    auto unit = create_unit("ref");
    ref_ = std::move(*(*unit)->load(model_, 0));
    folder_ = fs::temp_directory_path() / fmt::format("baton-coreml-{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Packages open(const PrefillShape& shape, int32_t chunks,
                const apple::Numerics& numerics = apple::PackageInterpreter::kKeepsSubnormals) {
    apple::ExportOptions options;
    options.shapes = {shape};
    options.chunks = chunks;
    auto report = apple::export_packages(*model_, options, folder_);
    EXPECT_TRUE(report) << report.error().message;
    Packages out;
    if (!report) return out;
    for (const apple::ExportedPackage& item : report->packages) {
      auto opened = apple::PackageInterpreter::open(item.path, 2, numerics);
      EXPECT_TRUE(opened) << opened.error().message;
      if (!opened) return out;
      out.interpreters.push_back(std::move(*opened));
      out.chunks.push_back(item.layers);
    }
    return out;
  }

  std::vector<int32_t> prompt(size_t tokens, uint64_t seed) const {
    Random random(seed);
    std::vector<int32_t> ids(tokens);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(model_->program.vocab)));
    return ids;
  }

  // States of `got` against a prefill of all of `ids` on ref.
  void compare(SequenceState& got, std::span<const int32_t> ids, const std::string& label) {
    auto wanted = ref_->new_state(ids.size());
    ASSERT_TRUE(ref_->prefill(**wanted, ids, {}));
    for (size_t i = 0; i < got.shape().segments.size(); ++i) {
      const double relative = difference(got, **wanted, i).relative();
      worst_ = std::max(worst_, relative);
      EXPECT_LE(relative, kDifferenceAllowed)
          << label << " " << segment_name(got.shape().segments[i].kind, got.shape().segments[i].layer);
    }
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Executor> ref_;
  fs::path folder_;
  double worst_ = 0;
};

// What the packages do not compute is refused by the op's name, for these families and no others.
const std::pair<const char*, const char*> kRefused[] = {{"gemma2", "attend.window"},
                                                        {"gemma3", "another base"},
                                                        {"llama4", "attend.chunk"},
                                                        {"ministral", "attend.window"},
                                                        {"mistral", "attend.window"},
                                                        {"gpt2", "layer_norm"},
                                                        {"granite", "scale"},
                                                        {"lfm2", "short_conv"},
                                                        {"ministral3", "position_scale"},
                                                        {"olmo3", "another base"},
                                                        {"qwen3_5_moe", "sigmoid_gate.one"},
                                                        {"qwen3_moe", "experts"},
                                                        {"qwen3_next", "sigmoid_gate.one"}};

std::string refusal_of(const GoldenCase& item) {
  for (const auto& [name, op] : kRefused) {
    if (item.name == name) return op;
  }
  return "";
}

std::vector<GoldenCase> programs() {
  std::vector<GoldenCase> cases = golden_cases();
  std::erase_if(cases, [](const GoldenCase& item) { return item.copy || !refusal_of(item).empty(); });
  return cases;
}

TEST(CoreMlFamilies, AnOpThatPackagesLackIsNamed) {
  const auto folder = fs::temp_directory_path() / fmt::format("baton-coreml-refused-{}", getpid());
  for (const auto& [name, op] : kRefused) {
    const auto model = load_model(family_folder(name));
    ASSERT_TRUE(model) << model.error().message;
    apple::ExportOptions options;
    options.shapes = {{32, 0}};
    const auto report = apple::export_packages(**model, options, folder);
    ASSERT_FALSE(report) << name;
    EXPECT_EQ(report.error().code, Code::kUnsupported) << name;
    EXPECT_NE(report.error().message.find(op), std::string::npos) << name << ": " << report.error().message;
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, CoreMl, testing::ValuesIn(programs()), [](const auto& item) {
  std::string name = item.param.name;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

// ref's logits behind each token, and those that the packages' residual stream gives through the same norm and head.
// `token`: the likeliest behind the last one.
double logits_difference(const Model& model, Executor& ref, std::span<const int32_t> ids, std::span<const float> hidden,
                         int32_t* token = nullptr) {
  const auto vocab = static_cast<size_t>(model.program.vocab);
  std::vector<float> wanted(ids.size() * vocab), row(vocab);
  auto state = ref.new_state(ids.size());
  EXPECT_TRUE(ref.prefill(**state, ids, wanted));
  const Op &norm = model.program.ops[model.program.ops.size() - 2], &head = model.program.ops.back();
  const auto width = static_cast<size_t>(norm.width);
  std::vector<float> normed(width);
  Difference out;
  for (size_t t = 0; t < ids.size(); ++t) {
    ref::rms_norm(hidden.data() + t * width,
                  reinterpret_cast<const float*>(model.weights[norm.weights[Op::kScale]].data), normed.data(),
                  norm.width, norm.eps);
    ref::linear(model.weights[head.weights[Op::kMatrix]], normed.data(), row.data(), 1);
    for (size_t i = 0; i < vocab; ++i) out.add(row[i], wanted[t * vocab + i]);
  }
  if (token != nullptr) *token = argmax(row);
  return out.relative();
}

TEST_P(CoreMl, StatesOfExactlyTheTokens) {
  const int32_t seq = 64;
  const bool large = model_->parameter_count() > 10'000'000;
  Packages packages = open({seq, 0}, 2);
  ASSERT_EQ(packages.interpreters.size(), packages.chunks.size());
  double worst_logits = 0;
  for (const size_t count : large ? std::vector<size_t>{29} : std::vector<size_t>{1, 2, 17, 63, 64}) {
    const std::vector<int32_t> ids = prompt(count, count);
    auto state = ref_->new_state(count);
    ASSERT_TRUE(state);
    std::vector<float> hidden(count * static_cast<size_t>(model_->program.hidden));
    const auto status =
        apple::run_chunks(*model_, {seq, 0}, packages.chunks, packages.call(), 0, ids, memories_of(**state), hidden);
    ASSERT_TRUE(status) << status.error().message;
    filled(**state, ids.size());
    compare(**state, ids, fmt::format("{} of {} tokens", count, seq));
    const double logits = logits_difference(*model_, *ref_, ids, hidden);
    worst_logits = std::max(worst_logits, logits);
    EXPECT_LE(logits, kDifferenceAllowed) << count << " tokens";
  }
  fmt::print("{}: largest relative difference {:.5f}, of logits {:.5f}\n", GetParam().name, worst_, worst_logits);
}

// Chips whose multipliers take subnormal values as 0: the answers stay within 2 %, and the next token is the same. The
// prompt is longer than a chunk of the delta rule, so that outputs come from the state too. Without the carrier they
// are further off: a test that did not see this would measure nothing.
TEST_P(CoreMl, ChipsThatFlushSubnormals) {
  const bool has_delta = std::any_of(model_->program.ops.begin(), model_->program.ops.end(),
                                     [](const Op& op) { return op.kind == OpKind::kDeltaRule; });
  const bool trained = GetParam().name.starts_with("dictionary-3m");
  if (!has_delta || !trained) GTEST_SKIP() << "the smallest trained model with delta layers shows it";
  const std::vector<int32_t> ids = read_golden(GetParam().vectors).at("len65.ids").integers;
  ASSERT_GT(ids.size(), 64u);
  const auto width = static_cast<size_t>(model_->program.hidden);
  struct Answer {
    double difference;
    int32_t token;
  };
  const auto answer = [&](apple::Profile profile, float carrier) {
    const PrefillShape shape{128, 0, carrier};
    Packages packages = open(shape, 1, {profile, false, false});
    auto state = ref_->new_state(ids.size());
    std::vector<float> hidden(ids.size() * width);
    const auto status =
        apple::run_chunks(*model_, shape, packages.chunks, packages.call(), 0, ids, memories_of(**state), hidden);
    EXPECT_TRUE(status) << status.error().message;
    int32_t token = -1;
    const double difference = logits_difference(*model_, *ref_, ids, hidden, &token);
    fmt::print("{} {} carrier {}: logits {:.4f} off, next token {}\n", GetParam().name, to_string(profile), carrier,
               difference, token);
    return Answer{difference, token};
  };
  const Answer plain = answer(apple::Profile::kModern, apple::kDeltaCarrier);
  EXPECT_LE(plain.difference, kDifferenceAllowed);
  for (const apple::Profile profile : {apple::Profile::kM1, apple::Profile::kM3}) {
    const Answer flushed = answer(profile, apple::kDeltaCarrier);
    EXPECT_LE(flushed.difference, 0.02);
    EXPECT_EQ(flushed.token, plain.token);
    EXPECT_GT(answer(profile, 1).difference, 2 * flushed.difference);
  }
}

// Tokens that repeat make the delta rule's triangular systems ill-suited to series of powers: here they are solved.
TEST_P(CoreMl, OneTokenManyTimes) {
  if (model_->parameter_count() > 10'000'000) GTEST_SKIP() << "the small models show it";
  Packages packages = open({64, 0}, 1);
  const std::vector<int32_t> ids(60, 7);
  auto state = ref_->new_state(ids.size());
  const auto status =
      apple::run_chunks(*model_, {64, 0}, packages.chunks, packages.call(), 0, ids, memories_of(**state), {});
  ASSERT_TRUE(status) << status.error().message;
  filled(**state, ids.size());
  compare(**state, ids, "one token 60 times");
}

// A second package goes on from the state of the first; lengths around the taps of the convolution, padded and full.
TEST_P(CoreMl, ContinuesFromAState) {
  if (model_->parameter_count() > 10'000'000) GTEST_SKIP() << "the small models show it";
  Packages start = open({32, 0}, 1), next = open({32, 64}, 2);
  ASSERT_TRUE(!start.interpreters.empty() && !next.interpreters.empty());
  for (const auto& [first, second] : std::vector<std::pair<size_t, size_t>>{{1, 1}, {2, 3}, {20, 32}, {32, 2}}) {
    const std::vector<int32_t> ids = prompt(first + second + 5, 7 * first + second);
    auto state = ref_->new_state(ids.size());
    const auto segments = memories_of(**state);
    const std::span<const int32_t> all = ids;
    ASSERT_TRUE(apple::run_chunks(*model_, {32, 0}, start.chunks, start.call(), 0, all.first(first), segments, {}));
    ASSERT_TRUE(apple::run_chunks(*model_, {32, 64}, next.chunks, next.call(), first, all.subspan(first, second),
                                  segments, {}));
    ASSERT_TRUE(apple::run_chunks(*model_, {32, 64}, next.chunks, next.call(), first + second,
                                  all.subspan(first + second), segments, {}));
    filled(**state, ids.size());
    compare(**state, ids, fmt::format("{} + {} + 5 tokens", first, second));
  }
}

// Not one bit of a state depends on the padding columns, nor on how the layers are cut into packages.
TEST_P(CoreMl, PaddingAndChunksChangeNothing) {
  if (model_->parameter_count() > 10'000'000) GTEST_SKIP() << "the small models show it";
  const PrefillShape shape{32, 0};
  Packages whole = open(shape, 1), cut = open(shape, model_->spec.layers);
  ASSERT_EQ(cut.chunks.size(), static_cast<size_t>(model_->spec.layers));
  const std::vector<int32_t> ids = prompt(11, 3);
  Random random(5);
  const auto run = [&](Packages& packages, bool noise) {
    auto state = std::move(*ref_->new_state(ids.size()));
    const apple::PackageCall call = [&](size_t chunk, const HalfArrays& inputs) {
      HalfArrays changed = inputs;
      for (size_t i = 0; noise && i < changed["hidden"].size(); ++i) {
        if (i % 32 < 32 - ids.size()) changed["hidden"][i] = f32_to_f16(random.uniform(-3, 3));
      }
      return packages.interpreters[chunk]->predict(changed);
    };
    EXPECT_TRUE(apple::run_chunks(*model_, shape, packages.chunks, call, 0, ids, memories_of(*state), {}));
    filled(*state, ids.size());
    return state;
  };
  const auto plain = run(whole, false), noisy = run(whole, true), in_parts = run(cut, false);
  for (size_t i = 0; i < plain->shape().segments.size(); ++i) {
    const std::string name = segment_name(plain->shape().segments[i].kind, plain->shape().segments[i].layer);
    EXPECT_EQ(difference(*noisy, *plain, i).error, 0) << name;
    EXPECT_EQ(difference(*in_parts, *plain, i).error, 0) << name;
  }
}

// GGUF files of llama keep q and k in adjacent pairs.
TEST(CoreMlAdjacentPairs, StatesOfExactlyTheTokens) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-coreml-pairs-{}", getpid());
  fs::create_directories(folder);
  const fs::path file = folder / "llama.gguf";
  ConvertOptions options;
  options.matrix_type = DType::kF16;
  ASSERT_TRUE(convert_to_gguf(data_folder() / "golden" / "tiny-llama", file, options));
  auto model = load_model(file);
  ASSERT_TRUE(model) << model.error().message;
  apple::ExportOptions exported;
  exported.shapes = {{24, 0}};
  auto report = apple::export_packages(**model, exported, folder);
  ASSERT_TRUE(report) << report.error().message;
  auto package = apple::PackageInterpreter::open(report->packages[0].path, 1);
  ASSERT_TRUE(package) << package.error().message;
  const LayerRange all = report->packages[0].layers;
  const std::vector<int32_t> ids = {5, 6, 7, 200, 3, 9, 77};
  auto ref = std::move(*(*create_unit("ref"))->load(*model, 0));
  auto state = std::move(*ref->new_state(ids.size())), wanted = std::move(*ref->new_state(ids.size()));
  const auto call = [&](size_t, const HalfArrays& inputs) { return (*package)->predict(inputs); };
  ASSERT_TRUE(apple::run_chunks(**model, {24, 0}, {&all, 1}, call, 0, ids, memories_of(*state), {}));
  filled(*state, ids.size());
  ASSERT_TRUE(ref->prefill(*wanted, ids, {}));
  for (size_t i = 0; i < state->shape().segments.size(); ++i) {
    EXPECT_LE(difference(*state, *wanted, i).relative(), 5e-3) << i;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace baton::test
