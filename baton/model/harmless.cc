// Lists, from published configurations and the two libraries that write them.
#include "baton/model/harmless.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::string_view kFields[] = {
    // who wrote it, with what, for which class
    "_name_or_path", "_commit_hash", "_from_model_config", "_num_labels", "_attn_implementation",
    "_attn_implementation_autoset", "_attn_implementation_internal", "_experts_implementation", "_flash_attn_2_enabled",
    "_pre_quantization_dtype", "_unsloth_version", "architectures", "auto_map", "model_type", "torch_dtype", "dtype",
    "transformers_version", "mlx_lm_version", "peft_version", "tokenizer_version", "transformers.js_config",
    "tokenizer_class", "unsloth_version", "unsloth_fixed", "is_llama_config", "base_model", "base_model_name_or_path",
    "base_model_tp_plan", "base_model_pp_plan", "base_model_ep_plan",
    // ids: read from generation_config.json, the tokenizer or the arguments
    "*_token_id", "*_token_ids", "*_token_index", "model_max_length", "max_sequence_length", "max_seq_len",
    // training
    "initializer_range", "initializer_factor", "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop",
    "attn_pdrop", "gradient_checkpointing", "router_aux_loss_coef", "loss_type", "pretraining_tp", "z_loss_weight",
    "z_loss_coef", "router_z_loss_coef",
    // how others run it
    "use_cache", "use_flash_attn", "use_flash_attn_2", "use_flash_attention", "use_flash_attention_2",
    "attn_implementation", "mamba_ssm_dtype", "num_logits_to_keep", "torchscript", "return_dict",
    "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_router_logits", "output_scores",
    "output_logits", "chunk_size_feed_forward", "cache_implementation", "use_bfloat16", "tf_legacy_loss",
    // classifiers' labels
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params",
    // defaults of sampling, once kept here
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "num_return_sequences", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "diversity_penalty", "no_repeat_ngram_size", "remove_invalid_values", "renormalize_logits", "add_bos_token",
    "add_eos_token", "prefix", "language",
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

constexpr std::string_view kOff[] = {
    // attention that looks elsewhere, or is there twice
    "is_decoder", "is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder", "use_bidirectional_attention",
    "attn_temperature_tuning", "use_logn_attn", "alibi", "attn_output_gate",
    // positions turned another way
    "rope_interleaved", "rope_traditional", "use_dynamic_ntk", "use_mrope",
    // biases, other blocks, experts
    "use_bias", "bias", "qkv_bias", "use_qkv_bias", "mlp_bias", "lm_head_bias", "use_parallel_residual",
    "norm_topk_prob", "scale_embedding", "language_model_only",
    // GGUF
    "expert_weights_norm", "swin_norm", "ssm.dt_b_c_rms"};

// Whether a part of the name, in front of any layer's number, begins with `begin`: what stands behind it belongs to a
// layer of this model and is nobody's but ours to read.
bool leads(std::string_view name, std::string_view begin) {
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part == "layers" || part == "blk" || part == "h") return false;
    if (part.starts_with(begin)) return true;
    at = end + 1;
  }
  return false;
}

// blk.N.nextn.*: these are all there are.
constexpr std::string_view kNextToken[] = {
    ".nextn.eh_proj.weight", ".nextn.embed_tokens.weight",     ".nextn.enorm.weight",
    ".nextn.hnorm.weight",   ".nextn.shared_head_head.weight", ".nextn.shared_head_norm.weight"};

}  // namespace

std::span<const std::string_view> harmless_fields() { return kFields; }
std::span<const std::string_view> harmless_keys() { return kKeys; }

std::span<const std::string_view> off_by_default() { return kOff; }

std::string_view harmless_tensor(std::string_view name) {
  if (leads(name, "visual") || leads(name, "vision") || name.starts_with("v.") || name.starts_with("mm."))
    return "vision tower";
  if (leads(name, "audio_tower") || leads(name, "multi_modal_projector")) return "audio tower and projector";
  const bool next_token = std::any_of(std::begin(kNextToken), std::end(kNextToken),
                                      [&](std::string_view end) { return name.ends_with(end); });
  if (leads(name, "mtp") || next_token) return "multi-token prediction head";
  // Tables that follow from the configuration.
  if (name.ends_with("rotary_emb.inv_freq") || name.ends_with("attn_rot_embd.weight") || name.ends_with("position_ids"))
    return "tables that the configuration implies";
  if (name.starts_with("v_head.")) return "value head of training";
  if (name.ends_with(".input_scale") || name.ends_with(".input_global_scale")) return "scales of activations";
  return {};
}

}  // namespace baton
