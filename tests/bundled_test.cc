// The models that come with the program: their tokenizer against the reference tokenizer's ids, their chat template.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "baton/api/text_model.h"
#include "tests/support/golden.h"

namespace baton::test {
namespace {

class Bundled : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Bundled, testing::Values("dictionary_28m", "dictionary_3m"));

TEST_P(Bundled, TokenizerAndTemplate) {
  std::string name = GetParam();
  name[name.find('_')] = '-';
  const auto text = load_text_model(std::filesystem::path(BATON_SOURCE_DIR) / "models" / (name + ".Q8_0.gguf"));
  ASSERT_TRUE(text) << text.error().message;
  ASSERT_TRUE(text->tokenizer);
  std::ifstream stream(data_folder() / "golden" / name / "golden.json");
  const auto samples = nlohmann::json::parse(stream)["tokenizer_samples"];
  ASSERT_GE(samples.size(), 10u);
  for (const auto& sample : samples) {
    const std::string wanted_text = sample["text"].get<std::string>();
    const auto ids = text->tokenizer->encode(wanted_text, true);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, sample["ids"].get<std::vector<int32_t>>()) << sample["text"];
    EXPECT_EQ(text->tokenizer->decode(*ids, false).value_or("?"), wanted_text);
  }
  ASSERT_TRUE(text->chat_template) << text->chat_template_note;
  ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", "hi <|im_end|>"}});
  EXPECT_EQ(text->chat_template->render(input).value_or("?"),
            "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
  // What a user writes never becomes a control token: one end of turn, the template's own.
  const auto pieces = text->chat_template->render_pieces(input);
  ASSERT_TRUE(pieces);
  const auto ids = text->tokenizer->encode_pieces(*pieces);
  ASSERT_TRUE(ids);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), text->tokenizer->find("<|im_end|>")), 1);
  EXPECT_EQ(text->stop_ids, (std::vector<int32_t>{8189, 8191}));
}

}  // namespace
}  // namespace baton::test
