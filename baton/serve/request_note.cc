// See request_note.h.
#include "baton/serve/request_note.h"

#include <algorithm>
#include <span>
#include <utility>

namespace baton::serve {
namespace {

constexpr size_t kPromptTokensMax = 1024;  // that are made text of again, for the log

std::optional<uint64_t> count_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_unsigned() ? std::optional(found->get<uint64_t>()) : std::nullopt;
}
std::optional<double> ms_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

}  // namespace

AccessLine line_of(const http::Request& request) {
  AccessLine line;
  line.time_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  line.request_id = request.id;
  line.client = request.remote;
  line.method = cut(request.method, 32);
  line.path = cut(request.path);  // without the query: who knows what is in it
  return line;
}

RequestNote::RequestNote(const http::Request& request, uint64_t span, AccessLog* log, RateLimits* limits)
    : log_(log), limits_(limits), line_(line_of(request)) {
  line_.trace = trace_of(request, span);
}

void RequestNote::ended(const http::Ended& ended) {
  if (log_ == nullptr) return;
  line_.ended = ended;
  log_->put(line_);
}

void RequestNote::set_key(uint32_t number, const std::string& name) {
  key_ = number;
  line_.key = name;
}

void RequestNote::charge(uint64_t tokens) const {
  if (limits_ != nullptr) limits_->take_tokens(key_, tokens);
}

void RequestNote::begin(const Job& job) {
  line_.model = cut(job.head.model);
  line_.answer_id = job.head.id;
  if (job.model == nullptr) return;
  const auto& tokenizer = job.model->runtime().text().tokenizer;
  if (log_ == nullptr || !log_->prompts() || !tokenizer) return;
  // Of several prompts the first.
  const std::vector<int32_t>& tokens = job.prompts.front().tokens;
  const size_t count = std::min(tokens.size(), kPromptTokensMax);
  const auto text = tokenizer->decode(std::span(tokens).first(count), true);
  if (!text) return;
  line_.prompt = cut(*text, kAccessPromptBytesMax);
  if (count < tokens.size() && text->size() <= kAccessPromptBytesMax) *line_.prompt += "...";
}

void RequestNote::learn(std::string_view event, Json& more) {
  if (event == "queued") {
    more["request_id"] = line_.request_id;
    if (line_.trace) more["trace_id"] = line_.trace->trace_id;
    line_.prompt_tokens = count_in(more, "prompt_tokens");
    charge(line_.prompt_tokens.value_or(0));
  } else if (event == "prefill") {
    line_.queue_ms = ms_in(more, "queue_ms");
    line_.prefill_unit = more.value("prefill_unit", "");
    line_.decode_unit = more.value("decode_unit", "");
    line_.emulated = more.value("emulated", false);
  } else if (event == "decode") {
    line_.ttft_ms = ms_in(more, "ttft_ms");
  } else if (event == "done") {
    line_.finish = more.value("finish", "");
    line_.cached_tokens = count_in(more, "cached_tokens");
    line_.answer_tokens = count_in(more, "completion_tokens");
    charge(line_.answer_tokens.value_or(0));
    // Where it ran is what counts, not where it was asked to.
    if (line_.emulated) line_.emulated = more.value("emulated", *line_.emulated);
    for (const Json& phase : more.value("phases", Json::array())) {
      const Json unit = phase.value("unit", Json());
      if (!unit.is_string()) continue;
      if (phase["name"] == "prefill") line_.prefill_unit = unit;
      if (phase["name"] == "decode") line_.decode_unit = unit;
    }
  }
}

void RequestNote::count_vectors(const std::string& model, uint64_t tokens) {
  line_.model = cut(model);
  line_.prompt_tokens = tokens;
  charge(tokens);
}

RequestNote* note_of(const http::Exchange& exchange) { return static_cast<RequestNote*>(exchange.note()); }

}  // namespace baton::serve
