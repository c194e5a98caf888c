// Reading and comparing reference vectors.
#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/smoke.h"

namespace baton::test {

GoldenTensors read_golden(const std::filesystem::path& file) {
  GoldenTensors tensors;
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (bytes.size() < 8) {
    ADD_FAILURE() << file << " cannot be read";
    return tensors;
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") continue;
    GoldenTensor tensor;
    tensor.shape = info["shape"].get<std::vector<int64_t>>();
    const size_t begin = info["data_offsets"][0].get<size_t>();
    const size_t end = info["data_offsets"][1].get<size_t>();
    const char* data = bytes.data() + 8 + header_bytes + begin;
    if (info["dtype"] == "F32") {
      tensor.reals.resize((end - begin) / 4);
      std::memcpy(tensor.reals.data(), data, end - begin);
    } else {
      tensor.integers.resize((end - begin) / 4);
      std::memcpy(tensor.integers.data(), data, end - begin);
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

std::filesystem::path data_folder() { return std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data"; }

std::filesystem::path extra_folder() {
  const char* folder = std::getenv("BATON_MODELS_EXTRA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder);
}

std::filesystem::path family_folder(const std::string& name) { return data_folder() / "golden" / "families" / name; }
std::filesystem::path encoder_folder(const std::string& name) { return data_folder() / "golden" / "encoders" / name; }

namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> family_names() { return names_in(data_folder() / "golden" / "families"); }
std::vector<std::string> encoder_names() { return names_in(data_folder() / "golden" / "encoders"); }

std::vector<GoldenCase> golden_cases() {
  const auto golden = data_folder() / "golden";
  const auto bundled = std::filesystem::path(BATON_SOURCE_DIR) / "models";
  std::vector<GoldenCase> cases;
  const auto add = [&](const char* name) {
    cases.push_back({name, golden / name, golden / name / "golden.safetensors", true});
  };
  for (const char* name : {"tiny-qwen3.5", "tiny-qwen3.5-multimodal", "tiny-llama"}) add(name);
  for (const std::string& name : family_names()) {
    const auto folder = family_folder(name);
    cases.push_back({name, folder, folder / "golden.safetensors", true});
    cases.push_back({name + "-gguf", folder / "model.gguf", folder / "golden.safetensors", true, true});
  }
  if (smoke_run()) return cases;
  add("dictionary-3m");
  cases.push_back({"dictionary-3m-Q8_0", bundled / "dictionary-3m.Q8_0.gguf",
                   golden / "dictionary-3m" / "golden.safetensors", false});
  cases.push_back({"dictionary-28m-Q8_0", bundled / "dictionary-28m.Q8_0.gguf",
                   golden / "dictionary-28m" / "golden.safetensors", false});
  for (const char* name : {"tiny-qwen3", "tiny-gemma3", "tiny-gpt2"}) {
    const auto folder = extra_folder() / "golden" / name;
    if (!extra_folder().empty() && std::filesystem::exists(folder))
      cases.push_back({name, folder, folder / "golden.safetensors", true, true});
  }
  if (!extra_folder().empty()) {
    cases.push_back({"dictionary-28m", extra_folder() / "models" / "dictionary-28m",
                     golden / "dictionary-28m" / "golden.safetensors", true});
  }
  return cases;
}

float max_abs_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::numeric_limits<float>::infinity();
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

float top2_gap(std::span<const float> logits) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (const float logit : logits) {
    if (logit > first) {
      second = first;
      first = logit;
    } else if (logit > second) {
      second = logit;
    }
  }
  return first - second;
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<float> last_logits(Executor& executor, std::span<const int32_t> ids, size_t chunk, SequenceState& state) {
  const size_t before_last = ids.size() - 1;
  if (chunk == 0) chunk = std::max<size_t>(before_last, 1);
  for (size_t done = 0; done < before_last; done += chunk) {
    const auto status = executor.prefill(state, ids.subspan(done, std::min(chunk, before_last - done)), {});
    EXPECT_TRUE(status) << status.error().message;
    if (!status) return {};
  }
  std::vector<float> logits(executor.model().program.vocab, std::numeric_limits<float>::quiet_NaN());
  const auto status = executor.decode(state, ids.back(), logits);
  EXPECT_TRUE(status) << status.error().message;
  return logits;
}

std::vector<int32_t> greedy(Executor& executor, SequenceState& state, std::vector<float> logits, size_t count) {
  std::vector<int32_t> ids;
  while (!logits.empty()) {
    ids.push_back(argmax(logits));
    if (ids.size() == count) break;
    const auto status = executor.decode(state, ids.back(), logits);
    EXPECT_TRUE(status) << status.error().message;
    if (!status) break;
  }
  return ids;
}

DType main_type(const Model& model) {
  std::map<DType, int64_t> values;
  for (const Weight& weight : model.weights) {
    if (weight.rows > 1) values[weight.dtype] += weight.rows * weight.columns;
  }
  return std::max_element(values.begin(), values.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

}  // namespace baton::test
