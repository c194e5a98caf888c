// A loaded model: the numbers that describe it, its Program, its weights (mapped, immutable) and its fingerprints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/fingerprint.h"
#include "baton/model/program.h"
#include "baton/model/rope.h"
#include "baton/quant/format.h"

namespace baton {

struct AdapterChoice;
struct Container;

enum class LayerKind : uint8_t { kFullAttention, kLinearAttention, kShortConvolution };
std::string_view to_string(LayerKind kind);  // as layer_types of published configurations

enum class QkNorm : uint8_t {
  kNone,
  kHeads,  // RMS over each head
  kWhole,  // RMS over all heads together
  kUnit,   // RMS over each head without weights, behind the rotation, in layers that have one
};
enum class Activation : uint8_t { kSilu, kGelu };
enum class Positions : uint8_t {
  kRope,
  kNearRope,  // rotation by near_theta and near_scaling
  kNone,
};

// How the layers of a dense decoder are made (arch/dense_decoder.h); other architectures do not look at it.
struct BlockSpec {
  bool layer_norms = false;   // mean and shift too; else RMS
  bool norms_before = true;   // of what goes into attention and into the network
  bool norms_behind = false;  // of what comes out of them, before it is added
  QkNorm qk_norm = QkNorm::kNone;
  bool gated = true;  // down(act(gate x) * up x), else down(act(up x))
  Activation activation = Activation::kSilu;
  bool fused_qkv = false, fused_gate_up = false;  // one matrix in the file, its rows one after the other
  bool learned_positions = false;                 // added to the embedding
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  float attention_scale = 0;  // 0: head_dim^-1/2
  float score_cap = 0, logit_cap = 0;
  // Queries become 1 + position_scale log(1 + floor(p / position_scale_tokens)) times as long.
  float position_scale = 0;
  int32_t position_scale_tokens = 0, position_scale_ahead = 0;  // p is so many more than the position
  bool position_scale_unturned = false;                         // in layers without positions, and in no others
  std::vector<int32_t> windows;                                 // by layer, 0 for all tokens; empty: none has one
  bool chunked = false;              // windows are chunks: a token sees the tokens of its own up to itself
  std::vector<Positions> positions;  // by layer; empty: kRope
  float near_theta = 0;
  RopeScaling near_scaling;

  int32_t window(int32_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  Positions position(int32_t layer) const {
    return positions.empty() ? Positions::kRope : positions[static_cast<size_t>(layer)];
  }
};

// How the layers of an encoder are made (arch/encoder.h); other architectures do not look at it.
struct EncoderSpec {
  bool norms_first = false;  // x + f(norm(x)), and a norm behind the last layer; else norm(x + f(x))
  bool norm_bias = true;     // norms shift too
  bool gated = false;        // down(act(gate x) * up x), else down(act(up x))
  Activation activation = Activation::kGelu;
  bool fused_qkv = false;                         // one matrix in the file, its rows one after the other
  bool fused_gate_up = false, gate_first = true;  // likewise, and which of the two is first
  int32_t position_rows = 0;                      // of the table that is added to the embedding; 0: none
  int32_t first_position = 0;                     // the row of a text's first token
  std::vector<int32_t> windows;                   // by layer, tokens seen to each side, 0 for all; empty: none has one
  float near_theta = 0;                           // of the rotation in layers with a window; 0: as in the others
  float alibi = 0;                                // Op::alibi

