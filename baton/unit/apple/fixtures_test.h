// What the tests of this folder share: a temporary folder, programs as text, weights, one evaluation from start to end.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/random.h"
#include "baton/model/model.h"
#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/apple/fp16.h"

namespace baton::apple::fixtures {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() / fmt::format("baton_apple_{}_{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A program of dialect 1 around statements.
inline std::string program(std::string_view body, std::string_view inputs = "tensor<fp16, [1, 8, 1, 32]> x",
                           std::string_view outputs = "y") {
  return fmt::format(
      "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{{{\"coremlc-version\", "
      "\"3505.4.1\"}}}})]\n{{\n  func main<ios16>({}) {{\n{}  }} -> ({});\n}}\n",
      inputs, body, outputs);
}

inline std::string name_of(std::string_view name) {
  return fmt::format("[name = tensor<string, []>(\"{}\")];\n", name);
}

// type name = op(arguments)[name = "name"];
inline std::string op(std::string_view type, std::string_view name, std::string_view call) {
  return fmt::format("{} {} = {}{}", type, name, call, name_of(name));
}
inline std::string constant(std::string_view type, std::string_view name, std::string_view value) {
  return fmt::format("{} {} = const()[name = tensor<string, []>(\"{}\"), val = {}({})];\n", type, name, name, type,
                     value);
}
inline std::string file_constant(std::string_view type, std::string_view name, uint64_t offset = 64,
                                 std::string_view path = "@model_path/weights/w.bin") {
  return constant(
      type, name,
      fmt::format("BLOBFILE(path = tensor<string, []>(\"{}\"), offset = tensor<uint64, []>({}))", path, offset));
}
// "[v, v, v]"
inline std::string repeated(std::string_view value, size_t count) {
  std::string out = "[";
  for (size_t i = 0; i < count; ++i) out += fmt::format("{}{}", i > 0 ? ", " : "", value);
  return out + "]";
}

// Weights that own their values.
struct OwnedWeight {
  Weight weight;
  std::vector<float> values;

  OwnedWeight(std::string name, int64_t rows, int64_t columns, uint64_t seed, float scale = 0.1f) {
    Random random(seed);
    values.resize(static_cast<size_t>(rows * columns));
    for (float& value : values) value = random.normal() * scale;
    weight = {std::move(name), DType::kF32, rows, columns, nullptr, values.size() * 4, ""};
    weight.data = reinterpret_cast<const std::byte*>(values.data());
  }
  OwnedWeight(const OwnedWeight&) = delete;
};

// A weight with a shape and no values, for plans.
inline Weight shape_only(int64_t rows, int64_t columns) { return {"w", DType::kBF16, rows, columns, nullptr, 0, ""}; }

// One model through all calls: fp16 values in, fp16 values out as f32.
struct Evaluation {
  Status status;
  std::vector<std::vector<float>> outputs;
  EmulatorReport report;
};

struct PortData {
  std::vector<float> values;
  size_t row = 32;  // values per row; rows are padded to 64 bytes
};

inline uint64_t padded_bytes(size_t values, size_t row) { return values / row * ((row * 2 + 63) / 64 * 64); }

inline Result<std::unique_ptr<DeviceModel>> loaded_model(Driver& driver, const std::string& mil,
                                                         const std::vector<WeightEntry>& weights) {
  BATON_TRY(std::unique_ptr<DeviceModel> model, driver.create_model(mil, &weights));
  const auto folder = driver.temporary_folder() / model->identifier();
  write_text(folder / "model.mil", mil);
  for (const WeightEntry& entry : weights) write_text(folder / entry.key.substr(12), as_text(entry.data));
  BATON_OK(model->compile());
  BATON_OK(model->load());
  return model;
}

inline Status fill(Surface& surface, const PortData& data) {
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(surface, LockMode::kReadWrite));
  const size_t pitch = (data.row * 2 + 63) / 64 * 64;
  for (size_t i = 0; i < data.values.size(); ++i) {
    store_as<uint16_t>(lock.bytes().data() + i / data.row * pitch + i % data.row * 2, to_fp16(data.values[i]));
  }
  return {};
}

inline Result<std::vector<float>> read(Surface& surface, size_t values, size_t row) {
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(surface, LockMode::kReadOnly));
  const size_t pitch = (row * 2 + 63) / 64 * 64;
  std::vector<float> out(values);
  for (size_t i = 0; i < values; ++i) {
    out[i] = from_fp16(load_as<uint16_t>(lock.bytes().data() + i / row * pitch + i % row * 2));
  }
  return out;
}

// `outputs`: values per output and row length.
inline Evaluation evaluate(const EmulatorOptions& options, const std::string& mil, const std::vector<PortData>& inputs,
                           const std::vector<std::pair<size_t, size_t>>& outputs,
                           const std::vector<WeightEntry>& weights = {}) {
  Evaluation out;
  const auto run = [&](EmulatorDriver& driver) -> Status {
    BATON_TRY(const auto model, loaded_model(driver, mil, weights));
    std::vector<std::unique_ptr<Surface>> surfaces;
    RequestSpec spec;
    for (const PortData& input : inputs) {
      BATON_TRY(auto surface,
                driver.create_surface(SurfaceProperties::flat(padded_bytes(input.values.size(), input.row))));
      BATON_OK(fill(*surface, input));
      spec.input_indices.push_back(static_cast<int32_t>(spec.inputs.size()));
      spec.inputs.push_back(surface.get());
      surfaces.push_back(std::move(surface));
    }
    for (const auto& [values, row] : outputs) {
      BATON_TRY(auto surface, driver.create_surface(SurfaceProperties::flat(padded_bytes(values, row))));
      spec.output_indices.push_back(static_cast<int32_t>(spec.outputs.size()));
      spec.outputs.push_back(surface.get());
      surfaces.push_back(std::move(surface));
    }
    BATON_TRY(const auto request, driver.create_request(spec));
    BATON_OK(model->evaluate(*request));
    for (size_t i = 0; i < outputs.size(); ++i) {
      BATON_TRY(std::vector<float> values, read(*spec.outputs[i], outputs[i].first, outputs[i].second));
      out.outputs.push_back(std::move(values));
    }
    return {};
  };
  auto driver = EmulatorDriver::create(options);
  if (!driver) {
    out.status = fail(driver.error());
    return out;
  }
  out.status = run(**driver);
  out.report = (*driver)->report();
  return out;
}

inline std::string message(const Status& status) { return status ? "ok" : status.error().message; }

}  // namespace baton::apple::fixtures
