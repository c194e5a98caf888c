// Folders, splits and special files that are not a model: each is refused with its code and a message that names the
// file and what to do. Damaged bytes inside one file are in bad_input_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <tuple>

#include "baton/base/bytes.h"
#include "baton/model/container.h"
#include "baton/tools/convert.h"
#include "tests/bad_input_bytes.h"
#include "tests/support/smoke.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

// An empty folder to fill with what a case needs.
class Place {
 public:
  Place() : path_(fs::temp_directory_path() / fmt::format("baton_bad_folder_{}_{}", ::getpid(), counter_++)) {
    fs::create_directories(path_);
  }
  ~Place() {
    std::error_code error;
    fs::permissions(path_, fs::perms::owner_all, error);
    fs::remove_all(path_, error);
  }
  fs::path write(const std::string& name, std::string_view bytes) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  static inline int counter_ = 0;
  fs::path path_;
};

std::string shard(std::string_view tensor) {
  return safetensors_bytes("{" + tensor_json(tensor, "F32", "[1]", "[0,4]") + "}", "1234");
}
std::string index_of(std::string_view map) {
  return fmt::format(R"({{"metadata":{{"total_size":8}},"weight_map":{}}})", map);
}

std::string part(int number, int count, std::string_view tensor, int total, std::string_view architecture = "llama") {
  GgufBytes file;
  file.text("general.architecture", architecture)
      .u32("split.no", static_cast<uint32_t>(number - 1))
      .u32("split.count", static_cast<uint32_t>(count));
  file.u32("split.tensors.count", static_cast<uint32_t>(total));
  if (!tensor.empty()) file.tensor(tensor, {1}, 0, 4);
  return file.bytes();
}

struct Case {
  const char* name;
  std::function<fs::path(const Place&)> make;  // what to open
  Code code;
  const char* fragment;
};

void expect_refused(const std::vector<Case>& cases) {
  for (const Case& item : cases) {
    const Place place;
    const fs::path path = item.make(place);
    const auto start = std::chrono::steady_clock::now();
    const auto opened = open_container(path);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_FALSE(opened) << item.name << " was accepted";
    EXPECT_EQ(to_string(opened.error().code), to_string(item.code)) << item.name << ": " << opened.error().message;
    EXPECT_NE(opened.error().message.find(item.fragment), std::string::npos)
        << item.name << ": " << opened.error().message;
    EXPECT_LT(seconds, scaled(1, 20)) << item.name;
  }
}

// A folder with config.json and these files; the folder is opened.
std::function<fs::path(const Place&)> folder(std::vector<std::pair<std::string, std::string>> files) {
  return [files = std::move(files)](const Place& place) {
    place.write("config.json", "{}");
    for (const auto& [name, bytes] : files) place.write(name, bytes);
    return place.path();
  };
}
std::function<fs::path(const Place&)> with_index(const std::string& index) {
  return folder(
      {{"a.safetensors", shard("a")}, {"b.safetensors", shard("b")}, {"model.safetensors.index.json", index}});
}

