// Chunks of layers, names, and packages one after another.
#include "baton/unit/apple/mlpackage/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace baton::apple {
namespace {

// fp16 bytes of each layer's weights.
std::vector<uint64_t> layer_bytes(const Model& model) {
  std::vector<uint64_t> bytes(static_cast<size_t>(model.spec.layers), 0);
  for (const Op& op : model.program.ops) {
    if (op.layer < 0 || op.layer >= model.spec.layers) continue;
    for (const WeightId id : op.weights) {
      if (id < 0) continue;
      const Weight& weight = model.weights[static_cast<size_t>(id)];
      bytes[static_cast<size_t>(op.layer)] +=
          2 * static_cast<uint64_t>(weight.rows) * static_cast<uint64_t>(weight.columns);
    }
  }
  return bytes;
}

std::string slug_of(const Model& model) {
  std::string out;
  for (const char c : model.spec.name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? model.spec.architecture : out;
}

void describe(const std::vector<MilPort>& inputs, std::vector<PackageFeature>* out) {
  for (const MilPort& input : inputs) {
    std::string words;
    if (input.name == "hidden") words = "residual stream, one token a column, padding at the left";
    if (input.name == "keep") words = "1 for a token, 0 for padding";
    if (input.name == "past_keep") words = "1 where the past holds a token";
    if (input.name == "rope_cos" || input.name == "rope_sin") words = "of each column's position";
    out->push_back({input.name, input.type, words.empty() ? "state before the first token" : words});
  }
}

}  // namespace

Result<std::vector<LayerRange>> plan_chunks(const Model& model, int32_t chunks) {
  const std::vector<uint64_t> bytes = layer_bytes(model);
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  const int32_t layers = model.spec.layers;
  if (chunks == 0)
    chunks =
        static_cast<int32_t>(std::min<uint64_t>(total / kPackageWeightBytesWanted + 1, static_cast<uint64_t>(layers)));
  if (chunks < 1 || chunks > std::min(layers, kPackageChunksMax)) {
    return fail(Code::kInvalidInput, fmt::format("{} chunks of {} layers: from 1 to {}", chunks, layers,
                                                 std::min(layers, kPackageChunksMax)));
  }
  std::vector<LayerRange> out;
  uint64_t before = 0, largest = 0;
  int32_t layer = 0;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    LayerRange range{layer, layer};
    uint64_t own = 0;
    const uint64_t end = total / static_cast<uint64_t>(chunks) * static_cast<uint64_t>(chunk + 1);
    const int32_t last = layers - (chunks - chunk - 1);  // one layer at least for each chunk that follows
    while (layer < last && (layer == range.begin || chunk == chunks - 1 ||
                            before + own + bytes[static_cast<size_t>(layer)] / 2 <= end)) {
      own += bytes[static_cast<size_t>(layer++)];
    }
    range.end = layer;
    before += own;
    largest = std::max(largest, own);
    out.push_back(range);
  }
  if (largest > kPackageWeightBytesMax) {
    return fail(Code::kInvalidInput,
                fmt::format("{} chunks: one has {} bytes of weights, a file of a bundle takes {}; use more chunks",
                            chunks, largest, kPackageWeightBytesMax));
  }
  return out;
}

std::string package_name(const Model& model, const PrefillShape& shape, size_t chunk, size_t chunks) {
  return fmt::format("{}_prefill_seq{}{}_chunk{}of{}.mlpackage", slug_of(model), shape.seq,
                     shape.past > 0 ? fmt::format("_past{}", shape.past) : "", chunk + 1, chunks);
}

Result<PackageContent> build_package(const Model& model, const PrefillShape& shape,
                                     const std::vector<LayerRange>& chunks, size_t chunk) {
  BATON_CHECK(chunk < chunks.size());
  BATON_TRY(const Fingerprints prints, model.fingerprints());
  PackageContent out;
  uint64_t bytes = 0;
  const std::vector<uint64_t> sizes = layer_bytes(model);
  for (int32_t layer = chunks[chunk].begin; layer < chunks[chunk].end; ++layer)
    bytes += sizes[static_cast<size_t>(layer)];
  BlobWriter weights(bytes + bytes / 64);
  MilBlock block(weights, std::string(kWeightFile));
  BATON_OK(lower_prefill(model, chunks[chunk], shape, block, &out.range));
  out.ops = block.ops();
  out.spec.main = std::move(block).take();
  out.spec.main.opset = kCoreMlOpset;
  out.weights = std::move(weights).finish();
  describe(out.spec.main.inputs, &out.spec.inputs);
  for (const std::string& name : out.spec.main.outputs) {
    for (const MilStatement& statement : out.spec.main.statements) {
      if (statement.name != name) continue;
      out.spec.outputs.push_back(
          {name, statement.type, name == "hidden_out" ? "residual stream" : "state after the last token"});
    }
  }
  out.spec.description =
      fmt::format("Prefill of {} tokens, layers {} to {} of {}; written by baton, not yet run on Apple hardware",
                  shape.seq, chunks[chunk].begin, chunks[chunk].end - 1, model.spec.layers);
  out.spec.metadata = {{"baton.architecture", model.spec.architecture},
                       {"baton.model", fmt::format("{:016x}", prints.model)},
                       {"baton.quantization", fmt::format("{:016x}", prints.quantization)},
                       {"baton.seq", fmt::format("{}", shape.seq)},
                       {"baton.past", fmt::format("{}", shape.past)},
                       {"baton.chunk", fmt::format("{}", chunk)},
                       {"baton.chunks", fmt::format("{}", chunks.size())},
                       {"baton.layers", fmt::format("{}-{}", chunks[chunk].begin, chunks[chunk].end - 1)}};
  BATON_OK(check_package(out.spec));
  return out;
}

namespace {

Result<ExportReport> write_packages(const Model& model, const ExportOptions& options,
                                    const std::vector<LayerRange>& chunks, const std::filesystem::path& out) {
  ExportReport report;
  const size_t total = options.shapes.size() * chunks.size();
  for (const PrefillShape& shape : options.shapes) {
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      ExportedPackage item;
      item.path = out / package_name(model, shape, chunk, chunks.size());
      if (options.on_package) options.on_package(item.path.filename().string(), report.packages.size(), total);
      auto content = build_package(model, shape, chunks, chunk);
      if (!content) return fail(std::move(content).error().in(item.path.filename().string()));
      BATON_OK(write_package(item.path, content->spec, content->weights));
      item.shape = shape;
      item.layers = chunks[chunk];
      item.weight_bytes = content->weights.size();
      item.model_bytes = encode_spec(content->spec).size();
      item.ops = content->ops;
      if (&shape == &options.shapes.front()) report.range.add(content->range);
      report.packages.push_back(std::move(item));
    }
  }
  return report;
}

}  // namespace

Result<ExportReport> export_packages(const Model& model, const ExportOptions& options,
                                     const std::filesystem::path& out) {
  BATON_TRY(const std::vector<LayerRange> chunks, plan_chunks(model, options.chunks));
  std::error_code error;
  const bool made = std::filesystem::create_directories(out, error);
  if (error) return fail(Code::kNotFound, fmt::format("{}: cannot make the folder: {}", out.string(), error.message()));
  auto report = write_packages(model, options, chunks, out);
  if (!report && made) std::filesystem::remove(out, error);  // when nothing is in it
  return report;
}

}  // namespace baton::apple
