// Ladders of the bundled small model, and their reports on hand-made figures.
#include "baton/bench/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "baton/bench/ladder_report.h"
#include "baton/tools/quantize.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot(BATON_SOURCE_DIR);

LadderOptions small_ladder() {
  LadderOptions options;
  options.model = kRoot / "tests/data/golden/dictionary-3m";
  options.text = kRoot / "tests/data/golden/heldout.txt";
  options.window = 64;
  options.windows_max = 12;
  options.prefill_tokens = 16;
  options.decode_tokens = 4;
  options.rounds = 2;
  options.threads = 1;
  options.memory_budget_bytes = uint64_t{1} << 30;
  return options;
}

// Temporary files of one test go to a folder of their own, so that what it leaves can be seen.
class OwnTemporaryFolder {
 public:
  OwnTemporaryFolder() : path_(fs::path(testing::TempDir()) / "ladder_tmp") {
    fs::remove_all(path_);
    fs::create_directories(path_);
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", path_.c_str(), 1);
  }
  ~OwnTemporaryFolder() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
    fs::remove_all(path_);
  }
  bool empty() const { return fs::is_empty(path_); }

 private:
  const fs::path path_;
  std::string before_;
};

TEST(LadderRun, SmallestIsWorseThanQ8) {
  const std::string smallest(quantize_types().front());
  LadderOptions options = small_ladder();
  options.types = {smallest, "q8_0", "BF16"};
  const auto ladder = measure_ladder(options);
  ASSERT_TRUE(ladder) << ladder.error().message;
  ASSERT_EQ(ladder->rows.size(), 4u);
  EXPECT_EQ(ladder->windows, 12u);
  EXPECT_EQ(ladder->counted, 12u * 31);
  const LadderRow &source = ladder->rows[0], &same = ladder->rows[1], &q8 = ladder->rows[2], &low = ladder->rows[3];
  EXPECT_TRUE(source.is_source);
  EXPECT_EQ(same.type, "BF16");
  EXPECT_EQ(q8.type, "Q8_0");
  EXPECT_EQ(low.type, smallest);
  // The source written as it is: the same figures to the last bit.
  EXPECT_EQ(same.quality.kld.value, 0);
  EXPECT_EQ(same.quality.delta_ppl.value, 0);
  EXPECT_EQ(same.quality.top1.value, 1);
  EXPECT_GT(q8.quality.kld.value, 0);
  EXPECT_GT(low.quality.kld.value, 10 * q8.quality.kld.value);
  EXPECT_LT(low.quality.top1.value, q8.quality.top1.value);
  EXPECT_LT(low.bytes, q8.bytes);
  EXPECT_LT(low.bits_per_weight, q8.bits_per_weight);
  EXPECT_NEAR(source.bits_per_weight, 16, 0.2);
  const auto& against = ladder->verdict.neighbours.back();
  EXPECT_EQ(against.smaller, 3u);
  EXPECT_TRUE(against.kld.differs());
  for (const LadderRow& row : ladder->rows) {
    EXPECT_EQ(row.speed.prefill_tps.size(), 2u);
    EXPECT_EQ(row.speed.decode_tps.size(), 2u);
    EXPECT_FALSE(row.peak_memory_bytes);  // nobody measures it here
  }
}

