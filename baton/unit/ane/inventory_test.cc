// Kernels of the published Qwen3.5 shapes, without weights of their size: every matrix is the same mapped zeros.
#include "baton/unit/ane/inventory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "baton/model/container.h"
#include "baton/unit/ane/lowering.h"

namespace baton::ane {
namespace {

struct Shape {
  const char* name;
  int32_t hidden, layers, intermediate, heads, kv_heads, value_heads;
  bool tied;
};
constexpr Shape k08B = {"0.8B", 1024, 24, 3584, 8, 2, 16, true};
constexpr Shape k2B = {"2B", 2048, 24, 6144, 8, 2, 16, true};
constexpr Shape k4B = {"4B", 2560, 32, 9216, 16, 4, 32, true};
constexpr Shape k9B = {"9B", 4096, 32, 12288, 16, 4, 32, false};
constexpr int32_t kVocab = 248320;

// As much zero memory as the largest matrix, never touched.
class Zeros {
 public:
  static constexpr size_t kBytes = size_t{2} * kVocab * 4096;
  Zeros() : data_(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  ~Zeros() { munmap(data_, kBytes); }
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }

 private:
  void* data_;
};

// A Hugging Face folder in memory: its config and its tensors' names and shapes.
class Folder {
 public:
  Folder(const Shape& shape, const Zeros& zeros) : zeros_(zeros) {
    container_->kind = ContainerKind::kSafetensors;
    container_->path = shape.name;
    container_->config = {{"model_type", "qwen3_5_text"},
                          {"hidden_size", shape.hidden},
                          {"num_hidden_layers", shape.layers},
                          {"intermediate_size", shape.intermediate},
                          {"num_attention_heads", shape.heads},
                          {"num_key_value_heads", shape.kv_heads},
                          {"head_dim", 256},
                          {"vocab_size", kVocab},
                          {"rms_norm_eps", 1e-6},
                          {"linear_num_key_heads", 16},
                          {"linear_num_value_heads", shape.value_heads},
                          {"linear_key_head_dim", 128},
                          {"linear_value_head_dim", 128},
                          {"linear_conv_kernel_dim", 4},
                          {"eos_token_id", 1},
                          {"tie_word_embeddings", shape.tied}};
    add("model.embed_tokens.weight", {kVocab, shape.hidden});
    add("model.norm.weight", {shape.hidden});
    if (!shape.tied) add("lm_head.weight", {kVocab, shape.hidden});
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      const std::string base = fmt::format("model.layers.{}.", layer);
      add(base + "input_layernorm.weight", {shape.hidden});
      add(base + "post_attention_layernorm.weight", {shape.hidden});
      add(base + "mlp.gate_proj.weight", {shape.intermediate, shape.hidden});
      add(base + "mlp.up_proj.weight", {shape.intermediate, shape.hidden});
      add(base + "mlp.down_proj.weight", {shape.hidden, shape.intermediate});
      layer % 4 == 3 ? add_attention(base + "self_attn.", shape) : add_delta(base + "linear_attn.", shape);
    }
  }
  std::shared_ptr<const Model> build() && {
    Container& c = *container_;
    for (size_t i = 0; i < c.tensors.size(); ++i) c.index.emplace(c.tensors[i].name, i);
    auto model = build_model(std::move(container_));
    EXPECT_TRUE(model) << model.error().message;
    return model ? *model : nullptr;
  }

 private:
  void add_attention(const std::string& base, const Shape& shape) {
    add(base + "q_proj.weight", {shape.heads * 512, shape.hidden});
    add(base + "k_proj.weight", {shape.kv_heads * 256, shape.hidden});
    add(base + "v_proj.weight", {shape.kv_heads * 256, shape.hidden});
    add(base + "o_proj.weight", {shape.hidden, shape.heads * 256});
    add(base + "q_norm.weight", {256});
    add(base + "k_norm.weight", {256});
  }
  void add_delta(const std::string& base, const Shape& shape) {
    const int32_t values = shape.value_heads * 128, channels = 2 * 16 * 128 + values;
    add(base + "in_proj_qkv.weight", {channels, shape.hidden});
    add(base + "in_proj_z.weight", {values, shape.hidden});
    add(base + "in_proj_b.weight", {shape.value_heads, shape.hidden});
    add(base + "in_proj_a.weight", {shape.value_heads, shape.hidden});
    add(base + "conv1d.weight", {channels, 1, 4});
    add(base + "A_log", {shape.value_heads});
    add(base + "dt_bias", {shape.value_heads});
    add(base + "norm.weight", {128});
    add(base + "out_proj.weight", {shape.hidden, values});
  }
  void add(const std::string& name, const std::vector<int32_t>& dims) {
    TensorView tensor;
    tensor.name = container_->owned_names.emplace_back(name);
    tensor.dtype = DType::kBF16;
    size_t bytes = 2;
    for (const int32_t dim : dims) {
      tensor.shape.push_back(static_cast<uint64_t>(dim));
      bytes *= static_cast<size_t>(dim);
    }
    ASSERT_LE(bytes, Zeros::kBytes) << name;
    tensor.data = {zeros_.data(), bytes};
    container_->tensors.push_back(std::move(tensor));
  }

