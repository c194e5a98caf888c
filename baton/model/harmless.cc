// Lists, from published configurations and the two libraries that write them.
#include "baton/model/harmless.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::string_view kFields[] = {
    // who wrote it, with what, for which class
    "_*", "architectures", "auto_map", "model_type", "torch_dtype", "dtype", "transformers_version",
    "transformers.js_config", "tokenizer_class", "unsloth_*", "is_llama_config", "base_model*", "*_version",
    // ids: read from generation_config.json, the tokenizer or the arguments
    "*_token_id", "*_token_ids", "*_token_index", "model_max_length", "max_sequence_length", "max_seq_len",
    // training
    "initializer_range", "initializer_factor", "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop",
    "attn_pdrop", "gradient_checkpointing", "router_aux_loss_coef", "loss_type", "pretraining_tp", "z_loss*",
    // how others run it
    "use_cache", "use_flash_attn*", "attn_implementation", "mamba_ssm_dtype", "num_logits_to_keep", "torchscript",
    "return_dict", "output_*", "chunk_size_feed_forward", "cache_implementation", "use_bfloat16",
    // classifiers' labels
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params",
    // defaults of sampling, once kept here
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "num_return_sequences", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "diversity_penalty", "no_repeat_ngram_size", "remove_invalid_values", "prefix", "language",
    // quantization: the tensors themselves say what they are
    "quantization", "quantization_config", "compression_config",
    // other parts of the file: vision tower, prediction heads, a window that use_sliding_window switches on
    "vision_config", "audio_config", "vision_*", "image_*", "video_*", "text_config", "mtp_*",
    "num_nextn_predict_layers", "max_window_layers"};

constexpr std::string_view kKeys[] = {"vocab_size",
                                      "rope.scaling.finetuned",
                                      "rope.dimension_sections",
                                      "tensor_data_layout",
                                      "pooling_type",
                                      "attention.layer_norm_epsilon",  // of models without RMS norms
                                      "expert_used_count",             // without experts
                                      "embedding_length_out",
                                      "classifier.output_labels"};

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

}  // namespace

std::span<const std::string_view> harmless_fields() { return kFields; }
std::span<const std::string_view> harmless_keys() { return kKeys; }

std::string_view harmless_tensor(std::string_view name) {
  if (has(name, "visual.") || has(name, "vision") || name.starts_with("v.") || name.starts_with("mm."))
    return "vision tower";
  if (has(name, "audio_tower.") || has(name, "multi_modal_projector.")) return "audio tower and projector";
  if (name.starts_with("mtp.") || has(name, ".mtp.") || has(name, "nextn.")) return "multi-token prediction head";
  // Tables that follow from the configuration.
  if (name.ends_with("rotary_emb.inv_freq") || name.ends_with("attn_rot_embd.weight") || name.ends_with("position_ids"))
    return "tables that the configuration implies";
  if (name.starts_with("v_head.")) return "value head of training";
  return {};
}

}  // namespace baton