// One model at a time: the same figures as all together.
TEST(LadderRun, LittleMemoryAndKeptFiles) {
  const fs::path keep = fs::path(testing::TempDir()) / "ladder_keep";
  fs::remove_all(keep);
  LadderOptions options = small_ladder();
  options.types = {"Q4_0", "Q5_0", "Q8_0"};
  options.rounds = 0;
  const auto together = measure_ladder(options);
  ASSERT_TRUE(together) << together.error().message;
  options.memory_budget_bytes = 0;
  options.rounds = 1;
  options.keep = keep;
  const auto apart = measure_ladder(options);
  ASSERT_TRUE(apart) << apart.error().message;
  for (size_t i = 0; i < together->rows.size(); ++i) {
    EXPECT_EQ(together->rows[i].type, apart->rows[i].type);
    EXPECT_EQ(together->rows[i].quality.kld.value, apart->rows[i].quality.kld.value);
    EXPECT_EQ(together->rows[i].quality.ppl.value, apart->rows[i].quality.ppl.value);
    EXPECT_TRUE(together->rows[i].speed.decode_tps.empty());
    EXPECT_EQ(apart->rows[i].speed.decode_tps.size(), 1u);
    EXPECT_EQ(apart->rows[i].file.empty(), apart->rows[i].is_source);
    if (apart->rows[i].is_source) continue;
    EXPECT_EQ(fs::file_size(apart->rows[i].file), apart->rows[i].bytes);
  }
  EXPECT_FALSE(together->verdict.has_speed);
  fs::remove_all(keep);
}

TEST(LadderRun, ErrorsSayWhatThereIs) {
  const OwnTemporaryFolder temporary;
  LadderOptions options = small_ladder();
  options.types = {"Q4_0", "Q9_Z"};
  auto wrong = measure_ladder(options);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("no type named 'Q9_Z'; there are: "), std::string::npos);
  EXPECT_NE(wrong.error().message.find("Q8_0"), std::string::npos);

  options.types = {"Q8_0", "q8_0"};
  wrong = measure_ladder(options);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("twice"), std::string::npos);

  options.types = {"Q4_0"};
  options.window = 1 << 18;
  wrong = measure_ladder(options);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("do not fill a window"), std::string::npos);

  options.window = 64;
  options.model = kRoot / "models/dictionary-3m.Q8_0.gguf";
  wrong = measure_ladder(options);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("or add --allow-requantize"), std::string::npos) << wrong.error().message;
  options.allow_requantize = true;
  options.rounds = 0;
  const auto again = measure_ladder(options);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(again->notes.empty());

  // Stopped in the middle of the windows.
  int asked = 0;
  options.stop = [&] { return ++asked > 5; };
  wrong = measure_ladder(options);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kCancelled);
  EXPECT_TRUE(temporary.empty());
}

LadderReport hand_made() {
  LadderReport report;
  report.model = "a <model> & \"more\"";
  report.text = "text.txt";
  report.unit = report.ran = "cpu";
  report.window = 64;
  report.counted_from = 33;
  report.text_tokens = 900;
  report.windows = 12;
  report.counted = 372;
  report.rounds = 3;
  const struct {
    const char* type;
    double kld, tps;
    uint64_t bytes;
  } figures[] = {{"F16", 0, 10, 2000}, {"Q8_0", 0.001, 18, 1100}, {"Q6_K", 0.004, 15, 1150}, {"Q4_0", 0.1, 30, 600}};
  for (const auto& item : figures) {
    LadderRow row;
    row.type = item.type;
    row.is_source = item.kld == 0;
    row.bytes = item.bytes;
    row.bits_per_weight = static_cast<double>(item.bytes) / 125;
    row.quality.ppl = {10 + item.kld, 0.5, 0.9};
    row.quality.delta_ppl = {item.kld, 0.001, 0.002};
    row.quality.kld = {item.kld, 0.001, -1};
    row.quality.top1 = {1 - item.kld, 0.01, 0.02};
    row.speed.prefill_tps = {item.tps * 10, item.tps * 11, item.tps * 12};
    row.speed.decode_tps = {item.tps, item.tps * 1.1, item.tps * 1.2};
    report.points.push_back({row.type, row.bytes, std::vector<double>(12, item.kld),
                             std::vector<double>(12, 2 + item.kld), row.speed.prefill_tps, row.speed.decode_tps,
                             row.is_source});
    report.rows.push_back(row);
  }
  report.verdict = judge_ladder(report.points, 0.95, 1);
  return report;
}