  const Zeros& zeros_;
  std::unique_ptr<Container> container_ = std::make_unique<Container>();
};

// Every matrix of the program is on one side, and every kernel within the limits.
void check(const Model& model, const AneOptions& options) {
  const auto split = split_program(model.program, model.weights, options);
  ASSERT_TRUE(split) << split.error().message;
  const host::Plan plan = host::make_plan(model.program);
  const auto lowering = lower(model.weights, plan, split->on_host, split->limits);
  ASSERT_TRUE(lowering) << lowering.error().message;
  EXPECT_LE(lowering->kernel_count(), options.kernels_max);
  std::vector<int64_t> values(model.weights.size(), 0);
  std::set<std::string> names;
  for (const DeviceLayer& layer : lowering->layers) {
    for (const apple::KernelPlan& kernel : layer.kernels) {
      EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
      EXPECT_LE(kernel.weight_bytes, split->limits.weight_bytes_max) << kernel.name;
      EXPECT_LE(kernel.in_channels, split->limits.in_channels_max) << kernel.name;
      EXPECT_LE(kernel.out_channels, split->limits.out_channels_max) << kernel.name;
      for (const apple::KernelPiece& piece : kernel.pieces) {
        values[static_cast<size_t>(piece.weight - model.weights.data())] +=
            piece.part.row_count * piece.part.column_count;
      }
    }
  }
  for (const Op& op : model.program.ops) {
    if (!host::is_matrix_op(op)) continue;
    const auto id = static_cast<size_t>(op.weights[Op::kMatrix]);
    const Weight& weight = model.weights[id];
    EXPECT_EQ(values[id], split->on_host[id] ? 0 : weight.rows * weight.columns) << weight.name;
  }
}

uint32_t total(const LoadPlan& plan) {
  uint32_t count = 0;
  for (const LoadPlan::Programs& item : plan.programs) count += item.count;
  return count;
}

bool has_note(const LoadPlan& plan, std::string_view text) {
  return std::any_of(plan.notes.begin(), plan.notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

TEST(Inventory, SmallestModelIs88KernelsOf5Shapes) {
  const Zeros zeros;
  const auto model = Folder(k08B, zeros).build();
  ASSERT_NE(model, nullptr);
  check(*model, {});
  const auto plan = take_inventory(model->program, model->weights, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(total(*plan), 88u);
  std::set<std::string> shapes;
  for (const LoadPlan::Programs& item : plan->programs) shapes.insert(fmt::format("{} {}", item.count, item.shape));
  EXPECT_EQ(shapes, (std::set<std::string>{"18 linear 1024 -> 8224 x 32", "6 linear 1024 -> 5120 x 32",
                                           "24 linear 2048 -> 1024 x 32", "24 swiglu 1024 -> 3584 -> 1024 x 32",
                                           "16 linear 1024 -> 15520 x 32"}));
  EXPECT_FALSE(has_note(*plan, "on the host"));
  EXPECT_TRUE(has_note(*plan, "not yet run on Apple hardware"));
  // At the limit nothing goes to the host; one below it something does.
  AneOptions limit;
  limit.kernels_max = 88;
  EXPECT_TRUE(split_program(model->program, model->weights, limit)->host_layers.empty());
  limit.kernels_max = 87;
  EXPECT_EQ(split_program(model->program, model->weights, limit)->host_layers, std::vector<std::string>{"head"});
  AneOptions donors;
  donors.donors = true;
  EXPECT_TRUE(has_note(*take_inventory(model->program, model->weights, donors), "first process: 5;"));
}

// 75.5 MB of feed-forward weights are two kernels of the usual limit; all fits 118.
TEST(Inventory, TwoBillionFitTheLimits) {
  const Zeros zeros;
  const auto model = Folder(k2B, zeros).build();
  ASSERT_NE(model, nullptr);
  check(*model, {});
  const auto plan = take_inventory(model->program, model->weights, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(total(*plan), 112u);
  EXPECT_FALSE(has_note(*plan, "on the host"));
}

// 180 kernels of 64 MB or 145 of 76 MB: the head and some blocks are the host's.
TEST(Inventory, FourAndNineBillionAreSplitWithTheHost) {
  const Zeros zeros;
  for (const Shape& shape : {k4B, k9B}) {
    SCOPED_TRACE(shape.name);
    const auto model = Folder(shape, zeros).build();
    ASSERT_NE(model, nullptr);
    check(*model, {});
    const auto plan = take_inventory(model->program, model->weights, {});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_LE(total(*plan), 118u);
    EXPECT_GE(total(*plan), 100u) << "the limit is used";
    RecordProperty(shape.name, fmt::format("{} kernels; {}", total(*plan), fmt::join(plan->notes, "; ")));
    EXPECT_TRUE(has_note(*plan, "on the host")) << "what does not fit is told";
    EXPECT_TRUE(has_note(*plan, "head"));
    EXPECT_TRUE(has_note(*plan, "kernels=226"));
    AneOptions roomy;
    roomy.kernels_max = 226;
    check(*model, roomy);
    const auto split = split_program(model->program, model->weights, {});
    const auto larger = split_program(model->program, model->weights, roomy);
    EXPECT_GT(larger->device_bytes, split->device_bytes);
    EXPECT_EQ(larger->device_bytes + larger->host_bytes, split->device_bytes + split->host_bytes);
  }
}

TEST(Inventory, WiderCallsChangeNoKernelCount) {
  const Zeros zeros;
  const auto model = Folder(k08B, zeros).build();
  ASSERT_NE(model, nullptr);
  for (const int64_t columns : {64, 128}) {
    AneOptions options;
    options.columns = columns;
    const auto plan = take_inventory(model->program, model->weights, options);
    ASSERT_TRUE(plan);
    EXPECT_EQ(total(*plan), 88u);
    for (const LoadPlan::Programs& item : plan->programs) {
      EXPECT_TRUE(item.shape.ends_with(fmt::format("x {}", columns))) << item.shape;
    }
  }
}

}  // namespace
}  // namespace baton::ane