TEST(BadInputFolder, HuggingFace) {
  const std::string config = "{\"a\":" + std::string(100000, '[');
  expect_refused({
      {"not there", [](const Place& place) { return place.path() / "none"; }, Code::kNotFound, "none: No such file"},
      {"empty folder", [](const Place& place) { return place.path(); }, Code::kNotFound,
       "no config.json beside the weights"},
      {"no weights", folder({}), Code::kNotFound, "no safetensors file in this folder"},
      {"pickles only", folder({{"pytorch_model.bin", "\x80\x02}q."}}), Code::kUnsupported,
       "pytorch_model.bin: a pickle file"},
      {"a pickle itself", [](const Place& place) { return place.write("model.pt", "\x80\x02}q."); }, Code::kUnsupported,
       "a pickle file"},
      {"a checkpoint", [](const Place& place) { return place.write("model.ckpt", "x"); }, Code::kUnsupported,
       "a pickle file"},
      {"a zip archive", [](const Place& place) { return place.write("model.zip", "PK\x03\x04"); }, Code::kInvalidInput,
       "not a GGUF file"},
      {"config that is not JSON", folder({{"config.json", "{"}, {"model.safetensors", shard("a")}}),
       Code::kInvalidInput, "config.json: not valid JSON"},
      {"config that is a list", folder({{"config.json", "[]"}}), Code::kInvalidInput,
       "config.json: must be a JSON object"},
      {"config nested 10^5 deep", folder({{"config.json", config}}), Code::kInvalidInput,
       "config.json: JSON nested deeper than 64"},
      {"config with NaN", folder({{"config.json", R"({"rms_norm_eps": NaN})"}}), Code::kInvalidInput,
       "config.json: not valid JSON"},
      {"config with Infinity", folder({{"config.json", R"({"rope_theta": Infinity})"}}), Code::kInvalidInput,
       "not valid JSON"},
      {"config with 1e999", folder({{"config.json", R"({"rope_theta": 1e999})"}}), Code::kInvalidInput,
       "not valid JSON"},
      {"config of 5 MiB", folder({{"config.json", std::string(5 << 20, ' ')}}), Code::kInvalidInput,
       "more than the 4194304"},
      {"config that is a folder",
       [](const Place& place) {
         fs::create_directories(place.path() / "config.json");
         return place.path();
       },
       Code::kInvalidInput, "config.json: is a folder"},
      {"generation_config broken", folder({{"generation_config.json", "nope"}, {"model.safetensors", shard("a")}}),
       Code::kInvalidInput, "generation_config.json: not valid JSON"},
      {"several files, no index", folder({{"a.safetensors", shard("a")}, {"b.safetensors", shard("b")}}),
       Code::kNotFound, "2 safetensors files, but no model.safetensors.index.json"},
      {"empty weights", folder({{"model.safetensors", ""}}), Code::kCorrupt,
       "model.safetensors: offset 0: the header length"},
      {"weights that are a folder",
       [](const Place& place) {
         place.write("config.json", "{}");
         fs::create_directories(place.path() / "model.safetensors");
         return place.path();
       },
       Code::kInvalidInput, "is a folder, not a regular file"},
      {"a link to a text file",
       [](const Place& place) {
         place.write("config.json", "{}");
         place.write("notes.txt", "root:x:0:0:root:/root:/bin/sh\n");
         fs::create_symlink("notes.txt", place.path() / "model.safetensors");
         return place.path();
       },
       Code::kCorrupt, "the header length is"},
      {"a link to itself",
       [](const Place& place) {
         place.write("config.json", "{}");
         fs::create_symlink("model.safetensors", place.path() / "model.safetensors");
         return place.path();
       },
       Code::kInvalidInput, "cannot open"},
  });
}

TEST(BadInputFolder, Index) {
  expect_refused({
      {"not JSON", with_index("{"), Code::kInvalidInput, "index.json: not valid JSON"},
      {"a list", with_index("[]"), Code::kInvalidInput, "index.json: must be a JSON object"},
      {"no weight_map", with_index("{}"), Code::kInvalidInput, "'weight_map' is missing or empty"},
      {"empty weight_map", with_index(index_of("{}")), Code::kInvalidInput, "'weight_map' is missing or empty"},
      {"weight_map that is a list", with_index(index_of(R"(["a"])")), Code::kInvalidInput,
       "must map tensor names to file names"},
      {"weight_map with numbers", with_index(index_of(R"({"a": 1})")), Code::kInvalidInput,
       "must map tensor names to file names"},
      {"weight_map nested", with_index(index_of(R"({"a": {"b": "c"}})")), Code::kInvalidInput,
       "must map tensor names to file names"},
      {"weight_map twice",
       with_index(R"({"weight_map": {"a": "a.safetensors"}, "weight_map": {"b": "b.safetensors"}})"),
       Code::kInvalidInput, "occurs twice"},
      {"nested 10^5 deep", with_index("{\"x\":" + std::string(100000, '[')), Code::kInvalidInput,
       "nested deeper than 16"},
      {"../../etc/passwd", with_index(index_of(R"({"a": "../../etc/passwd"})")), Code::kInvalidInput,
       "'../../etc/passwd', which is not the name"},
      {"up and a right ending", with_index(index_of(R"({"a": "../x.safetensors"})")), Code::kInvalidInput,
       "'../x.safetensors', which is not"},
      {"absolute", with_index(index_of(R"({"a": "/etc/x.safetensors"})")), Code::kInvalidInput,
       "'/etc/x.safetensors', which is not"},
      {"backslashes", with_index(index_of(R"({"a": "..\\x.safetensors"})")), Code::kInvalidInput,
       "which is not the name"},
      {"subfolder", with_index(index_of(R"({"a": "x/a.safetensors"})")), Code::kInvalidInput, "which is not the name"},
      {"NUL in the name", with_index(index_of(R"({"a": "a\u0000.safetensors"})")), Code::kInvalidInput,
       "which is not the name"},
      {"a pickle", with_index(index_of(R"({"a": "pytorch_model.bin"})")), Code::kInvalidInput, "which is not the name"},
      {"empty name", with_index(index_of(R"({"a": ""})")), Code::kInvalidInput, "which is not the name"},
      {"missing shard", with_index(index_of(R"({"a": "a.safetensors", "c": "c.safetensors"})")), Code::kNotFound,
       "c.safetensors: cannot open"},
      {"tensor that is nowhere", with_index(index_of(R"({"a": "a.safetensors", "x": "b.safetensors"})")),
       Code::kCorrupt, "tensor 'x' is not in 'b.safetensors'"},
      {"tensor in the other shard", with_index(index_of(R"({"a": "b.safetensors", "b": "a.safetensors"})")),
       Code::kCorrupt, "is not in"},
      {"tensor in two shards",
       folder({{"a.safetensors", shard("t")},
               {"b.safetensors", shard("t")},
               {"model.safetensors.index.json", index_of(R"({"t": "a.safetensors", "u": "b.safetensors"})")}}),
       Code::kCorrupt, "'t' occurs in another file of this model too"},
      {"a shard cut short",
       folder({{"a.safetensors", shard("a").substr(0, 60)},
               {"model.safetensors.index.json", index_of(R"({"a": "a.safetensors"})")}}),
       Code::kCorrupt, "a.safetensors: the header length is"},
  });
}

