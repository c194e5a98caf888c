// Reads an index of shards as it streams by.
#include "baton/model/shard_index.h"

#include <fmt/format.h>

#include <string_view>

#include "baton/model/container.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr size_t kIndexBytesMax = 64 << 20;
constexpr size_t kIndexEntriesMax = 1 << 18;

// A plain name of a safetensors file: an index must not lead out of its folder.
bool is_shard_name(std::string_view name) {
  return is_name(name) && name.find_first_of("/\\:") == std::string_view::npos && name.size() <= 255 &&
         name.ends_with(".safetensors");
}

// {"weight_map": {tensor: file}}, read as it streams by: large models have 10^5 entries. Other fields are skipped.
class IndexSax {
 public:
  std::vector<std::pair<std::string, std::string>> entries;
  std::string problem;

  bool null() { return scalar(); }
  bool boolean(bool) { return scalar(); }
  bool number_integer(int64_t) { return scalar(); }
  bool number_unsigned(uint64_t) { return scalar(); }
  bool number_float(double, const std::string&) { return scalar(); }
  bool binary(Json::binary_t&) { return scalar(); }
  bool string(std::string& text) {
    if (!in_map()) return true;
    if (!is_shard_name(text)) {
      return stop(
          fmt::format("tensor '{}' is said to be in '{}', which is not the name of a safetensors file of this folder",
                      shown(tensor_), shown(text)));
    }
    if (entries.size() >= kIndexEntriesMax) return stop(fmt::format("more than {} tensors", kIndexEntriesMax));
    entries.emplace_back(std::move(tensor_), std::move(text));
    return true;
  }
  bool start_object(size_t) { return open('{'); }
  bool start_array(size_t) { return open('['); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& text) {
    if (depth_ == 1) {
      field_ = text;
      if (text == "weight_map" && std::exchange(map_seen, true)) return stop("'weight_map' occurs twice");
    }
    if (in_map()) tensor_ = std::move(text);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    return stop(fmt::format("not valid JSON at {}: {}", position, shown(error.what())));
  }

  bool map_seen = false;

 private:
  bool in_map() const { return depth_ == 2 && field_ == "weight_map"; }
  bool scalar() {
    return in_map() || (depth_ == 1 && field_ == "weight_map")
               ? stop("'weight_map' must map tensor names to file names")
               : true;
  }
  bool open(char kind) {
    if (depth_ == 0 && kind != '{') return stop("must be a JSON object");
    if (field_ == "weight_map" && (depth_ > 1 || kind != '{'))
      return stop("'weight_map' must map tensor names to file names");
    return ++depth_ <= 16 || stop("JSON nested deeper than 16");
  }
  bool close() {
    --depth_;
    return true;
  }
  bool stop(std::string text) {
    problem = std::move(text);
    return false;
  }

  int depth_ = 0;
  std::string field_, tensor_;
};

}  // namespace

Result<ShardIndex> read_shard_index(const std::filesystem::path& path) {
  BATON_TRY(const std::string text, read_file(path, kIndexBytesMax));
  IndexSax sax;
  if (!Json::sax_parse(text, &sax)) return fail(Code::kInvalidInput, fmt::format("{}: {}", path.string(), sax.problem));
  if (sax.entries.empty()) {
    return fail(Code::kInvalidInput, fmt::format("{}: 'weight_map' is missing or empty", path.string()));
  }
  return std::move(sax.entries);
}

}  // namespace baton
