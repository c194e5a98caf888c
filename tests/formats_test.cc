// A bundled model in every GGUF type that can be written, on `cpu` against `ref` with the same bytes. Types that only
// MLX folders hold: mlx_folder_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "baton/api/units.h"
#include "baton/tools/convert.h"
#include "tests/support/golden.h"

namespace baton::test {
namespace {

class WrittenFormat : public testing::TestWithParam<DType> {};

std::vector<float> answer(const char* unit_name, std::shared_ptr<const Model> model, std::span<const int32_t> ids) {
  auto unit = create_unit(unit_name);
  auto executor = (*unit)->load(std::move(model), 1);
  EXPECT_TRUE(executor) << executor.error().message;
  EXPECT_EQ((*executor)->placement().text().find("decoded to F32"), std::string::npos);
  auto state = (*executor)->new_state(ids.size());
  return last_logits(**executor, ids, 3, **state);
}

TEST_P(WrittenFormat, CpuAnswersAsRef) {
  const std::filesystem::path out = std::filesystem::temp_directory_path() /
                                    fmt::format("baton_formats_{}_{}.gguf", ::getpid(), to_string(GetParam()));
  ConvertOptions options;
  options.matrix_type = GetParam();
  const auto report = convert_to_gguf(data_folder() / "golden" / "dictionary-3m", out, options);
  ASSERT_TRUE(report) << report.error().message;
  const auto model = load_model(out);
  std::filesystem::remove(out);
  ASSERT_TRUE(model) << model.error().message;
  size_t found = 0;  // rows of 160 do not fit blocks of 256; those of 256 do
  for (const Weight& weight : (*model)->weights) found += weight.dtype == GetParam() ? 1 : 0;
  EXPECT_GE(found, 4u);
  const auto cpu = create_unit("cpu");
  ASSERT_TRUE(cpu);
  const std::vector<int32_t> ids = {5, 17, 200, 3, 91, 44, 128, 7};
  const std::vector<float> wanted = answer("ref", *model, ids), got = answer("cpu", *model, ids);
  EXPECT_LE(max_abs_difference(got, wanted), (*cpu)->caps().logit_tolerance(GetParam()));
  EXPECT_GT(top2_gap(wanted), 0);  // an answer, not zeros
}

std::vector<DType> written() {
  std::vector<DType> types;
  for (const Format& format : formats()) {
    if (format.encode != nullptr && format.ggml_id != kNoGgmlId) types.push_back(format.dtype);
  }
  return types;
}
INSTANTIATE_TEST_SUITE_P(All, WrittenFormat, testing::ValuesIn(written()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace baton::test
