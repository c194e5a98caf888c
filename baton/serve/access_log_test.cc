// Lines of the access log: what is in them, what can never be, and a disk that is slow, full or turned over.
#include "baton/serve/access_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "baton/base/temporary_folder.h"
#include "baton/serve/request_note.h"

namespace baton::serve {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool happens(const std::function<bool()>& what) {
  for (int i = 0; i < 1000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

AccessLine line_with(std::string path) {
  AccessLine line;
  line.time_ms = 1'767'323'045'006;
  line.request_id = "id-1";
  line.client = "127.0.0.1:5";
  line.method = "GET";
  line.path = std::move(path);
  line.ended = {200, 123, true, 4.5678};
  return line;
}

TEST(AccessLineTest, BothForms) {
  AccessLine line = line_with("/v1/chat/completions");
  line.trace = TraceContext{"0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7", 1, ""};
  line.key = "one";
  line.model = "a model";
  line.prompt_tokens = 12;
  line.finish = "stop";
  line.queue_ms = 0.25;
  EXPECT_EQ(line.text(AccessFormat::kText),
            "time=2026-01-02T03:04:05.006Z request_id=id-1 trace_id=0af7651916cd43dd8448eb211c80319c "
            "parent_id=b7ad6b7169203331 span_id=00f067aa0ba902b7 client=127.0.0.1:5 method=GET "
            "path=/v1/chat/completions status=200 bytes=123 ms=4.568 whole=true key=one model=\"a model\" "
            "prompt_tokens=12 finish=stop queue_ms=0.25\n");
  const Json json = Json::parse(line.text(AccessFormat::kJson));
  EXPECT_EQ(json["time"], "2026-01-02T03:04:05.006Z");
  EXPECT_EQ(json["model"], "a model");
  EXPECT_EQ(json["prompt_tokens"], 12);
  EXPECT_FALSE(json.contains("prompt"));
  EXPECT_FALSE(json.contains("emulated")) << "no unit is known";
  line.decode_unit = "cuda";
  line.emulated = true;
  EXPECT_TRUE(line.text(AccessFormat::kText).ends_with(" decode_unit=cuda emulated=true\n"));
  line.ended = {};
  EXPECT_EQ(Json::parse(line.text(AccessFormat::kJson))["status"], 499);
}

// As a reader splits the line: at blanks that are in no quotes.
std::vector<std::string> fields_in(const std::string& line) {
  std::vector<std::string> fields(1);
  bool in_quotes = false;
  for (size_t at = 0; at + 1 < line.size(); ++at) {
    if (line[at] == '"') in_quotes = !in_quotes;
    if (line[at] == ' ' && !in_quotes) {
      fields.emplace_back();
      continue;
    }
    fields.back() += line[at];
    if (line[at] == '\\') fields.back() += line[++at];
  }
  return fields;
}

std::string quoted_as_json(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

TEST(AccessLineTest, NothingForgesALine) {
  for (const std::string& evil :
       {std::string("/a\nstatus=200 path=/b"), std::string("/\r\n"), std::string("/ status=500"),
        std::string("/\" status=500 x=\""), std::string("/\\"), std::string("/\x1b[31m"), std::string("/a\0b", 4),
        std::string("/\x7f"), std::string("/\xc2\x85\xe2\x80\xa8\xe2\x80\xae"), std::string("/\xff\xfe"),
        std::string("/a=b")}) {
    AccessLine line = line_with(evil);
    line.request_id = line.model = line.key = evil;
    line.prompt = evil;
    for (const auto format : {AccessFormat::kText, AccessFormat::kJson}) {
      const std::string text = line.text(format);
      ASSERT_TRUE(text.ends_with('\n'));
      for (const char c : std::string_view(text).substr(0, text.size() - 1))
        EXPECT_TRUE(c >= 0x20 && c < 0x7f) << static_cast<int>(c) << text;
    }
    // It is read back as it was, and as one field: whoever splits at blanks outside of quotes finds none of it.
    const Json json = Json::parse(line.text(AccessFormat::kJson));
    if (evil.find('\xff') == std::string::npos) {
      EXPECT_EQ(json["path"], evil);
    }
    const auto fields = fields_in(line.text(AccessFormat::kText));
    ASSERT_EQ(fields.size(), 12u);
    EXPECT_EQ(fields[1], "request_id=" + quoted_as_json(evil));
    EXPECT_EQ(fields[4], "path=" + quoted_as_json(evil));
    EXPECT_EQ(fields[5], "status=200");
  }
}

TEST(AccessLineTest, TextsAreCutAtWholeCharacters) {
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(cut("abcd", 3), "abc...");
  EXPECT_EQ(cut("ab\xc3\xa4", 3), "ab...");
  EXPECT_EQ(cut("\x80\x80\x80", 2), "...");
  http::Request request;
  request.method = std::string(1000, 'M');
  request.path = "/" + std::string(100'000, 'p');
  request.query = {{"api_key", "secret"}};
  const std::string text = line_of(request).text(AccessFormat::kText);
  EXPECT_LT(text.size(), 600u);
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

class AccessLogTest : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = TemporaryFolder::create("baton_access_log_test");
    ASSERT_TRUE(folder);
    folder_ = std::make_unique<TemporaryFolder>(*std::move(folder));
    file_ = folder_->path() / "access.log";
  }
  std::unique_ptr<AccessLog> open(AccessLogOptions options = {}) {
    options.file = file_;
    auto log = AccessLog::open(options);
    EXPECT_TRUE(log) << (log ? "" : log.error().message);
    return log ? *std::move(log) : nullptr;
  }

  std::unique_ptr<TemporaryFolder> folder_;
  std::filesystem::path file_;
};

TEST_F(AccessLogTest, IsWrittenAndContinued) {
  for (int run = 0; run < 2; ++run) {
    const auto log = open();
    for (int i = 0; i < 50; ++i) log->put(line_with("/" + std::to_string(i)));
    log->close();
    EXPECT_EQ(log->counts().lines, 50u);
    log->put(line_with("/late"));
    EXPECT_EQ(log->counts().dropped, 1u);
  }
  const auto lines = read_lines(file_);
  ASSERT_EQ(lines.size(), 100u);
  EXPECT_NE(lines[49].find("path=/49 "), std::string::npos);
  struct stat facts {};
  ASSERT_EQ(::stat(file_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07, 0u);
}

TEST_F(AccessLogTest, ErrorsNameTheFile) {
  const auto log = AccessLog::open({.file = folder_->path() / "no" / "log"});
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().message.find("no/log: the access log cannot be opened"), std::string::npos);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  const auto pipe = AccessLog::open({.file = file_});
  ASSERT_FALSE(pipe);
  EXPECT_NE(pipe.error().message.find("nobody reads"), std::string::npos);
}

TEST_F(AccessLogTest, FollowsAFileThatIsTurnedOver) {
  const auto log = open();
  log->put(line_with("/1"));
  ASSERT_TRUE(happens([&] { return read_lines(file_).size() == 1; }));
  std::filesystem::rename(file_, folder_->path() / "old");
  log->put(line_with("/2"));
  ASSERT_TRUE(happens([&] { return read_lines(file_).size() == 1; }));
  EXPECT_NE(read_lines(file_)[0].find("path=/2 "), std::string::npos);
  EXPECT_EQ(read_lines(folder_->path() / "old").size(), 1u);
  // Copied and cut short: what comes is appended, not behind a hole.
  std::filesystem::resize_file(file_, 0);
  log->put(line_with("/3"));
  ASSERT_TRUE(happens([&] { return read_lines(file_).size() == 1; }));
  EXPECT_EQ(read_lines(file_)[0].find("time="), 0u);
}

// Dropped lines that the log owns up to.
uint64_t told_in(const std::string& text) {
  constexpr std::string_view kName = "dropped_lines=";
  uint64_t sum = 0;
  for (size_t at = 0; (at = text.find(kName, at)) != std::string::npos; at += kName.size())
    sum += std::stoull(text.substr(at + kName.size(), 12));
  return sum;
}

// A reader that does not read: nobody waits, what has no room is counted, and said when there is.
TEST_F(AccessLogTest, ASlowReaderStopsNobody) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  const int reader = ::open(file_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const auto log = open({.file = {}, .bytes_max = 10'000});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) log->put(line_with("/" + std::to_string(i)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  const auto counts = log->counts();
  EXPECT_GT(counts.dropped, 0u);
  EXPECT_EQ(counts.lines + counts.dropped, 2000u);
  std::string all;
  const auto read_some = [&] {
    char bytes[4096];
    for (ssize_t count; (count = ::read(reader, bytes, sizeof bytes)) > 0;) all.append(bytes, count);
    return told_in(all) == counts.dropped;
  };
  EXPECT_TRUE(happens(read_some)) << told_in(all) << " of " << counts.dropped;
  EXPECT_GE(std::count(all.begin(), all.end(), '\n'), static_cast<long>(counts.lines) + 1);
  // Nor does it hold the end up.
  for (int i = 0; i < 1000; ++i) log->put(line_with("/" + std::to_string(i)));
  const auto closing = std::chrono::steady_clock::now();
  log->close();
  EXPECT_LT(std::chrono::steady_clock::now() - closing, std::chrono::seconds(4));
  ::close(reader);
}

TEST_F(AccessLogTest, AReaderThatLeavesEndsNothing) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  const int reader = ::open(file_.c_str(), O_RDONLY | O_NONBLOCK);
  const auto log = open();
  ::close(reader);
  log->put(line_with("/1"));
  EXPECT_TRUE(happens([&] { return log->counts().dropped == 1; }));
}

}  // namespace
}  // namespace baton::serve
