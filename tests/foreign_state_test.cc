// One model in two containers keeps its value heads and rotated pairs in different orders; the cache files of other
// projects have one order. Both containers must write the same cache.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "baton/api/units.h"
#include "baton/base/bytes.h"
#include "baton/bridge/bridge.h"
#include "baton/model/container.h"
#include "baton/model/model.h"
#include "baton/tools/convert.h"
#include "baton/tools/foreign.h"
#include "tests/support/fake_state.h"

namespace baton {
namespace {

std::vector<std::byte> cache_of(const std::filesystem::path& path, std::span<const int32_t> tokens) {
  const auto model = load_model(path).value();
  const auto unit = create_unit("ref").value();
  const auto executor = unit->load(model, 1).value();
  const auto state = executor->new_state(64).value();
  EXPECT_TRUE(executor->prefill(*state, tokens, {}).has_value());
  const auto block = seal_state(*state, {}, {tokens.begin(), tokens.end()}).value();
  const StateShape layout = state_shape(model->program, DType::kF32);
  SealExpectation expected;
  expected.shape = &layout;
  expected.position_max = 64;
  ForeignOptions options;
  options.type = DType::kF32;
  return to_foreign(from_seal(SealSource::borrowed(block), expected).value(), *model, ForeignFormat::kMlx, options)
      .value();
}

class ContainersOfOneModel : public testing::TestWithParam<const char*> {};

TEST_P(ContainersOfOneModel, WriteOneCache) {
  const std::filesystem::path folder = std::filesystem::path(BATON_SOURCE_DIR "/tests/data/golden") / GetParam();
  const auto gguf = std::filesystem::path(testing::TempDir()) / fmt::format("foreign_{}.gguf", GetParam());
  ConvertOptions options;
  options.matrix_type = DType::kF32;
  ASSERT_TRUE(convert_to_gguf(folder, gguf, options).has_value());
  const auto tokens = test::fake_tokens(11, 21, 200);
  const auto from_folder = cache_of(folder, tokens);
  const auto from_gguf = cache_of(gguf, tokens);
  std::filesystem::remove(gguf);

  const auto a = parse_foreign(from_folder).value(), b = parse_foreign(from_gguf).value();
  ASSERT_EQ(a.sections.size(), b.sections.size());
  for (size_t i = 0; i < a.sections.size(); ++i) {
    ASSERT_EQ(a.sections[i].bytes.size(), b.sections[i].bytes.size());
    double worst = 0, largest = 0;
    for (size_t at = 0; at < a.sections[i].bytes.size(); at += 4) {
      const auto x = load_as<float>(a.sections[i].bytes.data() + at),
                 y = load_as<float>(b.sections[i].bytes.data() + at);
      worst = std::max(worst, std::fabs(static_cast<double>(x) - y));
      largest = std::max(largest, std::fabs(static_cast<double>(x)));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LT(worst, 1e-4 * std::max(1.0, largest)) << segment_name(a.sections[i].kind, a.sections[i].layer);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContainersOfOneModel, testing::Values("tiny-qwen3.5", "tiny-llama"));

}  // namespace
}  // namespace baton
