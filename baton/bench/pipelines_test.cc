// Lists of pipelines, rows as JSON and HTML, probes of the system.
#include "baton/bench/pipelines.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "baton/bench/human.h"
#include "baton/bench/pipeline_report.h"
#include "baton/bench/probes.h"

namespace baton {
namespace {

TEST(Pipelines, PresetsAreTheFive) {
  std::vector<std::string> names;
  for (const Pipeline& pipeline : preset_pipelines()) names.push_back(pipeline.name);
  EXPECT_EQ(names, (std::vector<std::string>{"gpu", "coreml-hybrid", "ane", "ane-hybrid", "ane-batch"}));
}

// ane and ane-hybrid give the engine the same words and share its kernels; gpu and coreml-hybrid have none to share.
TEST(Pipelines, EqualOptionsShareWhatIsLoaded) {
  EXPECT_EQ(shared_groups(preset_pipelines()), (std::vector<std::vector<size_t>>{{0}, {1}, {2, 3}, {4}}));
  EXPECT_TRUE(shared_groups({}).empty());
}

TEST(Pipelines, OneLoadForAGroup) {
  const std::string ane = "ane:device=emulator,dispatch=sequential";
  const std::vector<Pipeline> pipelines = {{"a", ane, ane}, {"b", ane, "cpu"}, {"c", "no-such-unit", ane}};
  PipelineSettings settings;
  settings.model = std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/golden/tiny-llama";
  settings.prompt_tokens = {5};
  settings.decode_tokens = 2;
  settings.runs = 1;
  const auto nothing = [](std::string_view) {};
  const auto shared = run_pipelines(std::span(pipelines).first(2), settings, nothing);
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_EQ(shared->loads, 1u);
  ASSERT_EQ(shared->rows.size(), 2u);
  EXPECT_EQ(shared->rows[0].decode.ran, "ane");
  EXPECT_EQ(shared->rows[1].decode.ran, "cpu");
  // One that cannot be had is skipped alone.
  const auto apart = run_pipelines(pipelines, settings, nothing);
  ASSERT_TRUE(apart) << apart.error().message;
  EXPECT_EQ(apart->loads, 2u);
  EXPECT_EQ(apart->rows.size(), 2u);
  ASSERT_EQ(apart->skipped.size(), 1u);
  EXPECT_EQ(apart->skipped[0].pipeline, "c");
}

TEST(Pipelines, GpuIsTheBestDecodeUnitThereIs) {
  const auto best = [](std::vector<std::string_view> names) { return best_decode_unit(names); };
  EXPECT_EQ(best({"ref", "cpu", "ane"}), "cpu");
  EXPECT_EQ(best({"ref", "cpu", "metal", "ane"}), "metal");
  EXPECT_EQ(best({"cpu", "vulkan"}), "vulkan");
  EXPECT_EQ(best({"ref"}), "");
}

TEST(Pipelines, ListsAreReadAndRefusedByPlace) {
  const auto list = parse_pipelines(R"([{"name": "a", "prefill": "ref", "decode": "gpu"},
      {"name": "b", "prefill": "ane:columns=64", "decode": "cpu"}])",
                                    "f");
  ASSERT_TRUE(list.has_value()) << list.error().message;
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].decode, "gpu");
  EXPECT_EQ((*list)[1].prefill, "ane:columns=64");
  const std::pair<const char*, const char*> bad[] = {
      {"", "not a JSON list"},
      {"{}", "not a JSON list"},
      {"[]", "not a JSON list"},
      {"[1]", "pipeline 0 is not an object"},
      {R"([{"name": "a", "prefill": "x", "decode": "y"}, {"name": "b"}])", "pipeline 1: 'prefill' is missing"},
      {R"([{"name": "", "prefill": "x", "decode": "y"}])", "'name' is missing or not a text"},
      {R"([{"name": "a", "prefill": "x", "decode": "y", "speed": 1}])", "'speed' is not known"}};
  for (const auto& [text, message] : bad) {
    const auto refused = parse_pipelines(text, "f.json");
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().message.rfind("f.json", 0), 0u);
    EXPECT_NE(refused.error().message.find(message), std::string::npos) << refused.error().message;
  }
}

PipelineRow sample_row() {
  const double times[] = {3, 1, 2};
  PipelineRow row;
  row.pipeline = "a<b>";
  row.prefill = {"gpu", "cpu", "evidence & \"words\""};
  row.decode = {"gpu", "cpu", "emulated by x", true};
  row.prompt_tokens = 6;
  row.runs = 3;
  row.ttft_ms = summarize(times);
  row.bridge_bytes = 77;
  row.time = Quality::kEmulated;
  return row;
}