// Parts m-0000I-of-0000N.gguf; the first is opened.
std::function<fs::path(const Place&)> parts(std::vector<std::pair<std::string, std::string>> files) {
  return [files = std::move(files)](const Place& place) {
    fs::path first;
    for (const auto& [name, bytes] : files) {
      const fs::path path = place.write(name, bytes);
      if (first.empty()) first = path;
    }
    return first;
  };
}

TEST(BadInputFolder, GgufSplits) {
  const std::string one = "m-00001-of-00002.gguf", two = "m-00002-of-00002.gguf";
  expect_refused({
      {"missing part", parts({{one, part(1, 2, "a", 2)}}), Code::kNotFound,
       "(part 2 of 2; all parts must be in one folder)"},
      {"missing first part", parts({{two, part(2, 2, "b", 2)}}), Code::kNotFound, "(part 1 of 2"},
      {"the same part twice", parts({{one, part(1, 2, "a", 2)}, {two, part(1, 2, "a", 2)}}), Code::kCorrupt,
       "by its keys it is part 1 of 2, by its name part 2 of 2"},
      {"renamed parts", parts({{one, part(2, 2, "b", 2)}, {two, part(1, 2, "a", 2)}}), Code::kCorrupt,
       "by its keys it is part 2 of 2, by its name part 1"},
      {"a part of more parts", parts({{one, part(1, 2, "a", 2)}, {two, part(2, 3, "b", 2)}}), Code::kCorrupt,
       "part 2 of 3"},
      {"a part without split keys",
       parts({{one, part(1, 2, "a", 2)}, {two, GgufBytes().tensor("b", {1}, 0, 4).bytes()}}), Code::kCorrupt,
       "by its keys it is part ? of ?"},
      {"a tensor in two parts", parts({{one, part(1, 2, "a", 2)}, {two, part(2, 2, "a", 2)}}), Code::kCorrupt,
       "a part of another model"},
      {"a part of another architecture", parts({{one, part(1, 2, "a", 2)}, {two, part(2, 2, "b", 2, "qwen35")}}),
       Code::kCorrupt, "'general.architecture' differs"},
      {"a part of another total", parts({{one, part(1, 2, "a", 2)}, {two, part(2, 2, "b", 3)}}), Code::kCorrupt,
       "'split.tensors.count' differs"},
      {"fewer tensors than promised", parts({{one, part(1, 2, "a", 5)}, {two, part(2, 2, "b", 5)}}), Code::kCorrupt,
       "the parts hold 2 tensors, but key 'split.tensors.count' is 5"},
      {"part 0", parts({{"m-00000-of-00002.gguf", part(1, 2, "a", 2)}}), Code::kInvalidInput, "part 0 of 2"},
      {"part 3 of 2", parts({{"m-00003-of-00002.gguf", part(1, 2, "a", 2)}}), Code::kInvalidInput, "part 3 of 2"},
      {"99999 parts", parts({{"m-00001-of-99999.gguf", part(1, 2, "a", 2)}}), Code::kInvalidInput,
       "at most 1024 parts"},
      {"a part under another name", parts({{"m.gguf", part(2, 3, "a", 3)}}), Code::kInvalidInput,
       "is part 2 of 3, but is not named"},
      {"split.no as text", parts({{"m.gguf", GgufBytes().text("split.no", "1").bytes()}}), Code::kInvalidInput,
       "'split.no' is a text"},
      {"split.count negative", parts({{"m.gguf", GgufBytes().entry("split.count", 5, raw<int32_t>(-1)).bytes()}}),
       Code::kInvalidInput, "'split.count' is -1"},
      {"a damaged second part", parts({{one, part(1, 2, "a", 2)}, {two, part(2, 2, "b", 2).substr(0, 100)}}),
       Code::kCorrupt, "m-00002-of-00002.gguf: offset"},
  });
}

