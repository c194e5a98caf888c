// Names: what is let through, and what files of a repository are taken.
#include "baton/hub/name.h"

#include <gtest/gtest.h>

#include "baton/base/near_name.h"
#include "baton/hub/choose.h"
#include "baton/hub/http.h"
#include "baton/hub/remote.h"

namespace baton::hub {
namespace {

TEST(Names, OfModels) {
  const auto whole = parse_repo("https://huggingface.co/Qwen/Qwen3-0.6B-GGUF:Q8_0");
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->owner, "Qwen");
  EXPECT_EQ(whole->text(), "Qwen/Qwen3-0.6B-GGUF:Q8_0");
  EXPECT_EQ(whole->folder(), "models--Qwen--Qwen3-0.6B-GGUF");
  EXPECT_EQ(parse_repo("gpt2")->folder(), "models--gpt2");
  for (const char* middle : {"resolve", "blob"}) {
    const std::string url = std::string("https://huggingface.co/O/N/") + middle + "/main/";
    EXPECT_EQ(parse_repo(url + "x-Q8_0.gguf?download=true")->text(), "O/N:x-Q8_0");
    EXPECT_EQ(parse_repo(url + "model.safetensors")->text(), "O/N:safetensors");
  }
  EXPECT_EQ(repo_of_folder("models--a--b.c")->id(), "a/b.c");
  for (const char* bad : {"",
                          "/",
                          "a/",
                          "/b",
                          "a/b/c",
                          "../b",
                          "a/..",
                          "a/b..c",
                          "a--b/c",
                          "a/b--c",
                          "-a/b",
                          "a/b-",
                          ".a/b",
                          "a/b.",
                          "a/b.git",
                          "a b/c",
                          "a/b:",
                          "a/b:c/d",
                          "a/b:..",
                          "a/b\n",
                          "a/\xc3\xa9",
                          "a\\b",
                          "https://example.com/a/b",
                          "ftp://huggingface.co/a/b",
                          "a/b:c:d",
                          "~/b"})
    EXPECT_FALSE(parse_repo(bad)) << bad;
  EXPECT_FALSE(parse_repo("a/" + std::string(97, 'b')));
  for (const char* bad : {"datasets--a--b", "models--", "models--..--b", "models--a--..", "models--a--b--c", "x"})
    EXPECT_FALSE(repo_of_folder(bad)) << bad;
}

TEST(Names, OfFilesAndVersions) {
  for (const char* good : {"a.gguf", "a/b/c.gguf", "1_Pooling/config.json", "with space", "..a"})
    EXPECT_TRUE(good_file(good));
  for (const char* bad : {"", "/a", "a/", "a//b", "../a", "a/../b", "a/..", "./a", "a\\b", "a\nb", "a\x7f"})
    EXPECT_FALSE(good_file(bad)) << bad;
  for (const char* good : {"main", "v1.0", "refs/pr/1", "c0ffee"}) EXPECT_TRUE(good_revision(good)) << good;
  for (const char* bad : {"", "..", "a/../b", "/a", "a/", "-x", ".git", "a b", "a?b", "a%2e"})
    EXPECT_FALSE(good_revision(bad)) << bad;
  for (const char* bad : {"", "../x", "a/b", ".hidden", "x.incomplete", "x.lock", "a\"b"})
    EXPECT_FALSE(good_etag(bad)) << bad;
  EXPECT_EQ(url_path("a b/c#?%.gguf"), "a%20b/c%23%3F%25.gguf");
}

TEST(Names, OfHosts) {
  EXPECT_EQ(origin_of("https://Hub.example/a"), "https://hub.example:443");
  EXPECT_EQ(origin_of("https://hub.example:443"), "https://hub.example:443");
  EXPECT_NE(origin_of("http://hub.example"), origin_of("https://hub.example"));
  EXPECT_EQ(origin_of("https://hub.example@evil.example/"), "https://evil.example:443");
  EXPECT_EQ(origin_of("file:///etc/passwd"), "");
  EXPECT_EQ(absolute_url("https://a/b/c?d", "/x"), "https://a/x");
  EXPECT_EQ(absolute_url("https://a/b/c?d", "x"), "https://a/b/x");
  EXPECT_EQ(absolute_url("https://a/b", "//c/d"), "https://c/d");
  EXPECT_EQ(absolute_url("https://a/b", "http://c/d"), "http://c/d");
  for (const char* bad : {"", "file:///etc/passwd", "ftp://a/b", "https://a/ b"})
    EXPECT_EQ(absolute_url("https://a/b", bad), "");
  Exchange plain;
  plain.url = "https://a/b";
  plain.headers["location"] = "http://a/c";
  EXPECT_FALSE(Remote::next_url(plain));
}

TEST(Waits, ByTheServersWordOrTwiceAsLong) {
  Exchange exchange;
  EXPECT_EQ(wait_before(exchange, 0, 500).count(), 500);
  EXPECT_EQ(wait_before(exchange, 3, 500).count(), 4000);
  exchange.headers["retry-after"] = "7";
  EXPECT_EQ(wait_before(exchange, 0, 500).count(), 7000);
  exchange.headers["retry-after"] = "99999999999999999999";
  EXPECT_EQ(wait_before(exchange, 0, 500).count(), 500);
  exchange.headers["retry-after"] = "86400";
  EXPECT_EQ(wait_before(exchange, 0, 500).count(), 120'000);
}

std::string chosen(const char* type, const std::vector<std::string>& files) {
  const auto made = choose({"o", "n", type}, files);
  if (!made) return "! " + made.error().message;
  std::string text = made->type + (made->whole ? "" : " (part)");
  for (const std::string& file : made->files) text += " " + file;
  return text;
}

TEST(Choices, OfGgufFiles) {
  const std::vector<std::string> files = {"m-Q8_0.gguf",       "m-Q4_K_M.gguf",       "m.IQ2_XXS.gguf", "m-q5_k_m.gguf",
                                          "mmproj-m-F16.gguf", "m-fp16.gguf",         "m.imatrix.gguf", "README.md",
                                          "config.json",       "UD/m-UD-Q2_K_XL.gguf"};
  EXPECT_EQ(chosen("", files), "Q4_K_M m-Q4_K_M.gguf");
  EXPECT_EQ(chosen("q8_0", files), "Q8_0 m-Q8_0.gguf");
  EXPECT_EQ(chosen("Q5_K_M", files), "Q5_K_M m-q5_k_m.gguf");
  EXPECT_EQ(chosen("iq2_xxs", files), "IQ2_XXS m.IQ2_XXS.gguf");
  EXPECT_EQ(chosen("f16", files), "F16 m-fp16.gguf");
  EXPECT_EQ(chosen("Q2_K_XL", files), "UD-Q2_K_XL UD/m-UD-Q2_K_XL.gguf");
  EXPECT_EQ(chosen("ud-q2_k_xl", files), "UD-Q2_K_XL UD/m-UD-Q2_K_XL.gguf");
  EXPECT_EQ(chosen("K_M", files).substr(0, 1), "Q");  // ends so
  EXPECT_NE(chosen("Q3_K", files).find("there are: "), std::string::npos);
  EXPECT_EQ(chosen("", {"b-Q8_0.gguf", "a-F16.gguf"}), "Q8_0 b-Q8_0.gguf");
}

// An adapter beside a whole model, or a GGUF file that it was merged into, is no matter.
TEST(Choices, OfAdapters) {
  for (const char* type : {"", "safetensors", "Q8_0"}) {
    const std::string refused = chosen(type, {"README.md", "adapter_config.json", "adapter_model.safetensors"});
    EXPECT_NE(refused.find("! o/n is a LoRA adapter, not a model"), std::string::npos) << refused;
    EXPECT_NE(refused.find("--lora"), std::string::npos) << refused;
  }
  EXPECT_EQ(choose({"o", "n", ""}, std::vector<std::string>{"adapter_config.json"}).error().code, Code::kUnsupported);
  EXPECT_EQ(chosen("", {"adapter_config.json", "m-Q8_0.gguf"}), "Q8_0 m-Q8_0.gguf");
  EXPECT_EQ(chosen("", {"adapter_config.json", "config.json", "model.safetensors"}).substr(0, 12), "safetensors ");
}

TEST(Choices, OfSplits) {
  const std::vector<std::string> files = {"a/m-Q4_K_M-00002-of-00002.gguf", "a/m-Q4_K_M-00001-of-00002.gguf",
                                          "a/m-Q8_0-00001-of-00003.gguf", "a/m-Q8_0-00003-of-00003.gguf"};
  EXPECT_EQ(chosen("", files), "Q4_K_M a/m-Q4_K_M-00001-of-00002.gguf a/m-Q4_K_M-00002-of-00002.gguf");
  EXPECT_EQ(chosen("Q8_0", files).substr(0, 12), "Q8_0 (part) ");
}

TEST(Choices, OfFolders) {
  EXPECT_EQ(chosen("", {"config.json", "consolidated.safetensors", "model.safetensors", "onnx/model.onnx",
                        "pytorch_model.bin", "sub/model.safetensors", "tokenizer.json"}),
            "safetensors config.json tokenizer.json model.safetensors");
  EXPECT_EQ(chosen("", {"model.safetensors"}), "safetensors (part) model.safetensors");
  EXPECT_EQ(chosen("", {"config.json", "model-00001-of-00002.safetensors"}),
            "safetensors (part) config.json model-00001-of-00002.safetensors");
  EXPECT_NE(chosen("", {"config.json", "pytorch_model.bin"}).find("pickle"), std::string::npos);
  EXPECT_NE(chosen("", {"README.md"}).find("no model"), std::string::npos);
  EXPECT_EQ(chosen("safetensors", {"config.json", "model.safetensors", "m-Q8_0.gguf"}),
            "safetensors config.json model.safetensors");
  EXPECT_EQ(chosen("", {"config.json", "model.safetensors", "m-Q8_0.gguf"}), "Q8_0 m-Q8_0.gguf");
}

TEST(NearNames, WhateverTheCase) {
  EXPECT_EQ(near_name("qwen3-gguf", {"Qwen3-GGUF", "other"}), "Qwen3-GGUF");
  EXPECT_EQ(near_name("Qwen3-GUFF", {"Qwen3-GGUF", "other"}), "Qwen3-GGUF");
  EXPECT_EQ(near_name("something", {"Qwen3-GGUF", "other"}), "");
}

}  // namespace
}  // namespace baton::hub