TEST(Pipelines, RowsHaveExactlyThePromisedFields) {
  const auto json = rows_json(std::vector<PipelineRow>{sample_row()});
  ASSERT_EQ(json.size(), 1u);
  std::set<std::string> keys;
  for (const auto& [key, value] : json[0].items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"pipeline", "prefill", "decode", "prompt_tokens", "ttft_ms", "prefill_tps",
                                         "decode_tps", "bridge_ms", "bridge_bytes", "peak_memory_bytes", "watts",
                                         "joules", "quality"}));
  EXPECT_EQ(json[0]["ttft_ms"], 2.0);
  EXPECT_EQ(json[0]["bridge_bytes"], 77);
  EXPECT_TRUE(json[0]["watts"].is_null());
  EXPECT_EQ(json[0]["quality"]["time"], "emulated");
  EXPECT_EQ(json[0]["quality"]["energy"], "unknown");
  EXPECT_EQ(json[0]["prefill"]["asked"], "gpu");
  EXPECT_EQ(json[0]["prefill"].size(), 3u);
  // What did not run has no name.
  PipelineRow computed = sample_row();
  computed.decode.ran = "";
  EXPECT_TRUE(rows_json(std::vector<PipelineRow>{computed})[0]["decode"]["ran"].is_null());
  EXPECT_NE(report_text({"m", "c", "n"}, {{computed}, {}}).find("gpu (did not run)"), std::string::npos);
}

TEST(Pipelines, PageEscapesAndMarksEmulated) {
  PipelineReport report;
  report.rows = {sample_row()};
  report.skipped = {{"ane", "no unit <ane>"}};
  const std::string html = report_html({"m", "c", "n"}, report, {}, {"today", "baton 1", "baton bench <x>"});
  EXPECT_NE(html.find("a&lt;b&gt;, ran on cpu</b>"), std::string::npos);
  EXPECT_NE(html.find("2.00 ms (1.00 ms to 3.00 ms) emulated"), std::string::npos);
  for (const char* part : {"width=device-width", "prefers-color-scheme:dark", "Made by baton 1, today",
                           "<code>baton bench &lt;x&gt;</code>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_NE(html.find("no unit &lt;ane&gt;"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos);  // nothing is fetched
  const std::string text = report_text({"m", "c", "n"}, report);
  EXPECT_NE(text.find("2.0 (1.0-3.0)"), std::string::npos);
  EXPECT_NE(text.find("skipped ane: no unit <ane>"), std::string::npos);
  EXPECT_NE(text.find("2.0 emulated"), std::string::npos);
}

// What an emulated unit handed over and a real one decoded: only the prefill is emulated.
TEST(Pipelines, EachPhaseIsLabelledByWhatRanIt) {
  PipelineRow row = sample_row();
  row.pipeline = "ane-batch";
  row.prefill = {"ane", "ane", "emulated on the host", true};
  row.decode = {"gpu", "cpu", "avx2 kernels"};
  const double rates[] = {850};
  row.prefill_tps = row.decode_tps = summarize(rates);
  PipelineReport report;
  report.rows = {row, row};
  report.rows[0].prompt_tokens = 133;
  EXPECT_EQ(pipeline_label(row), "ane-batch, ran on ane -> cpu");
  EXPECT_TRUE(emulated(row, Phases::kBoth));
  EXPECT_TRUE(emulated(row, Phases::kPrefill));
  EXPECT_FALSE(emulated(row, Phases::kDecode));
  const std::string html = report_html({"m", "c", "n"}, report, {});
  const size_t prefill = html.find("<h2>Prefill, tokens/s</h2>"), decode = html.find("<h2>Decode, tokens/s</h2>"),
               rows = html.find("<h2>All rows</h2>");
  ASSERT_TRUE(prefill < decode && decode < rows && rows != std::string::npos);
  EXPECT_NE(html.substr(prefill, decode - prefill).find("850 emulated"), std::string::npos);
  EXPECT_EQ(html.substr(decode, rows - decode).find("emulated"), std::string::npos);
  // Prompts in order, though the rows are not.
  EXPECT_LT(html.find("6 tokens of prompt"), html.find("133 tokens of prompt"));
  const std::string text = report_text({"m", "c", "n"}, report);
  EXPECT_NE(text.find("| 133 | 850.0 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 133 | 850.0 emulated |"), std::string::npos) << text;
  // Where nothing ran, nothing is said to have run.
  row.runs = 0;
  EXPECT_EQ(pipeline_label(row), "ane-batch");
}

TEST(Human, ThreeDigits) {
  const std::pair<double, const char*> cases[] = {{0, "0"},        {0.05234, "0.0523"}, {0.9996, "1.00"},
                                                  {5.318, "5.32"}, {9.996, "10.0"},     {54.54, "54.5"},
                                                  {99.96, "100"},  {24672, "24672"},    {-2.5, "-2.50"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(three_digits(value), text);
  EXPECT_EQ(milliseconds_text(999), "999 ms");
  EXPECT_EQ(milliseconds_text(24672), "24.7 s");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(98'123'456), "98.1 MB");
  EXPECT_EQ(bytes_text(999'600), "1.00 MB");
  EXPECT_EQ(count_text(28'000'000), "28.0 M");
  EXPECT_EQ(count_text(7), "7");
}

#if defined(__linux__)
TEST(Probes, PeakMemoryGrows) {
  const uint64_t before = peak_memory_bytes().value();
  std::vector<char> memory(64 << 20, 1);
  EXPECT_GE(peak_memory_bytes().value(), before);
  EXPECT_GE(peak_memory_bytes().value(), memory.size());
}
#endif

}  // namespace
}  // namespace baton