TEST(LadderReport, JsonHasThePromisedFields) {
  const auto rows = ladder_json(hand_made());
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) {
    for (const char* field :
         {"type", "bytes", "ppl", "dppl", "dppl_error", "kld_mean", "top1", "prefill_tps", "decode_tps", "pareto"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_TRUE(row["decode_joules_per_token"].is_null());
    EXPECT_TRUE(row["peak_memory_bytes"].is_null());
  }
  EXPECT_EQ(rows[1]["decode_tps"], 18 * 1.1);
  EXPECT_EQ(rows[1]["dppl_error"], 0.001);
  EXPECT_EQ(rows[1]["recommended"], true);
  EXPECT_EQ(rows[0]["recommended"], false);
  EXPECT_EQ(rows[3]["recommended"], false);
  EXPECT_EQ(rows[2]["pareto"], false);
  EXPECT_EQ(rows[2]["dominated_by"], "Q8_0");
  EXPECT_EQ(rows[3]["pareto"], true);
  EXPECT_EQ(rows[1]["against_next_larger"]["type"], "Q6_K");
  EXPECT_TRUE(rows[0]["against_next_larger"].is_null());
  EXPECT_TRUE(rows[0]["kld_mean_error_windows"].is_null());
}

TEST(LadderReport, TextSaysWhatIsUnknown) {
  const std::string text = ladder_text(hand_made());
  EXPECT_NE(text.find("| Q4_0 | 0.00 | 4.80 | 10.1000 | +0.1000 \u00b1 0.0020 | 0.100000 \u00b1 0.001000 | 90.00 |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("unknown"), std::string::npos);
  EXPECT_NE(text.find("Dominated, as measured: Q6_K (by Q8_0)"), std::string::npos) << text;
}

// Tags are closed in order, attributes are quoted, nothing is fetched or run.
TEST(LadderReport, PageIsWellFormedAndSelfContained) {
  LadderReport without_speed = hand_made();
  for (LadderRow& row : without_speed.rows) row.speed = {};
  for (LadderPoint& point : without_speed.points) point.decode_tps.clear(), point.prefill_tps.clear();
  without_speed.verdict = judge_ladder(without_speed.points, 0.95, 1);
  for (const LadderReport& report : {hand_made(), without_speed}) {
    const std::string page = ladder_html(report, {"today", "baton 1", "baton ladder <x>"});
    EXPECT_TRUE(page.starts_with("<!doctype html>\n"));
    std::vector<std::string> open;
    size_t at = page.find('\n'), svgs = 0;
    while ((at = page.find('<', at)) != std::string::npos) {
      const size_t end = page.find('>', at);
      ASSERT_NE(end, std::string::npos);
      const std::string tag = page.substr(at + 1, end - at - 1);
      EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
      EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
      const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" /", 1) - (tag[0] == '/'));
      if (tag[0] == '/') {
        ASSERT_FALSE(open.empty());
        EXPECT_EQ(open.back(), name);
        open.pop_back();
      } else if (!tag.ends_with('/')) {
        open.push_back(name);
        svgs += name == "svg";
      }
      at = end;
    }
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(svgs, report.verdict.has_speed ? 2u : 1u);
    for (const char* absent : {"<script", "http:", "https:", "url(", "<model>", "nan", "inf\""})
      EXPECT_EQ(page.find(absent), std::string::npos) << absent;
    for (const char* part : {"prefers-color-scheme:dark", "width=device-width",
                             "<p class=\"take\">Take Q8_0: ", "<code>baton ladder &lt;x&gt;</code>"})
      EXPECT_NE(page.find(part), std::string::npos) << part;
    EXPECT_NE(page.find("a &lt;model&gt; &amp; &quot;more&quot;"), std::string::npos);
    EXPECT_NE(page.find("class=\"front\""), std::string::npos);
  }
}

}  // namespace
}  // namespace baton
