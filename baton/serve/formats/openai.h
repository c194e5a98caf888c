// What the writers of OpenAI's two older endpoints share.
#pragma once

#include <string>

#include "baton/serve/protocol.h"

namespace baton::serve {

class OpenAiWriter : public AnswerWriter {
 public:
  explicit OpenAiWriter(const ApiRequest& request) : request_(request) {}
  std::string content_type() const override;
  std::string begin(const AnswerHead& head) override;
  std::string end(const AnswerTail& tail) override;
  std::string error(const ApiError& error) override;
  std::string keep_alive() const override { return ": keep-alive\n\n"; }

 protected:
  const ApiRequest& request() const { return request_; }
  const AnswerHead& head() const { return head_; }
  // A chunk with one choice.
  std::string event(Json choice) const;

 private:
  virtual const char* stream_object() const = 0;
  virtual const char* whole_object() const = 0;
  virtual const char* id_prefix() const = 0;
  virtual Json whole_choices() const = 0;
  Json envelope(const char* object) const;
  static Json usage(const AnswerTail& tail);

  const ApiRequest& request_;
  AnswerHead head_;
};

std::string sse_data(const Json& json);  // one server-sent event
const char* finish_word(Finish finish);  // of finish_reason
Json logprob_json(float logprob);        // null for the first token of a prompt, which has none

}  // namespace baton::serve