  int32_t window(int32_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
};

// Hyper-parameters, validated: all positive, heads divide, sizes bounded (see spec.cc for the bounds).
struct ModelSpec {
  std::string architecture;  // "qwen3_5", "llama": the name in arch_list.inc
  std::string name;          // general.name or the folder's name, for people
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t intermediate = 0;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t vocab = 0;
  int32_t context_max = 0;
  float rms_eps = 0;  // of the norms, whichever they are
  float rope_theta = 0;
  RopeScaling rope_scaling;
  int32_t rotary = 0;
  RopePairing rope_pairing = RopePairing::kHalf;
  bool tied_head = false;
  bool attention_bias = false, mlp_bias = false;  // what a Hugging Face configuration says; GGUF files have no flag
  BlockSpec blocks;
  EncoderSpec encoder;
  // Gated DeltaNet layers; zero when there are none.
  std::vector<LayerKind> layer_kinds;
  int32_t linear_key_heads = 0, linear_value_heads = 0, linear_key_dim = 0, linear_value_dim = 0;
  int32_t conv_taps = 0;    // of short convolutions too
  int32_t token_types = 0;  // of encoders: rows of their table, of which the first is used; 0: there is none
  Gelu gelu = Gelu::kErf;   // where there is one
  // In place of the network of each layer; zero where there are none. `intermediate` is that of the shared expert,
  // which all tokens go through, or of one expert where there is none.
  int32_t experts = 0, experts_used = 0, expert_width = 0, shared_width = 0;
  Routing routing = Routing::kSoftmaxOfAll;
  bool shared_gated = true;  // what the shared expert makes counts as much as a sigmoid says
  // By layer, whether it has a network and no experts: `intermediate` is that network's. Empty: none of a mixture's.
  std::vector<bool> dense_layers;
  HeadMap head_map = HeadMap::kGrouped;
  std::vector<int32_t> stop_ids;  // end-of-turn and end-of-text, from the file's own metadata
};

// A matrix [rows, columns] (a vector has one row) in its stored type; `data` is mapped, or owned by the Model when it
// had to be converted (+1 on norms, -exp(A_log), types without a kernel).
struct Weight {
  std::string name;  // ours, stable across containers: "layers.3.attn.q"
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  const std::byte* data = nullptr;  // may be unaligned; vectors and convolution taps are aligned F32
  size_t bytes = 0;
  std::string source;  // the file's tensor name
};

struct Model {
  Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  ModelSpec spec;
  Program program;
  std::vector<Weight> weights;
  Fingerprints shape_prints;       // shape_fingerprints(): without the matrices' bytes
  std::vector<std::string> notes;  // what was skipped or converted, for `inspect`: "vision tower: 14 tensors skipped"
  std::unique_ptr<const Container> container;       // container.h; null for a model that no file holds
  std::vector<std::unique_ptr<std::byte[]>> owned;  // converted weights

  mutable FingerprintSlot fingerprint_slot;

  // Of every byte. The first call reads all weights, unless an earlier process has and the files are the same since;
  // later calls are free. Any thread. Errors and cost: compute_fingerprints.
  Result<Fingerprints> fingerprints(const FingerprintOptions& options = {}) const;
  // For models that are not loaded from anywhere.
  void set_fingerprints(const Fingerprints& prints);

  uint64_t parameter_count() const;
  uint64_t weight_bytes() const;
  // For units that keep a copy of their own: the files' pages take no memory until they are read again. All of them, as
  // a system maps more than is asked for, up to 2 MiB around, and so brings back what was let go one by one.
  void release_pages() const;
};

// What a model is loaded for.
enum class ModelUse : uint8_t {
  kText,     // logits, to go on from: encoders are refused
  kVectors,  // hidden states behind the last norm: a decoder's head is left out
  kAny,      // as the file has it
};

// What people call what lies there: "OWNER/NAME" of .../models--OWNER--NAME/snapshots/COMMIT, a folder whose own name
// says nothing; else the last part of the path.
std::string name_of_path(const std::filesystem::path& path);

// One of the few shared_ptr (scripts/check_tree.py lists them): every unit that has loaded a model keeps it alive.
// Errors name the file, the tensor or field and the remedy. NaN or infinite norm weights are refused, and so is what
// the file has and nothing here reads (harmless.h). `context`: tokens a sequence will have at most, 0 for as many as
// the model can: longrope files have two sets of frequencies. States of one set do not belong to a model of the other.
// `adapters`: applied in this order, their ops beside the model's own (adapter.h).
Result<std::shared_ptr<const Model>> load_model(const std::filesystem::path& path, uint64_t context = 0,
                                                ModelUse use = ModelUse::kText,
                                                std::span<const AdapterChoice> adapters = {});
Result<std::shared_ptr<const Model>> build_model(std::unique_ptr<const Container> container, uint64_t context = 0,
                                                 ModelUse use = ModelUse::kText,
                                                 std::span<const AdapterChoice> adapters = {});

}  // namespace baton
