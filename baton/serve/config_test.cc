// baton.toml: what is read, and what is refused by which words.
#include "baton/serve/config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "baton/base/temporary_folder.h"

namespace baton::serve {
namespace {

constexpr std::string_view kWhole = R"(# a comment
[server]
host = "0.0.0.0"
port = 8081
parallel = 4
queue = 10
drain_seconds = 5
reuse = false
quiet = true
api_key_file = "keys"
state_cache = "/var/cache/baton"
state_cache_bytes = 1_000_000_000
memory_budget = "8GiB"
keep_alive = "90s"

[[models]]
name = "small"
path = "models/small.gguf"
aliases = ["gpt-4o-mini", "default"]
prefill = "cpu:threads=2"
decode = "ref"
strategy = "overlap"
verify = "sample"
threads = 2
context = 8192
keep_alive = "1h30m"
preload = false
[models.defaults]
temperature = 0.5
top_p = 1
top_k = 20
seed = 7
max_tokens = 512
thinking = false
stop = ["\n\n"]

[[models]]
name = "bundled"
keep_alive = -5

[[models]]
name = "vectors"
path = "bert"
embed = true
preload = true
)";

TEST(Config, IsReadWhole) {
  const auto config = parse_config(kWhole, "baton.toml", "/etc/baton");
  ASSERT_TRUE(config) << config.error().message;
  const ServerConfig& server = config->server;
  EXPECT_EQ(server.host, "0.0.0.0");
  EXPECT_EQ(server.port, 8081);
  EXPECT_EQ(server.parallel, 4u);
  EXPECT_EQ(server.queue, 10u);
  EXPECT_EQ(server.drain_seconds, 5u);
  EXPECT_EQ(server.reuse, false);
  EXPECT_EQ(server.quiet, true);
  EXPECT_EQ(server.api_key_file, "/etc/baton/keys");
  EXPECT_EQ(server.state_cache, "/var/cache/baton");
  EXPECT_EQ(server.state_cache_bytes, 1'000'000'000u);
  EXPECT_EQ(server.memory_budget, uint64_t{8} << 30);
  EXPECT_EQ(server.keep_alive, std::chrono::seconds(90));
  ASSERT_EQ(config->models.size(), 3u);
  const ModelConfig& model = config->models[0];
  EXPECT_EQ(model.name, "small");
  EXPECT_EQ(model.path, "/etc/baton/models/small.gguf");
  EXPECT_EQ(model.aliases, (std::vector<std::string>{"gpt-4o-mini", "default"}));
  EXPECT_EQ(model.prefill, "cpu:threads=2");
  EXPECT_EQ(model.decode, "ref");
  EXPECT_EQ(model.strategy, "overlap");
  EXPECT_EQ(model.verify, "sample");
  EXPECT_EQ(model.threads, 2u);
  EXPECT_EQ(model.context, 8192u);
  EXPECT_EQ(model.keep_alive, std::chrono::minutes(90));
  EXPECT_EQ(model.temperature, 0.5f);
  EXPECT_EQ(model.top_p, 1.0f) << "whole numbers are numbers";
  EXPECT_EQ(model.top_k, 20);
  EXPECT_EQ(model.seed, 7);
  EXPECT_EQ(model.max_tokens, 512u);
  EXPECT_EQ(model.thinking, false);
  EXPECT_EQ(model.stop, std::vector<std::string>{"\n\n"});
  EXPECT_FALSE(model.min_p);
  EXPECT_EQ(model.line, 16);
  EXPECT_FALSE(model.embed);
  EXPECT_EQ(model.preload, false);
  EXPECT_FALSE(config->models[1].preload);
  EXPECT_TRUE(config->models[2].embed);
  EXPECT_EQ(config->models[2].preload, true);
  EXPECT_TRUE(config->models[1].path.empty());
  EXPECT_EQ(config->models[1].keep_alive, std::chrono::seconds(-1)) << "for ever";
  EXPECT_EQ(config->models[1].aliases, std::vector<std::string>());
}

TEST(Config, NothingIsAConfigToo) {
  const auto config = parse_config("", "baton.toml", ".");
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->server.port);
  EXPECT_TRUE(config->models.empty());
}

TEST(Config, WhatIsWrongIsNamedByItsLine) {
  const struct {
    std::string_view text, words;
  } cases[] = {
      {"[server]\nprot = 1", "baton.toml:2: server has no key 'prot'; it has: host, port, parallel"},
      {"\n\n[servers]\n", "baton.toml:3: there is no 'servers' here; there are [server] and [[models]]"},
      {"port = 80", "baton.toml:1: there is no 'port' here"},
      {"server = 1", "baton.toml:1: server must be a table"},
      {"[server]\nport = 70000", "baton.toml:2: server.port is 70000: must be from 0 to 65535"},
      {"[server]\nport = -1", "baton.toml:2: server.port is -1: must be from 0 to 65535"},
      {"[server]\nport = \"80\"", "baton.toml:2: server.port must be a whole number"},
      {"[server]\nport = 80.0", "baton.toml:2: server.port must be a whole number"},
      {"[server]\nparallel = 0", "baton.toml:2: server.parallel is 0: must be from 1 to 256"},
      {"[server]\nreuse = 1", "baton.toml:2: server.reuse must be true or false"},
      {"[server]\nhost = 1", "baton.toml:2: server.host must be a string"},
      {"[server]\nhost = \"a\\u0000b\"", "server.host must not hold a NUL"},
      {"[server]\ntls_cert = \"\"", "baton.toml:2: server.tls_cert is empty"},
      {"[server]\ntls_cert = \"a\"", "server.tls_cert and server.tls_key go together"},
      {"[server]\ntls_cert = \"a\"\ntls_key = \"b\"\nunix_socket = \"s\"", "server.unix_socket goes without"},
      {"[server]\nstate_cache_bytes = -1", "server.state_cache_bytes is -1"},
      {"[server]\nmemory_budget = 0", "server.memory_budget must be bytes, or a size like \"500M\""},
      {"[server]\nmemory_budget = \"8GX\"", "server.memory_budget must be bytes"},
      {"[server]\nmemory_budget = \"99999999999T\"", "server.memory_budget must be bytes"},
      {"[server]\nkeep_alive = \"5\"", "server.keep_alive must be seconds"},
      {"models = 1", "baton.toml:1: models must be a list of tables"},
      {"models = [1]", "baton.toml:1: models must be a table"},
      {"[models]\nname = \"a\"", "models must be a list of tables"},
      {"\n[[models]]\npath = \"a\"", "baton.toml:2: a model has no name"},
      {"[[models]]\nname = \"a\"\n[[models]]\nname = \"a\"", "baton.toml:3: the name 'a' is given twice"},
      {"[[models]]\nname = \"a\"\n[[models]]\nname = \"b\"\naliases = [\"a\"]", "the name 'a' is given twice"},
      {"[[models]]\nname = \"a\"\naliases = [\"a\"]", "the name 'a' is given twice"},
      {"[[models]]\nname = \"a\"\naliases = \"b\"", "baton.toml:3: models.aliases must be a list of strings"},
      {"[[models]]\nname = \"a\"\naliases = [1]", "baton.toml:3: models.aliases must be a string"},
      {"[[models]]\nname = \"a\"\nembed = true", "baton.toml:1: a model that makes vectors has no path"},
      {"[[models]]\nname = \"a\"\npreload = 1", "baton.toml:3: models.preload must be true or false"},
      {"[[models]]\nname = \"a\"\nkw = 1", "baton.toml:3: models has no key 'kw'"},
      {"[[models]]\nname = \"a\"\nprefill = \"npu\"", "baton.toml:3: models.prefill: "},
      {"[[models]]\nname = \"a\"\ndecode = \"cpu:speed=1\"", "baton.toml:3: models.decode: "},
      {"[[models]]\nname = \"a\"\nstrategy = \"fast\"", "models.strategy 'fast' does not exist; there are: handoff"},
      {"[[models]]\nname = \"a\"\nverify = \"yes\"", "models.verify: "},
      {"[[models]]\nname = \"a\"\ncontext = -1", "models.context is -1: must be from 0 to"},
      {"[[models]]\nname = \"a\"\nkeep_alive = \"5\"", "models.keep_alive must be seconds, or a time like"},
      {"[[models]]\nname = \"a\"\nkeep_alive = \"m\"", "models.keep_alive must be"},
      {"[[models]]\nname = \"a\"\nkeep_alive = \"5d\"", "models.keep_alive must be"},
      {"[[models]]\nname = \"a\"\nkeep_alive = \"999999h\"", "models.keep_alive is more than a year"},
      {"[[models]]\nname = \"a\"\nkeep_alive = true", "models.keep_alive must be"},
      {"[[models]]\nname = \"a\"\n[models.defaults]\ntemp = 1", "baton.toml:4: models.defaults has no key 'temp'"},
      {"[[models]]\nname = \"a\"\n[models.defaults]\ntemperature = -1", "models.defaults.temperature is -1"},
      {"[[models]]\nname = \"a\"\n[models.defaults]\ntemperature = nan", "models.defaults.temperature is nan"},
      {"[[models]]\nname = \"a\"\n[models.defaults]\ntop_p = 0", "models.defaults.top_p is 0"},
      {"[[models]]\nname = \"a\"\n[models.defaults]\ntop_k = 5000000000", "models.defaults.top_k is 5000000000"},
      {"[[models]]\nname = \"a\"\n[models.defaults]\nstop = [\"\"]", "models.defaults.stop has an empty string"},
      {"[server]\nport = 1\nport = 2", "baton.toml:3: "},
      {"[server", "baton.toml:1: "},
      {"[server]\nhost = \"\xff\"", "baton.toml:2: "},
      {"a = 99999999999999999999", "baton.toml:1: "},
  };
  for (const auto& c : cases) {
    const auto config = parse_config(c.text, "baton.toml", ".");
    ASSERT_FALSE(config) << c.text;
    EXPECT_EQ(config.error().code, Code::kInvalidInput);
    EXPECT_NE(config.error().message.find(c.words), std::string::npos) << config.error().message << "\n" << c.words;
  }
}

TEST(Config, SizesAndTimes) {
  EXPECT_EQ(parse_bytes("1000"), 1000u);
  for (const char* kilo : {"2K", "2KB", "2KiB", "2048", "2048B"}) EXPECT_EQ(parse_bytes(kilo), 2048u) << kilo;
  EXPECT_EQ(parse_bytes("3G"), uint64_t{3} << 30);
  for (const char* bad : {"", "0", "K", "-1", "2Ki", "2 K", "2KK", "1.5G", "2iB", "9999999T", "99999999999999999999"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
  EXPECT_EQ(parse_seconds("1h30m"), std::chrono::minutes(90));
  EXPECT_EQ(parse_seconds("-1s"), std::chrono::seconds(-1));
  EXPECT_EQ(parse_seconds("0s"), std::chrono::seconds(0));
  EXPECT_GT(parse_seconds("999999999h999999999h"), std::chrono::hours(8784)) << "not wrapped around";
  for (const char* bad : {"", "-", "5", "m", "5d", "5m3", "1h-3m"}) EXPECT_FALSE(parse_seconds(bad)) << bad;
}

TEST(Config, IsBounded) {
  std::string many;
  for (size_t i = 0; i <= kConfigModelsMax; ++i) many += "[[models]]\nname = \"m" + std::to_string(i) + "\"\n";
  EXPECT_NE(parse_config(many, "baton.toml", ".").error().message.find("257 models"), std::string::npos);
  const std::string deep = "a = " + std::string(100'000, '[');
  EXPECT_FALSE(parse_config(deep, "baton.toml", "."));
}

TEST(Config, OfAFile) {
  auto folder = TemporaryFolder::create("config");
  ASSERT_TRUE(folder);
  const auto file = folder->path() / "baton.toml";
  EXPECT_EQ(read_config(file).error().code, Code::kNotFound);
  std::ofstream(file) << "[server]\napi_key_file = \"keys\"\n";
  const auto config = read_config(file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server.api_key_file, folder->path() / "keys");
  std::ofstream(file) << std::string(kConfigBytesMax + 1, '#');
  EXPECT_FALSE(read_config(file));
}

}  // namespace
}  // namespace baton::serve
