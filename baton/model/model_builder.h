// Fills a Model for an architecture: finds tensors by role, checks their shapes against the spec, applies the
// container's conventions, and collects registers, slots and ops. Errors name the file, the tensor and both shapes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "baton/model/adapter.h"
#include "baton/model/arch.h"
#include "baton/model/container.h"

namespace baton {

// Rows of a tensor that holds several matrices one below the other; none: all of it. `stacked`: the tensor has three
// dims, so many matrices.
struct RowPart {
  int64_t first = 0, total = 0, stacked = 0;
};

// Matrices of experts, [rows, columns] each. In a tensor that has those of all experts, an expert's part has `stride`
// rows, of which `first` come before these; a role whose name has two places has a tensor for each expert.
struct ExpertMatrices {
  std::string_view ours;  // of the weights, "layers.{}.experts.gate": the expert's number comes behind
  std::string_view role;
  int64_t rows = 0, columns = 0;
  int64_t first = 0, stride = 0;
};

class ModelBuilder {
 public:
  // `model.spec` is validated; `model.container` is set. `adapters` outlive the builder.
  ModelBuilder(const Architecture& architecture, Model& model, std::span<const Adapter> adapters = {});

  const ModelSpec& spec() const { return model_.spec; }
  const Container& container() const { return container_; }

  RegisterId add_register(std::string name, int32_t width);
  SlotId add_slot(const Slot& slot);
  // A linear op whose matrix has adapters is followed by theirs.
  void add_op(const Op& op);

  // The weight of a role ("layers.{}.attn.q"), with its shape checked: [rows, columns]; vectors have one row.
  // Of a vector that is part of another, `part` counts its values.
  Result<WeightId> weight(std::string_view role, int32_t layer, int64_t rows, int64_t columns, RowPart part = {});
  // A weight `ours` of the rows of a role's matrix, which has `total`, in the order of `rows`: copied. Adapters do not
  // find it.
  Result<WeightId> gathered(std::string_view ours, std::string_view role, int32_t layer, std::span<const int64_t> rows,
                            int64_t total, int64_t columns);
  // Weights with consecutive ids, one for each expert of the spec; the id of the first. Nothing is copied. Adapters do
  // not find them.
  Result<WeightId> experts(const ExpertMatrices& matrices, int32_t layer);
  // Whether the file has the role's tensor (tied output heads, optional factors).
  bool has(std::string_view role, int32_t layer = -1) const;
  // Whether the linear layer of a role has a bias, of role "<role>.bias". In GGUF files it has when the tensor is
  // there, and an Error when other layers differ; in Hugging Face files the configuration says so (attention_bias,
  // mlp_bias), and a tensor it does not know of is an Error: transformers would leave it out, others would not.
  Result<bool> has_bias(std::string_view role, int32_t layer);
  // Tokens see later ones.
  void set_whole_sequence() { model_.program.whole_sequence = true; }
  // A tensor's name behind the prefix of all of them, if it has that.
  std::string_view without_prefix(std::string_view source) const {
    return source.starts_with(prefix_) ? source.substr(prefix_.size()) : source;
  }
  // A tensor of the file that was read without becoming a weight.
  void mark_used(std::string_view source) { used_.emplace(source); }
  // The id of a weight added before, by our name.
  Result<WeightId> find(std::string_view name) const;
  int32_t width(RegisterId id) const { return model_.program.registers[id].width; }
  // A vector made by the architecture itself, such as the frequency factors of scaled RoPE.
  WeightId add_vector(std::string name, const std::vector<float>& values);

  // After build: notes about harmless tensors of the file that no role used (harmless.h), an error that names the first
  // of the others, and an error for a Program without a head.
  Status finish();

 private:
  enum class Naming { kHuggingFace, kMlx, kGguf };
  bool stored_turned() const;
  Status check_bias_as_before(const std::string& role, const std::string& source, bool there);
  Result<const TensorRole*> role_of(std::string_view ours) const;
  bool has_tensor(const std::string& source) const;  // quantized or not
  std::string source_name(const TensorRole& role, int32_t layer) const;
  // `source`: the tensor's name; `name`: the weight's.
  Result<WeightId> add_weight(const TensorRole& role, const std::string& source, std::string name, int64_t rows,
                              int64_t columns, RowPart part);
  Status find_adapters(const TensorRole& role, int32_t layer, WeightId id, RowPart part);
  WeightId add_adapter_matrix(const Adapter::Pair& pair, std::string name, const std::vector<float>& values,
                              int64_t rows, int64_t columns);
  RegisterId adapter_register(int32_t width, bool narrow);
  Status check_adapters() const;
  Result<WeightId> add_converted(const TensorRole& role, const TensorView& tensor, std::string name, int64_t rows,
                                 int64_t columns, RowPart part);
  WeightId add_turned(const TensorView& tensor, std::string name, int64_t rows, int64_t columns, RowPart part);

  const Architecture& architecture_;
  Model& model_;
  const Container& container_;
  Naming naming_ = Naming::kGguf;
  bool turns_ = false;  // matrices of rule kTurned are [in, out] in this file
  std::string prefix_;
  std::unordered_set<std::string> used_;
  std::map<std::string, std::pair<std::string, bool>> biases_;  // by role: the first layer's tensor, if it is there
  std::span<const Adapter> adapters_;
  struct AdapterUse {
    const Adapter::Pair* pair;
    WeightId a, b;
    bool applied;  // by an op
  };
  std::multimap<WeightId, AdapterUse> adapters_of_;  // by the matrix
  std::map<std::pair<int32_t, bool>, RegisterId> adapter_registers_;
};

}  // namespace baton
