// Answers and errors as OpenAI's API writes them.
#include "baton/api/openai.h"

namespace baton::openai {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

bool request_is_at_fault(Code code) {
  return code == Code::kInvalidInput || code == Code::kUnsupported || code == Code::kMismatch;
}

}  // namespace

std::optional<Endpoint> endpoint_of(std::string_view url) {
  if (url == "/v1/chat/completions") return Endpoint::kChat;
  if (url == "/v1/completions") return Endpoint::kCompletions;
  return std::nullopt;
}

Json error_body(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

ApiError api_error(const Error& error, std::string_view param) {
  ApiError made{.message = error.message, .param = std::string(param)};
  if (!request_is_at_fault(error.code)) {
    made.status = 500;
    made.type = "server_error";
    made.code = to_string(error.code);
  }
  return made;
}

Json answer_body(Endpoint endpoint, const AnswerFacts& facts, const Completion& completion) {
  const bool chat = endpoint == Endpoint::kChat;
  Json choice = {{"index", 0}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", completion.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = completion.text;
  }
  choice["logprobs"] = nullptr;
  const bool full = completion.ended == Ended::kTokenLimit || completion.ended == Ended::kContextFull;
  choice["finish_reason"] = full ? "length" : "stop";
  const RequestStats& stats = completion.stats;
  return {{"id", facts.id},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", facts.created},
          {"model", facts.model},
          {"choices", Json::array({std::move(choice)})},
          {"usage",
           {{"prompt_tokens", stats.prompt_tokens},
            {"completion_tokens", stats.generated_tokens},
            {"total_tokens", stats.prompt_tokens + stats.generated_tokens},
            {"prompt_tokens_details", {{"cached_tokens", stats.reused_tokens}}}}},
          {"system_fingerprint", facts.fingerprint}};
}

}  // namespace baton::openai
