// Folders of packages and the rules of their programs.
#include "baton/unit/apple/mlpackage/package.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "baton/base/bytes.h"
#include "baton/base/output_file.h"
#include "baton/base/output_folder.h"

namespace baton::apple {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kManifestBytesMax = 1 << 20;
constexpr const char* kDataFolder = "Data";
constexpr const char* kModelFile = "com.apple.CoreML/model.mlmodel";
constexpr const char* kWeightsPath = "com.apple.CoreML/weights";

// 36 characters in the form of a random UUID, from the content: the same package, the same bytes.
std::string identifier_of(std::string_view content, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(content.data(), content.size(), seed);
  const uint64_t high = (hash.high64 & ~0xf000ull) | 0x4000ull, low = (hash.low64 & ~(3ull << 62)) | 1ull << 63;
  return fmt::format("{:08X}-{:04X}-{:04X}-{:04X}-{:012X}", high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48,
                     low & 0xffffffffffffull);
}

std::string manifest_of(const std::string& model, std::span<const std::byte> weights) {
  const std::string model_id = identifier_of(model, 1);
  const std::string weights_id = identifier_of(as_text(weights), 2);
  Json manifest;
  manifest["fileFormatVersion"] = "1.0.0";
  manifest["itemInfoEntries"][model_id] = {{"author", "com.apple.CoreML"},
                                           {"description", "CoreML Model Specification"},
                                           {"name", "model.mlmodel"},
                                           {"path", kModelFile}};
  manifest["itemInfoEntries"][weights_id] = {{"author", "com.apple.CoreML"},
                                             {"description", "CoreML Model Weights"},
                                             {"name", "weights"},
                                             {"path", kWeightsPath}};
  manifest["rootModelIdentifier"] = model_id;
  return manifest.dump(4) + "\n";
}

Status put(const fs::path& path, std::span<const std::byte> bytes) {
  BATON_TRY(OutputFile writer, OutputFile::create(path));
  BATON_OK(writer.write(bytes));
  return writer.commit();
}

// The path below Data/ of the root model.
Result<std::string> model_path(const fs::path& folder) {
  const fs::path file = folder / "Manifest.json";
  BATON_TRY(const std::string text, read_file(file, kManifestBytesMax));
  const Json manifest = Json::parse(text, nullptr, false);
  const auto wrong = [&](std::string_view what) {
    return fail(Code::kCorrupt, fmt::format("{}: {}", file.string(), what));
  };
  if (!manifest.is_object()) return wrong("not a JSON object");
  if (!manifest.contains("fileFormatVersion") || manifest["fileFormatVersion"] != "1.0.0")
    return wrong("fileFormatVersion is not 1.0.0");
  if (!manifest.contains("rootModelIdentifier") || !manifest["rootModelIdentifier"].is_string() ||
      !manifest.contains("itemInfoEntries") || !manifest["itemInfoEntries"].is_object()) {
    return wrong("rootModelIdentifier or itemInfoEntries is missing");
  }
  const auto entry = manifest["itemInfoEntries"].find(manifest["rootModelIdentifier"].get<std::string>());
  if (entry == manifest["itemInfoEntries"].end() || !entry->is_object()) return wrong("no item is the root model");
  for (const char* key : {"path", "name", "author", "description"}) {
    if (!entry->contains(key) || !(*entry)[key].is_string()) return wrong(fmt::format("the root model has no {}", key));
  }
  return (*entry)["path"].get<std::string>();
}

// Operations of opset CoreML6 that programs here are made of.
constexpr std::array<std::string_view, 18> kOpsOfPackages = {
    "const", "conv", "matmul",  "add",     "sub",    "mul",           "real_div", "minimum",   "exp",
    "relu",  "silu", "sigmoid", "softmax", "concat", "slice_by_size", "reshape",  "transpose", "layer_norm"};

struct SpecCheck {
  const PackageSpec& spec;
  std::unordered_set<std::string> names;