TEST(BadInputFolder, SpecialFiles) {
  expect_refused({
      {"a named pipe",
       [](const Place& place) {
         const fs::path path = place.path() / "m.gguf";
         EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
         return path;
       },
       Code::kInvalidInput, "is a device, pipe or socket"},
      {"a device", [](const Place&) { return fs::path("/dev/zero"); }, Code::kInvalidInput,
       "is a device, pipe or socket"},
      {"a pipe named like weights",
       [](const Place& place) {
         place.write("config.json", "{}");
         EXPECT_EQ(::mkfifo((place.path() / "model.safetensors").c_str(), 0600), 0);
         return place.path();
       },
       Code::kInvalidInput, "is a device, pipe or socket"},
      {"a path through a file", [](const Place& place) { return place.write("a", "x") / "m.gguf"; }, Code::kNotFound,
       "m.gguf"},
      {"a name of 10^4 bytes", [](const Place& place) { return place.path() / std::string(10000, 'n'); },
       Code::kNotFound, "too long"},
  });
  if (::geteuid() != 0) {
    expect_refused({{"unreadable",
                     [](const Place& place) {
                       const fs::path path = place.write("m.gguf", "GGUF");
                       fs::permissions(path, fs::perms::none);
                       return path;
                     },
                     Code::kInvalidInput, "Permission denied"}});
  }
}

// A copy of the tiny llama, one value of its last matrix changed.
TEST(BadInputFolder, WeightsThatATypeCannotHoldAreNotConverted) {
  const fs::path golden = fs::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "tiny-llama";
  for (const auto& [value, type, fragment] :
       {std::tuple{std::nanf(""), DType::kF32, "holds nan, which F32 cannot"},
        std::tuple{-HUGE_VALF, DType::kQ8_0, "holds -inf, which Q8_0 cannot"},
        std::tuple{70000.0f, DType::kF16, "which F16 cannot"}, std::tuple{70000.0f, DType::kBF16, ""}}) {
    const Place place;
    fs::copy_file(golden / "config.json", place.path() / "config.json");
    const auto container = open_container(golden);
    ASSERT_TRUE(container) << container.error().message;
    const TensorView* tensor = container->find("model.layers.0.mlp.down_proj.weight");
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(container->files.size(), 1u);
    std::string bytes(as_text(container->files[0].bytes()));
    const auto at = static_cast<size_t>(tensor->data.data() - container->files[0].bytes().data());
    format_of(tensor->dtype).encode(&value, reinterpret_cast<std::byte*>(bytes.data() + at), 1);
    place.write("model.safetensors", bytes);
    const fs::path out = place.path() / "out.gguf";
    ConvertOptions options;
    options.matrix_type = type;
    const auto report = convert_to_gguf(place.path(), out, options);
    EXPECT_EQ(report.has_value(), *fragment == 0) << to_string(type);
    EXPECT_EQ(fs::exists(out), *fragment == 0) << to_string(type);
    if (!report) {
      EXPECT_NE(report.error().message.find(fragment), std::string::npos) << report.error().message;
      EXPECT_NE(report.error().message.find("layers.0.mlp.down_proj"), std::string::npos) << report.error().message;
    }
  }
}

// Headers are parsed within a bound: a file of a hundred thousand small lies must not take a gigabyte.
TEST(BadInputFolder, MemoryStaysBounded) {
  const auto resident_kib = [] {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    return usage.ru_maxrss / 1024;
#else
    return usage.ru_maxrss;
#endif
  };
  const Place place;
  // 8 MiB of one-byte items, which become 8-byte numbers, then damage.
  GgufBytes file;
  file.array("k", 0, 8 << 20, std::string(8 << 20, 'x')).entry("z", 99, "");
  const fs::path path = place.write("m.gguf", file.bytes());
  file = {};
  const long before = resident_kib();
  EXPECT_FALSE(open_container(path));
  EXPECT_LT(resident_kib() - before, (64 + 8 + 16) * 1024) << "KiB";  // numbers, the mapped file, and slack
}

}  // namespace
}  // namespace baton::test
