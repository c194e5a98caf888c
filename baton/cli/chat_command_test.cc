// Commands and settings of a chat, turns from entries, thinking on a terminal, and the history file.
#include "baton/cli/chat_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "baton/cli/line_editor.h"
#include "baton/cli/line_history.h"
#include "baton/cli/sampling_flags.h"
#include "baton/cli/thinking.h"

namespace baton::cli {
namespace {

TEST(ChatCommands, WordsArgumentsAndAliases) {
  const struct {
    const char *text, *name, *argument;
  } cases[] = {
      {"/bye", "/bye", ""},
      {"  /exit  ", "/bye", ""},
      {"/?", "/help", ""},
      {"/HELP save", "/help", "save"},
      {"/set  temp  0.5 ", "/set", "temp  0.5"},
      {"/system You are\na pirate", "/system", "You are\na pirate"},
      {"\t/save my file\r", "/save", "my file"},
  };
  for (const auto& c : cases) {
    const auto parsed = parse_command(c.text);
    ASSERT_TRUE(parsed) << c.text;
    EXPECT_EQ(parsed->name, c.name) << c.text;
    EXPECT_EQ(parsed->argument, c.argument) << c.text;
  }
}

TEST(ChatCommands, UnknownWordsAreNamedWithWhatIsNear) {
  const std::pair<const char*, const char*> cases[] = {{"/hlep", "/help"},    {"/clera", "/clear"}, {"/sav x", "/save"},
                                                       {"/hist", "/history"}, {"/xyzzy", ""},       {"/q", ""}};
  for (const auto& [text, nearest] : cases) {
    const auto parsed = parse_command(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->name, "") << text;
    EXPECT_EQ(parsed->nearest, nearest) << text;
  }
}

TEST(ChatCommands, WhatIsNoWordIsText) {
  for (const char* text : {"", "/", "hello /bye", "/usr/bin/ls does what?", "// a comment", "/* c */",
                           "/clear\nnot this", "/2 is a half", "\n"}) {
    EXPECT_FALSE(parse_command(text)) << text;
  }
}

TEST(ChatCommands, SettingsTakeNumbersInTheirBounds) {
  SamplingFlags flags;
  ASSERT_TRUE(set_sampling(flags, "temp", "0.75"));
  ASSERT_TRUE(set_sampling(flags, "top-k", "12"));
  ASSERT_TRUE(set_sampling(flags, "repeat_last_n", "-1"));
  ASSERT_TRUE(set_sampling(flags, "seed", "12345678901"));
  ASSERT_TRUE(set_sampling(flags, "n", "7"));
  EXPECT_EQ(flags.temperature, 0.75f);
  EXPECT_EQ(flags.top_k, 12);
  EXPECT_EQ(flags.repeat_last_n, -1);
  EXPECT_EQ(flags.seed, 12345678901);
  EXPECT_EQ(flags.predict, 7);
  const std::pair<const char*, const char*> bad[] = {
      {"temp", "101"},         {"temp", "nan"}, {"temp", "1x"}, {"top_p", "1.01"},       {"top_p", "0"},
      {"top_k", "1.5"},        {"seed", "-1"},  {"min_p", ""},  {"repeat_last_n", "-2"}, {"n", "-2"},
      {"repeat_penalty", "0"}, {"temp", "0x1"}, {"temp", "1e"}};
  const std::string before = sampling_text(flags);
  for (const auto& [name, value] : bad) {
    const auto status = set_sampling(flags, name, value);
    ASSERT_FALSE(status) << name << value;
    EXPECT_NE(status.error().message.find(name), std::string::npos);
  }
  EXPECT_EQ(sampling_text(flags), before);
  EXPECT_NE(set_sampling(flags, "repeat_penatly", "1").error().message.find("did you mean repeat_penalty?"),
            std::string::npos);
}

// The turns that `entries` make.
std::vector<EnteredTurn> turns_of(const std::vector<std::string>& entries) {
  TurnAssembler assembler;
  std::vector<EnteredTurn> turns;
  for (const std::string& entry : entries) {
    if (assembler.add(entry)) turns.push_back(assembler.take());
  }
  EXPECT_FALSE(assembler.begun());
  return turns;
}

TEST(Turns, LinesGoOnBehindABackslashOrBetweenQuotes) {
  EXPECT_EQ(turns_of({"one", "two"}).size(), 2u);
  EXPECT_EQ(turns_of({"one\\", "two\\", "three"}).at(0).text, "one\ntwo\nthree");
  EXPECT_EQ(turns_of({"\"\"\"", "a \\", "", " b", "\"\"\""}).at(0).text, "a \\\n\n b");
  EXPECT_EQ(turns_of({"\"\"\"a", "b\"\"\"  "}).at(0).text, "a\nb");
  EXPECT_EQ(turns_of({"  \"\"\"/bye\"\"\""}).at(0).text, "/bye");
  EXPECT_TRUE(turns_of({"  \"\"\"/bye\"\"\""}).at(0).literal);
  EXPECT_FALSE(turns_of({"/bye"}).at(0).literal);
  EXPECT_EQ(turns_of({"say \"\"\" now"}).at(0).text, "say \"\"\" now");
  EXPECT_EQ(turns_of({"pasted\nlines\n"}).at(0).text, "pasted\nlines");
  const EnteredTurn command = turns_of({"/system \"\"\"", "x", "\"\"\""}).at(0);
  EXPECT_EQ(command.text, "/system x");
  EXPECT_FALSE(command.literal);
}

TEST(Turns, LinesOfAPipeOfAnyLength) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text = "a\r\n" + std::string(30'000, 'x') + "\n\nlast";
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  const auto reader = open_line_reader(ends[0], {});
  std::string line;
  for (const std::string& expected : {std::string("a"), std::string(30'000, 'x'), std::string(), std::string("last")}) {
    ASSERT_EQ(reader->read("", &line), LineEditor::Outcome::kText);
    EXPECT_EQ(line, expected);
  }
  EXPECT_EQ(reader->read("", &line), LineEditor::Outcome::kEnd);
  ::close(ends[0]);
}

TEST(Thinking, IsDimWhateverTheCuts) {
  const std::string text = "<think>a < b</th</think> so <b>";
  const std::string expected = "\033[2m<think>a < b</th</think>\033[0m so <b>";
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    ThinkingView view(true, "<|assistant|>\n");
    std::string shown;
    for (size_t at = 0; at < text.size(); at += cut) shown += view.push(text.substr(at, cut));
    EXPECT_EQ(shown + view.finish(), expected) << cut;
  }
  const auto view_of = [](bool dim, const char* prompt, const char* answer) {
    ThinkingView view(dim, prompt);
    std::string shown = view.push(answer);
    return shown += view.finish();
  };
  EXPECT_EQ(view_of(true, "<|assistant|>\n<think>\n", "x</think>y"), "\033[2mx</think>\033[0my");
  EXPECT_EQ(view_of(true, "<think>\n\n</think>\n\n", "x<thi"), "x<thi");
  EXPECT_EQ(view_of(true, "<think>", "x</thi"), "\033[2mx</thi\033[0m");
  EXPECT_EQ(view_of(false, "<think>", "x</think>y"), "x</think>y");
}

TEST(History, IsBoundedAndTheOwners) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_history_" + std::to_string(::getpid()));
  const auto path = folder / "deep" / "history";
  {
    LineHistory history(path);
    EXPECT_TRUE(history.add("one\ntwo \"three\" \xc3\xa9"));
    EXPECT_FALSE(history.add("one\ntwo \"three\" \xc3\xa9"));
    EXPECT_FALSE(history.add(""));
    EXPECT_TRUE(history.add(std::string(LineHistory::kEntryBytesMax + 1, 'x')));
  }
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(LineHistory(path).entries(), std::vector<std::string>{"one\ntwo \"three\" \xc3\xa9"});
  {
    std::ofstream more(path, std::ios::app);
    more << "not json\n";
    for (size_t i = 0; i < 2 * LineHistory::kEntriesMax; ++i) more << "\"entry " << i << "\"\n";
  }
  const LineHistory cut(path);
  ASSERT_EQ(cut.entries().size(), LineHistory::kEntriesMax);
  EXPECT_EQ(cut.entries().back(), "entry 1999");
  EXPECT_EQ(LineHistory(path).entries().front(), "entry 1000");
  EXPECT_LT(std::filesystem::file_size(path), 20'000u);
  std::filesystem::remove_all(folder);
}

TEST(History, LeavesWhatIsNoHistory) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_no_history_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto notes = folder / "notes", link = folder / "link", pipe = folder / "pipe";
  std::ofstream(notes) << "my notes\n";
  ASSERT_EQ(::chmod(notes.c_str(), 0644), 0);
  std::filesystem::create_symlink(notes, link);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0644), 0);
  for (const auto& path : {notes, link, pipe, folder}) {
    LineHistory history(path);
    EXPECT_NE(history.problem().find(path.string()), std::string::npos) << history.problem();
    EXPECT_TRUE(history.add("a question"));
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0077, path == folder ? 0055u : 0044u) << path;
  }
  EXPECT_EQ(std::filesystem::file_size(notes), 9u);
  // One that comes in the place of a file later.
  LineHistory history(folder / "later");
  EXPECT_EQ(history.problem(), "");
  std::filesystem::rename(pipe, folder / "later");
  EXPECT_TRUE(history.add("a question"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace baton::cli