  Status wrong(std::string_view what) const {
    return fail(Code::kInvalidInput, fmt::format("Core ML program: {}", what));
  }
  Status define(const std::string& name, std::string_view what) {
    const bool letters =
        !name.empty() && !(name[0] >= '0' && name[0] <= '9') && std::all_of(name.begin(), name.end(), [](char c) {
          return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        });
    if (!letters) return wrong(fmt::format("{}: '{}' is not a name", what, name));
    if (!names.insert(name).second) return wrong(fmt::format("{}: '{}' is defined twice", what, name));
    return {};
  }
  Status features(const std::vector<PackageFeature>& described, const std::vector<PackageFeature>& of_function,
                  std::string_view kind) const;
  Status statement(const MilStatement& statement);
  Status check();
};

Status SpecCheck::features(const std::vector<PackageFeature>& described, const std::vector<PackageFeature>& of_function,
                           std::string_view kind) const {
  if (described.size() != of_function.size()) {
    return wrong(fmt::format("{} {}s are described, the function has {}", described.size(), kind, of_function.size()));
  }
  for (size_t i = 0; i < described.size(); ++i) {
    if (described[i].name != of_function[i].name || !(described[i].type == of_function[i].type)) {
      return wrong(fmt::format("{} {} is described as '{}' {}, the function has '{}' {}", kind, i, described[i].name,
                               to_string(described[i].type), of_function[i].name, to_string(of_function[i].type)));
    }
    if (described[i].type.type != MilType::kFp16) return wrong(fmt::format("'{}' is not fp16", described[i].name));
    if (described[i].type.dims.empty()) return wrong(fmt::format("'{}' has no dims", described[i].name));
  }
  return {};
}

Status SpecCheck::statement(const MilStatement& statement) {
  const std::string where = fmt::format("{} '{}'", statement.op, statement.name);
  if (std::find(kOpsOfPackages.begin(), kOpsOfPackages.end(), statement.op) == kOpsOfPackages.end())
    return wrong(where + ": not an op of the list");
  for (const MilArgument& argument : statement.arguments) {
    if (argument.names.empty()) return wrong(fmt::format("{}: '{}' has no value", where, argument.parameter));
    for (const std::string& name : argument.names) {
      if (!names.contains(name)) return wrong(fmt::format("{}: '{}' is not defined before it", where, name));
    }
  }
  // The engine's compiler refuses a product of one value with itself.
  std::string_view x;
  for (const MilArgument& argument : statement.arguments) {
    if (statement.op != "matmul" || (argument.parameter != "x" && argument.parameter != "y")) continue;
    if (argument.names[0] == x) return wrong(fmt::format("{}: a product of '{}' with itself", where, x));
    x = argument.names[0];
  }
  bool named = false;
  for (const MilArgument& attribute : statement.attributes) {
    if (attribute.parameter == "name") {
      named = attribute.literal.strings.size() == 1;
    } else if (statement.op != "const" || attribute.parameter != "val") {
      return wrong(fmt::format("{}: attribute '{}'", where, attribute.parameter));
    } else if (attribute.literal.in_file && attribute.literal.path != kWeightFile) {
      return wrong(fmt::format("{}: a value in '{}'", where, attribute.literal.path));
    }
  }
  if (!named) return wrong(where + ": the attribute 'name' is missing");
  if (statement.type.dims.size() > 5) return wrong(where + ": rank over 5");
  return define(statement.name, where);
}

Status SpecCheck::check() {
  if (spec.specification_version != kSpecificationVersion || spec.main.opset != kCoreMlOpset) {
    return wrong(fmt::format("specification version {} and opset '{}'; {} and {}", spec.specification_version,
                             spec.main.opset, kSpecificationVersion, kCoreMlOpset));
  }
  std::vector<PackageFeature> inputs, outputs;
  for (const MilPort& input : spec.main.inputs) {
    BATON_OK(define(input.name, "input"));
    inputs.push_back({input.name, input.type, ""});
  }
  for (const MilStatement& next : spec.main.statements) BATON_OK(statement(next));
  for (const std::string& name : spec.main.outputs) {
    const auto made = std::find_if(spec.main.statements.begin(), spec.main.statements.end(),
                                   [&](const MilStatement& item) { return item.name == name && item.op != "const"; });
    if (made == spec.main.statements.end()) return wrong(fmt::format("output '{}' is made by no operation", name));
    outputs.push_back({name, made->type, ""});
  }
  BATON_OK(features(spec.inputs, inputs, "input"));
  return features(spec.outputs, outputs, "output");
}

}  // namespace

Status write_package(const fs::path& folder, const PackageSpec& spec, std::span<const std::byte> weights) {
  const std::string model = encode_spec(spec);
  const std::string data = kDataFolder, manifest_file = "Manifest.json";
  const std::string model_file = fmt::format("{}/{}", data, kModelFile);
  const std::string weights_file = fmt::format("{}/{}/weight.bin", data, kWeightsPath);
  const std::string files[] = {model_file, weights_file, manifest_file};
  OutputFolder work(folder);
  BATON_OK(work.make(files));
  BATON_OK(put(work.path() / model_file, as_bytes(model)));
  BATON_OK(put(work.path() / weights_file, weights));
  BATON_OK(put(work.path() / manifest_file, as_bytes(manifest_of(model, weights))));
  return work.commit();
}

Result<Package> open_package(const fs::path& folder) {
  BATON_TRY(const std::string path, model_path(folder));
  if (path != kModelFile) {
    return fail(Code::kUnsupported,
                fmt::format("{}: the model is at '{}'; '{}'", (folder / "Manifest.json").string(), path, kModelFile));
  }
  const fs::path file = folder / kDataFolder / kModelFile;
  BATON_TRY(const MappedFile bytes, MappedFile::open(file));
  auto spec = decode_spec(bytes.bytes());
  if (!spec) return fail(std::move(spec).error().in(file.string()));
  BATON_TRY(MappedFile weights, MappedFile::open(folder / kDataFolder / kWeightsPath / "weight.bin"));
  return Package{folder, std::move(*spec), std::move(weights)};
}

Status check_package(const PackageSpec& spec) { return SpecCheck{spec, {}}.check(); }

}  // namespace baton::apple
