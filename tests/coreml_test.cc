// Core ML packages of the models of this repository, executed by the interpreter, against `ref`: the states of exactly
// the prompt's tokens and the residual stream behind the last layer, for prompts shorter than the package and equal to
// it, from the start and after a state, whatever the padding columns hold.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "baton/api/units.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/apple/mlpackage/export.h"
#include "baton/unit/apple/mlpackage/interpreter.h"
#include "baton/unit/apple/mlpackage/prefill_feed.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"

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

float read(const Segment& segment, uint64_t a, uint64_t b, uint64_t c) {
  const SegmentLayout& layout = *segment.layout;
  const uint64_t at = a * layout.strides[0] + b * layout.strides[1] + c * layout.strides[2];
  float value = 0;
  format_of(layout.dtype).decode(segment.data + at * value_bytes(layout.dtype), &value, 1);
  return value;
}

Difference difference(const Segment& got, const Segment& wanted, uint64_t tokens) {
  Difference out;
  const Dims dims = dims_at(*got.layout, tokens);
  for (uint64_t a = 0; a < dims[0]; ++a) {
    for (uint64_t b = 0; b < dims[1]; ++b) {
      for (uint64_t c = 0; c < dims[2]; ++c) out.add(read(got, a, b, c), read(wanted, a, b, c));
    }
  }
  return out;
}

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
    folder_ =
        fs::temp_directory_path() / fmt::format("baton-coreml-{}", testing::UnitTest::GetInstance()->random_seed());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Packages open(const PrefillShape& shape, int32_t chunks) {
    apple::ExportOptions options;
    options.shapes = {shape};
    options.chunks = chunks;
    auto report = apple::export_packages(*model_, options, folder_);
    EXPECT_TRUE(report) << report.error().message;
    Packages out;
    if (!report) return out;
    for (const apple::ExportedPackage& item : report->packages) {
      auto opened = apple::PackageInterpreter::open(item.path, 2);
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
    for (size_t i = 0; i < got.segments().size(); ++i) {
      const double relative = difference(got.segments()[i], (*wanted)->segments()[i], ids.size()).relative();
      worst_ = std::max(worst_, relative);
      EXPECT_LE(relative, kDifferenceAllowed)
          << label << " " << segment_name(got.segments()[i].layout->kind, got.segments()[i].layout->layer);
    }
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Executor> ref_;
  fs::path folder_;
  double worst_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Models, CoreMl, testing::ValuesIn(golden_cases()), [](const auto& item) {
  std::string name = item.param.name;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

TEST_P(CoreMl, StatesOfExactlyTheTokens) {
  const int32_t seq = 64;
  Packages packages = open({seq, 0}, std::min(2, model_->spec.layers));
  ASSERT_EQ(packages.interpreters.size(), packages.chunks.size());
  for (const size_t count : {size_t{1}, size_t{2}, size_t{17}, size_t{63}, size_t{64}}) {
    const std::vector<int32_t> ids = prompt(count, count);
    auto state = ref_->new_state(count);
    ASSERT_TRUE(state);
    const auto status =
        apple::run_chunks(*model_, {seq, 0}, packages.chunks, packages.call(), 0, ids, (*state)->segments(), {});
    ASSERT_TRUE(status) << status.error().message;
    compare(**state, ids, fmt::format("{} of {} tokens", count, seq));
  }
  fmt::print("{}: largest relative difference {:.5f}\n", GetParam().name, worst_);
}

}  // namespace
}  // namespace baton::test
